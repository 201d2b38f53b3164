/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Objects of a tier as bytes: what is written is read back, nothing else is, and the bytes stay what they are. */
#include "store/tier/tier_format.h"
#include "store/tier/collect/tier_log_format.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/util.h"
#include "tests/unit/golden.h"

static const uint8_t secret[FP_KEY_LEN] = "a secret of thirty-two bytes...";
static const uint8_t store[TIER_ID_LEN] = "0123456789abcde";

static void names_are_valid_and_parsed(void **state _unused_)
{
	uint8_t id[TIER_ID_LEN] = { 0xab, 0, 0xff }, back[TIER_ID_LEN];
	uint64_t number;

	assert_string_equal(tier_key_name(id).s, "keys/ab00ff00000000000000000000000000");
	assert_string_equal(tier_pack_name(id).s, "packs/ab/ab00ff00000000000000000000000000");
	assert_string_equal(tier_manifest_name(id, 0x1f).s, "sealed/ab00ff00000000000000000000000000/000000000000001f");
	assert_true(tier_manifest_name_parse(tier_manifest_name(id, UINT64_MAX).s, back, &number));
	assert_memory_equal(back, id, sizeof(id));
	assert_true(number == UINT64_MAX);
	assert_false(tier_manifest_name_parse("sealed/AB00ff00000000000000000000000000/000000000000001f", back, &number));
	assert_false(tier_manifest_name_parse("sealed/ab00ff00000000000000000000000000/00000000000001f", back, &number));
	assert_false(tier_manifest_name_parse("sealed/ab00ff00000000000000000000000000/00000000000000 f", back, &number));
	assert_false(tier_manifest_name_parse("packed/ab00ff00000000000000000000000000/000000000000001f", back, &number));
	assert_false(tier_manifest_name_parse("", back, &number));
}

/* --- any object: each bit and each length counts --- */

typedef int decode_fn(const void *p, size_t len);

