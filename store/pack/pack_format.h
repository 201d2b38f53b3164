/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The bytes of a pack file. docs/format.md ("Packs") changes with this.
 *
 *   block 0            struct pack_header_disk
 *   block 1 + f * 257  struct pack_table_disk of frame f, then up to 256 blocks of chunk bytes, or a hole
 *
 * Chunks have one length, a multiple of the block size, or arbitrary lengths (content-defined) and then follow each
 * other without gaps. The chunk bytes of a frame are stored unchanged or, with a codec, in parts of 64 KiB that are
 * compressed or coded separately and stored back to back; the last block is padded with zeros. A part that does not
 * shrink is stored unchanged.
 *
 * The seal (a MAC) of a table is keyed with the store's secret: user data can never pass for a table. A reader may
 * therefore look for a table at its place without knowing whether one was ever written there.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "base/le.h"
#include "store/pack/pack.h"

#define PACK_MAGIC "ckptPACK"
#define PACK_TABLE_MAGIC "ckptTABL"
#define PACK_VERSION 1u
#define PACK_TABLE_VERSION 1u
#define PACK_INCOMPAT_KNOWN 0u

/* 3000 frames end below 3 GiB: offsets fit 32 bits and block numbers 20 bits. */
#define PACK_FRAMES_MAX 3000u

struct pack_header_disk {
	uint8_t magic[8];
	struct le32 version, compat, incompat; /* unknown bit in incompat: refuse; in compat: ignore */
	struct le32 pack;
	uint8_t store_id[16];
	struct le16 node, stream;
	struct le32 reserved0;
	struct le64 created_ns;
	uint8_t reserved[4036];
	struct le32 crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct pack_header_disk) == PACK_BLOCK, "on disk");
static_assert(offsetof(struct pack_header_disk, created_ns) == 48, "on disk");
static_assert(offsetof(struct pack_header_disk, crc32c) == 4092, "on disk");

struct pack_header {
	uint32_t compat, incompat, pack;
	uint8_t store_id[16];
	uint16_t node;
	enum pack_stream stream;
	uint64_t created_ns;
};

enum pack_table_kind {
	PACK_TABLE_EQUAL = 1, /* chunks of one length, side by side */
	PACK_TABLE_VARIED = 2, /* chunks of any lengths, side by side */
};

struct pack_varied_disk {
	uint8_t fp[FP_LEN];
	struct le16 len; /* less 1 */
};
static_assert(sizeof(struct pack_varied_disk) == 17, "on disk");

struct pack_table_disk {
	uint8_t magic[8];
	struct le64 seal; /* fp_hash64() of the whole block with this field zero */
	struct le32 version;
	uint8_t kind, codec;
	struct le16 flags; /* none known: all refused */
	struct le32 pack, frame;
	struct le32 chunk_len, nr_chunks; /* chunk_len: 0 if they differ */
	struct le32 stored_len; /* bytes of data that follow */
	struct le32 part_end[PACK_PARTS]; /* in the stored bytes; zero without a codec and for unused parts */
	struct le32 base[PACK_PARTS]; /* coded blocks: a code_place(), or zero */
	uint8_t reserved[84];
	union { /* those not used are zero */
		uint8_t fps[PACK_FRAME_BLOCKS][FP_LEN];
		struct {
			struct pack_varied_disk varied[PACK_VARIED_MAX];
			uint8_t varied_reserved[15];
		};
	};
};
static_assert(sizeof(struct pack_table_disk) == PACK_BLOCK, "on disk");
static_assert(offsetof(struct pack_table_disk, stored_len) == 40, "on disk");
static_assert(offsetof(struct pack_table_disk, part_end) == 44, "on disk");
static_assert(offsetof(struct pack_table_disk, base) == 108, "on disk");
static_assert(offsetof(struct pack_table_disk, fps) == 256, "on disk");
static_assert(offsetof(struct pack_table_disk, varied_reserved) == 4081, "on disk");

/* How the bytes of a frame are stored. */
struct pack_coding {
	enum pack_codec codec;
	uint32_t part_end[PACK_PARTS]; /* in the stored bytes; with a codec only */
	uint32_t base[PACK_PARTS]; /* CODED: as in pack_parts */
};

static inline uint32_t pack_nr_parts(uint32_t plain_len)
{
	return (plain_len + PACK_PART_BYTES - 1) / PACK_PART_BYTES;
}

static inline uint32_t pack_part_len(uint32_t plain_len, uint32_t part)
{
	uint32_t left = plain_len - part * PACK_PART_BYTES;

	return left < PACK_PART_BYTES ? left : PACK_PART_BYTES;
}

static inline uint32_t pack_part_start(const struct pack_coding *c, uint32_t part)
{
	return part == 0 ? 0 : c->part_end[part - 1];
}

/* Stored bytes of a frame, without padding. */
static inline uint32_t pack_stored_len(const struct pack_coding *c, uint32_t plain_len)
{
	return c->codec == PACK_CODEC_NONE ? plain_len : pack_part_start(c, pack_nr_parts(plain_len));
}

/* How many bytes of the frame a part of `len` bytes may need as its base. */
uint32_t pack_base_len(uint32_t place, uint32_t part, uint32_t len);
/* The given parts (bit mask) and all parts needed to decode them. */
uint32_t pack_with_bases(const struct pack_coding *c, uint32_t plain_len, uint32_t parts);
/* The same, for decoding now. *ret_left: parts of which only the left-over bytes are needed (CODE_PLACE_MATCHED), without
 * the runs that they refer to. */
