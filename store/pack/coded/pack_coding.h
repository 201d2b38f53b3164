/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reconstructs how a frame was compressed without relying on its table. Pure except for the coder's working memory.
 *
 * The table is only one of several sources: the end of a part also follows from its own bytes, and from where the next
 * part begins. The result is not proved; the caller compares the plain bytes with fingerprints.
 */
#pragma once

#include "store/pack/coded/codec.h"

struct pack_coding_found {
	struct pack_coding coding; /* ends of all possible parts */
	uint32_t plain_len; /* apparent length */
	bool last_is_guessed; /* the last part is stored uncompressed, and its length is unknown */
};

/*
 * Assume that the data of a frame (PACK_FRAME_BYTES, with zeros beyond the end of the file) is compressed with `codec`.
 * `said`: its table as found on disk. 1: ret_plain (PACK_FRAME_BYTES) holds the contents of the parts, undefined
 * where they are lost; 0: nothing looks compressed; -ENOMEM.
 */
int pack_coding_find(struct coder *c, enum pack_codec codec, const struct pack_table_disk *said, const uint8_t *stored,
		     uint8_t *ret_plain, struct pack_coding_found *ret);
/* The coding for a known plain_len: not 0, and such that a table can encode it. */
struct pack_coding pack_coding_settle(const struct pack_coding_found *f, uint32_t plain_len);
