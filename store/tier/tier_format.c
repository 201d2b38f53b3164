/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/tier_format.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"

#define CHUNK_MAX PACK_FRAME_BYTES
#define HEX_ID (2 * TIER_ID_LEN)

/* --- names --- */

static void put_hex(const uint8_t *p, size_t len, char *ret)
{
	for (size_t i = 0; i < len; i++)
		sprintf(ret + 2 * i, "%02x", p[i]);
}

struct tier_object_name tier_key_name(const uint8_t key_id[TIER_ID_LEN])
{
	struct tier_object_name n;

	put_hex(key_id, TIER_ID_LEN, n.s + sprintf(n.s, "keys/"));
	return n;
}

struct tier_object_name tier_pack_name(const uint8_t pack_id[TIER_ID_LEN])
{
	struct tier_object_name n;

	put_hex(pack_id, TIER_ID_LEN, n.s + sprintf(n.s, TIER_PACKS_PREFIX "%02x/", pack_id[0]));
	return n;
}

struct tier_object_name tier_manifest_name(const uint8_t store[TIER_ID_LEN], uint64_t number)
{
	struct tier_object_name n;
	int at = sprintf(n.s, TIER_SEALED_PREFIX);

	put_hex(store, TIER_ID_LEN, n.s + at);
	sprintf(n.s + at + HEX_ID, "/%016" PRIx64, number);
	return n;
}

bool tier_manifest_name_parse(const char *name, uint8_t ret_store[TIER_ID_LEN], uint64_t *ret_number)
{
	size_t prefix = strlen(TIER_SEALED_PREFIX);
	uint8_t store[TIER_ID_LEN];
	uint64_t number;

	if (strlen(name) != prefix + HEX_ID + 1 + 16)
		return false;
	for (unsigned i = 0; i < TIER_ID_LEN; i++)
		if (sscanf(name + prefix + 2 * i, "%2" SCNx8, &store[i]) != 1)
			return false;
	if (sscanf(name + prefix + HEX_ID + 1, "%16" SCNx64, &number) != 1 ||
	    strcmp(tier_manifest_name(store, number).s, name) != 0)
		return false;
	memcpy(ret_store, store, TIER_ID_LEN);
	*ret_number = number;
	return true;
}

/* --- keys --- */

/* The id reveals neither the secret nor other keys made from it. */
void tier_key_init(struct tier_key *k, enum fp_kind hash, const uint8_t secret[FP_KEY_LEN])
{
	uint8_t derived[FP_KEY_LEN];
	struct sha256_digest d;
	struct sha256 h;

	k->hash = hash;
	memcpy(k->secret, secret, FP_KEY_LEN);
	fp_derive("ckptfs tier", secret, derived);
	sha256_init(&h);
	sha256_add(&h, derived, sizeof(derived));
	sha256_add_le32(&h, (uint32_t)hash);
	d = sha256_finish(&h);
	memcpy(k->id, d.b, TIER_ID_LEN);
}

void tier_key_encode(const struct tier_key *k, struct tier_key_disk *ret)
{
	*ret = (struct tier_key_disk){ .version = le32_put(TIER_VERSION), .hash = le32_put((uint32_t)k->hash) };
	memcpy(ret->magic, TIER_KEY_MAGIC, sizeof(ret->magic));
	memcpy(ret->id, k->id, sizeof(ret->id));
	memcpy(ret->secret, k->secret, sizeof(ret->secret));
	ret->crc32c = le32_put(crc32c(ret, offsetof(struct tier_key_disk, crc32c)));
}

/* Of any object: 0; -EBADMSG; -EOPNOTSUPP: of a later version. */
static int check_head(const uint8_t magic[8], const char *expected, struct le32 version, struct le32 incompat)
{
	if (memcmp(magic, expected, 8) != 0)
		return -EBADMSG;
	return le32_get(version) != TIER_VERSION || le32_get(incompat) != 0 ? -EOPNOTSUPP : 0;
}

int tier_key_decode(const void *p, size_t len, struct tier_key *ret)
{
	const struct tier_key_disk *d = p;
	struct tier_key k;
	int r;

	if (len != sizeof(*d) || crc32c(d, offsetof(struct tier_key_disk, crc32c)) != le32_get(d->crc32c))
		return -EBADMSG;
	r = check_head(d->magic, TIER_KEY_MAGIC, d->version, d->incompat);
	if (r < 0)
		return r;
	if (le32_get(d->reserved) != 0 || !fp_kind_valid((enum fp_kind)le32_get(d->hash)))
		return -EOPNOTSUPP;
	tier_key_init(&k, (enum fp_kind)le32_get(d->hash), d->secret);
	if (memcmp(k.id, d->id, sizeof(k.id)) != 0)
		return -EBADMSG;
	*ret = k;
	return 0;
}

