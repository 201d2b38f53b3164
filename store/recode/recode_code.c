/* A frame of a compaction, part by part: each by itself or against another version, in the way that pays. */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "store/code/twin.h"
#include "store/engine/compact_job.h"

/* The bytes before the first element of each part, and what all chunks take now. */
static uint64_t find_leads(const struct gc_copy *copy, uint32_t ret[PACK_PARTS])
{
	uint32_t at = 0, part = 0;
	uint64_t before = 0;

	for (unsigned i = 0; i < copy->nr_next; at += copy->next[i++].len) {
		before += copy->next[i].stored;
		for (; part * PACK_PART_BYTES < at + copy->next[i].len; part++)
			ret[part] = (copy->next[i].phase - (part * PACK_PART_BYTES - at)) % 8;
	}
	return before;
}

/* Of a sample: what it would be by itself. */
static int try_alone(struct compact *c, const uint8_t *p, uint32_t len, uint32_t lead, uint8_t *room)
{
	int n;

	c->coding.lead = lead;
	n = coding_block(&c->coding, p, len, NULL, 0, room);
	return n < 0 ? n : (int)MIN((uint32_t)n, len);
}

/* `alone`: as it would be by itself; 0: it is. */
static void count_sample(struct compact *c, uint32_t off, uint32_t len, uint32_t coded, uint32_t alone)
{
	uint32_t version = c->back > 0 ? off / c->back : 0;
	struct compact_sample *s = &c->of_version[MIN(version, (uint32_t)STEPS_MAX - 1)];

	s->plain += len;
	s->coded += coded;
	s->alone += alone > 0 ? alone : coded;
}

/* What a coded block has, or the part as it is; and where its base is, if it has come to have one. */
static int settle(const uint8_t *p, uint32_t len, int n, bool has_base, uint8_t *ret, uint32_t *ret_base)
{
	struct code_header h;

	if (n >= 0 && (uint32_t)n >= len) {
		memcpy(ret, p, len);
		return (int)len;
	}
	if (n >= 0 && has_base && code_header_decode(ret, (size_t)n, &h) == 0)
		*ret_base = h.base_place; /* it may not have paid */
	return n;
}

/* A part of what others of this frame, which come before it, were rounded from. */
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
	base_len = MIN(code_place_len(coding->base_place, len), off - from); /* as store/pack will have it */
	base_len = twin_base(code_place_widened(t->narrow), t->wide, lead, frame + from, base_len, len, c->base);
	n = coding_block(coding, frame + off, len, c->base, base_len, ret);
	return settle(frame + off, len, n, true, ret, ret_base);
}

static struct coding *coding_at(struct compact *c, uint32_t off, bool has_base)
{
	if (off < c->twins.narrow_len)
		return has_base ? &c->twin_coding->against : &c->twin_coding->narrow;
	return has_base ? &c->against : &c->coding;
}

/*
 * How far before it the base of a part is; 0: it has none. Each version is coded against the one before it in the frame,
 * but those behind the fourth against the third: so whoever reads a page decodes 256 KiB at most. Where wide ones are
 * coded against these, they are one more.
 */
static uint32_t base_distance(const struct compact *c, uint32_t off)
{
	uint32_t version = c->back > 0 ? off / c->back : 0, last_base = c->twins.narrow_len > 0 ? 1 : 2;

	return version > 0 ? (version - MIN(version - 1, last_base)) * c->back : 0;
}
static_assert(4 * PACK_PART_BYTES == KiB(256), "a part, and a third version, with the two that it needs");

/* The levels of the newest version, as those of a part that is coded against them, and stands in the same place: where
 * they are, or 0, if it has none. */
static uint32_t place_of_levels(const struct compact *c, uint32_t off, uint32_t lead, const struct pack_parts *done)
{
	uint32_t newest = off % c->back, part = newest / PACK_PART_BYTES, start = part > 0 ? done->end[part - 1] : 0;
	size_t len = done->end[part] - start;
	struct code_header h;

	if (off < c->back || len == PACK_PART_BYTES) /* as it is, and perhaps made to look like a block */
		return 0;
	if (code_header_decode(c->stored + start, len, &h) < 0 || h.split != CODE_SPLIT_LEVELS || h.lead != lead)
		return 0;
	return code_place_levels(newest, (uint32_t)code_levels_end(c->stored + start, len));
}

/* A part of a row by levels: of the newest version, or against the levels of that. */
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
	n = settle(frame + off, len, n, spec.steps.base_place > 0, ret, ret_base);
	if (c->is_sample && n >= 0) {
		count_sample(c, off, len, (uint32_t)n, (uint32_t)alone);
		if (off < c->back)
			c->of_version[0].levels += code_levels_end(ret, (uint32_t)n) + PACK_BLOCK;
	}
	return n;
}

/* One part, to `ret`: its bytes, and where its base is. */
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
	n = settle(p, len, n, has_base, ret, ret_base);
	if (c->is_sample && n >= 0)
		count_sample(c, off, len, (uint32_t)n, (uint32_t)alone);
	return n;
}

/* Bytes of all parts, which are in c->stored; <0 */
static int code_parts(struct compact *c, const struct gc_copy *copy, const uint32_t *leads, struct pack_parts *ret)
{
	uint32_t at = 0;

	if (copy->nr_next != c->nr_row) /* one is damaged, and left out: the others do not lie as they should */
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

/* The frame as it is to be stored, of two ways: bytes of all parts; <0. *ret_matched: without what repeats in it, in
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
		matching_tell(&c->matching, copy->used, (uint64_t)n, (uint64_t)matched, ns);
	if (matched == 0 || (turn == MATCHING_BOTH && !c->matching.pays))
		return n;
	*ret = parts;
	*ret_matched = true;
	return matched;
}

static uint64_t stored_before(const struct gc_copy *copy, uint32_t off)
{
	uint64_t stored = 0;
	uint32_t at = 0;

	for (unsigned i = 0; i < copy->nr_next && at < off; at += copy->next[i++].len)
		stored += copy->next[i].stored;
	return stored;
}

/* So much of a frame is one of two variables'. */
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
	if (has_base || res->coder.steps.base == CODE_BASE_NONE) /* not that of what was left over */
		res->coder = coder;
}

/* The way of the variable that frames are of. */
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
	uint64_t from, before;
	bool is_worth_it, is_matched;
	int n;

	compact_yield(c);
	from = thread_cpu_ns();
	before = find_leads(copy, leads);
	n = code_frame(c, copy, leads, ret, &is_matched);
	if (n < 0)
		return n;
	if (c->is_sample) {
		c->sampled += copy->used;
		c->sample_coded += (uint64_t)n;
		return GC_STAYS;
	}
	c->result->code_ns += thread_cpu_ns() - from;
	/* with the tables: that of this frame, and what the chunks had of theirs */
	all = (struct compact_result){ .coded = copy->used,
				       .before = before + copy->used / PACK_FRAME_BLOCKS,
				       .after = round_up((uint64_t)n, PACK_BLOCK) + PACK_BLOCK };
	is_worth_it = pack_is_worth_it(all.after, all.before) && !gc_copy_is_mixed(copy);
	narrow_len = c->twins.narrow_len;
	if (narrow_len > 0) {
		narrow = (struct compact_result){ .coded = narrow_len,
						  .before = stored_before(copy, narrow_len),
						  .after = ret->end[narrow_len / PACK_PART_BYTES - 1] };
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
