/* SPDX-License-Identifier: GPL-3.0-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Elements of `size` bytes begin with a uint64_t, by which they are sorted. Returns the index of the first one that is
 * at least `key`, or `nr`: where an element with this key is, or belongs.
 */
static inline size_t search_u64(const void *v, size_t nr, size_t size, uint64_t key)
{
	size_t low = 0, high = nr;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		uint64_t at;

		memcpy(&at, (const char *)v + middle * size, sizeof(at));
		if (at < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}
