/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Where chunks are in packs of a tier, by fingerprint: a table in memory, which may be incomplete. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"

struct tier_place {
	uint32_t pack; /* of the owner's list */
	uint32_t chunk; /* number in the pack */
};

/* Initialised with zeros. */
struct tier_known {
	struct tier_known_slot {
		struct fp fp; /* FP_NONE: free */
		uint32_t len;
		struct tier_place place;
	} * v;
	size_t nr, size; /* a power of two, at most 3/4 full */
};

/* The first place of a chunk stays. -ENOMEM. */
int tier_known_add(struct tier_known *k, struct fp fp, uint32_t len, struct tier_place place);
const struct tier_place *tier_known_find(const struct tier_known *k, struct fp fp, uint32_t len); /* NULL: none */
void tier_known_release(struct tier_known *k);
