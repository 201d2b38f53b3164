/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/dedup/chunker.h"

#include <assert.h>
#include <string.h>

#include "base/util.h"

/* Every sufficiently long run of zeros contains two multiples of this, wherever it starts. */
#define LOOK_EACH (CHUNKER_ZEROS_MIN / 2)

static bool is_zero_word(const uint8_t *p)
{
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	return w == 0;
}

/* Number of zeros starting at `at`. */
static uint32_t zeros_from(const uint8_t *p, uint32_t at, uint32_t len)
{
	uint32_t end = at;

	while (end + sizeof(uint64_t) <= len && is_zero_word(p + end))
		end += sizeof(uint64_t);
	while (end < len && p[end] == 0)
		end++;
	return end - at;
}

/* Find the first long run of zeros that starts before `before`. Returns its start, and its length in *ret; `before` if
 * there is none. */
static uint32_t find_zeros(const uint8_t *p, uint32_t from, uint32_t before, uint32_t len, uint32_t *ret)
{
	for (uint32_t at = from; at + LOOK_EACH <= len && at < before + LOOK_EACH; at += LOOK_EACH) {
		uint32_t start = at;

		if (!is_zero_word(p + at))
			continue;
		while (start > from && p[start - 1] == 0)
			start--;
		*ret = zeros_from(p, start, len);
		if (*ret >= CHUNKER_ZEROS_MIN && start < before)
			return start;
	}
	return before;
}

size_t chunker_cut(const struct cdc *c, const uint8_t *p, uint32_t len, bool is_all, uint32_t ret_ends[CHUNKER_ENDS_MAX])
{
	uint32_t at = 0, zeros = 0;
	size_t nr = 0;

	while (at < len) {
		uint32_t n = (uint32_t)cdc_cut(c, p + at, len - at);
		uint32_t end = n > 0 ? at + n : len, cut = find_zeros(p, at, end, len, &zeros);

		assert(nr + 2 <= CHUNKER_ENDS_MAX);
		if (cut < end) {
			if (cut > at)
				ret_ends[nr++] = cut;
			if (cut + zeros == len && !is_all) { /* the run may continue in the next call */
				if (zeros > CHUNKER_ZEROS_MIN)
					ret_ends[nr++] = len - CHUNKER_ZEROS_MIN;
				break;
			}
			ret_ends[nr++] = at = cut + zeros;
		} else if (n > 0 || is_all) {
			ret_ends[nr++] = at = end;
		} else {
			break;
		}
	}
	return nr;
}
