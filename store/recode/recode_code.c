/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Codes a frame part by part: each by itself or against another version, whichever is smaller. */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "store/codec/twin.h"
#include "store/recode/recode_job.h"

/* A frame may take this percentage of the uncompressed space that its chunks free. Compressed chunks, which readers
 * must decode anyway, move for any gain. */
#define PAYS_PLAIN 95u

/* The bytes before the first element of each part. */
static void find_leads(const struct gc_copy *copy, uint32_t ret[PACK_PARTS])
{
	uint32_t at = 0, part = 0;

	for (unsigned i = 0; i < copy->nr_next; at += copy->next[i++].len)
		for (; part * PACK_PART_BYTES < at + copy->next[i].len; part++)
			ret[part] = (copy->next[i].phase - (part * PACK_PART_BYTES - at)) % 8;
}

/* Are both adjacent in their old place? */
static bool are_neighbours(const struct gc_chunk *a, const struct gc_chunk *b)
{
	return a->from.pack == b->from.pack && a->from.off + a->len == b->from.off;
}

/*
 * Computes the space that the chunks of the first `len` bytes free by moving (*ret_before). Returns the space that a
 * frame may take to be worth it.
 *
 * Uncompressed pages free their blocks. The rest of a frame that is compressed, or whose chunks begin anywhere, moves as
 * well if it would keep more disk space allocated (recode_rest.c), so its chunks free their share, of a compressed frame
 * including that of the table. If this is an overestimate, since the rest stays, recode_rest.c detects that nothing is
 * saved. A margin here would reject frames that gain up to 2 %, and data that was compressed when written would end up
 * larger than other data.
 */
static uint64_t find_freed(const struct gc_copy *copy, uint32_t len, uint64_t *ret_before)
{
	uint64_t plain = 0, compressed = 0;
	uint32_t at = 0;

	for (unsigned i = 0, n; i < copy->nr_next && at < len; i += n) {
		const struct gc_chunk *k = &copy->next[i];
		uint64_t stored = 0, end = 0;

		for (n = 0; i + n < copy->nr_next && at < len && (n == 0 || are_neighbours(&k[n - 1], &k[n])); n++) {
			stored += k[n].stored;
			end = (uint64_t)k[n].from.off + k[n].len;
			at += k[n].len;
		}
		if (k->codec == PACK_CODEC_NONE)
			plain += end - k->from.off;
		else
			compressed += stored + (end - k->from.off) * PACK_BLOCK / PACK_FRAME_BYTES;
	}
	*ret_before = plain + compressed;
	return plain * PAYS_PLAIN / 100 + compressed;
}

/* In a sample: the size of a part coded by itself. */
static int try_alone(struct compact *c, const uint8_t *p, uint32_t len, uint32_t lead, uint8_t *room)
{
	int n;

	c->coding.lead = lead;
	n = coding_block(&c->coding, p, len, NULL, 0, room);
	return n < 0 ? n : (int)MIN((uint32_t)n, len);
}

/* `alone`: size if coded by itself; 0: it is. */
static void count_sample(struct compact *c, uint32_t off, uint32_t len, uint32_t coded, uint32_t alone)
{
	uint32_t version = c->back > 0 ? off / c->back : 0;
	struct compact_sample *s = &c->of_version[MIN(version, (uint32_t)STEPS_MAX - 1)];

	s->plain += len;
	s->coded += coded;
	s->alone += alone > 0 ? alone : coded;
}

/* Returns the size of the coded block, or of the plain part if that is not larger; sets *ret_base if the block uses a
 * base. */
static int choose_block(const uint8_t *p, uint32_t len, int n, bool has_base, uint8_t *ret, uint32_t *ret_base)
{
	struct code_header h;

	if (n >= 0 && (uint32_t)n >= len) {
		memcpy(ret, p, len);
		return (int)len;
	}
	if (n >= 0 && has_base && code_header_decode(ret, (size_t)n, &h) == 0)
		*ret_base = h.base_place; /* 0 if the base did not pay off */
	return n;
}

/* Codes a part of wide elements against their rounded ones, which are earlier in the frame. */
static int code_widened(struct compact *c, const uint8_t *frame, uint32_t off, uint32_t len, uint32_t lead,
			uint8_t *ret, uint32_t *ret_base)
{
	const struct compact_twins *t = &c->twins;
	struct coding *coding = &c->twin_coding->widened;
	uint32_t version = (off - t->narrow_len) / t->wide_row, in = (off - t->narrow_len) % t->wide_row;
	uint32_t from, base_len;
	int n;

	lead %= t->wide.width;
	from = version * t->narrow_row + (t->before + in + lead) / 2;
	coding->lead = lead;
	coding->base_place = code_place(code_place_widened(t->narrow), from);
	base_len = MIN(code_place_len(coding->base_place, len), off - from); /* as store/pack reads it */
	base_len = twin_base(code_place_widened(t->narrow), t->wide, lead, frame + from, base_len, len, c->base);
	n = coding_block(coding, frame + off, len, c->base, base_len, ret);
	return choose_block(frame + off, len, n, true, ret, ret_base);
}

