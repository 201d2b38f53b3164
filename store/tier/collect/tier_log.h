/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The log of a tier: stores that join, and generations of garbage collection, in one order (tier_collect.c). Writers and
 * collectors append to it, readers use the marks of the last generation.
 *
 * A log belongs to one thread, which waits for the back end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "store/tier/collect/tier_log_format.h"

struct tier;

struct tier_log {
	struct tier *tier; /* borrowed */
	uint64_t entry; /* the last one that has been read; 0: none */
	uint64_t generation; /* the last one up to it; 0: none */
	uint8_t marks_id[TIER_ID_LEN];
	uint64_t marks_len;
	struct tier_marks marks; /* of that generation; point into `bytes` */
	struct buf bytes;
	uint8_t (*joined)[TIER_ID_LEN]; /* stores that have joined since that generation */
	size_t nr_joined, joined_room;
};

/* Reads up to the last entry. The caller releases *ret, also after a failure. */
int tier_log_read(struct tier *t, struct tier_log *ret);
void tier_log_release(struct tier_log *l);
/*
 * Reads the entries that were appended since. Calls `applied`, which may be NULL, after each generation. -ESTALE: so many
 * were appended that marks of one were deleted: the log must be read again.
 */
int tier_log_follow(struct tier_log *l, void (*applied)(void *userdata), void *userdata);
/* Appends an entry that this store joins, unless there is one. A store joins before its first manifest is put. */
int tier_log_join(struct tier_log *l, const uint8_t store[TIER_ID_LEN]);
/*
 * Appends the generation of l->entry + 1, whose marks have been put. -EEXIST: another entry is there.
 */
int tier_log_append_generation(struct tier_log *l, const uint8_t marks_id[TIER_ID_LEN], uint64_t marks_len);

/* false: no valid manifest has this number, according to the marks. An object of its name may exist. */
bool tier_log_keeps(const struct tier_log *l, const uint8_t store[TIER_ID_LEN], uint64_t number);
