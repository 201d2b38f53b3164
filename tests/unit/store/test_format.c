/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Superblock and records: round trips, and every damaged byte noticed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/checksum.h"
#include "base/util.h"
#include "store/log/record_format.h"
#include "store/superblock_format.h"
#include "tests/unit/golden.h"

static struct superblock some_superblock(void)
{
	struct superblock sb = { .hash = FP_SHA256, .created_ns = 1234567890123456789u, .flags = SUPERBLOCK_CLUSTER };

	memset(sb.store_id, 0xab, sizeof(sb.store_id));
	memset(sb.secret, 0xcd, sizeof(sb.secret));
	return sb;
}

static void a_superblock_comes_back(void **state)
{
	struct superblock sb = some_superblock(), got;
	struct superblock_disk d;

	(void)state;
	superblock_encode(&sb, &d);
	assert_int_equal(superblock_decode(&d, sizeof(d), &got), 0);
	assert_int_equal(got.hash, sb.hash);
	assert_int_equal(got.created_ns, sb.created_ns);
	assert_int_equal(got.flags, sb.flags);
	assert_int_equal(got.incompat, 0);
	assert_memory_equal(got.store_id, sb.store_id, sizeof(sb.store_id));
	assert_memory_equal(got.secret, sb.secret, sizeof(sb.secret));
}

static void a_superblock_has_these_bytes(void **state)
{
	struct superblock sb = some_superblock();
	struct superblock_disk d;

	(void)state;
	superblock_encode(&sb, &d);
	golden_expect("superblock/v1.txt", "a superblock, once", &d, sizeof(d));
}

static void every_flipped_bit_of_a_superblock_is_noticed(void **state)
{
	struct superblock sb = some_superblock(), got;
	struct superblock_disk d;
	uint8_t *bytes = (uint8_t *)&d;

	(void)state;
	superblock_encode(&sb, &d);
	for (size_t i = 0; i < sizeof(d); i++) {
		bytes[i] ^= 1 << i % 8;
		assert_int_equal(superblock_decode(&d, sizeof(d), &got), -EBADMSG);
		bytes[i] ^= 1 << i % 8;
	}
	for (size_t len = 0; len < sizeof(d); len += 97)
		assert_int_equal(superblock_decode(&d, len, &got), -EBADMSG);
}

static void another_version_or_feature_is_refused(void **state)
{
	struct superblock sb = some_superblock(), got;
	struct superblock_disk d;

	(void)state;
	superblock_encode(&sb, &d);
	d.version = le32_put(SUPERBLOCK_VERSION + 1);
	d.crc32c = le32_put(crc32c(&d, offsetof(struct superblock_disk, crc32c)));
	assert_int_equal(superblock_decode(&d, sizeof(d), &got), -EOPNOTSUPP);
	superblock_encode(&sb, &d);
	d.incompat = le32_put(1u << 31);
	d.crc32c = le32_put(crc32c(&d, offsetof(struct superblock_disk, crc32c)));
	assert_int_equal(superblock_decode(&d, sizeof(d), &got), -EOPNOTSUPP);
	superblock_encode(&sb, &d);
	d.compat = le32_put(1u << 31);
	d.crc32c = le32_put(crc32c(&d, offsetof(struct superblock_disk, crc32c)));
	assert_int_equal(superblock_decode(&d, sizeof(d), &got), 0);
}