static struct coding *coding_at(struct compact *c, uint32_t off, bool has_base)
{
	if (off < c->twins.narrow_len)
		return has_base ? &c->twin_coding->against : &c->twin_coding->narrow;
	return has_base ? &c->against : &c->coding;
}

/*
 * Distance from a part back to its base; 0: none. Each version is coded against the one before it in the frame, but
 * those after the fourth against the third: so reading a page decodes 256 KiB at most. If wide elements are coded
 * against these, they add one more, so the limit is one lower.
 */
static uint32_t base_distance(const struct compact *c, uint32_t off)
{
	uint32_t version = c->back > 0 ? off / c->back : 0, last_base = c->twins.narrow_len > 0 ? 1 : 2;

	return version > 0 ? (version - MIN(version - 1, last_base)) * c->back : 0;
}
static_assert(4 * PACK_PART_BYTES == KiB(256), "a part, and a third version, with the two that it needs");

/* Place of the levels of the newest version at the same position in the row, to code a part against; 0: none. */
static uint32_t place_of_levels(const struct compact *c, uint32_t off, uint32_t lead, const struct pack_parts *done)
{
	uint32_t newest = off % c->back, part = newest / PACK_PART_BYTES, start = part > 0 ? done->end[part - 1] : 0;
	size_t len = done->end[part] - start;
	struct code_header h;

	if (off < c->back || len == PACK_PART_BYTES) /* a plain part could be crafted to look like a block */
		return 0;
	if (code_header_decode(c->stored + start, len, &h) < 0 || h.split != CODE_SPLIT_LEVELS || h.lead != lead)
		return 0;
	return code_place_levels(newest, (uint32_t)code_levels_end(c->stored + start, len));
}

/* Codes a part of a row by levels: of the newest version, or against the levels of the newest. */
static int code_by_levels(struct compact *c, const uint8_t *frame, uint32_t off, uint32_t len, uint32_t lead,
			  const struct pack_parts *done, uint8_t *ret, uint32_t *ret_base)
{
	struct coder_spec spec = c->levels;
	int alone = c->is_sample ? try_alone(c, frame + off, len, lead, ret) : 0, n;

	if (alone < 0)
		return alone;
	spec.steps.lead = lead % spec.steps.type.width;
	spec.steps.base_place = place_of_levels(c, off, spec.steps.lead, done);
	spec.steps.base = spec.steps.base_place > 0 ? CODE_BASE_SUB : CODE_BASE_NONE;
	n = code_encode(c->work, &spec, frame + off, len, frame + off % c->back, len, ret);
	n = choose_block(frame + off, len, n, spec.steps.base_place > 0, ret, ret_base);
	if (c->is_sample && n >= 0) {
		count_sample(c, off, len, (uint32_t)n, (uint32_t)alone);
		if (off < c->back)
			c->of_version[0].levels += code_levels_end(ret, (uint32_t)n) + PACK_BLOCK;
	}
	return n;
}

/* Codes one part into `ret`. Returns its size; *ret_base: the place of its base. */
static int code_part(struct compact *c, const uint8_t *frame, uint32_t off, uint32_t len, uint32_t lead, uint8_t *ret,
		     uint32_t *ret_base)
{
	uint32_t back = base_distance(c, off);
	bool has_base = back > 0;
	struct coding *coding = coding_at(c, off, has_base);
	const uint8_t *p = frame + off;
	int alone = has_base && c->is_sample ? try_alone(c, p, len, lead, ret) : 0, n;

	if (alone < 0)
		return alone;
	coding->lead = lead;
	coding->base_place = has_base ? code_place(CODE_PLACE_SAME, off - back) : 0;
	n = coding_block(coding, p, len, has_base ? p - back : NULL, MIN(len, back), ret);
	n = choose_block(p, len, n, has_base, ret, ret_base);
	if (c->is_sample && n >= 0)
		count_sample(c, off, len, (uint32_t)n, (uint32_t)alone);
	return n;
}

/* Codes all parts into c->stored. Returns their size; <0 */
static int code_parts(struct compact *c, const struct gc_copy *copy, const uint32_t *leads, struct pack_parts *ret)
{
	uint32_t at = 0;

	if (copy->nr_next != c->nr_row) /* a damaged chunk was left out, so the layout of the row does not hold */
		c->back = c->twins.narrow_len = 0;
	for (uint32_t off = 0, i = 0; off < copy->used; off += PACK_PART_BYTES, i++) {
		bool is_wide = c->twins.narrow_len > 0 && off >= c->twins.narrow_len;
		uint32_t len = MIN(PACK_PART_BYTES, copy->used - off);
		uint8_t *to = c->stored + at;
		int n;

		if (is_wide)
			n = code_widened(c, copy->buffer, off, len, leads[i], to, &ret->base[i]);
		else if (c->by_levels && c->back > 0)
			n = code_by_levels(c, copy->buffer, off, len, leads[i], ret, to, &ret->base[i]);
		else
			n = code_part(c, copy->buffer, off, len, leads[i], to, &ret->base[i]);
		if (n < 0)
			return n;
		at += (uint32_t)n;
		ret->end[i] = at;
	}
	return (int)at;
}

