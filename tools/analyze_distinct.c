#include "tools/analyze_distinct.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static uint64_t tag_at(const struct distinct *d, size_t i)
{
	return (uint64_t)d->slots[i].high << 32 | d->slots[i].low;
}

/* By the high bits; the low ones are the same for all that are sampled. */
static size_t home_of(const struct distinct *d, uint64_t tag)
{
	return (size_t)(((unsigned __int128)tag * d->nr_slots) >> 64);
}

static size_t next(const struct distinct *d, size_t i)
{
	return i + 1 == d->nr_slots ? 0 : i + 1;
}

static bool is_sampled(const struct distinct *d, uint64_t tag)
{
	return (tag & (distinct_weight(d) - 1)) == 0;
}

int distinct_init(struct distinct *d, size_t memory)
{
	size_t nr = memory / sizeof(*d->slots);

	assert(memory >= DISTINCT_MEMORY_MIN);
	*d = (struct distinct){ .nr_slots = nr, .nr_max = nr / 8 * 7 };
	d->slots = calloc(nr, sizeof(*d->slots));
	return d->slots ? 0 : -ENOMEM;
}

void distinct_release(struct distinct *d)
{
	free(d->slots);
	*d = (struct distinct){ 0 };
}

/* Those behind it that stand away from home move up, so that no probe ends too early. */
static void remove_at(struct distinct *d, size_t hole)
{
	size_t i = hole, home;

	for (;;) {
		i = next(d, i);
		if (tag_at(d, i) == 0)
			break;
		home = home_of(d, tag_at(d, i));
		/* Not past its home: is the hole cyclically in [home, i)? */
		if (home <= i ? home <= hole && hole < i : home <= hole || hole < i) {
			d->slots[hole] = d->slots[i];
			hole = i;
		}
	}
	d->slots[hole] = (struct distinct_slot){ 0 };
	d->nr--;
}

static void thin(struct distinct *d)
{
	d->bits++;
	for (size_t i = 0; i < d->nr_slots; i++)
		while (tag_at(d, i) != 0 && !is_sampled(d, tag_at(d, i)))
			remove_at(d, i); /* another one may stand here now */
}

enum distinct_answer distinct_add(struct distinct *d, struct fp fp, uint32_t file, uint32_t *ret_file,
				  uint64_t *ret_weight)
{
	uint64_t tag = fp.lo ? fp.lo : UINT64_C(1) << 63;
	size_t i;

	if (!is_sampled(d, tag))
		return DISTINCT_NOT_SAMPLED;
	*ret_weight = distinct_weight(d);
	for (i = home_of(d, tag); tag_at(d, i) != 0; i = next(d, i))
		if (tag_at(d, i) == tag) {
			*ret_file = d->slots[i].file;
			d->slots[i].file = file;
			return DISTINCT_KNOWN;
		}
	d->slots[i] = (struct distinct_slot){ .low = (uint32_t)tag, .high = (uint32_t)(tag >> 32), .file = file };
	d->nr++;
	while (d->nr > d->nr_max)
		thin(d);
	return DISTINCT_NEW;
}
