/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where bytes live: (node, pack, logical offset). An address stays valid for the life of the
 * bytes. Offset 0 of a pack is its header, so a zeroed address is nowhere.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct addr {
	uint32_t pack; /* from 1 */
	uint32_t off;  /* logical bytes from the start of the pack */
	uint16_t node; /* 0 = this store */
};

#define ADDR_NONE ((struct addr){ 0 })

static inline bool addr_is_none(struct addr a)
{
	return a.pack == 0;
}

static inline bool addr_equal(struct addr a, struct addr b)
{
	return a.node == b.node && a.pack == b.pack && a.off == b.off;
}