/* Codes the frame in the better of two ways. Returns the size of all parts; <0. *ret_matched: with repeats removed, in
 * c->matched; else in c->stored. */
static int code_frame(struct compact *c, const struct gc_copy *copy, const uint32_t *leads, struct pack_parts *ret,
		      bool *ret_matched)
{
	bool by_itself = c->back == 0 && c->twins.narrow_len == 0;
	enum matching_turn turn = by_itself ? matching_next(&c->matching) : MATCHING_NOT;
	struct pack_parts parts = { 0 };
	int n = 0, matched = 0;
	uint64_t ns = 0;

	*ret_matched = false;
	if (turn != MATCHING_NOT) {
		ns = thread_cpu_ns();
		matched =
			matching_frame(&c->matching, copy->buffer, copy->used, leads, c->matched, parts.end, parts.base);
		ns = thread_cpu_ns() - ns;
		if (matched < 0)
			return matched;
	}
	if (turn != MATCHING_ONLY || matched == 0) {
		n = code_parts(c, copy, leads, ret);
		if (n < 0)
			return n;
	}
	if (turn == MATCHING_BOTH)
		matching_record(&c->matching, copy->used, (uint64_t)n, (uint64_t)matched, ns);
	if (matched == 0 || (turn == MATCHING_BOTH && !c->matching.pays))
		return n;
	*ret = parts;
	*ret_matched = true;
	return matched;
}

/* Adds the share of one of two variables in a frame. */
static void count(struct compact_result *res, bool is_coded, const struct compact_result *share,
		  struct coder_spec coder, bool has_base)
{
	if (!is_coded) {
		res->kept += share->coded;
		return;
	}
	res->coded += share->coded;
	res->before += share->before;
	res->after += share->after;
	if (has_base || res->coder.steps.base == CODE_BASE_NONE) /* do not replace it by that of leftovers */
		res->coder = coder;
}

/* The coding of the variable that the frame belongs to. */
static struct coder_spec chosen(const struct compact *c, bool is_matched)
{
	if (is_matched)
		return matching_chosen(&c->matching);
	if (c->twins.narrow_len > 0)
		return *coding_chosen(&c->twin_coding->widened);
	if (c->by_levels && c->back > 0) {
		struct coder_spec levels = c->levels;

		levels.steps.base = CODE_BASE_SUB;
		return levels;
	}
	return *coding_chosen(c->back > 0 ? &c->against : &c->coding);
}

int compact_code_frame(void *userdata, const struct gc_copy *copy, const uint8_t **ret_stored, struct pack_parts *ret)
{
	struct compact *c = userdata;
	struct compact_result all, narrow = { 0 };
	uint32_t leads[PACK_PARTS], narrow_len;
	uint64_t from, pays;
	bool is_worth_it, is_matched;
	int n;

	compact_yield(c);
	from = thread_cpu_ns();
	find_leads(copy, leads);
	n = code_frame(c, copy, leads, ret, &is_matched);
	if (n < 0)
		return n;
	if (c->is_sample) {
		c->sampled += copy->used;
		c->sample_coded += (uint64_t)n;
		return GC_STAYS;
	}
	c->result->code_ns += thread_cpu_ns() - from;
	/* including its table: the tables of the frames that chunks leave may stay */
	all = (struct compact_result){ .coded = copy->used, .after = round_up((uint64_t)n, PACK_BLOCK) + PACK_BLOCK };
	pays = find_freed(copy, copy->used, &all.before);
	is_worth_it = all.after <= pays && !gc_copy_is_mixed(copy);
	narrow_len = c->twins.narrow_len;
	if (narrow_len > 0) {
		narrow = (struct compact_result){ .coded = narrow_len,
						  .after = ret->end[narrow_len / PACK_PART_BYTES - 1] };
		find_freed(copy, narrow_len, &narrow.before);
		count(c->narrow_result, is_worth_it, &narrow,
		      *coding_chosen(c->back > 0 ? &c->twin_coding->against : &c->twin_coding->narrow), c->back > 0);
	}
	all.coded -= narrow.coded;
	all.before -= narrow.before;
	all.after -= narrow.after;
	count(c->result, is_worth_it, &all, chosen(c, is_matched), is_matched || c->back > 0 || narrow_len > 0);
	*ret_stored = is_matched ? c->matched : c->stored;
	return is_worth_it && !c->conf->dry_run ? GC_CODED : GC_STAYS;
}
