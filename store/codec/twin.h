/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Twins: a variable and its rounded copy, such as bfloat16 or float16 weights beside the float32 weights that training
 * continues with. The wide one determines the narrow one: rounded, it is a base (code.h) that leaves nothing to store.
 * The narrow one determines the wide one except for the bits rounded off: widened, it is a base that leaves only those.
 * Either way the total size is the same, but the narrow one is half as long to read as a base. Twins are found by
 * comparing bytes, since names do not indicate them. Pure.
 *
 * Rounding is to nearest, ties to even, as processors and torch do it. NaNs become one NaN in bfloat16, and keep the
 * upper bits of their payload in float16. Neither conversion must ever change: blocks have a checksum of their base, so
 * existing blocks would become unreadable.
 */
#pragma once

#include "store/codec/code_format.h"

#define TWIN_SAMPLE 64u /* elements compared; an array with fewer has no twin */

/* Can a variable of this type be the narrow one, or the wide one? */
bool twin_type_narrow(struct code_type t);
bool twin_type_wide(struct code_type t);
/* Round nr elements from `wide` to `ret`. Either may be unaligned. */
void twin_round(struct code_type narrow, struct code_type wide_type, const void *wide, size_t nr, void *ret);
/* Widen nr elements from `narrow` to `ret`: the same numbers; NaNs keep sign and payload. */
void twin_widen(struct code_type narrow_type, struct code_type wide, const void *narrow, size_t nr, void *ret);
/*
 * Make the base of a block with a lead from the bytes at a place: rounded or widened to its elements, behind as many
 * zeros as the lead. `from` has from_len bytes; the base has at most `len`. Returns its length.
 */
uint32_t twin_base(enum code_place how, struct code_type type, uint32_t lead, const void *from, uint32_t from_len,
		   uint32_t len, void *ret);

/* Twins have equal marks. */
struct twin_mark {
	struct code_type narrow;
	uint64_t nr; /* elements */
	uint8_t sample[2 * TWIN_SAMPLE]; /* from twin_sample_at() on, in the narrow type */
};
/* First element of the sample: not at the start, where many arrays have zeros. */
uint64_t twin_sample_at(uint64_t nr);
/* Total order: < 0, 0, > 0. */
int twin_mark_compare(const struct twin_mark *a, const struct twin_mark *b);
