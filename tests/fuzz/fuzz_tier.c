/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Any bytes as objects of a tier: refused, or the same bytes again when encoded. The first byte says which object; each
 * is tried as it comes, and with checksums that are right, so that what lies behind them is reached.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checksum.h"
#include "base/util.h"
#include "store/catalog/catalog_format.h"
#include "store/tier/tier_format.h"
#include "store/tier/collect/tier_log_format.h"
#include "store/tier/reading/tier_tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void look_at_key(const uint8_t *p, size_t len)
{
	struct tier_key_disk again;
	struct tier_key k;

	if (tier_key_decode(p, len, &k) < 0)
		return;
	tier_key_encode(&k, &again);
	assert(memcmp(&again, p, len) == 0);
}

static void look_at_footer(const uint8_t *p, size_t len)
{
	struct tier_footer_disk again;
	struct tier_footer f;

	if (tier_footer_decode(p, len, &f) < 0)
		return;
	assert(tier_pack_len(&f) > f.data_len && f.nr_frames > 0);
	tier_footer_encode(&f, &again);
	assert(memcmp(&again, p, len) == 0);
}

static void look_at_runs(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf again = BUF_EMPTY;
	struct cursor c = cursor_of(p, len);
	struct tier_run r;
	const uint8_t *at;

	for (at = p; tier_run_next(&c, &r) > 0; at = c.p) {
		buf_clear(&again);
		tier_run_encode(&r, &again);
		assert(buf_error(&again) < 0 ||
		       (again.len == (size_t)(c.p - at) && memcmp(again.data, at, again.len) == 0));
	}
}

/* The records of a catalog as a tree of names: each inode has a path, each directory finds its entries, and runs cover
 * files. */
static void look_at_tree(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf catalog = BUF_EMPTY, path = BUF_EMPTY;
	_cleanup_(tier_tree_freep) struct tier_tree *t = NULL;
	struct tier_manifest m = { .nr_packs = 3 };

	catalog_head_encode(&(struct catalog_head){ .ino = 1 }, &catalog);
	buf_add(&catalog, p, len);
	if (buf_error(&catalog) < 0)
		return;
	m.catalog = catalog.data;
	m.catalog_len = catalog.len;
	if (tier_tree_new(&m, &t) < 0)
		return;
	for (uint32_t i = 0; i < t->nr_inodes; i++) {
		const struct tier_inode *in = &t->inodes[i];
		struct tier_runs it;
		struct tier_run run;
		uint64_t at, end = 0;

		buf_clear(&path);
		tier_tree_path(t, i, &path);
		assert(buf_error(&path) < 0 || path.data[path.len - 1] == '\0');
		if (S_ISDIR(in->mode))
			for (uint32_t k = in->first; k < in->first + in->nr; k++)
				assert(tier_tree_find(t, i, tier_tree_name(t, t->entries[k].name)) == &t->entries[k]);
		if (!S_ISREG(in->mode))
			continue;
		it = tier_runs_from(t, i, 0);
		while (tier_runs_next(&it, &run, &at)) {
			assert(at == end && run.pack <= m.nr_packs);
			end = at + run.len;
		}
		assert(end == in->size);
		it = tier_runs_from(t, i, in->size / 2);
		assert(in->size == 0 || (tier_runs_next(&it, &run, &at) && at <= in->size / 2 && in->size / 2 < at + run.len));
	}
}

static void look_at_manifest(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf again = BUF_EMPTY;
	struct tier_manifest m;
	struct tier_footer f;

	if (tier_manifest_head_decode(p, len, &m) == 0)
		assert(m.path_len <= len - sizeof(struct tier_manifest_disk));
	if (tier_manifest_decode(p, len, &m) < 0)
		return;
	for (uint32_t i = 0; i < m.nr_packs; i++)
		assert(tier_manifest_pack(&m, i, &f) == 0);
	look_at_runs(m.catalog, m.catalog_len);
	tier_manifest_encode(&m, &again);
	assert(buf_error(&again) < 0 || (again.len == len && memcmp(again.data, p, len) == 0));
}

/* Tables, sealed for the places that they are in; the first bytes say how long their data is. */
static void look_at_tables(const uint8_t *p, size_t len)
{
	static const uint8_t secret[FP_KEY_LEN] = "a secret of thirty-two bytes...";
	static struct fp_key key;
	struct tier_footer f = { .nr_frames = (uint32_t)(len / PACK_BLOCK) };
	struct pack_table_disk *d;
	struct tier_tables t;
	uint32_t in;

	if (f.nr_frames == 0)
		return;
	if (key.kind == 0)
		fp_key_init(&key, FP_XXH3, secret);
	d = malloc((size_t)f.nr_frames * PACK_BLOCK);
	if (!d)
		return;
	memcpy(d, p, (size_t)f.nr_frames * PACK_BLOCK);
	for (uint32_t i = 0; i < f.nr_frames; i++) {
		memcpy(d[i].magic, PACK_TABLE_MAGIC, sizeof(d[i].magic));
		d[i].pack = le32_put(TIER_PACK_NUMBER);
		d[i].frame = le32_put(i);
		d[i].seal = le64_put(pack_table_seal(&d[i], &key));
		f.data_len += le32_get(d[i].stored_len);
	}
	tier_tables_id(d, (size_t)f.nr_frames * PACK_BLOCK, f.id);
	if (tier_tables_decode(d, (size_t)f.nr_frames * PACK_BLOCK, &f, &key, &t) == 0) {
		for (uint32_t i = 0; i < t.nr_chunks; i++) {
			const struct tier_frame *frame = tier_tables_find(&t, i, &in);

			assert(frame && in < frame->table.nr_chunks && frame->off < f.data_len);
		}
		assert(!tier_tables_find(&t, t.nr_chunks, &in));
		tier_tables_release(&t);
	}
	free(d);
}

