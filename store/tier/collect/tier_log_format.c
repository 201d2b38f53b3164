/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/collect/tier_log_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"

/* --- names --- */

static bool parse_hex(const char *s, uint8_t ret[TIER_ID_LEN])
{
	for (unsigned i = 0; i < TIER_ID_LEN; i++)
		if (sscanf(s + 2 * i, "%2" SCNx8, &ret[i]) != 1)
			return false;
	return true;
}

static void add_hex(const uint8_t id[TIER_ID_LEN], char *to)
{
	for (unsigned i = 0; i < TIER_ID_LEN; i++)
		sprintf(to + 2 * i, "%02x", id[i]);
}

struct tier_object_name tier_log_name(uint64_t number)
{
	struct tier_object_name n;

	sprintf(n.s, TIER_LOG_PREFIX "%016" PRIx64, number);
	return n;
}

bool tier_log_name_parse(const char *name, uint64_t *ret_number)
{
	uint64_t number;

	if (sscanf(name, TIER_LOG_PREFIX "%16" SCNx64, &number) != 1 || strcmp(tier_log_name(number).s, name) != 0)
		return false;
	*ret_number = number;
	return true;
}

struct tier_object_name tier_marks_name(uint64_t number, const uint8_t id[TIER_ID_LEN])
{
	struct tier_object_name n;

	add_hex(id, n.s + sprintf(n.s, TIER_MARKS_PREFIX "%016" PRIx64 "/", number));
	return n;
}

bool tier_marks_name_parse(const char *name, uint64_t *ret_number, uint8_t ret_id[TIER_ID_LEN])
{
	size_t before = strlen(TIER_MARKS_PREFIX) + 17;
	uint8_t id[TIER_ID_LEN];
	uint64_t number;

	if (strlen(name) != before + 2 * (size_t)TIER_ID_LEN ||
	    sscanf(name, TIER_MARKS_PREFIX "%16" SCNx64, &number) != 1 || !parse_hex(name + before, id) ||
	    strcmp(tier_marks_name(number, id).s, name) != 0)
		return false;
	*ret_number = number;
	memcpy(ret_id, id, sizeof(id));
	return true;
}

bool tier_pack_name_parse(const char *name, uint8_t ret_id[TIER_ID_LEN])
{
	size_t before = strlen(TIER_PACKS_PREFIX) + 3;
	uint8_t id[TIER_ID_LEN];

	if (strlen(name) != before + 2 * (size_t)TIER_ID_LEN || !parse_hex(name + before, id) ||
	    strcmp(tier_pack_name(id).s, name) != 0)
		return false;
	memcpy(ret_id, id, sizeof(id));
	return true;
}

/* --- entries of the log --- */

static bool is_zero(const uint8_t id[TIER_ID_LEN])
{
	static const uint8_t zeros[TIER_ID_LEN];

	return memcmp(id, zeros, sizeof(zeros)) == 0;
}

void tier_entry_encode(const struct tier_log_entry *e, struct tier_entry_disk *ret)
{
	*ret = (struct tier_entry_disk){
		.version = le32_put(TIER_VERSION),
		.number = le64_put(e->number),
		.generation = le64_put(e->generation),
		.marks_len = le64_put(e->marks_len),
	};
	memcpy(ret->magic, TIER_ENTRY_MAGIC, sizeof(ret->magic));
	memcpy(ret->marks_id, e->marks_id, sizeof(ret->marks_id));
	memcpy(ret->store, e->store, sizeof(ret->store));
	ret->crc32c = le32_put(crc32c(ret, offsetof(struct tier_entry_disk, crc32c)));
}

int tier_entry_decode(const void *p, size_t len, struct tier_log_entry *ret)
{
	const struct tier_entry_disk *d = p;
	struct tier_log_entry e;

	if (len != sizeof(*d) || memcmp(d->magic, TIER_ENTRY_MAGIC, sizeof(d->magic)) != 0 ||
	    crc32c(d, offsetof(struct tier_entry_disk, crc32c)) != le32_get(d->crc32c))
		return -EBADMSG;
	if (le32_get(d->version) != TIER_VERSION || le32_get(d->incompat) != 0 || le32_get(d->reserved) != 0)
		return -EOPNOTSUPP;
	e = (struct tier_log_entry){
		.number = le64_get(d->number),
		.generation = le64_get(d->generation),
		.marks_len = le64_get(d->marks_len),
	};
	memcpy(e.marks_id, d->marks_id, sizeof(e.marks_id));
	memcpy(e.store, d->store, sizeof(e.store));
	if (e.number == 0 || e.number > TIER_ENTRIES_MAX || e.generation > e.number ||
	    (e.generation == 0) != (e.marks_len == 0) || e.marks_len > TIER_MARKS_MAX ||
	    (e.generation == 0 && !is_zero(e.marks_id)) || (e.generation == e.number && !is_zero(e.store)))
		return -EBADMSG;
	*ret = e;
	return 0;
}

