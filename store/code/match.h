/*
 * What a frame has more than once is taken out before it is coded. Simulations write the same rows under several names,
 * as E and D of light in a vacuum, bit by bit: too short for chunks, and too far apart for one block. Here a frame is
 * up to MATCH_PARTS parts side by side, each coded as a block; a part names runs of elements of 8 bytes that parts
 * before it have, or itself further ahead, and what is left of it is a block within the block (docs/format.md section
 * 12), coded by its type as any other.
 *
 * What a run names in another part is left there. So decoding a part takes of those that it names what is left in them,
 * and nothing of those that these name: with itself no more than MATCH_DECODED_MAX parts. It names those that have most
 * of what the others have not.
 *
 * Pure but for the working memory. Thread rule: any thread; a match belongs to one thread at a time.
 */
#pragma once

#include "store/code/code.h"

#define MATCH_WIDTH 8u /* bytes of an element */
#define MATCH_PART (64u * 1024)
#define MATCH_PARTS 16u
#define MATCH_DECODED_MAX 4u /* parts: 256 KiB for a read of any page */
#define MATCH_NR_STREAMS 3u
#define MATCH_ELEMENTS (MATCH_PART / MATCH_WIDTH)
#define MATCH_STREAM_MAX (4u * MATCH_ELEMENTS) /* bytes of what tells where runs are, of each kind */

struct match;
struct match *match_new(void); /* NULL: no memory. About 1.5 MiB. */
void match_free(struct match *m); /* NULL is fine */

/* Where elements of 8 bytes seem to begin, of bytes of which nothing is known: bytes before the first one. */
uint32_t match_guess_lead(const uint8_t *p, uint32_t len);
/*
 * Look at a frame of up to MATCH_PARTS parts, all whole but the last; leads[i]: bytes of part i before its first
 * element. It is borrowed while parts are taken. Returns how many elements are also further ahead, about: of zeros all
 * are.
 */
uint32_t match_look(struct match *m, const uint8_t *frame, uint32_t len, const uint32_t *leads);
/* Take the next part, the first one after match_look(): what is left of it, borrowed until the next one is taken, has
 * *ret_len bytes. It begins with the lead. */
const uint8_t *match_take(struct match *m, uint32_t part, uint32_t *ret_len);
/*
 * The block of the part that was taken. `rest` is the block of what was left, `type` one of MATCH_WIDTH. `ret` has room
 * for CODE_BLOCK_MAX(MATCH_PART). Returns its bytes, and in *ret_place its base_place; 0: it is no smaller than the
 * part; -ENOMEM.
 */
int match_encode(struct match *m, struct code_type type, const void *rest, uint32_t rest_len, void *ret,
		 uint32_t *ret_place);

struct match_out; /* for decoding. About 256 KiB */
struct match_out *match_out_new(void); /* NULL: no memory */
void match_out_free(struct match_out *o); /* NULL is fine */
/*
 * A whole block with CODE_BASE_MATCHED to `ret`. `before`: the nr_before parts before it, each NULL if it is not there.
 * As code_decode() else; -EBADMSG also where it names a part that is not there.
 */
int match_decode(struct match_out *o, struct code_work *w, const void *p, size_t len, uint8_t *const before[],
		 uint32_t nr_before, void *ret, size_t room);
/*
 * The same in two steps. What is left goes to its place in `ret`, and nothing else is touched there: so much is needed
 * of a part that others name, and no other part for it. Then, with the same bytes, the runs; of the parts that it names
 * (CODE_PLACE_LEFT) what is left must be in its place. They touch nothing that is left. 0, -EBADMSG, -ENOMEM. Whether
 * the other parts were right is not looked at: that is for who compares what comes of it with something better than the
 * checksum that match_decode() looks at.
 */
int match_place_left(struct match_out *o, struct code_work *w, const void *p, size_t len, void *ret, size_t room);
int match_place_runs(struct match_out *o, const void *p, uint8_t *const before[], uint32_t nr_before, void *ret);