static void look_at_entry(const uint8_t *p, size_t len)
{
	struct tier_entry_disk again;
	struct tier_log_entry e;

	if (tier_entry_decode(p, len, &e) < 0)
		return;
	assert(e.number > 0 && e.generation <= e.number);
	tier_entry_encode(&e, &again);
	assert(memcmp(&again, p, len) == 0);
}

static void look_at_fence(const uint8_t *p, size_t len)
{
	struct tier_fence_disk again;
	struct tier_manifest m;
	struct tier_fence f;

	if (tier_fence_decode(p, len, &f) < 0)
		return;
	assert(tier_manifest_decode(p, len, &m) == -ENODATA);
	tier_fence_encode(&f, &again);
	assert(memcmp(&again, p, len) == 0);
}

static void look_at_marks(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf again = BUF_EMPTY;
	struct tier_marks m;

	if (tier_marks_decode(p, len, &m) < 0)
		return;
	for (uint32_t i = 0; i < m.nr_stores; i++) {
		const struct tier_store_marks *s = &m.stores[i];

		assert(tier_marks_store(&m, s->id) == s);
		for (uint32_t k = 0; k < s->nr_kept; k++)
			assert(le64_get(s->kept[k]) <= s->base && tier_marks_keep(s, le64_get(s->kept[k])));
		for (uint32_t k = 0; k < s->nr_removed; k++)
			assert(tier_marks_removed(s, le64_get(s->removed[k].ino),
						  (int64_t)le64_get(s->removed[k].sealed_ns)));
	}
	for (uint32_t i = 0; i < m.nr_dropped; i++)
		assert(tier_id_is_in(m.dropped, m.nr_dropped, m.dropped[i]));
	tier_marks_encode(&m, &again);
	assert(buf_error(&again) < 0 || (again.len == len && memcmp(again.data, p, len) == 0));
	tier_marks_release(&m);
}

static void look(uint8_t what, const uint8_t *p, size_t len)
{
	switch (what % 9) {
	case 0:
		look_at_key(p, len);
		break;
	case 1:
		look_at_footer(p, len);
		break;
	case 2:
		look_at_manifest(p, len);
		break;
	case 3:
		look_at_runs(p, len);
		break;
	case 4:
		look_at_tables(p, len);
		break;
	case 5:
		look_at_tree(p, len);
		break;
	case 6:
		look_at_entry(p, len);
		break;
	case 7:
		look_at_fence(p, len);
		break;
	case 8:
		look_at_marks(p, len);
		break;
	}
}

static void put_crc(uint8_t *p, size_t len, size_t head)
{
	struct le32 crc;

	if (len < head)
		return;
	crc = le32_put(crc32c(p, head - sizeof(crc)));
	memcpy(p + head - sizeof(crc), &crc, sizeof(crc));
}

static void repair(uint8_t what, uint8_t *p, size_t len)
{
	struct tier_manifest_disk *m = (struct tier_manifest_disk *)p;

	switch (what % 9) {
	case 6:
		put_crc(p, len, sizeof(struct tier_entry_disk));
		break;
	case 7:
		put_crc(p, len, sizeof(struct tier_fence_disk));
		break;
	case 0: {
		struct tier_key_disk *k = (struct tier_key_disk *)p;
		struct tier_key good;

		if (len < sizeof(*k))
			return;
		tier_key_init(&good, (enum fp_kind)le32_get(k->hash), k->secret);
		memcpy(k->id, good.id, sizeof(k->id));
		put_crc(p, len, sizeof(*k));
		break;
	}
	case 1:
		put_crc(p, len, sizeof(struct tier_footer_disk));
		break;
	case 2:
		if (len >= sizeof(*m)) {
			struct sha256_digest d;
			struct sha256 h;

			sha256_init(&h);
			sha256_add(&h, m + 1, len - sizeof(*m));
			d = sha256_finish(&h);
			memcpy(m->check, d.b, sizeof(m->check));
			put_crc(p, len, sizeof(*m));
		}
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	uint8_t *copy;

	if (len < 1)
		return 0;
	look(p[0], p + 1, len - 1);
	copy = malloc(len);
	if (!copy)
		return 0;
	memcpy(copy, p, len);
	repair(p[0], copy + 1, len - 1);
	look(p[0], copy + 1, len - 1);
	free(copy);
	return 0;
}
