/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/code.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "store/codec/code_columns.h"
#include "store/codec/code_entropy.h"
#include "store/codec/code_levels.h"
#include "store/codec/code_steps.h"

/* Two arrays that the steps alternate between, and the elements, or levels, of the base. */
struct code_work {
	uint8_t *array[2], *base;
	struct code_fpc_tables *fpc;
	struct code_entropy_work *entropy;
};

struct code_work *code_work_new(void)
{
	struct code_work *w = calloc(1, sizeof(*w));
	uint8_t *arrays;

	if (!w)
		return NULL;
	arrays = aligned_alloc(CODE_ALIGN, 3 * round_up(CODE_ROOM, CODE_ALIGN));
	w->array[0] = arrays;
	w->fpc = malloc(sizeof(*w->fpc));
	w->entropy = code_entropy_new();
	if (!arrays || !w->fpc || !w->entropy) {
		code_work_free(w);
		return NULL;
	}
	w->array[1] = arrays + round_up(CODE_ROOM, CODE_ALIGN);
	w->base = arrays + 2 * round_up(CODE_ROOM, CODE_ALIGN);
	return w;
}

void code_work_free(struct code_work *w)
{
	if (!w)
		return;
	free(w->array[0]);
	free(w->fpc);
	code_entropy_free(w->entropy);
	free(w);
}

/* Load nr whole elements behind the lead, from element `at` on; missing ones are zeros. */
static void load(const struct code_header *h, const void *p, size_t len, size_t at, uint8_t *ret, size_t nr)
{
	size_t from = h->lead + at * h->type.width, have = len > from ? MIN(len - from, nr * h->type.width) : 0;

	if (have > 0)
		memcpy(ret, (const uint8_t *)p + from, have);
	memset(ret + have, 0, nr * h->type.width - have);
	if (h->type.big_endian)
		code_swap(ret, nr, h->type.width);
	code_map_in(ret, nr, h->type.width, h->map);
}

/* Checksum of the bytes of the base that are used. */
static uint32_t base_crc(const struct code_header *h, const void *base, size_t base_len)
{
	return h->base == CODE_BASE_NONE ? 0 : crc32c(base, MIN(base_len, (size_t)h->plain_len));
}

/* The steps before splitting: from array[0] to the returned array. `which` is for FPC. */
static uint8_t *predict(struct code_work *w, const struct code_header *h, size_t nr, uint8_t *which)
{
	uint8_t *from = w->array[0], *to = w->array[1];

	switch (h->predict) {
	case CODE_PREDICT_XOR:
		code_xor_in(from, to, nr, h->type.width, h->stride[0]);
		return to;
	case CODE_PREDICT_FPC:
		code_fpc_in(w->fpc, (uint64_t *)from, (uint64_t *)to, nr, which);
		return to;
	case CODE_PREDICT_DELTA:
		for (unsigned i = 0; i < CODE_NR_STRIDES && h->stride[i] > 0; i++) {
			uint8_t *was = from;

			code_delta_in(from, to, nr, h->type.width, h->stride[i]);
			from = to;
			to = was;
		}
		return from;
	default:
		return from;
	}
}

static void predict_back(struct code_work *w, const struct code_header *h, uint8_t *a, size_t nr, const uint8_t *which)
{
	switch (h->predict) {
	case CODE_PREDICT_XOR:
		code_xor_out(a, nr, h->type.width, h->stride[0]);
		break;
	case CODE_PREDICT_FPC:
		code_fpc_out(w->fpc, (uint64_t *)a, nr, which);
		break;
	case CODE_PREDICT_DELTA:
		for (unsigned i = 0; i < CODE_NR_STRIDES && h->stride[i] > 0; i++)
			code_delta_out(a, nr, h->type.width, h->stride[i]);
		break;
	default:
		break;
	}
}

