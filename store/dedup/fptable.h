/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * In-memory fingerprint table: open addressing, 24 bytes per slot, at most 7/8 full.
 *
 * Holds the fingerprints that RocksDB has not absorbed yet, in full, so that a hit needs no further check. It is made of
 * parts, each with a range of the keys in RocksDB (fingerprint_key()), in ascending order. A part grows on its own, so an
 * insert moves at most a part, and the table can be read in key order part by part. A zeroed table is empty. No lock
 * inside: threads that look up or insert at the same time exclude each other per part (dedup_state.h).
 */
#pragma once

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/fp.h"

#define FPTABLE_PARTS 64u /* divides 256 */

struct fptable_slot {
	uint64_t lo, hi : 56; /* the fingerprint */
	uint64_t number : 8; /* chunk number in its frame, for pack_hint() */
	uint32_t pack; /* 0: free */
	uint32_t off;
};
static_assert(sizeof(struct fptable_slot) == 24, "there are many");

static inline struct fp fptable_slot_fp(const struct fptable_slot *s)
{
	return (struct fp){ s->lo, s->hi };
}

/* A cache line of its own: threads insert into neighbours at once. */
struct fptable_part {
	_Alignas(64) size_t nr; /* used */
	_Atomic size_t size; /* slots (power of two) */
	struct fptable_slot *_Atomic slots;
};

struct fptable {
	struct fptable_part part[FPTABLE_PARTS];
	_Atomic size_t nr; /* without those that are not counted yet */
};

unsigned fptable_part_of(struct fp fp);

void fptable_release(struct fptable *t);
/* The slot of fp, or NULL. Valid until the next insert or remove. */
struct fptable_slot *fptable_find(const struct fptable *t, struct fp fp);
void fptable_prefetch(const struct fptable *t, struct fp fp); /* at any time */
/* fp must be absent. Grows as needed; -ENOMEM leaves the table as it was. */
int fptable_insert(struct fptable *t, struct fp fp, struct addr a, uint8_t number);
/* The same in two steps, for threads that insert many at the same time: they would contend for the counter. */
int fptable_insert_uncounted(struct fptable *t, struct fp fp, struct addr a, uint8_t number);
void fptable_count(struct fptable *t, size_t nr);
/* Room for all of `more` besides what t has. Needed before adding it slot by slot: its slots are in the order of t's, and
 * crowd together in a part that has yet to grow. */
int fptable_reserve(struct fptable *t, const struct fptable *more);
void fptable_remove(struct fptable *t, struct fp fp); /* absent is fine */
#define FPTABLE_PLACEHOLDER UINT32_MAX /* not a pack: the job that inserted the entry has not set the address yet */
size_t fptable_memory(const struct fptable *t);
