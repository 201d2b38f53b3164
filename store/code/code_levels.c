#include "store/code/code_levels.h"

#include <string.h>

#include "base/util.h"
#include "store/code/code_steps.h"

#define WINDOW 256u /* levels that 8 bits tell */

/* Where sections begin. */
struct sections {
	size_t firsts, over; /* bytes of the first two */
	size_t planes, low; /* those of bytes; and the lowest bytes, if they were one */
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

/* The level that those 256 begin with which most elements have. */
static uint32_t find_window(const uint16_t *levels, const uint16_t *base, size_t nr, unsigned bits, uint32_t *counts)
{
	uint32_t all = 1u << bits, mask = all - 1, within = 0, most, best = 0;

	memset(counts, 0, all * sizeof(*counts));
	for (size_t i = 0; i < nr; i++)
		counts[(uint32_t)(levels[i] - base[i]) & mask]++;
	for (uint32_t i = 0; i < WINDOW; i++)
		within += counts[i];
	most = within;
	for (uint32_t first = 1; first < all; first++) { /* the one before goes, and one comes in */
		within += counts[(first + WINDOW - 1) & mask] - counts[first - 1];
		if (within > most) {
			most = within;
			best = first;
		}
	}
	return best;
}

/* So that the mean of a run, of what is in the window, is in the middle of its own. */
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
		*firsts++ = le16_put((uint16_t)first_of_run(levels + at, base + at, MIN(nr - at, (size_t)CODE_LEVEL_RUN),
							    window, mask));
}

void code_levels_split(void *a, const uint16_t *base, const struct code_header *h, uint8_t *ret)
{
	size_t nr = code_nr_elements(h);
	struct sections s = sections_of(h);
	const struct le16 *firsts = (const struct le16 *)ret;
	uint8_t *bits = a; /* planes of bits of the lowest bytes, the highest first: those that are left, then over */

	for (size_t at = 0; at < nr; at += CODE_LEVEL_RUN)
		code_levels_in((uint8_t *)a + at * h->type.width, base + at, MIN(nr - at, (size_t)CODE_LEVEL_RUN),
			       h->type.width, h->stride[0], le16_get(*firsts++));
	code_bytes_in(a, ret + s.planes, nr, h->type.width);
	code_bits_in(ret + s.low, bits, nr, 1);
	memcpy(ret + s.firsts, bits + s.left, s.over);
	memcpy(ret + s.low, bits, s.left);
}

void code_levels_join(uint8_t *sections, const uint16_t *base, const struct code_header *h, void *ret)
{
	size_t nr = code_nr_elements(h);
	struct sections s = sections_of(h);
	const struct le16 *firsts = (const struct le16 *)sections;
	uint8_t *bits = ret;

	memcpy(bits, sections + s.low, s.left);
	memcpy(bits + s.left, sections + s.firsts, s.over);
	code_bits_out(bits, sections + s.low, nr, 1);
	code_bytes_out(sections + s.planes, ret, nr, h->type.width);
	for (size_t at = 0; at < nr; at += CODE_LEVEL_RUN)
		code_levels_out((uint8_t *)ret + at * h->type.width, base + at, MIN(nr - at, (size_t)CODE_LEVEL_RUN),
				h->type.width, h->stride[0], le16_get(*firsts++));
}

static bool is_zero(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

void code_levels_get(const uint8_t *sections, const struct code_header *h, uint16_t *ret, size_t nr, uint8_t *room)
{
	uint32_t mask = (1u << h->stride[0]) - 1;
	struct sections s = sections_of(h);
	const struct le16 *firsts = (const struct le16 *)sections;
	const uint8_t *low = sections + s.planes;
	uint8_t *over = room + s.left + s.over;

	if (is_zero(sections + s.firsts, s.over)) { /* as nearly always */
		memset(over, 0, nr);
	} else {
		memset(room, 0, s.left);
		memcpy(room + s.left, sections + s.firsts, s.over);
		code_bits_out(room, over, code_nr_elements(h), 1);
	}
	for (size_t at = 0; at < nr; at += CODE_LEVEL_RUN) {
		uint32_t first = le16_get(*firsts++);

		for (size_t i = at; i < MIN(nr, at + CODE_LEVEL_RUN); i++)
			ret[i] = (uint16_t)((low[i] + (uint32_t)over[i] * 256 + first) & mask);
	}
}