static void a_replace_comes_back(void **state)
{
	struct extent x[] = { { 0, 4096, { .pack = 3, .off = 8192 } }, { 8192, 100, { .pack = 9, .off = 1 << 30 } } };
	struct replace rp = { 77, 5000000, -1, 1700000000123456789, 1 << 20, 12288, x, 2, false }, got;
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	(void)state;
	replace_encode(&rp, &b);
	assert_int_equal(buf_error(&b), 0);
	assert_int_equal(replace_decode(RECORD_REPLACE, b.data, b.len, &got), 0);
	assert_int_equal(got.ino, rp.ino);
	assert_int_equal(got.size, rp.size);
	assert_int_equal(got.mtime_ns, rp.mtime_ns);
	assert_int_equal(got.ctime_ns, rp.ctime_ns);
	assert_int_equal(got.off, rp.off);
	assert_int_equal(got.len, rp.len);
	assert_int_equal(got.nr, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(got.x[i].off, x[i].off);
		assert_int_equal(got.x[i].len, x[i].len);
		assert_true(addr_equal(got.x[i].addr, x[i].addr));
	}
	free(got.x);
	for (size_t len = 0; len < b.len; len++)
		if (replace_decode(RECORD_REPLACE, b.data, len, &got) ==
		    0) { /* cut just before the extents: a hole, well-formed */
			assert_int_equal(got.nr, 0);
			free(got.x);
		}
}

static void frames_of_a_commit_come_back(void **state)
{
	struct pack_written w = { .nr = PACK_WRITTEN_MAX }, got = { 0 };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	(void)state;
	for (unsigned i = 0; i < w.nr; i++)
		w.frames[i] = (struct pack_seal){ .pack = UINT32_MAX - i, .frame = 300 * i, .seal = ~0ull << 5 * i };
	frames_encode(&w, &b);
	assert_int_equal(buf_error(&b), 0);
	assert_int_equal(frames_decode(b.data, b.len, &got), 0);
	assert_int_equal(got.nr, w.nr);
	assert_memory_equal(got.frames, w.frames, sizeof(w.frames));
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(frames_decode(b.data, len, &got), -EBADMSG);
	b.data[0]++;
	assert_int_equal(frames_decode(b.data, b.len, &got), -EBADMSG);
	b.data[0] = 0;
	assert_int_equal(frames_decode(b.data, 1, &got), -EBADMSG);
}

static void frames_of_a_commit_have_these_bytes(void **state)
{
	static const uint8_t bytes[] = { 1, 3, 0xac, 2, 8, 7, 6, 5, 4, 3, 2, 1 };
	struct pack_written w = { .nr = 1, .frames = { { .pack = 3, .frame = 300, .seal = 0x0102030405060708 } } };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	(void)state;
	frames_encode(&w, &b);
	assert_int_equal(b.len, sizeof(bytes));
	assert_memory_equal(b.data, bytes, sizeof(bytes));
}

static void a_replace_that_overflows_is_refused(void **state)
{
	struct extent x[] = { { 0, 4096, { .pack = 3, .off = 8192 } } };
	struct replace beyond = { .ino = 1, .off = 0, .len = 4095, .x = x, .nr = 1 }, got;
	struct replace wraps = { .ino = 1, .off = UINT64_MAX - 5, .len = 10 };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	(void)state;
	replace_encode(&beyond, &b);
	assert_int_equal(replace_decode(RECORD_REPLACE, b.data, b.len, &got), -EBADMSG);
	buf_clear(&b);
	replace_encode(&wraps, &b);
	assert_int_equal(replace_decode(RECORD_REPLACE, b.data, b.len, &got), -EBADMSG);
}

/* They are gone through MiB by MiB: 2^43 of them would take for ever, and the last of 2^64 has no end. */
static void ranges_that_take_for_ever_are_refused(void **state)
{
	struct extent x[] = { { 0, 4096, { .pack = 1 } } };
	static const struct {
		uint64_t off, len;
		int want;
	} t[] = {
		{ 0, SEGMENT_SIZE, 0 },
		{ 0, SEGMENT_SIZE + 1, -EBADMSG },
		{ 0, (uint64_t)1 << 59, -EBADMSG },
		{ CONTENT_MAX_SIZE - 4096, 4096, 0 },
		{ CONTENT_MAX_SIZE - 4095, 4096, -EBADMSG },
		{ UINT64_MAX - 4096, 4096, -EBADMSG },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct replace rp = { .ino = 1, .off = t[i].off, .len = t[i].len, .x = x, .nr = 1 }, got;
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;

		replace_encode(&rp, &b);
		assert_int_equal(replace_decode(RECORD_REPLACE, b.data, b.len, &got), t[i].want);
		if (t[i].want == 0)
			free(got.x);
	}
}

