/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Bytes of a catalog: what is written is read back, and nothing else is. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/catalog/catalog_format.h"
#include "tests/unit/golden.h"

static const struct catalog_head head = { .store = "0123456789abcdef", .ino = 77, .sealed_ns = -5 };

static const struct content_piece pieces[] = {
	{ .fp = { 1, 2 }, .chunk_len = 4096, .len = 4096 },
	{ .len = UINT64_C(1) << 40 }, /* a hole */
	{ .fp = { UINT64_MAX, 7 }, .chunk_len = 1 << 20, .from = 5, .len = (1 << 20) - 5 },
};
#define SIZE (4096 + (UINT64_C(1) << 40) + (1 << 20) - 5)

static struct ns_inode inode(uint32_t mode)
{
	return (struct ns_inode){
		.mode = mode,
		.uid = UINT32_MAX,
		.gid = 3,
		.rdev = 0x0102,
		.atime_ns = -1,
		.mtime_ns = INT64_MIN,
		.ctime_ns = INT64_MAX,
		.btime_ns = 9,
	};
}

/* A directory with a file of three pieces and an attribute, a second name of it, a link, and a directory in it. */
static size_t sample(struct catalog_record ret[8], struct buf *encoded_pieces)
{
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++)
		catalog_piece_encode(&pieces[i], encoded_pieces);
	ret[0] = (struct catalog_record){ .type = CATALOG_INODE, .in = inode(S_IFDIR | 0755) };
	ret[1] = (struct catalog_record){ .type = CATALOG_INODE, .name = "file", .in = inode(S_IFREG | 0644), .size = SIZE };
	ret[2] = (struct catalog_record){ .type = CATALOG_XATTR, .name = "user.x", .data = "va\0lue", .len = 6 };
	ret[3] = (struct catalog_record){ .type = CATALOG_PIECES,
					  .data = encoded_pieces->data,
					  .len = encoded_pieces->len };
	ret[4] = (struct catalog_record){ .type = CATALOG_INODE, .name = "sub", .in = inode(S_IFDIR | 0700) };
	ret[5] = (struct catalog_record){ .type = CATALOG_LINK, .dir = 1, .name = "twin", .file = 0 };
	ret[6] = (struct catalog_record){
		.type = CATALOG_INODE, .dir = 1, .name = "soft", .in = inode(S_IFLNK | 0777), .data = "target", .len = 6
	};
	return 7;
}

static void encode(const struct catalog_record *v, size_t nr, struct buf *ret)
{
	struct catalog_writer w = { 0 };

	catalog_head_encode(&head, ret);
	for (size_t i = 0; i < nr; i++)
		catalog_record_encode(&w, &v[i], ret);
	catalog_end_encode(&w, ret);
	assert_int_equal(buf_error(ret), 0);
}

static void encode_sample(struct buf *ret)
{
	_cleanup_(buf_release) struct buf p = BUF_EMPTY;
	struct catalog_record v[8];
	size_t nr = sample(v, &p);

	encode(v, nr, ret);
}

/* 1: all of it; 0: bytes are missing at the end. */
static int decode(const uint8_t *p, size_t len, unsigned *ret_nr)
{
	struct catalog_reader reader = { 0 };
	struct catalog_record rec;
	size_t at = 0, used;
	int r;

	*ret_nr = 0;
	while ((r = catalog_reader_next(&reader, p + at, len - at, &used, &rec)) > 0) {
		at += used;
		++*ret_nr;
	}
	return r < 0 ? r : reader.at_end;
}

static void expect_inode(const struct ns_inode *a, const struct ns_inode *b)
{
	assert_int_equal(a->mode, b->mode);
	assert_int_equal(a->uid, b->uid);
	assert_int_equal(a->gid, b->gid);
	assert_int_equal(a->rdev, b->rdev);
	assert_int_equal(a->atime_ns, b->atime_ns);
	assert_int_equal(a->mtime_ns, b->mtime_ns);
	assert_int_equal(a->ctime_ns, b->ctime_ns);
	assert_int_equal(a->btime_ns, b->btime_ns);
}