/* --- marks --- */

static void seal_put(uint64_t ino, int64_t sealed_ns, struct tier_seal_disk *ret)
{
	*ret = (struct tier_seal_disk){ le64_put(ino), le64_put((uint64_t)sealed_ns) };
}

static int seal_compare(const struct tier_seal_disk *s, uint64_t ino, int64_t sealed_ns)
{
	int64_t ns = (int64_t)le64_get(s->sealed_ns);
	uint64_t in = le64_get(s->ino);

	return ns != sealed_ns ? (ns < sealed_ns ? -1 : 1) : (in > ino) - (in < ino);
}

void tier_marks_encode(const struct tier_marks *m, struct buf *ret)
{
	struct tier_marks_disk d = {
		.version = le32_put(TIER_VERSION),
		.number = le64_put(m->number),
		.previous = le64_put(m->previous),
		.nr_stores = le32_put(m->nr_stores),
		.nr_dropped = le32_put(m->nr_dropped),
		.nr_pending = le32_put(m->nr_pending),
	};

	memcpy(d.magic, TIER_MARKS_MAGIC, sizeof(d.magic));
	memcpy(d.previous_id, m->previous_id, sizeof(d.previous_id));
	buf_add(ret, &d, sizeof(d));
	for (uint32_t i = 0; i < m->nr_stores; i++) {
		const struct tier_store_marks *s = &m->stores[i];
		struct tier_store_disk sd = {
			.base = le64_put(s->base),
			.last = le64_put(s->last),
			.nr_kept = le32_put(s->nr_kept),
			.nr_removed = le32_put(s->nr_removed),
		};

		memcpy(sd.id, s->id, sizeof(sd.id));
		seal_put(s->last_ino, s->last_sealed_ns, &sd.last_seal);
		buf_add(ret, &sd, sizeof(sd));
		buf_add(ret, s->kept, s->nr_kept * sizeof(*s->kept));
		buf_add(ret, s->removed, s->nr_removed * sizeof(*s->removed));
	}
	buf_add(ret, m->dropped, m->nr_dropped * sizeof(*m->dropped));
	buf_add(ret, m->pending, m->nr_pending * sizeof(*m->pending));
}

static int decode_store(struct cursor *c, struct tier_store_marks *ret)
{
	const struct tier_store_disk *d = cursor_take(c, sizeof(*d));
	struct tier_store_marks s;
	uint64_t before = 0;

	if (!d || le32_get(d->nr_removed) > TIER_REMOVED_MAX)
		return -EBADMSG;
	s = (struct tier_store_marks){
		.base = le64_get(d->base),
		.last = le64_get(d->last),
		.last_ino = le64_get(d->last_seal.ino),
		.last_sealed_ns = (int64_t)le64_get(d->last_seal.sealed_ns),
		.nr_kept = le32_get(d->nr_kept),
		.nr_removed = le32_get(d->nr_removed),
	};
	memcpy(s.id, d->id, sizeof(s.id));
	s.kept = cursor_take(c, s.nr_kept * sizeof(*s.kept));
	s.removed = cursor_take(c, s.nr_removed * sizeof(*s.removed));
	if (c->failed || s.last > s.base)
		return -EBADMSG;
	for (uint32_t i = 0; i < s.nr_kept; i++) {
		uint64_t number = le64_get(s.kept[i]);

		if (number <= before || number > s.base)
			return -EBADMSG;
		before = number;
	}
	for (uint32_t i = 1; i < s.nr_removed; i++)
		if (seal_compare(&s.removed[i - 1], le64_get(s.removed[i].ino),
				 (int64_t)le64_get(s.removed[i].sealed_ns)) >= 0)
			return -EBADMSG;
	*ret = s;
	return 0;
}

static bool ids_ascend(const uint8_t (*ids)[TIER_ID_LEN], uint32_t nr)
{
	for (uint32_t i = 1; i < nr; i++)
		if (memcmp(ids[i - 1], ids[i], TIER_ID_LEN) >= 0)
			return false;
	return true;
}

static int decode_stores(struct cursor *c, struct tier_marks *m)
{
	int r = 0;

	for (uint32_t i = 0; i < m->nr_stores && r == 0; i++) {
		r = decode_store(c, &m->stores[i]);
		if (r == 0 && i > 0 && memcmp(m->stores[i - 1].id, m->stores[i].id, TIER_ID_LEN) >= 0)
			r = -EBADMSG;
	}
	return r;
}