/* Levels of the base, from its plain bytes; zeros if there is none. They are stored in place of its elements. */
static uint16_t *base_levels(struct code_work *w, const struct code_header *h, const void *base, size_t base_len)
{
	uint16_t *levels = (uint16_t *)w->base;
	size_t nr = code_nr_elements(h);

	if (h->base == CODE_BASE_NONE) {
		memset(levels, 0, nr * sizeof(*levels));
	} else {
		load(h, base, base_len, 0, w->array[1], nr);
		code_levels_of(w->array[1], levels, nr, h->type.width, h->stride[0]);
	}
	return levels;
}

static uint32_t levels_crc(const struct code_header *h, const uint16_t *levels)
{
	return h->base == CODE_BASE_NONE ? 0 : crc32c(levels, code_nr_elements(h) * sizeof(*levels));
}

/* Copy the bytes outside whole elements behind the sections of elements. */
static void add_rest(const struct code_header *h, const uint8_t *p, uint8_t *ret)
{
	size_t behind = h->lead + code_nr_elements(h) * h->type.width;

	memcpy(ret, p, h->lead);
	memcpy(ret + h->lead, p + behind, h->plain_len - behind);
}

/* Like transform(), for a block by levels; sets the checksum of the base in its header. */
static uint8_t *transform_levels(struct code_work *w, struct code_header *h, const uint8_t *p, size_t len,
				 const void *base, size_t base_len)
{
	const uint16_t *against = base_levels(w, h, base, base_len);
	uint16_t *levels = (uint16_t *)w->array[1];
	uint8_t firsts[CODE_PLAIN_MAX / 2 / CODE_LEVEL_RUN * sizeof(struct le16)];
	size_t nr = code_nr_elements(h);

	static_assert(CODE_LEVELS_ROOM <= sizeof(*w->fpc), "FPC is not used with levels: its tables are for counting");
	load(h, p, len, 0, w->array[0], nr);
	code_levels_of(w->array[0], levels, nr, h->type.width, h->stride[0]);
	code_levels_firsts(levels, against, h, (uint32_t *)(void *)w->fpc, firsts);
	h->base_crc = levels_crc(h, against);
	memcpy(w->array[1], firsts, code_level_runs(nr) * sizeof(struct le16));
	code_levels_split(w->array[0], against, h, w->array[1]);
	add_rest(h, p, w->array[1] + code_levels_bytes(h));
	return w->array[1];
}

/* Like transform(), for records. */
static uint8_t *transform_columns(struct code_work *w, const struct code_header *h, const uint8_t *p, size_t len,
				  const void *base, size_t base_len)
{
	size_t rest = len % h->stride[0];

	code_columns_split(h, p, base, base_len, w->array[0], w->array[1]);
	memcpy(w->array[1] + code_columns_bytes(h), p + len - rest, rest);
	return w->array[1];
}

/* All steps but the last. Returns the array with the consecutive sections. */
static uint8_t *transform(struct code_work *w, struct code_header *h, const uint8_t *p, size_t len, const void *base,
			  size_t base_len)
{
	size_t nr = code_nr_elements(h), planes = nr * h->type.width;
	uint8_t which[CODE_PLAIN_MAX / 64], *a, *to;

	if (h->split == CODE_SPLIT_LEVELS)
		return transform_levels(w, h, p, len, base, base_len);
	if (h->split == CODE_SPLIT_COLUMNS)
		return transform_columns(w, h, p, len, base, base_len);
	load(h, p, len, 0, w->array[0], nr);
	if (h->base != CODE_BASE_NONE) {
		load(h, base, base_len, 0, w->base, nr);
		code_base_in(w->array[0], w->base, nr, h->type.width, h->base);
	}
	a = predict(w, h, nr, which);
	if (h->zigzag)
		code_zigzag_in(a, nr, h->type.width);
	to = a == w->array[0] ? w->array[1] : w->array[0];
	if (h->split == CODE_SPLIT_NONE) {
		to = a;
	} else if (h->split == CODE_SPLIT_BYTES) {
		code_bytes_in(a, to, nr, h->type.width);
	} else {
		code_bits_in(a, to, nr, h->type.width);
		planes = round_up(nr, 8) * h->type.width;
	}
	if (h->predict == CODE_PREDICT_FPC) {
		memcpy(to + planes, which, (nr + 7) / 8);
		planes += (nr + 7) / 8;
	}
	add_rest(h, p, to + planes);
	return to;
}

