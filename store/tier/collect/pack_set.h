/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sets of packs. Initialised with zeros; v is freed by its owner. A set is sorted by id before it is searched. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/tier/tier_format.h"

struct pack_set {
	struct set_pack {
		uint8_t id[TIER_ID_LEN];
		uint64_t len; /* 0: unknown */
		bool is_listed;
	} * v;
	size_t nr, room;
	size_t nr_sorted; /* the first ones */
};

int pack_set_add(struct pack_set *s, const uint8_t id[TIER_ID_LEN], uint64_t len); /* -ENOMEM */
int pack_set_add_manifest(struct pack_set *s, const struct tier_manifest *m); /* all of its packs */
void pack_set_sort(struct pack_set *s); /* each id once */
struct set_pack *pack_set_find(const struct pack_set *s, const uint8_t id[TIER_ID_LEN]); /* of a sorted set */
uint64_t pack_set_bytes(const struct pack_set *s);
