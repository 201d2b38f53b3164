/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Maps the ids of packs to their numbers in a list of the owner. Ids are digests. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "store/tier/tier_format.h"

/* Initialised with zeros. */
struct tier_ids {
	struct tier_id_slot {
		uint8_t id[TIER_ID_LEN];
		uint32_t number; /* plus 1; 0: free */
	} * v;
	size_t nr, size; /* a power of two, at most 3/4 full */
};

/* The last number of an id counts: a pack that was missing has been put again. -ENOMEM. */
int tier_ids_add(struct tier_ids *m, const uint8_t id[TIER_ID_LEN], uint32_t number);
/* 1/0 */
int tier_ids_find(const struct tier_ids *m, const uint8_t id[TIER_ID_LEN], uint32_t *ret);
void tier_ids_release(struct tier_ids *m);
