/*
 * A variable that another one was rounded to: weights in bfloat16 or float16 beside those in float32 that training goes
 * on with. Whoever has the wide one has the narrow one, too: rounded, it is a base (code.h) that leaves nothing to
 * store. And whoever has the narrow one has all of the wide one but the bits that were rounded off: widened, it is a
 * base that leaves those. Both take as much together; but the narrow one is half as long to read for the other. Twins
 * are found by their bytes, as names do not tell. Pure.
 *
 * Rounding is to the nearest, of two as near to the even one, as all processors and torch do it; NaNs become one NaN of
 * bfloat16, and keep the upper bits of their payload in float16. Neither way must ever change: blocks know the checksum
 * of their base, so another one would make blocks that are there unreadable.
 */
#pragma once

#include "store/code/code_format.h"

#define TWIN_SAMPLE 64u /* elements that are compared; an array with fewer has no twin */

/* Can one of this type be the narrow one, one of that type the wide one? */
bool twin_type_narrow(struct code_type t);
bool twin_type_wide(struct code_type t);
/* As many whole elements as `nr`, from wide ones at `wide` to narrow ones at `ret`. Either may be at any address. */
void twin_round(struct code_type narrow, struct code_type wide_type, const void *wide, size_t nr, void *ret);
/* And from narrow ones at `narrow` to wide ones at `ret`: the same numbers; of a NaN sign and payload stay. */
void twin_widen(struct code_type narrow_type, struct code_type wide, const void *narrow, size_t nr, void *ret);
/*
 * What lies at a place as the base of a block with a lead: rounded or widened to its elements, behind as many zeros.
 * `from` has as many bytes as are there; the base takes no more than `len`. Returns how many it has.
 */
uint32_t twin_base(enum code_place how, struct code_type type, uint32_t lead, const void *from, uint32_t from_len,
		   uint32_t len, void *ret);

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