uint32_t pack_to_decode(const struct pack_coding *c, uint32_t plain_len, uint32_t parts, uint32_t *ret_left);
/* The parts that contain the base of one part. */
uint32_t pack_base_parts(const struct pack_coding *c, uint32_t plain_len, uint32_t part);
bool pack_has_bases(const struct pack_coding *c);
/* Does it have runs of other parts (CODE_PLACE_MATCHED)? */
bool pack_is_matched(const struct pack_coding *c, uint32_t part);
/* Does it need only the first stored bytes of its base (CODE_PLACE_LEVELS)? Then the base need not be decoded. */
bool pack_is_by_levels(const struct pack_coding *c, uint32_t part);
/* Where those bytes end, in the stored bytes of the frame. */
uint32_t pack_levels_end(const struct pack_coding *c, uint32_t part);

/* How the plain bytes of a frame are divided into chunks. Borrows `ends`. */
struct pack_cuts {
	uint32_t chunk_len; /* of all chunks; 0: they differ */
	uint32_t nr_chunks;
	const uint32_t *ends; /* if they differ: where each ends */
};

static inline uint32_t pack_cut_end(const struct pack_cuts *c, uint32_t i)
{
	return c->chunk_len ? (i + 1) * c->chunk_len : c->ends[i];
}

static inline uint32_t pack_cut_start(const struct pack_cuts *c, uint32_t i)
{
	return i == 0 ? 0 : pack_cut_end(c, i - 1);
}

static inline uint32_t pack_cut_len(const struct pack_cuts *c, uint32_t i)
{
	return pack_cut_end(c, i) - pack_cut_start(c, i);
}

/* Sum of all chunk lengths. */
static inline uint32_t pack_cut_total(const struct pack_cuts *c)
{
	return pack_cut_start(c, c->nr_chunks);
}

/* The chunk that byte `in` lies in; nr_chunks or more: none. */
uint32_t pack_cut_at(const struct pack_cuts *c, uint32_t in);

static inline bool pack_is_remote(const uint64_t remote[PACK_GONE_WORDS], uint32_t chunk)
{
	return remote[chunk / 64] >> chunk % 64 & 1;
}

static inline bool pack_any_remote(const uint64_t remote[PACK_GONE_WORDS])
{
	return remote[0] | remote[1] | remote[2] | remote[3];
}

struct pack_table {
	uint32_t chunk_len, nr_chunks; /* chunk_len 0: they differ */
	uint32_t ends[PACK_VARIED_MAX]; /* if they differ */
	struct pack_coding coding;
	struct fp fps[PACK_FRAME_BLOCKS]; /* the first nr_chunks */
	uint64_t remote[PACK_GONE_WORDS]; /* remote chunks; not part of the table on disk */
};

static inline struct pack_cuts pack_table_cuts(const struct pack_table *t)
{
	return (struct pack_cuts){ t->chunk_len, t->nr_chunks, t->ends };
}

void pack_header_encode(const struct pack_header *h, struct pack_header_disk *ret);
/* -EBADMSG: not a header, or damaged; -EOPNOTSUPP: intact, but of an unknown version or with unknown features. */
int pack_header_decode(const void *p, size_t len, struct pack_header *ret);

/* Number and lengths of chunks as pack_frame_add() allows. Each part is stored in 1 byte to its plain length. */
void pack_table_encode(const struct pack_table *t, const struct fp_key *key, uint32_t pack, uint32_t frame,
		       struct pack_table_disk *ret);
/* -EBADMSG: no table of this pack and frame, or damaged; -EOPNOTSUPP: intact, but of an unknown kind. */
int pack_table_decode(const void *p, size_t len, const struct fp_key *key, uint32_t pack, uint32_t frame,
		      struct pack_table *ret);
uint64_t pack_table_seal(const struct pack_table_disk *d, const struct fp_key *key);

bool pack_block_is_zero(const void *block); /* PACK_BLOCK bytes */

/* Maximum number of chunks in a frame. */
static inline uint32_t pack_nr_chunks_max(uint32_t chunk_len)
{
	return chunk_len ? PACK_FRAME_BYTES / chunk_len : PACK_VARIED_MAX;
}

static inline bool pack_chunk_len_valid(uint32_t chunk_len)
{
	return chunk_len > 0 && chunk_len <= PACK_FRAME_BYTES && chunk_len % PACK_BLOCK == 0;
}

/* File offset of a frame's table, and of its data. */
static inline uint32_t pack_table_off(uint32_t frame)
{
	return (1 + frame * PACK_FRAME_STRIDE) * PACK_BLOCK;
}

static inline uint32_t pack_data_off(uint32_t frame)
{
	return pack_table_off(frame) + PACK_BLOCK;
}

/* Frame that an offset lies in, and the offset in its data; false: it points to a header or table, or too far. */
static inline bool pack_place_of(uint32_t off, uint32_t *ret_frame, uint32_t *ret_in)
{
	uint32_t block = off / PACK_BLOCK;
	uint32_t frame = block == 0 ? 0 : (block - 1) / PACK_FRAME_STRIDE;

	if (frame >= PACK_FRAMES_MAX || off < pack_data_off(frame))
		return false;
	*ret_frame = frame;
	*ret_in = off - pack_data_off(frame);
	return true;
}

/* packs/<8 hex digits>.pack */
struct pack_name {
	char s[16];
};
struct pack_name pack_name(uint32_t pack);
bool pack_name_parse(const char *name, uint32_t *ret); /* false: not a pack's */