static void expect_pieces(const struct catalog_record *rec)
{
	struct cursor c = cursor_of(rec->data, rec->len);
	struct content_piece p;

	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		assert_int_equal(catalog_piece_next(&c, &p), 1);
		assert_true(fp_equal(p.fp, pieces[i].fp));
		assert_int_equal(p.chunk_len, pieces[i].chunk_len);
		assert_int_equal(p.from, pieces[i].from);
		assert_int_equal(p.len, pieces[i].len);
	}
	assert_int_equal(catalog_piece_next(&c, &p), 0);
}

static void what_is_written_is_read(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, p = BUF_EMPTY;
	struct catalog_reader reader = { 0 };
	struct catalog_record v[8], rec;
	size_t nr = sample(v, &p), at, used;

	(void)state;
	encode(v, nr, &b);
	assert_int_equal(catalog_reader_next(&reader, b.data, b.len, &at, &rec), 1);
	assert_int_equal(rec.type, CATALOG_HEAD);
	assert_memory_equal(rec.head.store, head.store, sizeof(head.store));
	assert_int_equal(rec.head.ino, 77);
	assert_int_equal(rec.head.sealed_ns, -5);
	for (size_t i = 0; i < nr; i++) {
		assert_int_equal(catalog_reader_next(&reader, b.data + at, b.len - at, &used, &rec), 1);
		at += used;
		assert_int_equal(rec.type, v[i].type);
		assert_int_equal(rec.dir, v[i].dir);
		assert_string_equal(rec.name, v[i].name);
		assert_int_equal(rec.size, v[i].size);
		assert_int_equal(rec.file, v[i].file);
		assert_int_equal(rec.len, v[i].len);
		if (rec.len > 0)
			assert_memory_equal(rec.data, v[i].data, rec.len);
		expect_inode(&rec.in, &v[i].in);
		if (rec.type == CATALOG_PIECES)
			expect_pieces(&rec);
	}
	assert_int_equal(catalog_reader_next(&reader, b.data + at, b.len - at, &used, &rec), 1);
	assert_int_equal(rec.type, CATALOG_END);
	assert_int_equal(at + used, b.len);
	assert_true(reader.at_end);
	assert_int_equal(catalog_reader_next(&reader, b.data, 0, &used, &rec), 0);
	assert_int_equal(catalog_reader_next(&reader, b.data, 1, &used, &rec), -EBADMSG);
}

/* As in a tier, where other records have the content. */
static void names_are_read_without_pieces(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, p = BUF_EMPTY, other = BUF_EMPTY;
	struct catalog_reader reader = { .is_without_pieces = true };
	struct catalog_record v[8], rec;
	size_t nr = sample(v, &p), at = 0, used;
	struct catalog_writer w = { 0 };
	unsigned n;

	(void)state;
	catalog_head_encode(&head, &b);
	for (size_t i = 0; i < nr; i++)
		catalog_record_encode(&w, &v[i], v[i].type == CATALOG_PIECES ? &other : &b);
	catalog_end_encode(&w, &b);
	assert_int_equal(decode(b.data, b.len, &n), -EBADMSG);
	while (catalog_reader_next(&reader, b.data + at, b.len - at, &used, &rec) > 0)
		at += used;
	assert_true(reader.at_end);
	assert_int_equal(at, b.len);
}

static void a_catalog_has_these_bytes(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	(void)state;
	encode_sample(&b);
	golden_expect("catalog/v1.txt", "two directories, a file with two names, an attribute and a link", b.data, b.len);
}

static void a_part_is_no_catalog(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	unsigned nr;

	(void)state;
	encode_sample(&b);
	assert_int_equal(decode(b.data, b.len, &nr), 1);
	assert_int_equal(nr, 9);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(decode(b.data, len, &nr), 0);
}