/* As a replace it may leave a hole before and behind its extents. */
static void a_patch_begins_and_ends_with_extents(void **state)
{
	static const struct {
		uint32_t first, len;
		int patch, replace;
	} t[] = {
		{ 0, 8292, 0, 0 },
		{ 0, 8293, -EBADMSG, 0 },
		{ 1, 8292, -EBADMSG, 0 },
		{ 0, 8291, -EBADMSG, -EBADMSG },
	};
	struct replace got, hole = { .ino = 1, .off = 5, .len = 10 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct extent x[] = { { t[i].first, 50, { .pack = 3, .off = 8192 } },
				      { 8192, 100, { .pack = 9, .off = 7 } } };
		struct replace rp = { .ino = 1, .size = 9000, .off = 17, .len = t[i].len, .x = x, .nr = 2 };
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;

		replace_encode(&rp, &b);
		for (enum record_type type = RECORD_REPLACE; type <= RECORD_PATCH; type++) {
			int want = type == RECORD_PATCH ? t[i].patch : t[i].replace;

			assert_int_equal(replace_decode(type, b.data, b.len, &got), want);
			if (want == 0) {
				assert_int_equal(got.keeps, type == RECORD_PATCH);
				assert_int_equal(got.nr, 2);
				free(got.x);
			}
		}
	}
	{
		struct extent x[] = { { 0, 50, { .pack = 3, .off = 8192 } } };
		/* two segments */
		struct replace over = { .ino = 1, .off = SEGMENT_SIZE - 49, .len = 50, .x = x, .nr = 1 };
		_cleanup_(buf_release) struct buf b = BUF_EMPTY, c = BUF_EMPTY;

		replace_encode(&hole, &b);
		assert_int_equal(replace_decode(RECORD_PATCH, b.data, b.len, &got), -EBADMSG);
		replace_encode(&over, &c);
		assert_int_equal(replace_decode(RECORD_PATCH, c.data, c.len, &got), -EBADMSG);
	}
}

static void a_clone_comes_back(void **state)
{
	static const struct {
		struct clone cl;
		int want;
	} t[] = {
		{ { 77, 5000000, -1, 1700000000123456789, 1 << 20, CLONE_MAX, 78, 12345 }, 0 },
		{ { 77, 5000000, 1, 1, 0, 1, 77, CONTENT_MAX_SIZE - 1 }, 0 },
		{ { 77, 5000000, 1, 1, CONTENT_MAX_SIZE - 1, 1, 77, 0 }, 0 },
		{ { 77, 5000000, 1, 1, 0, 1, 77, CONTENT_MAX_SIZE }, -EBADMSG },
		{ { 77, 5000000, 1, 1, CONTENT_MAX_SIZE, 1, 77, 0 }, -EBADMSG },
		{ { 77, 5000000, 1, 1, 0, 0, 78, 0 }, -EBADMSG },
		{ { 77, 5000000, 1, 1, 0, CLONE_MAX + 1, 78, 0 }, -EBADMSG },
		{ { 77, 5000000, 1, 1, UINT64_MAX - 5, 10, 78, 0 }, -EBADMSG },
		{ { 77, 5000000, 1, 1, 0, 10, 78, UINT64_MAX - 5 }, -EBADMSG },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct clone got;

		clone_encode(&t[i].cl, &b);
		assert_int_equal(clone_decode(b.data, b.len, &got), t[i].want);
		if (t[i].want == 0)
			assert_memory_equal(&got, &t[i].cl, sizeof(got));
		for (size_t len = 0; len < b.len; len++)
			assert_int_equal(clone_decode(b.data, len, &got), -EBADMSG);
		buf_add_u8(&b, 0);
		assert_int_equal(clone_decode(b.data, b.len, &got), -EBADMSG);
	}
}

