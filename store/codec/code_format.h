/*
 * A coded block: up to 256 KiB of one variable's bytes, told by its type how they become small. It stands for itself:
 * what it takes to decode it is in its header, but for the bytes of its base, where it has one. docs/format.md section
 * 12 changes with this.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/le.h"

#define CODE_MAGIC "ckcb"
#define CODE_VERSION 1
#define CODE_VERSION_LEAD 2 /* with a lead: older versions refuse it */
#define CODE_VERSION_PLACED 3 /* with the place of its base, perhaps with a lead, too: likewise */
#define CODE_VERSION_MATCHED 4 /* with runs that other blocks have (match.h): likewise */
#define CODE_VERSION_LEVELS 5 /* split by levels, perhaps with a lead or a base: likewise */
#define CODE_LEAD_MAX 7u
#define CODE_PLAIN_MAX (256u * 1024)
#define CODE_NR_STRIDES 3
#define CODE_NR_SECTIONS_MAX 12 /* a plane for each byte of the widest element, three more by levels, and what is left over */
#define CODE_LEVEL_BITS_MIN 9u
#define CODE_LEVEL_BITS_MAX 14u
#define CODE_LEVEL_RUN 512u /* elements that have a first level of their own */

enum code_class { CODE_BYTES, CODE_INT, CODE_UINT, CODE_FLOAT, CODE_BFLOAT, NR_CODE_CLASSES };

/* What an element is. Bytes have the width 1 and no order. */
struct code_type {
	enum code_class class;
	unsigned width; /* 1, 2, 4, 8 */
	bool big_endian;
};

/* The steps of coding, in this order; those of decoding are the same backwards. */
enum code_map {
	CODE_MAP_NONE,
	CODE_MAP_ORDERED, /* floats as integers in the same order: neighbours have near numbers, across zero too */
	CODE_MAP_ROTATED, /* the sign below the mantissa: the exponent has the first byte for itself */
	NR_CODE_MAPS
};
enum code_base {
	CODE_BASE_NONE,
	CODE_BASE_XOR,
	CODE_BASE_SUB,
	CODE_BASE_MATCHED, /* no step: version 4, by store/code/match.h */
	NR_CODE_BASES
};
/*
 * Where the base is, for whoever keeps blocks side by side (store/pack): bytes from where their plain bytes begin, all
 * of them before those of this block, and how they become the base. In one word, how << 28 | offset; 0: it is not told.
 */
