/*
 * How a frame was compressed, found out without its table. Pure but for the coder's working memory.
 *
 * What the table says is only one of several sources: where a part ends also shows in its own bytes, and in where the
 * next one begins. Nothing of this is proved; whoever asks compares the plain bytes with fingerprints.
 */
#pragma once

#include "store/pack/codec.h"

struct pack_coding_found {
	struct pack_coding coding; /* ends for all parts there can be */
	uint32_t plain_len; /* so many bytes it seems to be */
	bool last_is_guessed; /* stored as it is, and nothing tells how many bytes that are */
};

/*
 * Take the data of a frame (all PACK_FRAME_BYTES, zeros where the file has no more) to be compressed with `codec`.
 * `said` is its table, as it is. 1: ret_plain (as many bytes) has what the parts hold or, where that is lost,
 * anything; 0: nothing looks compressed; -ENOMEM.
 */
int pack_coding_find(struct coder *c, enum pack_codec codec, const struct pack_table_disk *said, const uint8_t *stored,
		     uint8_t *ret_plain, struct pack_coding_found *ret);
/* The plain bytes are so many, then: not 0, and a table can say it so. */
struct pack_coding pack_coding_settle(const struct pack_coding_found *f, uint32_t plain_len);
