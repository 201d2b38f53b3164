/* A frame of a compaction, part by part: each by itself or against another version, in the way that pays. */
#include <errno.h>
#include <string.h>

#include "base/util.h"
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
	if (n >= 0)
		c->sample_alone += MIN((uint32_t)n, len);
	return n;
}

/* One part, to `ret`: its bytes, and where its base is. */
static int code_part(struct compact *c, const uint8_t *frame, uint32_t off, uint32_t len, uint32_t lead, uint8_t *ret,
		     uint32_t *ret_base)
{
	bool has_base = c->back > 0 && off >= c->back;
	struct coding *coding = has_base ? &c->against : &c->coding;
	const uint8_t *p = frame + off;
	struct code_header h;
	int n = has_base && c->is_sample ? try_alone(c, p, len, lead, ret) : 0;

	if (n < 0)
		return n;
	coding->lead = lead;
	coding->base_place = has_base ? code_place(CODE_PLACE_SAME, off - c->back) : 0;
	n = coding_block(coding, p, len, has_base ? p - c->back : NULL, has_base ? MIN(len, c->back) : 0, ret);
	if (n < 0)
		return n;
	if ((uint32_t)n >= len) {
		memcpy(ret, p, len);
		n = (int)len;
	} else if (has_base && code_header_decode(ret, (size_t)n, &h) == 0) {
		*ret_base = h.base_place; /* it may not have paid */
	}
	c->sample_alone += has_base ? 0 : (uint64_t)n;
	return n;
}

/* Bytes of all parts, which are in c->stored; <0 */
static int code_parts(struct compact *c, const struct gc_copy *copy, const uint32_t *leads, struct pack_parts *ret)
{
	uint32_t at = 0;

	if (copy->nr_next != c->nr_row)
		c->back = 0; /* one is damaged, and left out: the others do not lie as they should */
	for (uint32_t off = 0, i = 0; off < copy->used; off += PACK_PART_BYTES, i++) {
		int n = code_part(c, copy->buffer, off, MIN(PACK_PART_BYTES, copy->used - off), leads[i], c->stored + at, &ret->base[i]);

		if (n < 0)
			return n;
		at += (uint32_t)n;
		ret->end[i] = at;
	}
	return (int)at;
}

int compact_code_frame(void *userdata, const struct gc_copy *copy, const uint8_t **ret_stored, struct pack_parts *ret)
{
	struct compact *c = userdata;
	struct compact_result *res = c->result;
	uint64_t from, after, before;
	uint32_t leads[PACK_PARTS];
	bool is_worth_it;
	int n;

	compact_yield(c);
	from = thread_cpu_ns();
	before = find_leads(copy, leads);
	n = code_parts(c, copy, leads, ret);
	if (n < 0)
		return n;
	if (c->is_sample) {
		c->sampled += copy->used;
		c->sample_coded += (uint64_t)n;
		return GC_STAYS;
	}
	res->code_ns += thread_cpu_ns() - from;
	/* with the tables: that of this frame, and what the chunks had of theirs */
	after = round_up((uint64_t)n, PACK_BLOCK) + PACK_BLOCK;
	before += copy->used / PACK_FRAME_BLOCKS;
	is_worth_it = pack_is_worth_it(after, before) && !gc_copy_is_mixed(copy);
	if (is_worth_it) {
		res->coded += copy->used;
		res->before += before;
		res->after += after;
		if (c->back > 0 || res->coder.steps.base == CODE_BASE_NONE) /* not that of what was left over */
			res->coder = *coding_chosen(c->back > 0 ? &c->against : &c->coding);
	} else {
		res->kept += copy->used;
	}
	*ret_stored = c->stored;
	return is_worth_it && !c->conf->dry_run ? GC_CODED : GC_STAYS;
}
