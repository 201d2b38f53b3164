/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "store/recode/variables.h"

#define VARIABLES_VERSION 1u
#define STEPS 5u /* map, predict, zigzag | base << 1, split, entropy: a byte each */

void variable_notes_release(struct variable_notes *n)
{
	for (size_t i = 0; i < n->nr; i++)
		free(n->v[i].key);
	free(n->v);
	*n = (struct variable_notes){ 0 };
}

static void note_encode(const struct variable_note *v, struct buf *ret)
{
	const struct code_header *h = &v->coder.steps;
	const uint8_t steps[STEPS] = { (uint8_t)h->map, (uint8_t)h->predict,
				       (uint8_t)(h->zigzag | (unsigned)h->base << 1), (uint8_t)h->split,
				       (uint8_t)h->entropy };

	buf_add_varint(ret, strlen(v->key));
	buf_add(ret, v->key, strlen(v->key));
	buf_add_u8(ret, code_type_encode(h->type));
	buf_add_u8(ret, v->turns);
	buf_add(ret, steps, sizeof(steps));
	buf_add_varint(ret, (uint64_t)v->coder.level);
	for (unsigned i = 0; i < CODE_NR_STRIDES; i++)
		buf_add_varint(ret, h->stride[i]);
	buf_add_varint(ret, v->coded);
	buf_add_varint(ret, v->before);
	buf_add_varint(ret, v->after);
	buf_add_varint(ret, v->code_ns);
	buf_add_varint(ret, v->last_ns);
}

void variable_notes_encode(const struct variable_notes *n, struct buf *ret)
{
	buf_add_u8(ret, VARIABLES_VERSION);
	buf_add_varint(ret, n->nr);
	for (size_t i = 0; i < n->nr; i++)
		note_encode(&n->v[i], ret);
}

/* If repeats were removed (store/codec/match.h), the steps are those of the remaining data. */
static bool is_known(const struct code_header *h)
{
	struct code_header steps = *h;

	if (steps.base == CODE_BASE_MATCHED)
		steps.base = CODE_BASE_NONE;
	return code_steps_valid(&steps);
}

/* 0, -EBADMSG, -ENOMEM. ret->key is allocated. */
static int note_decode(struct cursor *c, struct variable_note *ret)
{
	uint64_t key_len = cursor_varint(c), level;
	const uint8_t *key = key_len <= VARIABLE_KEY_MAX ? cursor_take(c, key_len) : NULL;
	struct code_header *h = &ret->coder.steps;
	uint8_t type = cursor_u8(c), turns = cursor_u8(c);
	const uint8_t *steps = cursor_take(c, STEPS);

	if (!key || !steps || turns > 1 || memchr(key, 0, key_len) || code_type_decode(type, &h->type) < 0)
		return -EBADMSG;
	ret->turns = turns;
	h->map = steps[0];
	h->predict = steps[1];
	h->zigzag = steps[2] & 1;
	h->base = steps[2] >> 1;
	h->split = steps[3];
	h->entropy = steps[4];
	level = cursor_varint(c);
	for (unsigned i = 0; i < CODE_NR_STRIDES; i++)
		h->stride[i] = (uint32_t)MIN(cursor_varint(c), (uint64_t)UINT32_MAX);
	ret->coded = cursor_varint(c);
	ret->before = cursor_varint(c);
	ret->after = cursor_varint(c);
	ret->code_ns = cursor_varint(c);
	ret->last_ns = cursor_varint(c);
	if (level > INT8_MAX || !is_known(h))
		return -EBADMSG;
	ret->coder.level = (int)level;
	ret->key = strndup((const char *)key, key_len);
	return ret->key ? 0 : -ENOMEM;
}

int variable_notes_decode(const void *p, size_t len, struct variable_notes *ret)
{
	struct cursor c = cursor_of(p, len);
	struct variable_notes n = { 0 };
	uint8_t version = cursor_u8(&c);
	uint64_t nr = cursor_varint(&c);
	int r = version == VARIABLES_VERSION && nr <= VARIABLES_MAX ? 0 : -EBADMSG;

	if (r == 0)
		n.v = calloc(VARIABLES_MAX + 1, sizeof(*n.v));
	if (r == 0 && !n.v)
		return -ENOMEM;
	for (; n.nr < nr && r == 0; n.nr += r == 0) {
		r = note_decode(&c, &n.v[n.nr]);
		if (r == 0 && n.nr > 0 && strcmp(n.v[n.nr - 1].key, n.v[n.nr].key) >= 0) {
			free(n.v[n.nr].key);
			r = -EBADMSG;
		}
	}
	if (r == 0 && !cursor_done(&c))
		r = -EBADMSG;
	if (r < 0) {
		variable_notes_release(&n);
		return r;
	}
	*ret = n;
	return 0;
}
