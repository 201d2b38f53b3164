/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/remote/round_backoff.h"

#include <stdlib.h>

#include "base/util.h"

void backoff_release(struct backoff *b)
{
	free(b->unannounced);
	*b = (struct backoff){ 0 };
}

/* If no chunk was offered, the chunks were announced, and no peer has reported a match. */
static bool is_little(uint64_t nr_found, uint64_t nr_offered)
{
	return nr_offered == 0 || nr_found * BACKOFF_PART < nr_offered;
}

static unsigned row_wanted(const struct backoff *b)
{
	return BACKOFF_AFTER << b->nr_doubled;
}

bool backoff_is_on(const struct backoff *b)
{
	return b->nr_little >= row_wanted(b);
}

bool backoff_is_last_sample(const struct backoff *b)
{
	return b->state == OFFER_SAMPLE && b->nr_little + 1 >= row_wanted(b);
}

bool backoff_decided(struct backoff *b, size_t nr_frames, size_t nr_offered, size_t nr_found)
{
	b->nr_offered += nr_offered;
	b->nr_found += nr_found;
	if (!is_little(nr_found, nr_offered)) {
		b->state = OFFER_ALL;
		b->nr_little = 0;
	} else if (b->state == OFFER_SAMPLE && nr_frames >= BACKOFF_FRAMES) {
		b->state = OFFER_NOTHING;
	}
	return b->state == OFFER_NOTHING;
}

static void found_little(struct backoff *b)
{
	b->nr_little++;
	if (b->nr_little == row_wanted(b) + BACKOFF_SKIPPED) { /* without a report */
		b->nr_doubled = 0;
		b->nr_little = row_wanted(b) - 1; /* the next sample decides */
	}
	b->state = backoff_is_on(b) ? OFFER_NOTHING : OFFER_SAMPLE;
}

void backoff_committed(struct backoff *b)
{
	if (b->state == OFFER_NOTHING && !backoff_is_on(b))
		b->state = OFFER_SAMPLE;
	if (b->nr_offered + b->nr_written < BACKOFF_PAGES)
		return;
	if (is_little(b->nr_found, b->nr_offered))
		found_little(b);
	b->nr_offered = b->nr_found = b->nr_written = 0;
}

/* Discards the counts so far: the next judgement starts from zero. */
static void restart_counts(struct backoff *b, enum backoff_state state)
{
	b->state = state;
	b->nr_little = 0;
	b->nr_offered = b->nr_found = b->nr_written = 0;
}

void backoff_reported(struct backoff *b)
{
	if (backoff_is_on(b) && b->nr_doubled < BACKOFF_DOUBLED_MAX)
		b->nr_doubled++;
	restart_counts(b, OFFER_ALL);
}

void backoff_peers_changed(struct backoff *b)
{
	b->nr_doubled = 0;
	restart_counts(b, b->state == OFFER_NOTHING ? OFFER_SAMPLE : b->state);
}

void backoff_add_written(struct backoff *b, struct fp fp)
{
	b->nr_written++;
	if (b->nr_unannounced == b->size_unannounced) {
		size_t size = MIN(b->size_unannounced * 2 + 4096, (size_t)BACKOFF_UNANNOUNCED_MAX);
		struct fp *more = size > b->size_unannounced ? reallocarray(b->unannounced, size, sizeof(*more)) : NULL;

		if (!more)
			return;
		b->unannounced = more;
		b->size_unannounced = size;
	}
	b->unannounced[b->nr_unannounced++] = fp;
}

size_t backoff_take_unannounced(struct backoff *b, struct fp **ret)
{
	size_t nr = b->nr_unannounced;

	*ret = TAKE(b->unannounced);
	b->nr_unannounced = b->size_unannounced = 0;
	return nr;
}
