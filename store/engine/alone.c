#include "store/engine/alone.h"

#include <stdlib.h>

#include "base/util.h"

void alone_release(struct alone *a)
{
	free(a->untold);
	*a = (struct alone){ 0 };
}

static bool is_little(uint64_t nr_found, uint64_t nr_asked)
{
	return nr_found * ALONE_PART < nr_asked;
}

bool alone_decided(struct alone *a, size_t nr_frames, size_t nr_offered, size_t nr_found)
{
	a->nr_asked += nr_offered;
	a->nr_found += nr_found;
	if (nr_offered > 0 && !is_little(nr_found, nr_offered))
		a->state = ALONE_SHARING;
	else if (a->state == ALONE_PROBING && nr_frames >= ALONE_FRAMES)
		a->state = ALONE_LETTING_GO;
	return a->state == ALONE_LETTING_GO;
}

void alone_committed(struct alone *a)
{
	if (a->state == ALONE_LETTING_GO)
		a->state = ALONE_PROBING;
	if (a->nr_asked < ALONE_PAGES)
		return;
	if (a->state == ALONE_SHARING && is_little(a->nr_found, a->nr_asked))
		a->state = ALONE_PROBING;
	a->nr_asked = a->nr_found = 0;
}

/* What was asked so far has told nothing: it is judged by what comes. */
void alone_found_out(struct alone *a)
{
	a->state = ALONE_SHARING;
	a->nr_asked = a->nr_found = 0;
}

void alone_wrote(struct alone *a, struct fp fp)
{
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