/* Store a section at `ret`, and its word in the table. Returns its stored length; -ENOMEM. */
static int section_in(struct code_work *w, const struct coder_spec *spec, const uint8_t *p, uint32_t len, uint8_t *ret,
		      struct le32 *ret_word)
{
	enum code_section_kind kind = CODE_SECTION_CODED;
	int n;

	if (len > 1 && memcmp(p, p + 1, len - 1) == 0) {
		kind = CODE_SECTION_CONSTANT;
		*ret = *p;
		n = 1;
	} else {
		n = code_entropy_in(w->entropy, spec->steps.entropy, spec->level, p, len, ret);
		if (n < 0)
			return n;
		if (n == 0) {
			kind = CODE_SECTION_RAW;
			memcpy(ret, p, len);
			n = (int)len;
		}
	}
	*ret_word = le32_put((uint32_t)n | (uint32_t)kind << 30);
	return n;
}

/* Store all sections in fewer than `room_len` bytes. Returns the length; 0: not fewer; -ENOMEM. */
static int sections_in(struct code_work *w, const struct coder_spec *spec, const struct code_header *h,
		       const uint8_t *a, uint8_t *ret, size_t room_len)
{
	/* The base is not needed any more. Its memory is large enough for one section or all: together they are no
	 * longer than the plain bytes and the extra of CODE_ROOM. */
	uint8_t *room = w->base;
	uint32_t len[CODE_NR_SECTIONS_MAX];
	struct le32 words[CODE_NR_SECTIONS_MAX];
	unsigned nr = code_sections(h, len);
	size_t all = nr * sizeof(*words);

	for (unsigned i = 0; i < nr; i++) {
		int n = section_in(w, spec, a, len[i], room, &words[i]);

		if (n < 0)
			return n;
		if (all + (size_t)n >= room_len)
			return 0;
		memcpy(ret + all, room, (size_t)n);
		all += (size_t)n;
		a += len[i];
	}
	memcpy(ret, words, nr * sizeof(*words));
	return (int)all;
}

/* A block without any step: its bytes follow the header, without sections. */
static bool is_plain(const struct code_header *h)
{
	return h->type.class == CODE_BYTES && h->base == CODE_BASE_NONE && h->predict == CODE_PREDICT_NONE &&
	       !h->zigzag && h->split == CODE_SPLIT_NONE && h->entropy == CODE_ENTROPY_NONE;
}

int code_encode(struct code_work *w, const struct coder_spec *spec, const void *p, size_t len, const void *base,
		size_t base_len, void *ret)
{
	struct code_header_disk *d = ret;
	struct code_header h = spec->steps;
	uint8_t *stored = (uint8_t *)(d + 1);
	size_t skip;
	int n;

	assert(len <= CODE_PLAIN_MAX && code_steps_valid(&h));
	h.plain_len = (uint32_t)len;
	if (h.lead > len)
		h.lead = 0;
	if (h.base == CODE_BASE_NONE)
		h.base_place = 0;
	skip = code_place_room(&h);
	h.base_crc = h.split == CODE_SPLIT_LEVELS ? 0 : base_crc(&h, base, base_len);
	n = is_plain(&h) || len <= skip ?
		    0 :
		    sections_in(w, spec, &h, transform(w, &h, p, len, base, base_len), stored + skip, len - skip);
	if (n < 0)
		return n;
	if (n > 0) {
		if (skip > 0)
			*(struct le32 *)stored = le32_put(h.base_place);
		n += (int)skip;
	} else {
		h = (struct code_header){ .type = { CODE_BYTES, 1, false }, .plain_len = (uint32_t)len };
		memcpy(stored, p, len);
		n = (int)len;
	}
	h.stored_len = (uint32_t)n;
	code_header_encode(&h, stored, d);
	return (int)sizeof(*d) + n;
}

