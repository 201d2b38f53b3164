/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A coded block: up to 256 KiB of one variable, compressed with knowledge of its type. It is self-contained: everything
 * needed to decode it is in its header, except for the bytes of its base, if it has one. docs/format.md section 12
 * changes with this.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/le.h"

#define CODE_MAGIC "ckcb"
#define CODE_VERSION 1
#define CODE_PLAIN_MAX (256u * 1024)
#define CODE_NR_STRIDES 3
#define CODE_RECORD_MIN 2u /* bytes of a record that is split into columns */
#define CODE_RECORD_MAX 256u
#define CODE_NR_SECTIONS_MAX (CODE_RECORD_MAX + 2) /* columns, how each is stored, the remainder */
#define CODE_LEVEL_BITS_MIN 9u
#define CODE_LEVEL_BITS_MAX 14u
#define CODE_LEVEL_RUN 512u /* elements that share a first level */

enum code_class { CODE_BYTES, CODE_INT, CODE_UINT, CODE_FLOAT, CODE_BFLOAT, NR_CODE_CLASSES };

/* Element type. Bytes have width 1 and no byte order. */
struct code_type {
	enum code_class class;
	unsigned width; /* 1, 2, 4, 8 */
	bool big_endian;
};

/* The steps of coding, in this order; decoding reverses them. */
enum code_map {
	CODE_MAP_NONE,
	CODE_MAP_ORDERED, /* floats as integers of the same order: close values have close integers, across zero too */
	CODE_MAP_ROTATED, /* the sign below the mantissa: the exponent alone fills the first byte */
	NR_CODE_MAPS
};
enum code_base {
	CODE_BASE_NONE,
	CODE_BASE_XOR,
	CODE_BASE_SUB,
	CODE_BASE_MATCHED, /* not a step: runs copied from other blocks, by store/codec/match.h */
	NR_CODE_BASES
};
/*
 * Where the base is, if blocks are stored side by side (store/pack): an offset in their common plain bytes, entirely
 * before this block, and how those bytes become the base. Encoded in one word, how << 28 | offset; 0: not given.
 */
