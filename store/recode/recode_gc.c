/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/recode/recode_gc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/codec/code.h"
#include "store/codec/twin.h"

#define LEVEL 1 /* of typed data */
#define LEVEL_BYTES 3 /* as in coding.c */

void gc_recode_release(struct gc_recode *r)
{
	matching_release(&r->matching);
	code_work_free(r->work);
	free(r->stored);
	free(r->base);
	*r = (struct gc_recode){ 0 };
}

/* How far the base moves for a part that begins `at` bytes into a block and has another lead. */
static uint32_t base_further(const struct code_header *h, uint32_t at, uint32_t lead)
{
	enum code_place how = code_place_how(h->base_place);

	if (how == CODE_PLACE_MATCHED)
		return 0;
	if (how == CODE_PLACE_SAME || how == CODE_PLACE_LEVELS)
		return at;
	return (at + lead - h->lead) / h->type.width * code_place_type(how).width;
}

/* The coder of the chunk, for a part that begins `in` bytes into it. 1; 0: it was not coded; <0 */
static int spec_of(const struct gc_copy *c, const struct gc_chunk *chunk, uint32_t in, struct coder_spec *ret)
{
	struct addr a = chunk->from;
	uint32_t at, lead;
	int r;

	a.off += in;
	r = packs_block_header(c->g->e->packs, a, &ret->steps, &at);
	if (r <= 0)
		return r == -EBADMSG ? 0 : r;
	ret->level = ret->steps.type.class == CODE_BYTES ? LEVEL_BYTES : LEVEL;
	lead = (ret->steps.lead - at) % ret->steps.type.width;
	if (ret->steps.base_place > 0)
		ret->steps.base_place += base_further(&ret->steps, at, lead);
	ret->steps.lead = lead;
	return 1;
}

/* Maps an offset in the chunk's old frame to the new frame; UINT32_MAX: not there. */
static uint32_t new_place(const struct gc_copy *c, const struct gc_chunk *chunk, uint32_t old)
{
	uint32_t first = chunk->from.off - pack_in_frame(chunk->from), begin = 0;

	for (unsigned i = 0; i < c->nr_next; begin += c->next[i++].len) {
		const struct gc_chunk *k = &c->next[i];
		uint32_t at = k->from.off - first;

		if (k->from.pack == chunk->from.pack && k->from.off >= first && old >= at && old < at + k->len)
			return begin + (old - at);
	}
	return UINT32_MAX;
}

/* The same coder without a base: steps for differences are useless without one. */
static struct coder_spec alone(const struct coder_spec *with_base)
{
	struct coder_spec spec = { .level = with_base->level };

	/* these use only levels of the base, or some columns of records */
	if (with_base->steps.split == CODE_SPLIT_LEVELS || with_base->steps.split == CODE_SPLIT_COLUMNS) {
		spec = *with_base;
		spec.steps.base = CODE_BASE_NONE;
		spec.steps.base_place = 0;
		return spec;
	}
	spec.steps = (struct code_header){ .type = with_base->steps.type,
					   .lead = with_base->steps.lead,
					   .split = with_base->steps.type.width > 1 ? CODE_SPLIT_BYTES : CODE_SPLIT_NONE,
					   .entropy = CODE_ENTROPY_ZSTD };
	return spec;
}

/* Place of the levels to code against: those of a part of the new frame that begins there, coded alike; else 0. */
static uint32_t place_of_levels(const struct gc_recode *rc, const struct code_header *like, uint32_t place,
				const struct pack_parts *done)
{
	uint32_t part = place / PACK_PART_BYTES, start = part > 0 ? done->end[part - 1] : 0, len = done->end[part] - start;
	struct code_header h;

	if (len == PACK_PART_BYTES) /* a plain part could be crafted to look like a block */
		return 0;
	if (place % PACK_PART_BYTES != 0 || code_header_decode(rc->stored + start, len, &h) < 0 ||
	    h.split != CODE_SPLIT_LEVELS || h.base != CODE_BASE_NONE || h.lead != like->lead ||
	    h.stride[0] != like->stride[0] || code_type_encode(h.type) != code_type_encode(like->type))
		return 0;
	return code_place_levels(place, (uint32_t)code_levels_end(rc->stored + start, len));
}