/* --- packs --- */

void tier_footer_encode(const struct tier_footer *f, struct tier_footer_disk *ret)
{
	*ret = (struct tier_footer_disk){
		.version = le32_put(TIER_VERSION),
		.data_len = le64_put(f->data_len),
		.nr_frames = le32_put(f->nr_frames),
	};
	memcpy(ret->magic, TIER_PACK_MAGIC, sizeof(ret->magic));
	memcpy(ret->id, f->id, sizeof(ret->id));
	memcpy(ret->key_id, f->key_id, sizeof(ret->key_id));
	ret->crc32c = le32_put(crc32c(ret, offsetof(struct tier_footer_disk, crc32c)));
}

static bool sizes_are_valid(uint64_t data_len, uint32_t nr_frames)
{
	return nr_frames > 0 && nr_frames <= TIER_PACK_FRAMES_MAX && data_len >= nr_frames &&
	       data_len <= (uint64_t)nr_frames * PACK_FRAME_BYTES;
}

int tier_footer_decode(const void *p, size_t len, struct tier_footer *ret)
{
	const struct tier_footer_disk *d = p;
	int r;

	if (len != sizeof(*d) || crc32c(d, offsetof(struct tier_footer_disk, crc32c)) != le32_get(d->crc32c))
		return -EBADMSG;
	r = check_head(d->magic, TIER_PACK_MAGIC, d->version, d->incompat);
	if (r < 0)
		return r;
	if (!sizes_are_valid(le64_get(d->data_len), le32_get(d->nr_frames)))
		return -EBADMSG;
	ret->data_len = le64_get(d->data_len);
	ret->nr_frames = le32_get(d->nr_frames);
	memcpy(ret->id, d->id, sizeof(ret->id));
	memcpy(ret->key_id, d->key_id, sizeof(ret->key_id));
	return 0;
}

void tier_tables_id(const void *tables, size_t len, uint8_t ret[TIER_ID_LEN])
{
	struct sha256_digest d;
	struct sha256 h;

	sha256_init(&h);
	sha256_add(&h, tables, len);
	d = sha256_finish(&h);
	memcpy(ret, d.b, TIER_ID_LEN);
}

static uint32_t stored_len(const struct pack_table *t)
{
	struct pack_cuts cuts = pack_table_cuts(t);

	return pack_stored_len(&t->coding, pack_cut_total(&cuts));
}

static int decode_frames(const uint8_t *p, const struct tier_footer *f, const struct fp_key *key, struct tier_tables *t)
{
	uint32_t number = le32_get(((const struct pack_table_disk *)p)->pack); /* of all tables of the pack */
	uint64_t off = 0;

	for (uint32_t i = 0; i < f->nr_frames; i++) {
		struct tier_frame *frame = &t->frames[i];
		int r = pack_table_decode(p + (size_t)i * PACK_BLOCK, PACK_BLOCK, key, number, i, &frame->table);

		if (r < 0)
			return r;
		frame->off = off;
		frame->first = t->nr_chunks;
		off += stored_len(&frame->table);
		t->nr_chunks += frame->table.nr_chunks;
	}
	return off == f->data_len ? 0 : -EBADMSG;
}

int tier_tables_decode(const void *p, size_t len, const struct tier_footer *f, const struct fp_key *key,
		       struct tier_tables *ret)
{
	struct tier_tables t = { .nr_frames = f->nr_frames };
	uint8_t id[TIER_ID_LEN];
	int r;

	if (!sizes_are_valid(f->data_len, f->nr_frames) || len != (size_t)f->nr_frames * PACK_BLOCK)
		return -EBADMSG;
	tier_tables_id(p, len, id);
	if (memcmp(id, f->id, sizeof(id)) != 0)
		return -EBADMSG;
	t.frames = calloc(f->nr_frames, sizeof(*t.frames));
	if (!t.frames)
		return -ENOMEM;
	r = decode_frames(p, f, key, &t);
	if (r < 0)
		tier_tables_release(&t);
	else
		*ret = t;
	return r;
}

void tier_tables_release(struct tier_tables *t)
{
	free(t->frames);
	*t = (struct tier_tables){ 0 };
}

