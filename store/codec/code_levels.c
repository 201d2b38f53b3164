/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/code_levels.h"

#include <string.h>

#include "base/util.h"
#include "store/codec/code_steps.h"

#define WINDOW 256u /* levels that 8 bits can represent */

/* Offsets and lengths of the sections. */
struct sections {
	size_t firsts, over; /* bytes of the first two */
	size_t planes, low; /* offsets of the byte planes, and of the lowest bytes as if they were one plane */
	size_t left; /* bytes of the last two together */
};

static struct sections sections_of(const struct code_header *h)
{
	size_t nr = code_nr_elements(h), bits = (nr + 7) / 8, firsts = code_level_runs(nr) * sizeof(struct le16),
	       over = (h->stride[0] - 8) * bits;

	return (struct sections){ .firsts = firsts,
				  .over = over,
				  .planes = firsts + over,
				  .low = firsts + over + (h->type.width - 1) * nr,
				  .left = 8 * bits - over };
}

size_t code_levels_bytes(const struct code_header *h)
{
	struct sections s = sections_of(h);

	return s.low + s.left;
}

/* First level of the window of 256 that contains most elements. */
static uint32_t find_window(const uint16_t *levels, const uint16_t *base, size_t nr, unsigned bits, uint32_t *counts)
{
	uint32_t all = 1u << bits, mask = all - 1, within = 0, most, best = 0;

	memset(counts, 0, all * sizeof(*counts));
	for (size_t i = 0; i < nr; i++)
		counts[(uint32_t)(levels[i] - base[i]) & mask]++;
	for (uint32_t i = 0; i < WINDOW; i++)
		within += counts[i];
	most = within;
	for (uint32_t first = 1; first < all; first++) { /* slide the window by one level */
		within += counts[(first + WINDOW - 1) & mask] - counts[first - 1];
		if (within > most) {
			most = within;
			best = first;
		}
	}
	return best;
}

/* Choose the first level so that the mean of the run's levels in the window is in the middle of its own window. */
static uint32_t first_of_run(const uint16_t *levels, const uint16_t *base, size_t nr, uint32_t window, uint32_t mask)
{
	uint32_t sum = 0, n = 0;

	for (size_t i = 0; i < nr; i++) {
		uint32_t above = (uint32_t)(levels[i] - base[i] - window) & mask;

		sum += above < WINDOW ? above : 0;
		n += above < WINDOW;
	}
	return n == 0 ? window : (window + (sum + n / 2) / n - WINDOW / 2) & mask;
}

void code_levels_firsts(const uint16_t *levels, const uint16_t *base, const struct code_header *h, uint32_t *counts,
			uint8_t *ret)
{
	size_t nr = code_nr_elements(h);
	uint32_t window = find_window(levels, base, nr, h->stride[0], counts), mask = (1u << h->stride[0]) - 1;
	struct le16 *firsts = (struct le16 *)ret;

	for (size_t at = 0; at < nr; at += CODE_LEVEL_RUN)
		*firsts++ = le16_put((uint16_t)first_of_run(levels + at, base + at,
							    MIN(nr - at, (size_t)CODE_LEVEL_RUN), window, mask));
}

void code_levels_split(void *a, const uint16_t *base, const struct code_header *h, uint8_t *ret)
{
	size_t nr = code_nr_elements(h);
	struct sections s = sections_of(h);
	const struct le16 *firsts = (const struct le16 *)ret;
	uint8_t *bits = a; /* bit planes of the lowest bytes, highest first: remaining bits, then `over` */

	for (size_t at = 0; at < nr; at += CODE_LEVEL_RUN)
		code_levels_in((uint8_t *)a + at * h->type.width, base + at, MIN(nr - at, (size_t)CODE_LEVEL_RUN),
			       h->type.width, h->stride[0], le16_get(*firsts++));
	code_bytes_in(a, ret + s.planes, nr, h->type.width);
	code_bits_in(ret + s.low, bits, nr, 1);
	memcpy(ret + s.firsts, bits + s.left, s.over);
	memcpy(ret + s.low, bits, s.left);
}

/* Lowest bytes of a run of n elements, from element `at` on, as code_levels_in() leaves them. Without the other
 * sections: only the bits of `over`. */
static void lowest_bytes(const uint8_t *const sections[], const struct code_header *h, size_t at, size_t n,
			 bool has_others, uint8_t ret[CODE_LEVEL_RUN])
{
	size_t plane = (code_nr_elements(h) + 7) / 8, some = (n + 7) / 8;
	unsigned nr_over = h->stride[0] - 8, nr_left = 7 - nr_over;
	uint8_t bits[CODE_LEVEL_RUN] = { 0 };

	for (unsigned b = 0; b < nr_left && has_others; b++)
		memcpy(bits + b * some, sections[h->type.width + 1] + b * plane + at / 8, some);
	if (has_others)
		memcpy(bits + nr_left * some, sections[h->type.width + 2] + at / 8, some);
	for (unsigned b = 0; b < nr_over; b++)
		memcpy(bits + (nr_left + 1 + b) * some, sections[1] + b * plane + at / 8, some);
	code_bits_out(bits, ret, n, 1);
}

void code_levels_join(const uint8_t *const sections[], const uint16_t *base, const struct code_header *h, void *ret)
{
	size_t nr = code_nr_elements(h), n;
	unsigned width = h->type.width;
	const struct le16 *firsts = (const struct le16 *)sections[0];
	uint8_t low[CODE_LEVEL_RUN], *a = ret;

	for (size_t at = 0; at < nr; at += n, a += n * width) {
		const uint8_t *planes[sizeof(uint64_t)];

		n = MIN(nr - at, (size_t)CODE_LEVEL_RUN);
		for (unsigned b = 0; b < width - 1; b++)
			planes[b] = sections[2 + b] + at;
		planes[width - 1] = low;
		lowest_bytes(sections, h, at, n, true, low);
		code_bytes_out(planes, a, n, width);
		code_levels_out(a, base + at, n, width, h->stride[0], le16_get(*firsts++));
		code_map_out(a, n, width, h->map);
		if (h->type.big_endian)
			code_swap(a, n, width);
	}
}

static void levels_of_run(const uint8_t *restrict low, const uint8_t *restrict over, size_t n, uint32_t first,
			  uint32_t mask, uint16_t *restrict ret)
{
	for (size_t i = 0; i < n; i++)
		ret[i] = (uint16_t)((low[i] + (uint32_t)over[i] * 256 + first) & mask);
}

void code_levels_get(const uint8_t *const sections[], const struct code_header *h, uint16_t *ret, size_t nr)
{
	const struct le16 *firsts = (const struct le16 *)sections[0];
	bool is_over = !mem_is_zero(sections[1], sections_of(h).over); /* rare */
	uint8_t over[CODE_LEVEL_RUN] = { 0 };

	for (size_t at = 0, n; at < nr; at += n) {
		n = MIN(nr - at, (size_t)CODE_LEVEL_RUN);
		if (is_over)
			lowest_bytes(sections, h, at, n, false, over);
		levels_of_run(sections[2] + at, over, n, le16_get(*firsts++), (1u << h->stride[0]) - 1, ret + at);
	}
}
