/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Ranges of a file with space reserved by fallocate that has not been used by a write yet. A range that is allocated
 * again, as a whole or piece by piece, is counted once. Pure: the caller holds the lock.
 *
 * Memory is bounded. If allocating makes more than ALLOCATED_MAX ranges, the shortest one is dropped: allocating it
 * again reserves its space a second time, and writes outside all known ranges use reserved space, too. If writing into
 * the middle of a range does, the two ranges with the fewest bytes between them become one: writing these bytes once
 * more uses reserved space.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define ALLOCATED_MAX 64u

struct allocated {
	unsigned nr;
	bool dropped_some;
	struct allocated_range {
		uint64_t from, to;
	} v[ALLOCATED_MAX + 1]; /* sorted, neither overlapping nor adjacent */
};

/* bytes not reserved yet; NULL: all */
uint64_t allocated_missing(const struct allocated *a, uint64_t from, uint64_t to);
uint64_t allocated_part(const struct allocated *a, uint64_t from, uint64_t to); /* bytes that may be reserved */
void allocated_add(struct allocated *a, uint64_t from, uint64_t to); /* from < to */
void allocated_remove(struct allocated *a, uint64_t from, uint64_t to); /* from < to; ranges or parts of them */