enum code_place {
	CODE_PLACE_NONE,
	CODE_PLACE_SAME, /* unchanged */
	/* 32-bit floats, rounded to elements of this block (store/codec/twin.h) behind its lead */
	CODE_PLACE_ROUNDED_LE,
	CODE_PLACE_ROUNDED_BE,
	/* instead of an offset: a bit mask of the parts of MATCH_PART bytes that it refers to (store/codec/match.h), of
	 * which it needs the left-over elements only: these are found without decoding their runs */
	CODE_PLACE_MATCHED,
	/* 16-bit floats, widened to elements of this block (also twin.h) behind its lead: bfloat16 and IEEE */
	CODE_PLACE_WIDENED_BFLOAT_LE,
	CODE_PLACE_WIDENED_BFLOAT_BE,
	CODE_PLACE_WIDENED_FLOAT_LE,
	CODE_PLACE_WIDENED_FLOAT_BE,
	/* unchanged, and the base is a block by levels without a base: only its levels are used, which are the first
	 * bytes of that block (code_levels_end()) */
	CODE_PLACE_LEVELS,
	NR_CODE_PLACES
};
#define CODE_PLACE_SHIFT 28
#define CODE_PLACE_OFF_MAX ((1u << 20) - 1)
#define CODE_PLACE_PARTS_MAX ((1u << 15) - 1) /* no part can refer to the last of 16 */
/* LEVELS: between offset and how: number of stored bytes of the base's block that are needed, in units */
#define CODE_PLACE_UNIT 256u
#define CODE_PLACE_UNITS_SHIFT 20
static inline uint32_t code_place(enum code_place how, uint32_t off)
{
	return (uint32_t)how << CODE_PLACE_SHIFT | off;
}
static inline enum code_place code_place_how(uint32_t place)
{
	return (enum code_place)(place >> CODE_PLACE_SHIFT);
}
static inline uint32_t code_place_off(uint32_t place)
{
	bool is_levels = code_place_how(place) == CODE_PLACE_LEVELS;

	return place & ((1u << (is_levels ? CODE_PLACE_UNITS_SHIFT : CODE_PLACE_SHIFT)) - 1);
}
/* LEVELS: place for a base at `off` of which the first `stored` stored bytes are needed. */
static inline uint32_t code_place_levels(uint32_t off, uint32_t stored)
{
	uint32_t units = (stored + CODE_PLACE_UNIT - 1) / CODE_PLACE_UNIT;

	assert(units > 0 && units < 1u << (CODE_PLACE_SHIFT - CODE_PLACE_UNITS_SHIFT));
	return code_place(CODE_PLACE_LEVELS, units << CODE_PLACE_UNITS_SHIFT | off);
}
static inline uint32_t code_place_stored(uint32_t place)
{
	return (place >> CODE_PLACE_UNITS_SHIFT & 0xff) * CODE_PLACE_UNIT;
}
/* MATCHED: bit mask of the parts referred to. */
static inline uint32_t code_place_parts(uint32_t place)
{
	return code_place_off(place);
}
static inline bool code_place_valid(uint32_t place)
{
	if (code_place_how(place) == CODE_PLACE_MATCHED)
		return code_place_parts(place) <= CODE_PLACE_PARTS_MAX;
	if (code_place_how(place) == CODE_PLACE_LEVELS)
		return code_place_stored(place) > 0;
	return code_place_how(place) > CODE_PLACE_NONE && code_place_how(place) < NR_CODE_PLACES &&
	       code_place_off(place) <= CODE_PLACE_OFF_MAX;
}
static inline bool code_place_is_rounded(enum code_place how)
{
	return how == CODE_PLACE_ROUNDED_LE || how == CODE_PLACE_ROUNDED_BE;
}
static inline bool code_place_is_widened(enum code_place how)
{
	return how >= CODE_PLACE_WIDENED_BFLOAT_LE && how <= CODE_PLACE_WIDENED_FLOAT_BE;
}
/* Element type of the bytes at a rounded or widened place. */
static inline struct code_type code_place_type(enum code_place how)
{
	bool is_bfloat = how == CODE_PLACE_WIDENED_BFLOAT_LE || how == CODE_PLACE_WIDENED_BFLOAT_BE;

	return (struct code_type){ .class = is_bfloat ? CODE_BFLOAT : CODE_FLOAT,
				   .width = code_place_is_rounded(how) ? 4 : 2,
				   .big_endian = how == CODE_PLACE_ROUNDED_BE || how == CODE_PLACE_WIDENED_BFLOAT_BE ||
						 how == CODE_PLACE_WIDENED_FLOAT_BE };
}
/* Number of bytes at the place that form the base of a block of `len` bytes; not for MATCHED. */
static inline uint32_t code_place_len(uint32_t place, uint32_t len)
{
	enum code_place how = code_place_how(place);

	return code_place_is_rounded(how) ? 2 * len : code_place_is_widened(how) ? len / 2 : len;
}
/* The reverse, for a type that can be widened. */
static inline enum code_place code_place_widened(struct code_type narrow)
{
	return (narrow.class == CODE_BFLOAT ? CODE_PLACE_WIDENED_BFLOAT_LE : CODE_PLACE_WIDENED_FLOAT_LE) +
	       narrow.big_endian;
}
enum code_predict {
	CODE_PREDICT_NONE,
	CODE_PREDICT_XOR, /* with the element stride[0] before */
	CODE_PREDICT_DELTA, /* for each stride in turn: minus the element that far before. With row and plane strides
			     * this is a Lorenzo predictor in two and three dimensions */
	CODE_PREDICT_FPC, /* doubles: the better prediction of two context tables */
	NR_CODE_PREDICTS
};
/*
 * LEVELS: for rotated floats. The highest stride[0] bits of an element, its exponent and a few bits of the mantissa,
 * are its level. A level is stored as its difference to the level of the base and to the first level of its run. Since
 * most elements of a run are less than 256 levels apart, the low 8 bits of the difference form a plane with nearly all
 * of the information, and the bits above them are hardly ever set. The rest of the element is noise, stored unchanged.
 */
enum code_split {
	CODE_SPLIT_NONE,
	CODE_SPLIT_BYTES,
	CODE_SPLIT_BITS,
	CODE_SPLIT_LEVELS,
	CODE_SPLIT_COLUMNS, /* of bytes: records of stride[0] bytes (code_columns.h) */
	NR_CODE_SPLITS
};
enum code_entropy { CODE_ENTROPY_NONE, CODE_ENTROPY_LZ4, CODE_ENTROPY_ZSTD, NR_CODE_ENTROPIES };

