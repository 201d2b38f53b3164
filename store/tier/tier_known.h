/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Maps fingerprints of chunks to their places in packs of a tier. The map is in memory and may be incomplete. It has two
 * halves: when the younger half is full, it replaces the older one. Chunks in use are added to the younger half again. So
 * memory is bounded, and the chunks of the last checkpoints stay. The owner may save chunks elsewhere before they are
 * dropped.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"

struct tier_place {
	uint32_t pack; /* of the owner's list */
	uint32_t chunk; /* number in the pack */
};

struct tier_known_table {
	struct tier_known_slot {
		struct fp fp; /* FP_NONE: free */
		uint32_t len;
		struct tier_place place;
		bool is_saved;
	} * v;
	size_t nr, size; /* a power of two, at most 3/4 full */
};

/* Initialised with zeros, but for `max`. */
struct tier_known {
	struct tier_known_table young, old;
	size_t max; /* chunks; may be exceeded until the next tier_known_trim() */
};

/* Keeps the first place of a chunk. -ENOMEM. */
int tier_known_add(struct tier_known *k, struct fp fp, uint32_t len, struct tier_place place);
/* The same for one that has been saved. */
int tier_known_add_saved(struct tier_known *k, struct fp fp, uint32_t len, struct tier_place place);
/* The same for chunks of older checkpoints than all before. Only while tier_known_is_full() is false. */
int tier_known_add_older(struct tier_known *k, struct fp fp, uint32_t len, struct tier_place place);
bool tier_known_is_full(const struct tier_known *k);
const struct tier_place *tier_known_find(const struct tier_known *k, struct fp fp, uint32_t len); /* NULL: none */
/* Marks a chunk as used, so that it is kept longer. 1/0 (unknown)/-ENOMEM */
int tier_known_use(struct tier_known *k, struct fp fp, uint32_t len);
/* Removes the chunks of packs for which is_gone[pack] is set. */
void tier_known_forget(struct tier_known *k, const bool *is_gone);
/* Will tier_known_trim() drop the older half? */
bool tier_known_is_due(const struct tier_known *k);
/* Iterates over chunks that are not saved, from *at = 0 on; of the older half only, or of both. NULL: no more. */
struct tier_known_slot *tier_known_unsaved_next(struct tier_known *k, bool older_only, size_t *at);
/* Drops the older half if the younger one is full. Keeps what was added or used after the last trim. */
void tier_known_trim(struct tier_known *k);
void tier_known_release(struct tier_known *k);
