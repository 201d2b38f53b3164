/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/classify/typed_format.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"

static uint32_t crc_of(const struct typed_head_disk *d, size_t len)
{
	return crc32c_add(crc32c(d + 1, len - sizeof(*d)), d, offsetof(struct typed_head_disk, crc));
}

int typed_encode(const struct typed *t, enum typed_verdict verdict, const char *reason, uint8_t **ret, size_t *ret_len)
{
	bool known = verdict == TYPED_KNOWN;
	size_t reason_len = verdict == TYPED_REFUSED ? MIN(strlen(reason), (size_t)TYPED_REASON_MAX) : 0;
	size_t nr_variables = known ? t->nr_variables : 0, nr_extents = known ? t->nr_extents : 0;
	size_t len = sizeof(struct typed_head_disk) + reason_len + nr_extents * sizeof(struct typed_extent_disk);
	struct typed_head_disk *d;
	uint8_t *p;

	for (size_t i = 0; i < nr_variables; i++)
		len += sizeof(struct typed_variable_disk) + strlen(t->variable[i].key);
	if (len > TYPED_BYTES_MAX)
		return -E2BIG;
	p = malloc(len);
	if (!p)
		return -ENOMEM;
	d = (struct typed_head_disk *)p;
	*d = (struct typed_head_disk){
		.version = le32_put(TYPED_VERSION),
		.size = le64_put(t->size),
		.nr_variables = le32_put((uint32_t)nr_variables),
		.nr_extents = le32_put((uint32_t)nr_extents),
		.verdict = (uint8_t)verdict,
		.reason_len = (uint8_t)reason_len,
	};
	memcpy(d->magic, TYPED_MAGIC, 4);
	p += sizeof(*d);
	if (reason_len > 0)
		memcpy(p, reason, reason_len);
	p += reason_len;
	for (size_t i = 0; i < nr_variables; i++) {
		const struct typed_variable *v = &t->variable[i];
		struct typed_variable_disk v_disk = {
			.type = code_type_encode(v->shape.type),
			.parts = (uint8_t)v->shape.parts,
			.key_len = le16_put((uint16_t)strlen(v->key)),
			.row = le32_put(v->shape.row),
			.plane = le32_put(v->shape.plane),
			.kind = (uint8_t)v->kind,
		};

		memcpy(p, &v_disk, sizeof(v_disk));
		memcpy(p + sizeof(v_disk), v->key, strlen(v->key));
		p += sizeof(v_disk) + strlen(v->key);
	}
	for (size_t i = 0; i < nr_extents; i++) {
		struct typed_extent_disk e = {
			.variable = le32_put(t->extent[i].variable),
			.off = le64_put(t->extent[i].off),
			.len = le64_put(t->extent[i].len),
		};

		memcpy(p, &e, sizeof(e));
		p += sizeof(e);
	}
	d->crc = le32_put(crc_of(d, len));
	*ret = (uint8_t *)d;
	*ret_len = len;
	return 0;
}

struct reader {
	const uint8_t *p, *end;
};

static const void *take_bytes(struct reader *r, size_t bytes)
{
	if ((size_t)(r->end - r->p) < bytes)
		return NULL;
	r->p += bytes;
	return r->p - bytes;
}

static int take_variable(struct reader *r, struct typed_variable *v)
{
	const struct typed_variable_disk *d = take_bytes(r, sizeof(*d));
	const char *key = d ? take_bytes(r, le16_get(d->key_len)) : NULL;

	if (!key || le16_get(d->key_len) > TYPED_KEY_MAX || memchr(key, 0, le16_get(d->key_len)))
		return -EBADMSG;
	if (code_type_decode(d->type, &v->shape.type) < 0 || d->parts < 1 || d->parts > 2)
		return -EBADMSG;
	if (d->kind >= NR_SEGMENT_KINDS || d->reserved[0] || d->reserved[1] || d->reserved[2])
		return -EBADMSG;
	v->kind = d->kind;
	v->shape.parts = d->parts;
	v->shape.row = le32_get(d->row);
	v->shape.plane = le32_get(d->plane);
	v->key = strndup(key, le16_get(d->key_len));
	return v->key ? 0 : -ENOMEM;
}