static void marks_of(unsigned last_stream)
{
	struct pack_marks m = { .stream = { { 5, 70 }, { 6, 8 } }, .next_pack = 9, .counts = { 10, 40960, 3, 8192 } };
	struct pack_marks got;
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	m.stream[last_stream] = (struct pack_mark){ 7, 3000 };
	marks_encode(&m, &b);
	assert_int_equal(b.data[0], MAX(last_stream, (unsigned)PACK_SMALL) + 1); /* those behind it were never used */
	assert_int_equal(marks_decode(b.data, b.len, &got), 0);
	assert_memory_equal(&got.stream, &m.stream, sizeof(m.stream));
	assert_int_equal(got.next_pack, 9);
	assert_int_equal(got.counts.nr_chunks, 10);
	assert_int_equal(got.counts.chunk_bytes, 40960);
	assert_int_equal(got.counts.nr_frames, 3);
	assert_int_equal(got.counts.stored_bytes, 8192);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(marks_decode(b.data, len, &got), -EBADMSG);
	buf_add_u8(&b, 0);
	assert_int_equal(marks_decode(b.data, b.len, &got), -EBADMSG);
}

static void marks_come_back(void **state)
{
	(void)state;
	for (unsigned s = 0; s < PACK_NR_STREAMS; s++)
		marks_of(s);
}

static void marks_of_too_few_or_many_streams_are_refused(void **state)
{
	struct pack_marks got;

	(void)state;
	for (unsigned nr = 0; nr < 2 * PACK_NR_STREAMS; nr++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;

		buf_add_varint(&b, nr);
		for (unsigned i = 0; i < 2 * nr + 5; i++)
			buf_add_varint(&b, 1);
		assert_int_equal(marks_decode(b.data, b.len, &got),
				 nr < 2 || nr > PACK_NR_STREAMS ? -EBADMSG : 0);
	}
}

static int decode_marks(const uint64_t *values, size_t nr)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct pack_marks got;

	for (size_t i = 0; i < nr; i++)
		buf_add_varint(&b, values[i]);
	return marks_decode(b.data, b.len, &got);
}

static void marks_that_nothing_writes_are_refused(void **state)
{
	enum { LAST_PACK = 5, LAST_FRAMES, NEXT_PACK };
	uint64_t values[] = { 3, 1, 1, 1, 1, 0, 0, 9, 3, 10, 40960, 8192 };

	(void)state;
	assert_int_equal(decode_marks(values, ARRAY_SIZE(values)), 0);
	values[LAST_FRAMES] = 42; /* frames of no pack */
	assert_int_equal(decode_marks(values, ARRAY_SIZE(values)), -EBADMSG);
	values[LAST_PACK] = 1;
	assert_int_equal(decode_marks(values, ARRAY_SIZE(values)), 0);
	values[NEXT_PACK] = (1ull << 32) + 9;
	assert_int_equal(decode_marks(values, ARRAY_SIZE(values)), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_superblock_comes_back),
		cmocka_unit_test(a_superblock_has_these_bytes),
		cmocka_unit_test(every_flipped_bit_of_a_superblock_is_noticed),
		cmocka_unit_test(another_version_or_feature_is_refused),
		cmocka_unit_test(a_replace_comes_back),
		cmocka_unit_test(frames_of_a_commit_come_back),
		cmocka_unit_test(frames_of_a_commit_have_these_bytes),
		cmocka_unit_test(a_replace_that_overflows_is_refused),
		cmocka_unit_test(ranges_that_take_for_ever_are_refused),
		cmocka_unit_test(a_patch_begins_and_ends_with_extents),
		cmocka_unit_test(a_clone_comes_back),
		cmocka_unit_test(marks_come_back),
		cmocka_unit_test(marks_of_too_few_or_many_streams_are_refused),
		cmocka_unit_test(marks_that_nothing_writes_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