static void no_bit_can_change(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	unsigned nr;

	(void)state;
	encode_sample(&b);
	for (size_t i = 0; i < b.len * 8; i++) {
		b.data[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_true(decode(b.data, b.len, &nr) <= 0); /* a length that grew may wait for more */
		b.data[i / 8] ^= (uint8_t)(1 << i % 8);
	}
}

/* One change to a record of the sample, with a checksum that is right. */
static void what_makes_no_sense_is_refused(void **state)
{
	static const struct content_piece bad[] = {
		{ .fp = { 1, 2 }, .chunk_len = 4096, .len = 0 },
		{ .fp = { 1, 2 }, .chunk_len = 4096, .from = 1, .len = 4096 },
		{ .fp = { 1, 2 }, .chunk_len = 4096, .from = UINT32_MAX, .len = 5 },
		{ .fp = { 1, 2 }, .chunk_len = (1 << 20) + 1, .len = 4096 },
		{ .fp = { 0, 0 }, .chunk_len = 4096, .len = 4096 },
		{ .fp = { 1, 2 }, .chunk_len = 4096, .len = 4096 }, /* fewer than the size */
		{ .len = SIZE + 1 },
		{ .len = UINT64_MAX },
	};
	_cleanup_(buf_release) struct buf p = BUF_EMPTY;
	static char value[CATALOG_VALUE_MAX + 1];
	struct catalog_record good[8], v[8];
	size_t nr = sample(good, &p);
	unsigned n;

#define REFUSED(change)                                                \
	do {                                                           \
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;       \
		memcpy(v, good, sizeof(v));                            \
		change;                                                \
		encode(v, nr, &b);                                     \
		assert_int_equal(decode(b.data, b.len, &n), -EBADMSG); \
	} while (0)
	(void)state;
	REFUSED(v[0].in.mode = S_IFREG);
	REFUSED(strcpy(v[0].name, "top"));
	REFUSED(v[0].dir = 1);
	REFUSED(v[0].type = CATALOG_LINK);
	REFUSED(strcpy(v[1].name, ""));
	REFUSED(strcpy(v[1].name, "."));
	REFUSED(strcpy(v[1].name, ".."));
	REFUSED(strcpy(v[1].name, "a/b"));
	REFUSED(v[1].dir = 1); /* comes later */
	REFUSED(v[1].in.mode = S_IFREG | 010000);
	REFUSED(v[1].in.mode = 0644);
	REFUSED(v[1].size = UINT64_MAX);
	REFUSED(v[1].size = SIZE - 1);
	REFUSED(v[1].size = SIZE + 1);
	REFUSED(strcpy(v[2].name, ""));
	REFUSED((v[2].data = value, v[2].len = sizeof(value)));
	REFUSED(v[3].len = 0);
	REFUSED(v[3].len--);
	REFUSED(v[5].file = 1); /* comes later */
	REFUSED(v[5].dir = 2);
	REFUSED(strcpy(v[5].name, "/"));
	REFUSED(v[6].len = 0);
	REFUSED(v[6].data = "tar\0et");
	REFUSED((v[6].type = CATALOG_XATTR, strcpy(v[6].name, "user.x"))); /* of a second name */
	REFUSED(v[6].type = (enum catalog_type)6);
	REFUSED(v[6].type = CATALOG_HEAD);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_(buf_release) struct buf one = BUF_EMPTY;

		catalog_piece_encode(&bad[i], &one);
		REFUSED((v[3].data = one.data, v[3].len = one.len));
	}
	nr = 0;
	REFUSED((void)0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_read_without_pieces),
		cmocka_unit_test(what_is_written_is_read),	  cmocka_unit_test(a_catalog_has_these_bytes),
		cmocka_unit_test(a_part_is_no_catalog),		  cmocka_unit_test(no_bit_can_change),
		cmocka_unit_test(what_makes_no_sense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