/* Codes against the same base as before, if it was copied into an earlier part. Returns the size; 0: it was not, or the
 * part does not get smaller. */
static int code_against(struct gc_recode *rc, const struct gc_copy *c, const struct gc_chunk *chunk,
			struct coder_spec *spec, uint32_t off, uint32_t len, const struct pack_parts *done, uint8_t *ret)
{
	enum code_place how = code_place_how(spec->steps.base_place);
	uint32_t place = new_place(c, chunk, code_place_off(spec->steps.base_place)), base_len;
	const uint8_t *base = c->buffer + place;
	int n;

	if (place >= off)
		return 0;
	spec->steps.base_place = how == CODE_PLACE_LEVELS ? place_of_levels(rc, &spec->steps, place, done) :
							    code_place(how, place);
	if (spec->steps.base_place == 0)
		return 0;
	base_len = MIN(code_place_len(spec->steps.base_place, len), off - place); /* as store/pack reads it */
	if (how != CODE_PLACE_SAME && how != CODE_PLACE_LEVELS) {
		base_len = twin_base(how, spec->steps.type, spec->steps.lead, base, base_len, len, rc->base);
		base = rc->base;
	}
	n = code_encode(rc->work, spec, c->buffer + off, len, base, base_len, ret);
	return n >= (int)len ? 0 : n;
}

/* A block does not record its level: where Huffman coding alone may have been smaller, it is tried again. */
static int code_alone(struct gc_recode *rc, struct coder_spec spec, const uint8_t *p, uint32_t len, uint8_t *ret)
{
	const struct code_header *h = &spec.steps;
	bool may_be_symbols = (h->type.class == CODE_FLOAT || h->type.class == CODE_BFLOAT) &&
			      h->predict == CODE_PREDICT_NONE &&
			      (h->split == CODE_SPLIT_BYTES || h->split == CODE_SPLIT_LEVELS);
	int n = code_encode(rc->work, &spec, p, len, NULL, 0, ret), symbols;

	if (n < 0 || !may_be_symbols)
		return n;
	spec.level = CODE_LEVEL_SYMBOLS;
	symbols = code_encode(rc->work, &spec, p, len, NULL, 0, rc->base);
	if (symbols < 0 || symbols >= n)
		return symbols < 0 ? symbols : n;
	memcpy(ret, rc->base, (size_t)symbols);
	return symbols;
}

/* Codes one part, which begins `in` bytes into the chunk. */
static int code_part(struct gc_recode *rc, const struct gc_copy *c, const struct gc_chunk *chunk, uint32_t in,
		     uint32_t off, uint32_t len, const struct pack_parts *done, uint8_t *ret, uint32_t *ret_base)
{
	struct coder_spec spec, by_itself;
	int n = spec_of(c, chunk, in, &spec), with_base = 0;

	if (n < 0)
		return n;
	by_itself = spec;
	if (n > 0 && spec.steps.base != CODE_BASE_NONE) {
		with_base = spec.steps.base == CODE_BASE_MATCHED ? 0 : code_against(rc, c, chunk, &spec, off, len, done, ret);
		by_itself = alone(&spec);
	}
	if (with_base != 0) {
		*ret_base = with_base > 0 ? spec.steps.base_place : 0;
		return with_base;
	}
	n = n > 0 ? code_alone(rc, by_itself, c->buffer + off, len, ret) : (int)len;
	if (n >= (int)len) {
		memcpy(ret, c->buffer + off, len);
		n = (int)len;
	}
	return n;
}

/* The chunk at this offset of the next frame, and its start there. */
static const struct gc_chunk *chunk_at(const struct gc_copy *c, uint32_t off, uint32_t *ret_begin)
{
	unsigned i = 0;

	*ret_begin = 0;
	while (*ret_begin + c->next[i].len <= off)
		*ret_begin += c->next[i++].len;
	return &c->next[i];
}

