/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Removes repetitions within a frame before it is coded. Simulations write the same rows under several names, bit by
 * bit, such as E and D of light in a vacuum: too short for chunks, and too far apart for one block. A frame here is up
 * to MATCH_PARTS parts side by side, each coded as a block. A part refers to runs of 8-byte elements in earlier parts,
 * or to earlier ones in itself. The left-over elements, which are in no run, are coded by type as a block within the
 * block (docs/format.md section 12).
 *
 * A run need not be equal to the elements it refers to, its source. Fields with a symmetry contain each number several
 * times: mirrored, negated, and not quite equal, as sums were rounded in another order. So a run may read its source
 * backwards, invert the signs, and add a small difference to each element (match_runs.h). In turbulence in a box that
 * starts as a Taylor-Green vortex, half of the numbers occur more than once, but 93 % are within 256 units in the last
 * place of another one.
 *
 * A run in another part copies only left-over elements of that part. So decoding a part needs the left-over elements of
 * the parts it refers to, and nothing of the parts that those refer to: including itself at most MATCH_DECODED_MAX
 * parts. A part refers to the parts that contribute most.
 *
 * Pure except for the working memory. Thread rule: any thread; a match belongs to one thread at a time.
 */
#pragma once

#include "store/codec/code.h"

#define MATCH_WIDTH 8u /* bytes of an element */
#define MATCH_PART (64u * 1024)
#define MATCH_PARTS 16u
#define MATCH_DECODED_MAX 4u /* parts: 256 KiB to read any page */
#define MATCH_ELEMENTS (MATCH_PART / MATCH_WIDTH)
#define MATCH_STREAM_MAX (4u * MATCH_ELEMENTS) /* bytes of each stream that describes runs */

struct match;
struct match *match_new(void); /* NULL: no memory. About 1.5 MiB. */
void match_free(struct match *m); /* NULL is fine */

/* Guess where 8-byte elements begin in untyped bytes. Returns the number of bytes before the first one. */
uint32_t match_guess_lead(const uint8_t *p, uint32_t len);
/*
 * Start a frame of up to MATCH_PARTS parts, all full but the last; leads[i]: bytes of part i before its first element.
 * `frame` is borrowed until all parts are taken. Returns the approximate number of elements that also occur, at least
 * nearly, earlier in the frame; zeros all do.
 */
uint32_t match_look(struct match *m, const uint8_t *frame, uint32_t len, const uint32_t *leads, bool big_endian);
/* Take the next part, the first one after match_look(). Returns its left-over elements, *ret_len bytes, beginning with
 * the lead; borrowed until the next part is taken. */
const uint8_t *match_take(struct match *m, uint32_t part, uint32_t *ret_len);
/*
 * Build the block of the part taken last. `rest` is the block of its left-over elements, `type` has width MATCH_WIDTH.
 * `ret` has room for CODE_BLOCK_MAX(MATCH_PART). Returns its length, and its base_place in *ret_place; 0: not smaller
 * than the part; -ENOMEM.
 */
int match_encode(struct match *m, struct code_type type, const void *rest, uint32_t rest_len, void *ret,
		 uint32_t *ret_place);

struct match_out; /* for decoding. About 256 KiB */
struct match_out *match_out_new(void); /* NULL: no memory */
void match_out_free(struct match_out *o); /* NULL is fine */
/*
 * Decode a whole block with CODE_BASE_MATCHED to `ret`. `before`: the nr_before parts before it, NULL for those that
 * are missing. Otherwise like code_decode(); -EBADMSG also if it refers to a missing part.
 */
int match_decode(struct match_out *o, struct code_work *w, const void *p, size_t len, uint8_t *const before[],
		 uint32_t nr_before, void *ret, size_t room);
/*
 * The same in two steps. match_place_left() puts the left-over elements in their place in `ret` and touches nothing
 * else there. This is all that other parts need of a part that they refer to, and it needs no other part. Then
 * match_place_runs(), with the same bytes, fills in the runs; the parts that it refers to must have
 * their left-over elements in place. It does not touch left-over elements. 0, -EBADMSG, -ENOMEM. The checksum that
 * match_decode() verifies is not verified here: the caller verifies the result by something stronger.
 */
int match_place_left(struct match_out *o, struct code_work *w, const void *p, size_t len, void *ret, size_t room);
int match_place_runs(struct match_out *o, const void *p, uint8_t *const before[], uint32_t nr_before, void *ret);