enum code_place {
	CODE_PLACE_NONE,
	CODE_PLACE_SAME, /* as they are */
	/* floats of 32 bits, rounded to elements of this block (store/code/twin.h) behind its lead */
	CODE_PLACE_ROUNDED_LE,
	CODE_PLACE_ROUNDED_BE,
	/* instead of an offset a bit for each part of MATCH_PART bytes that is named (store/code/match.h) */
	CODE_PLACE_MATCHED,
	/* floats of 16 bits, widened to elements of this block (twin.h, too) behind its lead: bfloat16, and IEEE's */
	CODE_PLACE_WIDENED_BFLOAT_LE,
	CODE_PLACE_WIDENED_BFLOAT_BE,
	CODE_PLACE_WIDENED_FLOAT_LE,
	CODE_PLACE_WIDENED_FLOAT_BE,
	/* as they are, of a block by levels that has no base: it takes no more than those, which are the first bytes of
	 * that block (code_levels_end()) */
	CODE_PLACE_LEVELS,
	NR_CODE_PLACES
};
#define CODE_PLACE_SHIFT 28
#define CODE_PLACE_OFF_MAX ((1u << 20) - 1)
#define CODE_PLACE_PARTS_MAX ((1u << 15) - 1) /* none names the last one of 16 */
/* MATCHED: runs are of what is left in the parts that are named, which is found without decoding what these name */
#define CODE_PLACE_LEFT (1u << 16)
/* LEVELS: between offset and how, how many stored bytes of that block it takes, in units */
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
/* Of LEVELS: stored bytes of a block, from its first one on, of as many as it has. */
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
/* Of MATCHED: a bit for each part that is named. */
static inline uint32_t code_place_parts(uint32_t place)
{
	return code_place_off(place) & ~CODE_PLACE_LEFT;
}
static inline bool code_place_of_left(uint32_t place)
{
	return code_place_how(place) == CODE_PLACE_MATCHED && place & CODE_PLACE_LEFT;
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
/* Of what lies there, rounded or widened. */
static inline struct code_type code_place_type(enum code_place how)
{
	bool is_bfloat = how == CODE_PLACE_WIDENED_BFLOAT_LE || how == CODE_PLACE_WIDENED_BFLOAT_BE;

	return (struct code_type){ .class = is_bfloat ? CODE_BFLOAT : CODE_FLOAT,
				   .width = code_place_is_rounded(how) ? 4 : 2,
				   .big_endian = how == CODE_PLACE_ROUNDED_BE || how == CODE_PLACE_WIDENED_BFLOAT_BE ||
						 how == CODE_PLACE_WIDENED_FLOAT_BE };
}
/* Bytes there that the base of a block of so many is made of; not of one that is matched. */
static inline uint32_t code_place_len(uint32_t place, uint32_t len)
{
	enum code_place how = code_place_how(place);

	return code_place_is_rounded(how) ? 2 * len : code_place_is_widened(how) ? len / 2 : len;
}
/* The other way round, of a type that can be widened. */
static inline enum code_place code_place_widened(struct code_type narrow)
{
	return (narrow.class == CODE_BFLOAT ? CODE_PLACE_WIDENED_BFLOAT_LE : CODE_PLACE_WIDENED_FLOAT_LE) +
	       narrow.big_endian;
}
enum code_predict {
	CODE_PREDICT_NONE,
	CODE_PREDICT_XOR, /* with the element stride[0] before */
	CODE_PREDICT_DELTA, /* for each stride in turn: minus the element that far before. Row and plane make it a Lorenzo
			     * predictor of two and three dimensions */
	CODE_PREDICT_FPC, /* the better of two tables of contexts, of doubles */
	NR_CODE_PREDICTS
};
/*
 * LEVELS: of floats that are rotated. The highest stride[0] bits of an element, its exponent and a few of the mantissa,
 * are its level. Stored of it is how far it is above that of the base and above the first one of its run: as most
 * elements of a run are less than 256 levels apart, the low 8 bits of that are a plane that tells nearly all there is to
 * tell, and those over are hardly ever set. The rest is noise, and stored as it is.
 */
enum code_split { CODE_SPLIT_NONE, CODE_SPLIT_BYTES, CODE_SPLIT_BITS, CODE_SPLIT_LEVELS, NR_CODE_SPLITS };
enum code_entropy { CODE_ENTROPY_NONE, CODE_ENTROPY_LZ4, CODE_ENTROPY_ZSTD, NR_CODE_ENTROPIES };

struct code_header {
	struct code_type type;
	enum code_map map;
	enum code_base base;
	enum code_predict predict;
	bool zigzag; /* small numbers of either sign become small ones without */
	enum code_split split;
	enum code_entropy entropy;
	uint32_t stride[CODE_NR_STRIDES]; /* in elements; 0: none. Split by levels: see there */
	uint32_t lead; /* bytes before the first whole element: less than one has */
	uint32_t plain_len, stored_len; /* stored: behind the header */
	uint32_t base_crc; /* of as many bytes of the base as were used, or its levels; MATCHED: of the plain bytes */
	uint32_t base_place; /* stored before everything else; 0: not told */
};

struct code_header_disk {
	uint8_t magic[4];
	uint8_t version;
	uint8_t type; /* class, | log2 of the width << 4, | 0x80 if big-endian */
	uint8_t map, base, predict, zigzag, split, entropy; /* zigzag: | lead << 4 */
	struct le32 plain_len, stored_len;
	struct le32 stride[CODE_NR_STRIDES];
	struct le32 base_crc;
	struct le32 crc; /* of the bytes before it, then of those behind it */
};
static_assert(sizeof(struct code_header_disk) == 40 && offsetof(struct code_header_disk, crc) == 36, "on disk");

/* Before each section's bytes. */
enum code_section_kind { CODE_SECTION_RAW, CODE_SECTION_CODED, CODE_SECTION_CONSTANT };
#define CODE_SECTION_LEN(word) ((word)&0x3fffffffu)
#define CODE_SECTION_KIND(word) ((word) >> 30)

/* A type as one byte, and back: 0, -EBADMSG. */
uint8_t code_type_encode(struct code_type type);
int code_type_decode(uint8_t byte, struct code_type *ret);
/* Do these steps go together? Lengths and sums are not looked at. */
bool code_steps_valid(const struct code_header *h);
/* `stored` are the h->stored_len bytes behind it, which begin with the place of the base, if it has one. */
void code_header_encode(const struct code_header *h, const void *stored, struct code_header_disk *ret);
/* Of a whole block, header and stored bytes: nothing behind it. -EBADMSG, -EOPNOTSUPP (a later version). */
int code_header_decode(const void *p, size_t len, struct code_header *ret);
/* The same without a look at its sum: for whoever needs its base before it is decoded, which looks at that. */
int code_header_decode_unsummed(const void *p, size_t len, struct code_header *ret);
/* The fields alone, of a block of which not all is there: its sum is not looked at, nor the place of its base. */
int code_header_decode_fields(const void *p, size_t len, struct code_header *ret);
/* Bytes before the sections: the place of the base. */
static inline size_t code_place_room(const struct code_header *h)
{
	bool has_base = h->split == CODE_SPLIT_LEVELS && h->base != CODE_BASE_NONE;

	return h->base_place > 0 || has_base ? sizeof(struct le32) : 0;
}
/* Whole elements of a block. */
static inline uint32_t code_nr_elements(const struct code_header *h)
{
	return (h->plain_len - h->lead) / h->type.width;
}
/* Runs of so many elements. */
static inline uint32_t code_level_runs(size_t nr)
{
	return (uint32_t)((nr + CODE_LEVEL_RUN - 1) / CODE_LEVEL_RUN);
}
/* The lengths of the sections that the steps make, and how many. */
unsigned code_sections(const struct code_header *h, uint32_t ret_len[CODE_NR_SECTIONS_MAX]);