/* Locate the bytes of a section: in the block if stored uncompressed, else decompressed at `room`, which has `len`. */
static int section_out(struct code_work *w, const struct code_header *h, uint32_t word, const uint8_t *p, size_t left,
		       uint8_t *room, uint32_t len, const uint8_t **ret)
{
	uint32_t n = CODE_SECTION_LEN(word);

	if (n > left)
		return -EBADMSG;
	*ret = room;
	switch (CODE_SECTION_KIND(word)) {
	case CODE_SECTION_RAW:
		*ret = p;
		return n == len ? 0 : -EBADMSG;
	case CODE_SECTION_CONSTANT:
		if (n != 1)
			return -EBADMSG;
		memset(room, *p, len);
		return 0;
	case CODE_SECTION_CODED:
		return code_entropy_out(w->entropy, h->entropy, p, n, room, len);
	default:
		return -EBADMSG;
	}
}

/* Returns the number of sections. */
static int sections_out(struct code_work *w, const struct code_header *h, const uint8_t *p,
			const uint8_t *ret[CODE_NR_SECTIONS_MAX])
{
	uint32_t len[CODE_NR_SECTIONS_MAX];
	unsigned nr = code_sections(h, len);
	size_t left = h->stored_len - code_place_room(h);
	uint8_t *room = w->array[0];
	const struct le32 *words;
	int r;

	if (left < nr * sizeof(*words))
		return -EBADMSG;
	p += code_place_room(h);
	words = (const struct le32 *)p;
	left -= nr * sizeof(*words);
	p += nr * sizeof(*words);
	for (unsigned i = 0; i < nr; i++) {
		r = section_out(w, h, le32_get(words[i]), p, left, room, len[i], &ret[i]);
		if (r < 0)
			return r;
		p += CODE_SECTION_LEN(le32_get(words[i]));
		left -= CODE_SECTION_LEN(le32_get(words[i]));
		room += len[i];
	}
	return left == 0 ? (int)nr : -EBADMSG;
}

/* Join n elements from `at` on from their sections. */
static void join(struct code_work *w, const struct code_header *h, const uint8_t *const sections[], size_t at,
		 uint8_t *ret, size_t n)
{
	const uint8_t *planes[sizeof(uint64_t)];
	unsigned width = h->type.width;

	switch (h->split) {
	case CODE_SPLIT_BYTES:
		for (unsigned b = 0; b < width; b++)
			planes[b] = sections[b] + at;
		code_bytes_out(planes, ret, n, width);
		break;
	case CODE_SPLIT_BITS: /* needs consecutive planes */
		for (unsigned b = 0; b < width; b++)
			memmove(w->array[0] + b * round_up(n, 8), sections[b], round_up(n, 8));
		code_bits_out(w->array[0], ret, n, width);
		break;
	default:
		memcpy(ret, sections[0], n * width);
	}
}

/* Elements that go through all steps before the next ones, so that they stay in the L1 cache. */
#define STRIP 2048u

/* `to`: where the elements are wanted, perhaps unaligned. */
static void elements_out(struct code_work *w, const struct code_header *h, const uint8_t *const sections[],
			 const uint8_t *rest, const void *base, size_t base_len, uint8_t *to)
{
	size_t nr = code_nr_elements(h), n;
	unsigned width = h->type.width;
	bool is_each_for_itself = h->split == CODE_SPLIT_BYTES && h->predict == CODE_PREDICT_NONE;
	bool in_place = (uintptr_t)to % width == 0;

	for (size_t at = 0; at < nr; at += n) {
		uint8_t *a = in_place ? to + at * width : w->array[1];

		n = is_each_for_itself ? MIN(nr - at, (size_t)STRIP) : nr;
		join(w, h, sections, at, a, n);
		if (h->zigzag)
			code_zigzag_out(a, n, width);
		predict_back(w, h, a, n, rest);
		if (h->base != CODE_BASE_NONE) {
			load(h, base, base_len, at, w->base, n);
			code_base_out(a, w->base, n, width, h->base);
		}
		code_map_out(a, n, width, h->map);
		if (h->type.big_endian)
			code_swap(a, n, width);
		if (!in_place)
			memcpy(to + at * width, a, n * width);
	}
}

