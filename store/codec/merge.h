/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The order in which the bytes of several parts, the same variable of several ranks, are concatenated: as whole parts,
 * or in blocks taken in turn. Data that is spatially close is then close in the merged bytes. Pure.
 *
 * Whole parts may be folded: a quarter of each piece is taken from the start of the first half of a part, its end, the
 * start of the second half, and its end. A field that is symmetric about its middle, and in each half about the middle
 * of that half, then has its mirror images in the same piece. The rest, less than a piece, follows in order.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct merge_part {
	uint64_t len, done;
};

struct merge {
	struct merge_part *part; /* borrowed; `done` is ours, initially 0 */
	size_t nr;
	uint64_t block; /* 0: whole parts */
	bool folded; /* only whole parts */
	size_t at; /* current part */
	uint64_t turn; /* bytes taken in its current turn */
};

/* The next piece of at most `max` bytes, a quarter of that if folded: 1 with its part, its offset there and its length,
 * 0 at the end. */
int merge_next(struct merge *m, uint64_t max, size_t *ret_part, uint64_t *ret_off, uint64_t *ret_len);
