#include "store/engine/gc_recode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/code/code.h"

#define LEVEL 1 /* of types */
#define LEVEL_BYTES 3 /* as coding.c has it */

void gc_recode_release(struct gc_recode *r)
{
	code_work_free(r->work);
	free(r->stored);
	*r = (struct gc_recode){ 0 };
}

/* How the chunk was coded, for a part that begins `in` bytes into it. 1/0 it was not/<0 */
static int spec_of(const struct gc_copy *c, const struct gc_chunk *chunk, uint32_t in, struct coder_spec *ret)
{
	struct addr a = chunk->from;
	uint32_t at;
	int r;

	a.off += in;
	r = packs_block_header(c->g->e->packs, a, &ret->steps, &at);
	if (r <= 0)
		return r == -EBADMSG ? 0 : r;
	ret->level = ret->steps.type.class == CODE_BYTES ? LEVEL_BYTES : LEVEL;
	ret->steps.lead = (ret->steps.lead - at) % ret->steps.type.width;
	return ret->steps.base == CODE_BASE_NONE;
}

static int code_part(struct gc_recode *rc, const struct gc_copy *c, const struct gc_chunk *chunk, uint32_t in, const uint8_t *p,
		     uint32_t len, uint8_t *ret)
{
	struct coder_spec spec;
	int n = spec_of(c, chunk, in, &spec);

	if (n < 0)
		return n;
	n = n > 0 ? code_encode(rc->work, &spec, p, len, NULL, 0, ret) : (int)len;
	if (n >= (int)len) {
		memcpy(ret, p, len);
		n = (int)len;
	}
	return n;
}

static int recode_frame(void *userdata, const struct gc_copy *c, const uint8_t **ret_stored, uint32_t ret_end[PACK_PARTS])
{
	struct gc_recode *rc = userdata;
	uint32_t at = 0, begin = 0;
	unsigned i = 0;

	if (gc_copy_is_mixed(c))
		return GC_PLAIN;
	for (uint32_t off = 0, part = 0; off < c->used; off += PACK_PART_BYTES, part++) {
		int n;

		while (begin + c->next[i].len <= off)
			begin += c->next[i++].len;
		n = code_part(rc, c, &c->next[i], off - begin, c->buffer + off, MIN(PACK_PART_BYTES, c->used - off), rc->stored + at);
		if (n < 0)
			return n;
		at += (uint32_t)n;
		ret_end[part] = at;
	}
	*ret_stored = rc->stored;
	return pack_is_worth_it(round_up(at, PACK_BLOCK), c->used) ? GC_CODED : GC_PLAIN;
}

int gc_recode_switch(struct gc_recode *r, struct gc_copy *c, bool coded)
{
	int q;

	if (coded == (c->code != NULL))
		return 0;
	if (coded && !r->work)
		r->work = code_work_new();
	if (coded && !r->stored)
		r->stored = malloc(PACK_FRAME_BYTES + CODE_BLOCK_MAX(PACK_PART_BYTES));
	if (coded && (!r->work || !r->stored))
		return -ENOMEM;
	q = gc_copy_flush(c);
	c->code = coded ? recode_frame : NULL;
	c->userdata = r;
	return q;
}