struct code_header {
	struct code_type type;
	enum code_map map;
	enum code_base base;
	enum code_predict predict;
	bool zigzag; /* map small signed numbers to small unsigned ones */
	enum code_split split;
	enum code_entropy entropy;
	uint32_t stride[CODE_NR_STRIDES]; /* in elements; 0: none. LEVELS, COLUMNS: see there */
	uint32_t lead; /* bytes before the first whole element: less than the element width */
	uint32_t plain_len, stored_len; /* stored_len: without the header */
	uint32_t base_crc; /* of the bytes of the base that were used, or of its levels; MATCHED: of the plain bytes */
	uint32_t base_place; /* stored before everything else; 0: not given */
	bool near; /* MATCHED: each run has a kind (match_runs.h) */
};

struct code_header_disk {
	uint8_t magic[4];
	uint8_t version;
	uint8_t type; /* class, | log2 of the width << 4, | 0x80 if big-endian */
	uint8_t map, base, predict, flags, split, entropy; /* flags: CODE_FLAG_*, | lead << CODE_LEAD_SHIFT */
	struct le32 plain_len, stored_len;
	struct le32 stride[CODE_NR_STRIDES];
	struct le32 base_crc;
	struct le32 crc; /* of all bytes before it, then of those behind it */
};
static_assert(sizeof(struct code_header_disk) == 40 && offsetof(struct code_header_disk, crc) == 36, "on disk");
#define CODE_FLAG_ZIGZAG 1u
#define CODE_FLAG_PLACED 2u /* the place of the base comes before the sections */
#define CODE_FLAG_NEAR 4u /* MATCHED: each run has a kind */
#define CODE_LEAD_SHIFT 4

/* Precedes the bytes of each section. */
enum code_section_kind { CODE_SECTION_RAW, CODE_SECTION_CODED, CODE_SECTION_CONSTANT };
#define CODE_SECTION_LEN(word) ((word)&0x3fffffffu)
#define CODE_SECTION_KIND(word) ((word) >> 30)

/* Encode a type as one byte, and decode it: 0, -EBADMSG. */
uint8_t code_type_encode(struct code_type type);
int code_type_decode(uint8_t byte, struct code_type *ret);
/* Is this combination of steps valid? Lengths and checksums are ignored. */
bool code_steps_valid(const struct code_header *h);
/* `stored`: the h->stored_len bytes behind the header, which begin with the place of the base, if any. */
void code_header_encode(const struct code_header *h, const void *stored, struct code_header_disk *ret);
/* Decode the header of a whole block with nothing behind it. -EBADMSG, -EOPNOTSUPP (a later version). */
int code_header_decode(const void *p, size_t len, struct code_header *ret);
/* The same without verifying the checksum, to find the base before decoding, which verifies it. */
int code_header_decode_unsummed(const void *p, size_t len, struct code_header *ret);
/* The fields alone, of an incomplete block: neither the checksum nor the place of the base is read. */
int code_header_decode_fields(const void *p, size_t len, struct code_header *ret);
/* Bytes before the sections: for the place of the base. */
static inline size_t code_place_room(const struct code_header *h)
{
	return h->base_place > 0 ? sizeof(struct le32) : 0;
}
/* The place of the base of a block that was decoded; 0: not given. */
static inline uint32_t code_place_in_block(const void *block)
{
	const struct code_header_disk *d = block;

	return d->flags & CODE_FLAG_PLACED ? le32_get(*(const struct le32 *)(d + 1)) : 0;
}
/* Number of whole elements of a block. */
static inline uint32_t code_nr_elements(const struct code_header *h)
{
	return (h->plain_len - h->lead) / h->type.width;
}
/* Number of runs for `nr` elements. */
static inline uint32_t code_level_runs(size_t nr)
{
	return (uint32_t)((nr + CODE_LEVEL_RUN - 1) / CODE_LEVEL_RUN);
}
/* Lengths of the sections that the steps produce, and their number. */
unsigned code_sections(const struct code_header *h, uint32_t ret_len[CODE_NR_SECTIONS_MAX]);