int tier_marks_decode(const void *p, size_t len, struct tier_marks *ret)
{
	struct cursor c = cursor_of(p, len);
	const struct tier_marks_disk *d = cursor_take(&c, sizeof(*d));
	struct tier_marks m;
	int r;

	if (!d || memcmp(d->magic, TIER_MARKS_MAGIC, sizeof(d->magic)) != 0)
		return -EBADMSG;
	if (le32_get(d->version) != TIER_VERSION || le32_get(d->incompat) != 0 || le32_get(d->reserved) != 0)
		return -EOPNOTSUPP;
	m = (struct tier_marks){
		.number = le64_get(d->number),
		.previous = le64_get(d->previous),
		.nr_stores = le32_get(d->nr_stores),
		.nr_dropped = le32_get(d->nr_dropped),
		.nr_pending = le32_get(d->nr_pending),
	};
	memcpy(m.previous_id, d->previous_id, sizeof(m.previous_id));
	if (m.previous >= m.number || (m.previous == 0 && !is_zero(m.previous_id)) ||
	    m.nr_stores > cursor_left(&c) / sizeof(struct tier_store_disk))
		return -EBADMSG;
	m.stores = calloc(MAX(m.nr_stores, 1u), sizeof(*m.stores));
	if (!m.stores)
		return -ENOMEM;
	r = decode_stores(&c, &m);
	if (r == 0) {
		m.dropped = cursor_take(&c, m.nr_dropped * sizeof(*m.dropped));
		m.pending = cursor_take(&c, m.nr_pending * sizeof(*m.pending));
		if (!cursor_done(&c) || !ids_ascend(m.dropped, m.nr_dropped) || !ids_ascend(m.pending, m.nr_pending))
			r = -EBADMSG;
	}
	if (r < 0)
		tier_marks_release(&m);
	else
		*ret = m;
	return r;
}

void tier_marks_release(struct tier_marks *m)
{
	free(m->stores);
	*m = (struct tier_marks){ 0 };
}

void tier_marks_id(const void *p, size_t len, uint8_t ret[TIER_ID_LEN])
{
	tier_tables_id(p, len, ret); /* the start of SHA-256, as for packs */
}

const struct tier_store_marks *tier_marks_store(const struct tier_marks *m, const uint8_t store[TIER_ID_LEN])
{
	size_t low = 0, high = m->nr_stores;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int k = memcmp(m->stores[middle].id, store, TIER_ID_LEN);

		if (k == 0)
			return &m->stores[middle];
		if (k < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

bool tier_marks_keep(const struct tier_store_marks *s, uint64_t number)
{
	size_t low = 0, high = s->nr_kept;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		uint64_t at = le64_get(s->kept[middle]);

		if (at == number)
			return true;
		if (at < number)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

bool tier_marks_removed(const struct tier_store_marks *s, uint64_t ino, int64_t sealed_ns)
{
	size_t low = 0, high = s->nr_removed;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int k = seal_compare(&s->removed[middle], ino, sealed_ns);

		if (k == 0)
			return true;
		if (k < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

bool tier_id_is_in(const uint8_t (*ids)[TIER_ID_LEN], size_t nr, const uint8_t id[TIER_ID_LEN])
{
	size_t low = 0, high = nr;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int k = memcmp(ids[middle], id, TIER_ID_LEN);

		if (k == 0)
			return true;
		if (k < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* --- fences --- */

void tier_fence_encode(const struct tier_fence *f, struct tier_fence_disk *ret)
{
	*ret = (struct tier_fence_disk){
		.version = le32_put(TIER_VERSION),
		.number = le64_put(f->number),
		.generation = le64_put(f->generation),
	};
	memcpy(ret->magic, TIER_FENCE_MAGIC, sizeof(ret->magic));
	memcpy(ret->store, f->store, sizeof(ret->store));
	ret->crc32c = le32_put(crc32c(ret, offsetof(struct tier_fence_disk, crc32c)));
}

int tier_fence_decode(const void *p, size_t len, struct tier_fence *ret)
{
	const struct tier_fence_disk *d = p;

	if (len != sizeof(*d) || memcmp(d->magic, TIER_FENCE_MAGIC, sizeof(d->magic)) != 0 ||
	    crc32c(d, offsetof(struct tier_fence_disk, crc32c)) != le32_get(d->crc32c))
		return -EBADMSG;
	if (le32_get(d->version) != TIER_VERSION || le32_get(d->incompat) != 0 || le32_get(d->reserved) != 0)
		return -EOPNOTSUPP;
	*ret = (struct tier_fence){ .number = le64_get(d->number), .generation = le64_get(d->generation) };
	memcpy(ret->store, d->store, sizeof(ret->store));
	return 0;
}