/* Copy the bytes outside whole elements from behind the sections of elements. */
static void rest_out(const struct code_header *h, const uint8_t *rest, uint8_t *ret)
{
	size_t behind = h->lead + code_nr_elements(h) * h->type.width;

	memcpy(ret, rest, h->lead);
	memcpy(ret + behind, rest + h->lead, h->plain_len - behind);
}

/* Join records, and copy the bytes behind the last whole one. */
static int columns_out(const struct code_header *h, const uint8_t *const sections[], const void *base, size_t base_len,
		       uint8_t *ret)
{
	size_t rest = h->plain_len % h->stride[0];
	int r;

	r = code_columns_join(sections, h, base, base_len, ret);
	if (r < 0)
		return r;
	if (rest > 0)
		memcpy(ret + h->plain_len - rest, sections[1 + h->stride[0]], rest);
	return (int)h->plain_len;
}

static int decode_steps(struct code_work *w, const struct code_header *h, const uint8_t *stored, const void *base,
			size_t base_len, uint8_t *ret)
{
	const uint8_t *sections[CODE_NR_SECTIONS_MAX], *rest;
	int nr = sections_out(w, h, stored, sections);

	if (nr < 0)
		return nr;
	if (h->split == CODE_SPLIT_COLUMNS)
		return columns_out(h, sections, base, base_len, ret);
	rest = sections[nr - 1]; /* if any; with FPC the bits of its tables come first */
	elements_out(w, h, sections, rest, base, base_len, ret + h->lead);
	rest_out(h, rest + (h->predict == CODE_PREDICT_FPC ? (code_nr_elements(h) + 7) / 8 : 0), ret);
	return (int)h->plain_len;
}

/* Find the sections of a block by levels that contain levels. Sets its fields in `ret` and the words of the sections in
 * ret_words. Returns the end of these sections; -EBADMSG: they are incomplete, or it is not such a block. */
static int levels_sections(const void *p, size_t len, struct code_header *ret,
			   uint32_t ret_words[CODE_LEVELS_NR_SECTIONS])
{
	const struct le32 *words = (const struct le32 *)((const struct code_header_disk *)p + 1);
	uint32_t section_len[CODE_NR_SECTIONS_MAX];
	size_t at = sizeof(struct code_header_disk);
	unsigned nr;

	if (code_header_decode_fields(p, len, ret) < 0 || ret->split != CODE_SPLIT_LEVELS || ret->base != CODE_BASE_NONE)
		return -EBADMSG;
	nr = code_sections(ret, section_len);
	at += nr * sizeof(*words);
	if (len < at)
		return -EBADMSG;
	for (unsigned i = 0; i < CODE_LEVELS_NR_SECTIONS; i++) {
		ret_words[i] = le32_get(words[i]);
		if (CODE_SECTION_LEN(ret_words[i]) > len - at)
			return -EBADMSG;
		at += CODE_SECTION_LEN(ret_words[i]);
	}
	return (int)at;
}

size_t code_levels_end(const void *p, size_t len)
{
	uint32_t words[CODE_LEVELS_NR_SECTIONS];
	struct code_header h;
	int end = levels_sections(p, len, &h, words);

	return end < 0 ? 0 : (size_t)end;
}