const struct tier_frame *tier_tables_find(const struct tier_tables *t, uint32_t chunk, uint32_t *ret_in_frame)
{
	uint32_t lo = 0, hi = t->nr_frames;

	if (chunk >= t->nr_chunks)
		return NULL;
	while (hi - lo > 1) { /* frames[lo].first <= chunk, and chunk is before frame hi */
		uint32_t mid = lo + (hi - lo) / 2;

		if (t->frames[mid].first <= chunk)
			lo = mid;
		else
			hi = mid;
	}
	*ret_in_frame = chunk - t->frames[lo].first;
	return &t->frames[lo];
}

/* --- manifests --- */

void tier_pack_ref_encode(const struct tier_footer *f, struct buf *ret)
{
	struct tier_pack_ref_disk d = { .data_len = le64_put(f->data_len), .nr_frames = le32_put(f->nr_frames) };

	memcpy(d.id, f->id, sizeof(d.id));
	buf_add(ret, &d, sizeof(d));
}

static size_t packs_len(const struct tier_manifest *m)
{
	return m->nr_packs * sizeof(struct tier_pack_ref_disk);
}

void tier_manifest_head_encode(const struct tier_manifest *m, struct tier_manifest_disk *ret)
{
	struct tier_manifest_disk d = {
		.version = le32_put(TIER_VERSION),
		.number = le64_put(m->number),
		.ino = le64_put(m->ino),
		.sealed_ns = le64_put((uint64_t)m->sealed_ns),
		.files = le64_put(m->files),
		.directories = le64_put(m->directories),
		.bytes = le64_put(m->bytes),
		.catalog_len = le64_put(m->catalog_len),
		.path_len = le32_put(m->path_len),
		.nr_packs = le32_put(m->nr_packs),
		.uid = le32_put(m->uid),
	};
	struct sha256_digest check;
	struct sha256 h;

	memcpy(d.magic, TIER_MANIFEST_MAGIC, sizeof(d.magic));
	memcpy(d.store, m->store, sizeof(d.store));
	memcpy(d.key_id, m->key_id, sizeof(d.key_id));
	memcpy(d.root, m->root, sizeof(d.root));
	sha256_init(&h);
	sha256_add(&h, m->path, m->path_len);
	sha256_add(&h, m->packs, packs_len(m));
	sha256_add(&h, m->catalog, m->catalog_len);
	check = sha256_finish(&h);
	memcpy(d.check, check.b, sizeof(d.check));
	d.crc32c = le32_put(crc32c(&d, offsetof(struct tier_manifest_disk, crc32c)));
	*ret = d;
}

void tier_manifest_encode(const struct tier_manifest *m, struct buf *ret)
{
	struct tier_manifest_disk d;

	tier_manifest_head_encode(m, &d);
	buf_add(ret, &d, sizeof(d));
	buf_add(ret, m->path, m->path_len);
	buf_add(ret, m->packs, packs_len(m));
	buf_add(ret, m->catalog, m->catalog_len);
}

bool tier_manifest_has_size(const struct tier_manifest *m, uint64_t size)
{
	uint64_t others = sizeof(struct tier_manifest_disk) + m->path_len + packs_len(m);

	return size >= others && size - others == m->catalog_len;
}

static int check_body(const struct tier_manifest_disk *d, size_t len, const struct tier_manifest *m)
{
	struct sha256_digest check;
	struct sha256 h;

	if (!tier_manifest_has_size(m, len))
		return -EBADMSG;
	sha256_init(&h);
	sha256_add(&h, d + 1, len - sizeof(*d));
	check = sha256_finish(&h);
	return memcmp(check.b, d->check, sizeof(d->check)) == 0 ? 0 : -EBADMSG;
}

/* Names separated by single slashes, or an empty path. */
static bool path_is_valid(const char *path, size_t len)
{
	if (memchr(path, '\0', len))
		return false;
	for (size_t at = 0; len > 0 && at <= len;) {
		const char *slash = memchr(path + at, '/', len - at), *name = path + at;
		size_t n = slash ? (size_t)(slash - name) : len - at;

		if (n == 0 || n > NAME_MAX || (name[0] == '.' && (n == 1 || (n == 2 && name[1] == '.'))))
			return false;
		at += n + 1;
	}
	return true;
}