/* Extents are grouped by variable. */
static int take_extent(struct reader *r, struct typed *t)
{
	const struct typed_extent_disk *d = take_bytes(r, sizeof(*d));
	struct typed_extent e;

	if (!d || le32_get(d->reserved) != 0)
		return -EBADMSG;
	e = (struct typed_extent){ le32_get(d->variable), le64_get(d->off), le64_get(d->len) };
	if (e.variable >= t->nr_variables || e.len == 0 || e.off > t->size || e.len > t->size - e.off)
		return -EBADMSG;
	if (t->nr_extents > 0 && t->extent[t->nr_extents - 1].variable > e.variable)
		return -EBADMSG;
	t->extent[t->nr_extents++] = e;
	return 0;
}

static int take_all(struct reader *r, size_t nr_variables, size_t nr_extents, struct typed *t)
{
	int e = 0;

	t->variable = calloc(MAX(nr_variables, (size_t)1), sizeof(*t->variable));
	t->extent = calloc(MAX(nr_extents, (size_t)1), sizeof(*t->extent));
	if (!t->variable || !t->extent)
		return -ENOMEM;
	t->room_variables = nr_variables;
	t->room_extents = nr_extents;
	while (t->nr_variables < nr_variables && e == 0) {
		e = take_variable(r, &t->variable[t->nr_variables]);
		t->nr_variables += e == 0;
	}
	while (t->nr_extents < nr_extents && e == 0)
		e = take_extent(r, t);
	if (e == 0 && r->p != r->end)
		e = -EBADMSG;
	return e < 0 ? e : typed_check(t);
}

static void copy_reason(const char *from, size_t len, char ret[TYPED_REASON_MAX + 1])
{
	for (size_t i = 0; i < len; i++)
		ret[i] = isprint((unsigned char)from[i]) ? from[i] : '?';
	ret[len] = 0;
}

int typed_decode(const void *p, size_t len, uint64_t size, struct typed *ret, char ret_reason[TYPED_REASON_MAX + 1])
{
	const struct typed_head_disk *d = p;
	struct reader r = { p, (const uint8_t *)p + len };
	struct typed t = TYPED_EMPTY(size);
	uint32_t nr_variables, nr_extents;
	const char *reason;
	int e;

	if (!take_bytes(&r, sizeof(*d)) || memcmp(d->magic, TYPED_MAGIC, 4) != 0 || le32_get(d->version) != TYPED_VERSION)
		return -EBADMSG;
	if (crc_of(d, len) != le32_get(d->crc) || le64_get(d->size) != size || le16_get(d->reserved) != 0)
		return -EBADMSG;
	nr_variables = le32_get(d->nr_variables);
	nr_extents = le32_get(d->nr_extents);
	reason = take_bytes(&r, d->reason_len);
	if (!reason || d->reason_len > TYPED_REASON_MAX || (d->reason_len > 0) > (d->verdict == TYPED_REFUSED))
		return -EBADMSG;
	if (nr_variables > TYPED_VARIABLES_MAX || nr_extents > TYPED_EXTENTS_MAX || d->verdict < TYPED_KNOWN ||
	    d->verdict > TYPED_REFUSED)
		return -EBADMSG;
	if (d->verdict != TYPED_KNOWN && (nr_variables > 0 || nr_extents > 0))
		return -EBADMSG;
	e = take_all(&r, nr_variables, nr_extents, &t);
	if (e < 0) {
		typed_release(&t);
		return e;
	}
	copy_reason(reason, d->reason_len, ret_reason);
	*ret = t;
	return d->verdict;
}
