/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/nodes/question_format.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"

void question_encode(const struct question *q, struct buf *ret)
{
	struct question_wire d = {
		.version = le32_put(QUESTION_VERSION),
		.kind = le32_put((uint32_t)q->kind),
		.seals_after = le64_put(q->seals_after),
		.replicas_after = le64_put(q->replicas_after),
		.ino = le64_put(q->ino),
		.sealed_ns = le64_put((uint64_t)q->sealed_ns),
		.off = le64_put(q->off),
	};

	memcpy(d.store, q->store, sizeof(d.store));
	buf_add(ret, &d, sizeof(d));
}

/* The encoding is unique: fields that a kind does not use are zero. */
static bool is_plain(const struct question *q)
{
	static const uint8_t zeros[NS_STORE_ID_LEN];

	switch (q->kind) {
	case QUESTION_SEALS:
		return q->ino == 0 && q->sealed_ns == 0 && q->off == 0 && memcmp(q->store, zeros, sizeof(zeros)) == 0;
	case QUESTION_CATALOG:
		return q->seals_after == 0 && q->replicas_after == 0 && q->off <= INT64_MAX;
	case QUESTION_HOLD:
		return q->seals_after == 0 && q->replicas_after == 0 && q->off == 0;
	}
	return false;
}

int question_decode(const void *p, size_t len, struct question *ret)
{
	const struct question_wire *d = p;
	struct question q;

	if (len < sizeof(d->version))
		return -EBADMSG;
	if (le32_get(d->version) != QUESTION_VERSION)
		return -EOPNOTSUPP;
	if (len != sizeof(*d))
		return -EBADMSG;
	q = (struct question){
		.kind = (enum question_kind)le32_get(d->kind),
		.seals_after = le64_get(d->seals_after),
		.replicas_after = le64_get(d->replicas_after),
		.ino = le64_get(d->ino),
		.sealed_ns = (int64_t)le64_get(d->sealed_ns),
		.off = le64_get(d->off),
	};
	memcpy(q.store, d->store, sizeof(q.store));
	if (!is_plain(&q))
		return -EBADMSG;
	*ret = q;
	return 0;
}

void answer_head_encode(uint64_t seals_after, uint64_t replicas_after, struct buf *ret)
{
	buf_add_le64(ret, seals_after);
	buf_add_le64(ret, replicas_after);
}

int answer_head_decode(struct cursor *c, uint64_t *ret_seals_after, uint64_t *ret_replicas_after)
{
	uint64_t seals_after = cursor_le64(c), replicas_after = cursor_le64(c);

	if (c->failed)
		return -EBADMSG;
	*ret_seals_after = seals_after;
	*ret_replicas_after = replicas_after;
	return 0;
}

void answer_seal_encode(const struct answer_seal *s, struct buf *ret)
{
	struct answer_seal_wire d = {
		.ino = le64_put(s->ino),
		.sealed_ns = le64_put((uint64_t)s->sealed_ns),
		.name_len = (uint8_t)strlen(s->name),
		.access = s->access,
		.path_len = le16_put((uint16_t)strlen(s->path)),
	};

	memcpy(d.store, s->store, sizeof(d.store));
	buf_add(ret, &d, sizeof(d));
	buf_add(ret, s->name, strlen(s->name));
	buf_add(ret, s->path, strlen(s->path));
}

int answer_seal_next(struct cursor *c, struct answer_seal *ret)
{
	const struct answer_seal_wire *d;
	const char *name, *path;
	size_t path_len;

	if (cursor_left(c) == 0)
		return c->failed ? -EBADMSG : 0;
	d = cursor_take(c, sizeof(*d));
	if (!d || (d->access != 0 && (d->access & ~(S_IRWXG | S_IRWXO)) != ANSWER_ACCESS_KNOWN))
		return -EBADMSG;
	path_len = le16_get(d->path_len);
	name = cursor_take(c, d->name_len);
	path = cursor_take(c, path_len);
	if (!name || !path || !ns_node_name_is_valid(name, d->name_len) || !ns_path_is_valid(path, path_len))
		return -EBADMSG;
	memcpy(ret->store, d->store, sizeof(ret->store));
	ret->ino = le64_get(d->ino);
	ret->sealed_ns = (int64_t)le64_get(d->sealed_ns);
	ret->access = d->access;
	memcpy(ret->name, name, d->name_len);
	ret->name[d->name_len] = '\0';
	memcpy(ret->path, path, path_len);
	ret->path[path_len] = '\0';
	return 1;
}

void answer_catalog_encode(bool is_last, const void *p, size_t len, struct buf *ret)
{
	buf_reserve(ret, len + 1);
	buf_add_u8(ret, is_last);
	buf_add(ret, p, len);
}

int answer_catalog_decode(const void *p, size_t len, bool *ret_is_last, const void **ret, size_t *ret_len)
{
	struct cursor c = cursor_of(p, len);
	uint8_t is_last = cursor_u8(&c);

	if (c.failed || is_last > 1 || (!is_last && cursor_left(&c) == 0))
		return -EBADMSG;
	*ret_is_last = is_last;
	*ret_len = cursor_left(&c);
	*ret = c.p;
	return 0;
}
