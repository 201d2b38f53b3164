/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/lib/streams.h"

#include "base/util.h"

/* Touches by which a stream counts as more recent than a single page when one is replaced: single pages are
 * frequent. */
#define STREAM_BONUS 256u

/* The stream that this page continues, else the least recently used one, emptied. */
static struct stream *find_or_replace(struct streams *s, uint64_t page)
{
	struct stream *oldest = &s->stream[0];
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < STREAMS_NR; i++) {
		struct stream *it = &s->stream[i];
		uint64_t until = it->len == 0 ? 0 : it->used + (it->len >= STREAMS_MIN ? STREAM_BONUS : 0);

		if (it->len > 0 && (it->up == page || it->down == page))
			return it;
		if (until < least) {
			least = until;
			oldest = it;
		}
	}
	oldest->len = 0;
	return oldest;
}

/* Pages of the stream's next range, including the touched one. */
static uint64_t range_len(const struct stream *it)
{
	return it->len < STREAMS_MIN ? 1 : MIN(1 + it->len / 2, (uint64_t)STREAMS_MAX);
}

static struct streams_range range_up(const struct stream *it, uint64_t page, uint64_t high)
{
	uint64_t nr = range_len(it), end = page + MIN(nr, high - page), whole = round_down(end, STREAMS_MAX);

	if (nr == STREAMS_MAX && end < high && whole > page)
		end = whole;
	return (struct streams_range){ page, end - page };
}

static struct streams_range range_down(const struct stream *it, uint64_t page, uint64_t low)
{
	uint64_t nr = range_len(it), first = page - MIN(nr - 1, page - low), whole = round_up(first, STREAMS_MAX);

	if (nr == STREAMS_MAX && first > low && whole <= page)
		first = whole;
	return (struct streams_range){ first, page + 1 - first };
}

struct streams_range streams_touch(struct streams *s, uint64_t page, uint64_t low, uint64_t high)
{
	struct stream *it = find_or_replace(s, page);
	struct streams_range range = { page, 1 };

	if (it->len == 0) {
		it->up = page + 1;
		it->down = page - 1;
	} else if (it->up == page) {
		range = range_up(it, page, high);
		it->up = page + range.nr;
		it->down = UINT64_MAX;
	} else {
		range = range_down(it, page, low);
		it->up = UINT64_MAX;
		it->down = range.first - 1;
	}
	it->len += range.nr;
	it->used = ++s->nr_touches;
	return range;
}
