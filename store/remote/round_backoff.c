#include "store/remote/round_backoff.h"

#include <stdlib.h>

#include "base/util.h"

void alone_release(struct alone *a)
{
	free(a->untold);
	*a = (struct alone){ 0 };
}

/* If no chunk was offered, the chunks were announced, and no peer has reported a match. */
static bool is_little(uint64_t nr_found, uint64_t nr_asked)
{
	return nr_asked == 0 || nr_found * ALONE_PART < nr_asked;
}

/* Consecutive commits with few common chunks before the next ones skip rounds. */
static unsigned record_wanted(const struct alone *a)
{
	return ALONE_RECORD << a->nr_found_out;
}

bool alone_is_believed(const struct alone *a)
{
	return a->nr_little >= record_wanted(a);
}

bool alone_is_confirming(const struct alone *a)
{
	return a->state == ALONE_PROBING && a->nr_little + 1 >= record_wanted(a);
}

bool alone_decided(struct alone *a, size_t nr_frames, size_t nr_offered, size_t nr_found)
{
	a->nr_asked += nr_offered;
	a->nr_found += nr_found;
	if (!is_little(nr_found, nr_offered)) {
		a->state = ALONE_SHARING;
		a->nr_little = 0;
	} else if (a->state == ALONE_PROBING && nr_frames >= ALONE_FRAMES) {
		a->state = ALONE_LETTING_GO;
	}
	return a->state == ALONE_LETTING_GO;
}

static void found_little(struct alone *a)
{
	a->nr_little++;
	if (a->nr_little < record_wanted(a) + ALONE_UNASKED) {
		a->state = a->nr_little < record_wanted(a) ? ALONE_PROBING : ALONE_LETTING_GO;
		return;
	}
	a->state = ALONE_PROBING; /* once */
	a->nr_found_out -= a->nr_found_out > 0;
	a->nr_little = record_wanted(a) - 1;
}

void alone_committed(struct alone *a)
{
	if (a->state == ALONE_LETTING_GO && !alone_is_believed(a))
		a->state = ALONE_PROBING;
	if (a->nr_asked + a->nr_unasked < ALONE_PAGES)
		return;
	if (is_little(a->nr_found, a->nr_asked))
		found_little(a);
	a->nr_asked = a->nr_found = a->nr_unasked = 0;
}

/* Discards the counts so far: the next judgement starts from zero. */
static void begin_anew(struct alone *a, enum alone_state state)
{
	a->state = state;
	a->nr_little = 0;
	a->nr_asked = a->nr_found = a->nr_unasked = 0;
}

void alone_found_out(struct alone *a)
{
	if (alone_is_believed(a) && a->nr_found_out < ALONE_FOUND_OUT_MAX)
		a->nr_found_out++;
	begin_anew(a, ALONE_SHARING);
}

void alone_met(struct alone *a)
{
	a->nr_found_out = 0;
	begin_anew(a, a->state == ALONE_LETTING_GO ? ALONE_PROBING : a->state);
}

void alone_wrote(struct alone *a, struct fp fp)
{
	a->nr_unasked++;
	if (a->nr_untold == a->size_untold) {
		size_t size = MIN(a->size_untold * 2 + 4096, (size_t)ALONE_UNTOLD_MAX);
		struct fp *more = size > a->size_untold ? reallocarray(a->untold, size, sizeof(*more)) : NULL;

		if (!more)
			return;
		a->untold = more;
		a->size_untold = size;
	}
	a->untold[a->nr_untold++] = fp;
}

size_t alone_take_untold(struct alone *a, struct fp **ret)
{
	size_t nr = a->nr_untold;

	*ret = TAKE(a->untold);
	a->nr_untold = a->size_untold = 0;
	return nr;
}