/* Like base_levels(), from the first stored bytes of its block; NULL: damaged, or its elements differ. */
static uint16_t *block_levels(struct code_work *w, const struct code_header *h, const void *block, size_t len)
{
	uint32_t words[CODE_LEVELS_NR_SECTIONS], lens[CODE_NR_SECTIONS_MAX];
	const uint8_t *sections[CODE_LEVELS_NR_SECTIONS], *p = block;
	uint16_t *levels = (uint16_t *)w->base;
	uint8_t *room = w->array[0];
	struct code_header b;
	int end = levels_sections(block, len, &b, words);

	if (end < 0 || code_type_encode(b.type) != code_type_encode(h->type) || b.stride[0] != h->stride[0] ||
	    b.lead != h->lead || code_nr_elements(&b) < code_nr_elements(h))
		return NULL;
	p += sizeof(struct code_header_disk) + code_sections(&b, lens) * sizeof(struct le32);
	for (unsigned i = 0; i < CODE_LEVELS_NR_SECTIONS; i++) {
		if (section_out(w, &b, words[i], p, CODE_SECTION_LEN(words[i]), room, lens[i], &sections[i]) < 0)
			return NULL;
		p += CODE_SECTION_LEN(words[i]);
		room += lens[i];
	}
	code_levels_get(sections, &b, levels, code_nr_elements(h));
	return levels;
}

static int decode_levels(struct code_work *w, const struct code_header *h, const uint8_t *stored,
			 const uint16_t *against, uint8_t *ret)
{
	const uint8_t *sections[CODE_NR_SECTIONS_MAX];
	uint8_t *to = ret + h->lead;
	bool in_place = (uintptr_t)to % h->type.width == 0;
	int nr;

	if (!against || levels_crc(h, against) != h->base_crc)
		return -EBADMSG;
	nr = sections_out(w, h, stored, sections);
	if (nr < 0)
		return nr;
	code_levels_join(sections, against, h, in_place ? to : w->array[1]);
	if (!in_place)
		memcpy(to, w->array[1], code_nr_elements(h) * h->type.width);
	rest_out(h, sections[nr - 1], ret);
	return (int)h->plain_len;
}

/* Decode the header and check that the plain bytes fit into `room`. */
static int take_header(const void *p, size_t len, size_t room, struct code_header *ret)
{
	int r = code_header_decode(p, len, ret);

	return r < 0 ? r : ret->plain_len > room ? -ENOBUFS : 0;
}

int code_decode_by_levels(struct code_work *w, const void *p, size_t len, const void *base_block, size_t base_len,
			  void *ret, size_t room)
{
	const uint8_t *stored = (const uint8_t *)p + sizeof(struct code_header_disk);
	struct code_header h;
	int r;

	r = take_header(p, len, room, &h);
	if (r < 0)
		return r;
	if (h.split != CODE_SPLIT_LEVELS || h.base == CODE_BASE_NONE)
		return -EBADMSG;
	return decode_levels(w, &h, stored, block_levels(w, &h, base_block, base_len), ret);
}

int code_decode(struct code_work *w, const void *p, size_t len, const void *base, size_t base_len, void *ret, size_t room)
{
	const uint8_t *stored = (const uint8_t *)p + sizeof(struct code_header_disk);
	struct code_header h;
	int r;

	r = take_header(p, len, room, &h);
	if (r < 0)
		return r;
	if (h.base == CODE_BASE_MATCHED) /* match_decode() */
		return -EBADMSG;
	if (is_plain(&h)) {
		if (h.stored_len != h.plain_len)
			return -EBADMSG;
		memcpy(ret, stored, h.plain_len);
		return (int)h.plain_len;
	}
	if (h.split == CODE_SPLIT_LEVELS)
		return decode_levels(w, &h, stored, base_levels(w, &h, base, base_len), ret);
	if (base_crc(&h, base, base_len) != h.base_crc)
		return -EBADMSG;
	return decode_steps(w, &h, stored, base, base_len, ret);
}
