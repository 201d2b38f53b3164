/*
 * A variable that another one was rounded to: weights in bfloat16 or float16 beside those in float32 that training goes
 * on with. Whoever has the wide one has the narrow one, too: rounded, it is a base (code.h) that leaves nothing to
 * store. Twins are found by their bytes, as names do not tell. Pure.
 *
 * Rounding is to the nearest, of two as near to the even one, as all processors and torch do it; NaNs become one NaN of
 * bfloat16, and keep the upper bits of their payload in float16. It must never change: blocks know the checksum of
 * their base, so another way would make blocks that are there unreadable.
 */
#pragma once

#include "store/code/code_format.h"

#define TWIN_SAMPLE 64u /* elements that are compared; an array with fewer has no twin */

/* Can one of this type be the narrow one, one of that type the wide one? */
bool twin_type_narrow(struct code_type t);
bool twin_type_wide(struct code_type t);
/* As many whole elements as `nr`, from wide ones at `wide` to narrow ones at `ret`. Either may be at any address. */
void twin_round(struct code_type narrow, struct code_type wide_type, const void *wide, size_t nr, void *ret);

/* What twins have in common: the same bytes of this. */
struct twin_mark {
	struct code_type narrow;
	uint64_t nr; /* elements */
	uint8_t sample[2 * TWIN_SAMPLE]; /* from twin_sample_at() on, as the narrow type has them */
};
/* The element that the sample begins with: not at the start, where many arrays have zeros. */
uint64_t twin_sample_at(uint64_t nr);
/* < 0, 0, > 0; an order of its own. */
int twin_mark_compare(const struct twin_mark *a, const struct twin_mark *b);