static void expect_strict(const void *p, size_t len, decode_fn *decode)
{
	uint8_t *copy = malloc(len + 1);

	assert_non_null(copy);
	memcpy(copy, p, len);
	copy[len] = 0;
	assert_int_equal(decode(copy, len), 0);
	for (size_t i = 0; i < 8 * len; i++) {
		copy[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_true(decode(copy, len) < 0);
		copy[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	for (size_t n = 0; n < len; n++)
		assert_int_equal(decode(copy, n), -EBADMSG);
	assert_int_equal(decode(copy, len + 1), -EBADMSG);
	free(copy);
}

static int decode_key(const void *p, size_t len)
{
	struct tier_key k;

	return tier_key_decode(p, len, &k);
}

static void a_key_is_read_back(void **state _unused_)
{
	struct tier_key k, other, back;
	struct tier_key_disk d;

	tier_key_init(&k, FP_CLMUL, secret);
	tier_key_init(&other, FP_SHA256, secret);
	assert_memory_not_equal(k.id, other.id, sizeof(k.id));
	tier_key_encode(&k, &d);
	golden_expect("tier/v1-key.txt", "a key", &d, sizeof(d));
	assert_int_equal(tier_key_decode(&d, sizeof(d), &back), 0);
	assert_int_equal(back.hash, FP_CLMUL);
	assert_memory_equal(back.id, k.id, sizeof(k.id));
	assert_memory_equal(back.secret, secret, sizeof(secret));
	expect_strict(&d, sizeof(d), decode_key);
}

static void later_versions_are_refused(void **state _unused_)
{
	struct tier_key_disk d;
	struct tier_key k;

	tier_key_init(&k, FP_CLMUL, secret);
	tier_key_encode(&k, &d);
	d.incompat = le32_put(1);
	d.crc32c = le32_put(crc32c(&d, offsetof(struct tier_key_disk, crc32c)));
	assert_int_equal(decode_key(&d, sizeof(d)), -EOPNOTSUPP);
	tier_key_encode(&k, &d);
	d.version = le32_put(2);
	d.crc32c = le32_put(crc32c(&d, offsetof(struct tier_key_disk, crc32c)));
	assert_int_equal(decode_key(&d, sizeof(d)), -EOPNOTSUPP);
}

/* --- packs --- */

#define FRAMES 3u

static struct fp_key key;
static uint8_t tables[FRAMES * PACK_BLOCK];

/* Two chunks of a page; three of varied lengths; a compressed one. */
static struct tier_footer make_pack(void)
{
	struct tier_footer f = { .nr_frames = FRAMES, .data_len = 2 * 4096 + 600 + 1000, .key_id = "key" };
	struct pack_table *t = calloc(FRAMES, sizeof(*t));

	assert_non_null(t);
	fp_key_init(&key, FP_XXH3, secret);
	for (unsigned i = 0; i < FRAMES; i++)
		for (unsigned k = 0; k < 4; k++)
			t[i].fps[k] = (struct fp){ 100 * i + k + 1, 5 };
	t[0].chunk_len = 4096;
	t[0].nr_chunks = 2;
	t[1].nr_chunks = 3;
	t[1].ends[0] = 100;
	t[1].ends[1] = 300;
	t[1].ends[2] = 600;
	t[2].chunk_len = 65536;
	t[2].nr_chunks = 1;
	t[2].coding = (struct pack_coding){ .codec = PACK_CODEC_LZ4, .part_end = { 1000 } };
	for (unsigned i = 0; i < FRAMES; i++)
		pack_table_encode(&t[i], &key, TIER_PACK_NUMBER, i, (struct pack_table_disk *)(tables + i * PACK_BLOCK));
	tier_tables_id(tables, sizeof(tables), f.id);
	free(t);
	return f;
}

static int decode_footer(const void *p, size_t len)
{
	struct tier_footer f;

	return tier_footer_decode(p, len, &f);
}

static void a_footer_is_read_back(void **state _unused_)
{
	struct tier_footer f = make_pack(), back;
	struct tier_footer_disk d;

	tier_footer_encode(&f, &d);
	golden_expect("tier/v1-footer.txt", "the footer of a pack", &d, sizeof(d));
	assert_int_equal(tier_footer_decode(&d, sizeof(d), &back), 0);
	assert_memory_equal(back.id, f.id, sizeof(f.id));
	assert_memory_equal(back.key_id, f.key_id, sizeof(f.key_id));
	assert_int_equal(back.data_len, f.data_len);
	assert_int_equal(back.nr_frames, FRAMES);
	assert_int_equal(tier_pack_len(&back), f.data_len + FRAMES * 4096 + sizeof(d));
	expect_strict(&d, sizeof(d), decode_footer);
}

static void impossible_sizes_are_damage(void **state _unused_)
{
	static const struct tier_footer bad[] = {
		{ .nr_frames = 0, .data_len = 0 },
		{ .nr_frames = 1, .data_len = 0 },
		{ .nr_frames = 1, .data_len = PACK_FRAME_BYTES + 1 },
		{ .nr_frames = TIER_PACK_FRAMES_MAX + 1, .data_len = MiB(8) },
		{ .nr_frames = UINT32_MAX, .data_len = UINT64_MAX },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct tier_footer_disk d;

		tier_footer_encode(&bad[i], &d);
		assert_int_equal(decode_footer(&d, sizeof(d)), -EBADMSG);
	}
}

static void chunks_are_found_by_number(void **state _unused_)
{
	static const struct {
		uint32_t chunk, frame, in;
		uint64_t off;
	} places[] = { { 0, 0, 0, 0 }, { 1, 0, 1, 0 }, { 2, 1, 0, 8192 }, { 4, 1, 2, 8192 }, { 5, 2, 0, 8792 } };
	struct tier_footer f = make_pack();
	struct tier_tables t;
	uint32_t in;

	assert_int_equal(tier_tables_decode(tables, sizeof(tables), &f, &key, &t), 0);
	assert_int_equal(t.nr_frames, FRAMES);
	assert_int_equal(t.nr_chunks, 6);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const struct tier_frame *frame = tier_tables_find(&t, places[i].chunk, &in);

		assert_ptr_equal(frame, &t.frames[places[i].frame]);
		assert_int_equal(in, places[i].in);
		assert_int_equal(frame->off, places[i].off);
		assert_int_equal(frame->table.fps[in].lo, 100 * places[i].frame + in + 1);
	}
	assert_null(tier_tables_find(&t, 6, &in));
	assert_null(tier_tables_find(&t, UINT32_MAX, &in));
	tier_tables_release(&t);
}

static void damaged_tables_are_refused(void **state _unused_)
{
	struct tier_footer f = make_pack(), other;
	static const uint8_t other_secret[FP_KEY_LEN] = "another";
	struct fp_key stranger;
	struct tier_tables t = { 0 };

	for (size_t i = 0; i < sizeof(tables); i += 97) {
		tables[i] ^= 0x40;
		assert_int_equal(tier_tables_decode(tables, sizeof(tables), &f, &key, &t), -EBADMSG);
		tables[i] ^= 0x40;
	}
	assert_int_equal(tier_tables_decode(tables, sizeof(tables) - 1, &f, &key, &t), -EBADMSG);
	other = f;
	other.id[TIER_ID_LEN - 1] ^= 1; /* intact tables of another pack */
	assert_int_equal(tier_tables_decode(tables, sizeof(tables), &other, &key, &t), -EBADMSG);
	other = f;
	other.data_len++;
	assert_int_equal(tier_tables_decode(tables, sizeof(tables), &other, &key, &t), -EBADMSG);
	fp_key_init(&stranger, FP_XXH3, other_secret);
	assert_int_equal(tier_tables_decode(tables, sizeof(tables), &f, &stranger, &t), -EBADMSG);
	memcpy(tables, tables + PACK_BLOCK, PACK_BLOCK); /* a table in another's place */
	tier_tables_id(tables, sizeof(tables), f.id);
	assert_int_equal(tier_tables_decode(tables, sizeof(tables), &f, &key, &t), -EBADMSG);
	assert_null(t.frames);
}

/* --- manifests --- */

static int decode_manifest(const void *p, size_t len)
{
	struct tier_manifest m;

	return tier_manifest_decode(p, len, &m);
}

static struct tier_manifest sample(struct buf *packs)
{
	struct tier_footer f = { .nr_frames = 64, .data_len = MiB(64), .id = "pack" };
	struct tier_manifest m = {
		.number = 7,
		.ino = 77,
		.sealed_ns = -5,
		.files = 3,
		.directories = 1,
		.bytes = 12345,
		.uid = 1000,
		.path = "run1/step.0200",
		.path_len = 14,
		.nr_packs = 2,
		.catalog = (const uint8_t *)"catalog",
		.catalog_len = 7,
	};

	memcpy(m.store, store, sizeof(store));
	memcpy(m.key_id, "keykeykeykeykey", 16);
	memset(m.root, 0xd1, sizeof(m.root));
	tier_pack_ref_encode(&f, packs);
	f.nr_frames = 1;
	f.data_len = 1;
	tier_pack_ref_encode(&f, packs);
	m.packs = packs->data;
	return m;
}

static void a_manifest_is_read_back(void **state _unused_)
{
	_cleanup_(buf_release) struct buf packs = BUF_EMPTY, b = BUF_EMPTY;
	struct tier_manifest m = sample(&packs), back;
	struct tier_footer f;

	tier_manifest_encode(&m, &b);
	golden_expect("tier/v1-manifest-packs.txt", "a manifest with two packs", b.data, b.len);
	assert_int_equal(tier_manifest_decode(b.data, b.len, &back), 0);
	assert_int_equal(back.number, 7);
	assert_int_equal(back.ino, 77);
	assert_int_equal(back.sealed_ns, -5);
	assert_int_equal(back.files, 3);
	assert_int_equal(back.directories, 1);
	assert_int_equal(back.bytes, 12345);
	assert_int_equal(back.uid, 1000);
	assert_int_equal(back.path_len, 14);
	assert_memory_equal(back.path, m.path, 14);
	assert_memory_equal(back.store, store, sizeof(store));
	assert_memory_equal(back.root, m.root, sizeof(m.root));
	assert_int_equal(back.catalog_len, 7);
	assert_memory_equal(back.catalog, "catalog", 7);
	assert_int_equal(back.nr_packs, 2);
	assert_int_equal(tier_manifest_pack(&back, 0, &f), 0);
	assert_int_equal(f.nr_frames, 64);
	assert_int_equal(f.data_len, MiB(64));
	assert_memory_equal(f.key_id, m.key_id, sizeof(f.key_id));
	expect_strict(b.data, b.len, decode_manifest);
}

static void the_head_of_a_manifest_lists_it(void **state _unused_)
{
	_cleanup_(buf_release) struct buf packs = BUF_EMPTY, b = BUF_EMPTY;
	struct tier_manifest m = sample(&packs), back;
	const size_t len = sizeof(struct tier_manifest_disk) + 14;
	uint8_t *exactly = malloc(len);

	assert_non_null(exactly);
	tier_manifest_encode(&m, &b);
	memcpy(exactly, b.data, len);
	assert_int_equal(tier_manifest_head_decode(exactly, len, &back), 0);
	assert_int_equal(back.number, 7);
	assert_int_equal(back.sealed_ns, -5);
	assert_int_equal(back.uid, 1000);
	assert_int_equal(back.path_len, 14);
	assert_memory_equal(back.path, "run1/step.0200", 14);
	assert_null(back.packs);
	assert_null(back.catalog);
	assert_int_equal(tier_manifest_head_decode(exactly, len - 1, &back), -EBADMSG);
	for (size_t i = 0; i < sizeof(struct tier_manifest_disk); i++) {
		exactly[i] ^= 1;
		assert_true(tier_manifest_head_decode(exactly, len, &back) < 0);
		exactly[i] ^= 1;
	}
	free(exactly);
}

static void impossible_packs_of_a_manifest_are_damage(void **state _unused_)
{
	_cleanup_(buf_release) struct buf packs = BUF_EMPTY, b = BUF_EMPTY;
	struct tier_manifest m = sample(&packs);

	((struct tier_pack_ref_disk *)packs.data)[1].nr_frames = le32_put(0);
	tier_manifest_encode(&m, &b);
	assert_int_equal(decode_manifest(b.data, b.len), -EBADMSG);
	buf_clear(&b);
	((struct tier_pack_ref_disk *)packs.data)[1].nr_frames = le32_put(1);
	m.path = "run1/step\0 0200"; /* a zero byte */
	tier_manifest_encode(&m, &b);
	assert_int_equal(decode_manifest(b.data, b.len), -EBADMSG);
}

static void impossible_paths_of_a_manifest_are_damage(void **state _unused_)
{
	static const char *const bad[] = { "/run1/step.0200", "run1/step.0200/", "run1//step", "run1/../step", "./run1", "..", "/" };
	static const char *const good[] = { "", "run1", ".run1/...", "run1/step.0200/..a" };
	_cleanup_(buf_release) struct buf packs = BUF_EMPTY, b = BUF_EMPTY;
	struct tier_manifest m = sample(&packs);

	for (size_t i = 0; i < ARRAY_SIZE(bad) + ARRAY_SIZE(good); i++) {
		bool is_bad = i < ARRAY_SIZE(bad);

		m.path = is_bad ? bad[i] : good[i - ARRAY_SIZE(bad)];
		m.path_len = (uint32_t)strlen(m.path);
		buf_clear(&b);
		tier_manifest_encode(&m, &b);
		assert_int_equal(decode_manifest(b.data, b.len), is_bad ? -EBADMSG : 0);
	}
}

static void runs_are_read_back(void **state _unused_)
{
	static const struct tier_run runs[] = {
		{ .len = UINT64_C(1) << 40 },
		{ .pack = 1, .first = 0, .nr = 16384, .len = MiB(64) },
		{ .pack = 300, .first = UINT32_MAX - 1, .nr = 1, .len = 1 },
		{ .pack = 1, .first = 0, .nr = 3, .len = MiB(3) },
		{ .pack = UINT32_MAX, .first = 5, .from = 17, .len = 100 },
		{ .pack = 2, .first = 5, .len = 1 << 20 },
	};
	static const struct tier_run bad[] = {
		{ .pack = 1, .first = UINT32_MAX, .nr = 1, .len = 1 },
		{ .pack = 1, .nr = 3, .len = 2 }, /* some would be empty */
		{ .pack = 1, .nr = 3, .len = MiB(3) + 1 },
		{ .pack = 1, .nr = 3 },
		{ .pack = 1, .from = 1, .len = 1 << 20 },
		{ .pack = 1, .len = 0 },
		{ .len = 0 },
		{ .pack = 1, .from = UINT32_MAX, .len = 1 },
	};
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct tier_run r;
	struct cursor c;

	for (size_t i = 0; i < ARRAY_SIZE(runs); i++)
		tier_run_encode(&runs[i], &b);
	c = cursor_of(b.data, b.len);
	for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
		assert_int_equal(tier_run_next(&c, &r), 1);
		assert_memory_equal(&r, &runs[i], sizeof(r));
	}
	assert_int_equal(tier_run_next(&c, &r), 0);
	c = cursor_of(b.data, b.len - 1);
	for (size_t i = 0; i + 1 < ARRAY_SIZE(runs); i++)
		assert_int_equal(tier_run_next(&c, &r), 1);
	assert_int_equal(tier_run_next(&c, &r), -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		buf_clear(&b);
		tier_run_encode(&bad[i], &b);
		c = cursor_of(b.data, b.len);
		assert_int_equal(tier_run_next(&c, &r), -EBADMSG);
	}
}

/* --- garbage collection --- */

static void entries_and_fences_are_their_bytes(void **state _unused_)
{
	struct tier_log_entry e = { .number = 5, .generation = 3, .marks_id = { 1, 2 }, .marks_len = 700, .store = { 9 } };
	struct tier_fence f = { .store = { 9 }, .number = 4, .generation = 3 }, f2;
	struct tier_entry_disk d;
	struct tier_fence_disk fd;
	struct tier_log_entry e2;
	struct tier_manifest m;

	tier_entry_encode(&e, &d);
	golden_expect("tier/v1-log.txt", "an entry of the log", &d, sizeof(d));
	assert_int_equal(tier_entry_decode(&d, sizeof(d), &e2), 0);
	assert_int_equal(e2.number, 5);
	assert_int_equal(e2.generation, 3);
	assert_int_equal(e2.marks_len, 700);
	assert_memory_equal(e2.marks_id, e.marks_id, sizeof(e.marks_id));
	assert_memory_equal(e2.store, e.store, sizeof(e.store));
	for (size_t i = 0; i < sizeof(d); i++) {
		((uint8_t *)&d)[i] ^= 1;
		assert_int_equal(tier_entry_decode(&d, sizeof(d), &e2), -EBADMSG);
		((uint8_t *)&d)[i] ^= 1;
	}
	assert_int_equal(tier_entry_decode(&d, sizeof(d) - 1, &e2), -EBADMSG);
	e.generation = 5; /* a generation that joins */
	tier_entry_encode(&e, &d);
	assert_int_equal(tier_entry_decode(&d, sizeof(d), &e2), -EBADMSG);
	e.generation = 6; /* later than itself */
	tier_entry_encode(&e, &d);
	assert_int_equal(tier_entry_decode(&d, sizeof(d), &e2), -EBADMSG);

	tier_fence_encode(&f, &fd);
	golden_expect("tier/v1-fence.txt", "a fence", &fd, sizeof(fd));
	assert_int_equal(tier_fence_decode(&fd, sizeof(fd), &f2), 0);
	assert_int_equal(f2.number, 4);
	assert_int_equal(f2.generation, 3);
	assert_memory_equal(f2.store, f.store, sizeof(f.store));
	assert_int_equal(tier_manifest_decode(&fd, sizeof(fd), &m), -ENODATA);
	assert_int_equal(tier_manifest_head_decode(&fd, sizeof(fd), &m), -ENODATA);
	for (size_t i = 0; i < sizeof(fd); i++) {
		((uint8_t *)&fd)[i] ^= 1;
		assert_int_equal(tier_fence_decode(&fd, sizeof(fd), &f2), -EBADMSG);
		((uint8_t *)&fd)[i] ^= 1;
	}
	assert_string_equal(tier_log_name(10).s, "gc/000000000000000a");
}

static void marks_are_their_bytes(void **state _unused_)
{
	static const struct le64 kept[] = { { { 2 } }, { { 7 } } };
	static const struct tier_seal_disk removed[] = { { { { 30 } }, { { 5 } } }, { { { 20 } }, { { 6 } } } };
	static const uint8_t dropped[2][TIER_ID_LEN] = { { 1 }, { 2 } }, pending[1][TIER_ID_LEN] = { { 1 } };
	struct tier_store_marks stores[] = {
		{ .id = { 3 }, .base = 8, .last = 7, .last_ino = 40, .last_sealed_ns = 9, .kept = kept, .nr_kept = 2,
		  .removed = removed, .nr_removed = 2 },
		{ .id = { 4 } },
	};
	struct tier_marks m = { .number = 6, .previous = 2, .previous_id = { 5 }, .stores = stores, .nr_stores = 2,
				.dropped = dropped, .nr_dropped = 2, .pending = pending, .nr_pending = 1 };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, again = BUF_EMPTY;
	struct tier_marks back;
	const struct tier_store_marks *s;

	tier_marks_encode(&m, &b);
	golden_expect("tier/v1-marks.txt", "marks of a generation", b.data, b.len);
	assert_int_equal(b.len, 64 + 2 * 56 + 2 * 8 + 2 * 16 + 3 * 16);
	assert_int_equal(tier_marks_decode(b.data, b.len, &back), 0);
	s = tier_marks_store(&back, stores[0].id);
	assert_non_null(s);
	assert_int_equal(s->base, 8);
	assert_true(tier_marks_keep(s, 2) && tier_marks_keep(s, 7) && !tier_marks_keep(s, 3));
	assert_true(tier_marks_removed(s, 30, 5) && tier_marks_removed(s, 20, 6) && !tier_marks_removed(s, 20, 5));
	assert_null(tier_marks_store(&back, dropped[1]));
	assert_true(tier_id_is_in(back.dropped, back.nr_dropped, dropped[1]));
	assert_false(tier_id_is_in(back.pending, back.nr_pending, dropped[1]));
	tier_marks_encode(&back, &again);
	assert_int_equal(again.len, b.len);
	assert_memory_equal(again.data, b.data, b.len);
	tier_marks_release(&back);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(tier_marks_decode(b.data, len, &back), -EBADMSG);
	stores[0].base = 6; /* before a number that is kept */
	buf_clear(&b);
	tier_marks_encode(&m, &b);
	assert_int_equal(tier_marks_decode(b.data, b.len, &back), -EBADMSG);
	stores[0].base = 8;
	stores[1].id[0] = 2; /* not in order */
	buf_clear(&b);
	tier_marks_encode(&m, &b);
	assert_int_equal(tier_marks_decode(b.data, b.len, &back), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_valid_and_parsed),
		cmocka_unit_test(a_key_is_read_back),
		cmocka_unit_test(later_versions_are_refused),
		cmocka_unit_test(a_footer_is_read_back),
		cmocka_unit_test(impossible_sizes_are_damage),
		cmocka_unit_test(chunks_are_found_by_number),
		cmocka_unit_test(damaged_tables_are_refused),
		cmocka_unit_test(a_manifest_is_read_back),
		cmocka_unit_test(the_head_of_a_manifest_lists_it),
		cmocka_unit_test(impossible_packs_of_a_manifest_are_damage),
		cmocka_unit_test(impossible_paths_of_a_manifest_are_damage),
		cmocka_unit_test(runs_are_read_back),
		cmocka_unit_test(entries_and_fences_are_their_bytes),
		cmocka_unit_test(marks_are_their_bytes),
	};

	return cmocka_run_group_tests_name("tier_format", tests, NULL, NULL);
}
