/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * In-memory fingerprint table: open addressing, 24 bytes per slot, at most 7/8 full.
 *
 * Holds the fingerprints that RocksDB has not absorbed yet, in full, so that a hit needs no further check. No lock
 * inside: guarded by the engine's append lock.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/fp.h"

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

struct fptable {
	struct fptable_slot *slots;
	size_t nr, size; /* used, slots (power of two) */
};

int fptable_init(struct fptable *t, size_t entries); /* capacity before it grows */
void fptable_release(struct fptable *t);
/* The slot of fp, or NULL. Valid until the next insert or remove. */
struct fptable_slot *fptable_find(const struct fptable *t, struct fp fp);
void fptable_prefetch(const struct fptable *t, struct fp fp);
/* fp must be absent. Grows as needed; -ENOMEM leaves the table as it was. */
int fptable_insert(struct fptable *t, struct fp fp, struct addr a, uint8_t number);
void fptable_remove(struct fptable *t, struct fp fp); /* absent is fine */
#define FPTABLE_PLACEHOLDER UINT32_MAX /* not a pack: the job that inserted the entry has not set the address yet */
size_t fptable_memory(const struct fptable *t);