/* Were repeats removed from any part? 1, with the lead of each part; 0; <0 */
static int was_matched(const struct gc_copy *c, uint32_t ret_leads[PACK_PARTS], struct code_type *ret_type)
{
	int matched = 0;

	for (uint32_t off = 0, begin; off < c->used; off += PACK_PART_BYTES) {
		const struct gc_chunk *chunk = chunk_at(c, off, &begin);
		struct coder_spec spec = { 0 };
		int r = spec_of(c, chunk, off - begin, &spec);

		if (r < 0)
			return r;
		ret_leads[off / PACK_PART_BYTES] = r > 0 && spec.steps.type.width == MATCH_WIDTH ? spec.steps.lead : 0;
		if (r > 0 && spec.steps.base == CODE_BASE_MATCHED) {
			*ret_type = spec.steps.type;
			matched = 1;
		}
	}
	return matched;
}

/* Returns the size of all parts; 0: repeats were not removed from this frame, or there are none any more. */
static int recode_matched(struct gc_recode *rc, const struct gc_copy *c, struct pack_parts *ret)
{
	struct coding_shape shape = { 0 };
	uint32_t leads[PACK_PARTS];
	struct pack_parts parts = { 0 };
	int r = was_matched(c, leads, &shape.type);

	if (r <= 0)
		return r;
	if (!rc->matching.match) { /* reused for all frames: one of another type is coded slightly worse */
		r = matching_init(&rc->matching, rc->work, &shape, 0, NULL);
		if (r < 0)
			return r;
	}
	r = matching_frame(&rc->matching, c->buffer, c->used, leads, rc->stored, parts.end, parts.base);
	if (r > 0)
		*ret = parts;
	return r;
}

static int recode_parts(struct gc_recode *rc, const struct gc_copy *c, struct pack_parts *ret)
{
	uint32_t at = 0, begin;

	for (uint32_t off = 0, part = 0; off < c->used; off += PACK_PART_BYTES, part++) {
		const struct gc_chunk *chunk = chunk_at(c, off, &begin);
		int n = code_part(rc, c, chunk, off - begin, off, MIN(PACK_PART_BYTES, c->used - off), ret, rc->stored + at,
				  &ret->base[part]);

		if (n < 0)
			return n;
		at += (uint32_t)n;
		ret->end[part] = at;
	}
	return (int)at;
}

static int recode_frame(void *userdata, const struct gc_copy *c, const uint8_t **ret_stored, struct pack_parts *ret)
{
	struct gc_recode *rc = userdata;
	int n;

	if (gc_copy_is_mixed(c))
		return GC_PLAIN;
	n = rc->based ? recode_matched(rc, c, ret) : 0;
	if (n == 0)
		n = recode_parts(rc, c, ret);
	if (n < 0)
		return n;
	*ret_stored = rc->stored;
	return pack_is_worth_it(round_up((uint64_t)n, PACK_BLOCK), c->used) ? GC_CODED : GC_PLAIN;
}

/* Prepares for adding chunks of this frame. */
static int switch_to(struct gc_recode *r, struct gc_copy *c, const struct pack_frame_rec *rec)
{
	bool coded = rec->codec == PACK_CODEC_CODED;
	/* one frame per old frame, so that bases are copied with their parts */
	bool flush = coded != (c->code != NULL) || rec->based || r->based;
	int q;

	if (coded && !r->work)
		r->work = code_work_new();
	if (coded && !r->stored)
		r->stored = malloc(MATCHING_ROOM);
	if (coded && !r->base)
		r->base = malloc(CODE_BLOCK_MAX(PACK_PART_BYTES));
	if (coded && (!r->work || !r->stored || !r->base))
		return -ENOMEM;
	q = flush ? gc_copy_flush(c) : 0;
	r->based = rec->based;
	c->code = coded ? recode_frame : NULL;
	c->userdata = r;
	return q;
}

int gc_recode_add(struct gc_recode *r, struct gc_copy *c, const struct pack_frame_rec *rec, const struct gc_bits *chunks)
{
	int q = switch_to(r, c, rec);

	for (uint32_t i = 0; i < rec->nr_chunks && q == 0; i++)
		if (gc_bit(chunks, i) && !fp_is_none(rec->fps[i]) && gc_copy_nr(c) < c->max)
			q = gc_copy_add(c, rec->chunk_len,
					&(struct gc_chunk){ .from = pack_rec_addr(rec, i),
							    .len = pack_rec_len(rec, i),
							    .fp = rec->fps[i],
							    .codec = rec->codec });
	return q;
}
