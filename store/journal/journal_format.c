/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/journal/journal_format.h"

#include <errno.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/buf.h"
#include "base/checksum.h"
#include "store/journal/journal.h"

#define GROUP_FLAGS_KNOWN (JOURNAL_GROUP_SNAPSHOT | JOURNAL_GROUP_LAST | JOURNAL_GROUP_ZSTD | JOURNAL_GROUP_JOINT)

static const uint8_t zeros[JOURNAL_BLOCK];

void journal_file_encode(const struct journal_file *f, struct journal_file_disk *ret)
{
	*ret = (struct journal_file_disk){ .version = le32_put(JOURNAL_VERSION), .number = le64_put(f->number) };
	memcpy(ret->magic, f->kind == JOURNAL_LOG ? JOURNAL_LOG_MAGIC : JOURNAL_SNAP_MAGIC, sizeof(ret->magic));
	memcpy(ret->store_id, f->store_id, sizeof(ret->store_id));
	ret->crc32c = le32_put(crc32c(ret, offsetof(struct journal_file_disk, crc32c)));
}

int journal_file_decode(const void *p, size_t len, struct journal_file *ret)
{
	const struct journal_file_disk *d = p;
	struct journal_file f = { 0 };

	if (len < sizeof(*d) || crc32c(d, offsetof(struct journal_file_disk, crc32c)) != le32_get(d->crc32c))
		return -EBADMSG;
	if (memcmp(d->magic, JOURNAL_LOG_MAGIC, sizeof(d->magic)) == 0)
		f.kind = JOURNAL_LOG;
	else if (memcmp(d->magic, JOURNAL_SNAP_MAGIC, sizeof(d->magic)) == 0)
		f.kind = JOURNAL_SNAP;
	else
		return -EBADMSG;
	if (le32_get(d->version) != JOURNAL_VERSION || le32_get(d->incompat) != 0)
		return -EOPNOTSUPP;
	f.number = le64_get(d->number);
	if (f.number == 0)
		return -EBADMSG;
	memcpy(f.store_id, d->store_id, sizeof(f.store_id));
	*ret = f;
	return 0;
}

/* Number of zeros after a payload on disk: less than a block. */
static size_t padding(uint64_t payload_len)
{
	return journal_group_bytes(payload_len) - sizeof(struct journal_group_disk) - payload_len;
}

void journal_group_encode(struct journal_group *g, const void *payload, size_t len, struct journal_group_disk *ret)
{
	assert(len <= JOURNAL_PAYLOAD_MAX);
	g->payload_len = (uint32_t)len;
	if (!(g->flags & JOURNAL_GROUP_ZSTD))
		g->records_len = g->payload_len;
	assert(g->records_len <= JOURNAL_PAYLOAD_MAX);
	g->payload_crc = crc32c_add(crc32c(payload, len), zeros, padding(len));
	*ret = (struct journal_group_disk){
		.version = le16_put(JOURNAL_VERSION),
		.flags = le16_put(g->flags),
		.number = le64_put(g->number),
		.part = le32_put(g->part),
		.payload_len = le32_put(g->payload_len),
		.nr_records = le64_put(g->nr_records),
		.records_len = le32_put(g->flags & JOURNAL_GROUP_ZSTD ? g->records_len : 0),
		.payload_crc32c = le32_put(g->payload_crc),
	};
	memcpy(ret->magic, JOURNAL_GROUP_MAGIC, sizeof(ret->magic));
	memcpy(ret->store_id, g->store_id, sizeof(ret->store_id));
	ret->crc32c = le32_put(crc32c(ret, offsetof(struct journal_group_disk, crc32c)));
}

int journal_group_header_decode(const void *p, size_t len, struct journal_group *ret)
{
	const struct journal_group_disk *d = p;
	struct journal_group g = { 0 };

	if (len < sizeof(*d) || memcmp(d->magic, JOURNAL_GROUP_MAGIC, sizeof(d->magic)) != 0)
		return -EBADMSG;
	if (crc32c(d, offsetof(struct journal_group_disk, crc32c)) != le32_get(d->crc32c))
		return -EBADMSG;
	g.flags = le16_get(d->flags);
	if (le16_get(d->version) != JOURNAL_VERSION || (g.flags & ~GROUP_FLAGS_KNOWN))
		return -EOPNOTSUPP;
	g.number = le64_get(d->number);
	g.part = le32_get(d->part);
	g.payload_len = le32_get(d->payload_len);
	g.nr_records = le64_get(d->nr_records);
	g.payload_crc = le32_get(d->payload_crc32c);
	g.records_len = g.flags & JOURNAL_GROUP_ZSTD ? le32_get(d->records_len) : g.payload_len;
	if (g.number == 0 || g.records_len > JOURNAL_PAYLOAD_MAX)
		return -EBADMSG;
	if ((g.flags & JOURNAL_GROUP_ZSTD) && g.payload_len >= g.records_len)
		return -EBADMSG;
	if ((g.flags & JOURNAL_GROUP_SNAPSHOT) && (g.flags & JOURNAL_GROUP_JOINT))
		return -EBADMSG;
	if (!(g.flags & JOURNAL_GROUP_SNAPSHOT) && ((g.flags & JOURNAL_GROUP_LAST) || g.part != 0 || g.nr_records != 0))
		return -EBADMSG;
	memcpy(g.store_id, d->store_id, sizeof(g.store_id));
	*ret = g;
	return 0;
}

int journal_group_decode(const void *p, size_t len, struct journal_group *ret, const void **ret_payload)
{
	const uint8_t *payload = (const uint8_t *)p + sizeof(struct journal_group_disk);
	struct journal_group g;
	int r;

	r = journal_group_header_decode(p, len, &g);
	if (r < 0)
		return r;
	if (journal_group_bytes(g.payload_len) > len)
		return -EBADMSG;
	if (crc32c(payload, g.payload_len + padding(g.payload_len)) != g.payload_crc)
		return -EBADMSG;
	*ret = g;
	*ret_payload = payload;
	return 0;
}

int journal_payload_decompress(const struct journal_group *g, const void *payload, void *ret)
{
	size_t n = ZSTD_decompress(ret, g->records_len, payload, g->payload_len);

	if (ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
		return -ENOMEM;
	return ZSTD_isError(n) || n != g->records_len ? -EBADMSG : 0;
}

/* A record is its type, its length as a varint, and its bytes. */
void journal_record_add(struct buf *group, uint8_t type, const void *p, size_t len)
{
	buf_add_u8(group, type);
	buf_add_varint(group, len);
	buf_add(group, p, len);
}

struct journal_iter journal_iter(const void *records, size_t len)
{
	struct cursor c = cursor_of(records, len);

	return (struct journal_iter){ c.p, c.end };
}

int journal_iter_next(struct journal_iter *it, uint8_t *type, const void **p, size_t *len)
{
	struct cursor c = cursor_of(it->p, (size_t)(it->end - it->p));
	const void *bytes;
	uint64_t n;
	uint8_t t;

	if (it->p == it->end)
		return 0;
	t = cursor_u8(&c);
	n = cursor_varint(&c);
	if (c.failed || n > cursor_left(&c))
		return -EBADMSG;
	bytes = cursor_take(&c, (size_t)n);
	it->p = c.p;
	*type = t;
	*p = bytes;
	*len = (size_t)n;
	return 1;
}