int tier_manifest_head_decode(const void *p, size_t len, struct tier_manifest *ret)
{
	const struct tier_manifest_disk *d = p;
	struct tier_manifest m;
	int r;

	if (len >= sizeof(d->magic) && memcmp(d->magic, TIER_FENCE_MAGIC, sizeof(d->magic)) == 0)
		return -ENODATA;
	if (len < sizeof(*d) || crc32c(d, offsetof(struct tier_manifest_disk, crc32c)) != le32_get(d->crc32c))
		return -EBADMSG;
	r = check_head(d->magic, TIER_MANIFEST_MAGIC, d->version, d->incompat);
	if (r < 0)
		return r;
	m = (struct tier_manifest){
		.number = le64_get(d->number),
		.ino = le64_get(d->ino),
		.sealed_ns = (int64_t)le64_get(d->sealed_ns),
		.files = le64_get(d->files),
		.directories = le64_get(d->directories),
		.bytes = le64_get(d->bytes),
		.uid = le32_get(d->uid),
		.path = (const char *)(d + 1),
		.path_len = le32_get(d->path_len),
		.nr_packs = le32_get(d->nr_packs),
		.catalog_len = le64_get(d->catalog_len),
	};
	if (m.path_len > TIER_PATH_MAX || m.nr_packs > TIER_MANIFEST_PACKS_MAX || m.path_len > len - sizeof(*d) ||
	    !path_is_valid(m.path, m.path_len))
		return -EBADMSG;
	memcpy(m.store, d->store, sizeof(m.store));
	memcpy(m.key_id, d->key_id, sizeof(m.key_id));
	memcpy(m.root, d->root, sizeof(m.root));
	memcpy(m.check, d->check, sizeof(m.check));
	*ret = m;
	return 0;
}

int tier_manifest_decode(const void *p, size_t len, struct tier_manifest *ret)
{
	struct tier_footer f;
	struct tier_manifest m;
	int r = tier_manifest_head_decode(p, len, &m);

	if (r == 0)
		r = check_body(p, len, &m);
	if (r < 0)
		return r;
	m.packs = (const uint8_t *)m.path + m.path_len;
	m.catalog = m.packs + m.nr_packs * sizeof(struct tier_pack_ref_disk);
	for (uint32_t i = 0; i < m.nr_packs && r == 0; i++)
		r = tier_manifest_pack(&m, i, &f);
	if (r == 0)
		*ret = m;
	return r;
}

int tier_manifest_pack(const struct tier_manifest *m, uint32_t i, struct tier_footer *ret)
{
	const struct tier_pack_ref_disk *d = (const struct tier_pack_ref_disk *)m->packs + i;

	if (!sizes_are_valid(le64_get(d->data_len), le32_get(d->nr_frames)))
		return -EBADMSG;
	ret->data_len = le64_get(d->data_len);
	ret->nr_frames = le32_get(d->nr_frames);
	memcpy(ret->id, d->id, sizeof(ret->id));
	memcpy(ret->key_id, m->key_id, sizeof(ret->key_id));
	return 0;
}

void tier_run_encode(const struct tier_run *r, struct buf *ret)
{
	buf_add_varint(ret, r->pack);
	if (r->pack > 0) {
		buf_add_varint(ret, r->first);
		buf_add_varint(ret, r->nr);
		if (r->nr == 0)
			buf_add_varint(ret, r->from);
	}
	buf_add_varint(ret, r->len);
}

static uint32_t take_u32(struct cursor *c)
{
	uint64_t v = cursor_varint(c);

	c->failed |= v > UINT32_MAX;
	return (uint32_t)v;
}

int tier_run_next(struct cursor *c, struct tier_run *ret)
{
	struct tier_run r = { 0 };

	if (cursor_left(c) == 0)
		return c->failed ? -EBADMSG : 0;
	r.pack = take_u32(c);
	if (r.pack > 0) {
		r.first = take_u32(c);
		r.nr = take_u32(c);
	}
	if (r.pack > 0 && r.nr == 0)
		r.from = take_u32(c);
	r.len = cursor_varint(c);
	if (c->failed || r.len == 0 || r.nr > UINT32_MAX - r.first)
		return -EBADMSG;
	if (r.pack > 0 && r.nr == 0 && (r.len > CHUNK_MAX || r.from > CHUNK_MAX - r.len))
		return -EBADMSG;
	if (r.nr > 0 && (r.len < r.nr || r.len > (uint64_t)r.nr * CHUNK_MAX))
		return -EBADMSG;
	*ret = r;
	return 1;
}
