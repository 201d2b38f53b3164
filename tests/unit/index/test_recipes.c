/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/index/rig.h"

#include "index/recipes.h"
#include "tests/unit/golden.h"

static void expect_extents(const struct extent *a, const struct extent *b, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		assert_int_equal(a[i].off, b[i].off);
		assert_int_equal(a[i].len, b[i].len);
		assert_true(addr_equal(a[i].addr, b[i].addr));
	}
}

static const struct extent sample[] = {
	{ 0, 4096, { .pack = 7, .off = 8192 } },
	{ 4096, 4096, { .pack = 7, .off = 12288 } },	/* neighbour in both */
	{ 16384, 1, { .pack = 3, .off = 0xffffffff } }, /* after a hole, back to an earlier pack, last byte */
	{ 16385, 100, { .pack = UINT32_MAX, .off = 0, .node = UINT16_MAX } },
	{ SEGMENT_SIZE - 1, 1, { .pack = 1, .off = 4096, .node = 2 } },
};

static void key_bytes_and_their_decoding(void **state)
{
	struct ns_key k = recipe_key(0x0102030405060708, 9);
	uint64_t ino = 0, segment = 0;

	(void)state;
	assert_int_equal(k.len, 17);
	assert_memory_equal(k.b, "R\1\2\3\4\5\6\7\10\0\0\0\0\0\0\0\11", 17);
	assert_int_equal(recipe_prefix(0x0102030405060708).len, 9);
	assert_memory_equal(recipe_prefix(0x0102030405060708).b, k.b, 9);
	assert_int_equal(recipe_key_decode(k.b, k.len, &ino, &segment), 0);
	assert_int_equal(ino, 0x0102030405060708);
	assert_int_equal(segment, 9);
	assert_int_equal(recipe_key_decode(k.b, k.len - 1, &ino, &segment), -EBADMSG);
	k.b[0] = 'D';
	assert_int_equal(recipe_key_decode(k.b, k.len, &ino, &segment), -EBADMSG);
}

static void extents_round_trip(void **state)
{
	struct buf b = BUF_EMPTY;
	struct extent *x = NULL;
	size_t nr;

	(void)state;
	for (size_t n = 0; n <= ARRAY_SIZE(sample); n++) {
		buf_clear(&b);
		recipe_encode(sample, n, &b);
		assert_int_equal(buf_error(&b), 0);
		assert_int_equal(recipe_decode(b.data, b.len, &x, &nr), 0);
		assert_int_equal(nr, n);
		assert_true((x == NULL) == (n == 0));
		expect_extents(x, sample, n);
		free(x);
	}
	buf_release(&b);
}

static void value_is_the_bytes_of_the_format(void **state)
{
	struct buf b = BUF_EMPTY;

	(void)state;
	recipe_encode(sample, 2, &b);
	/* version, 2, (pages, pack +7, offset +2), (pages, all the same, offset +0) */
	assert_int_equal(b.len, 2 + 3 + 2);
	assert_memory_equal(b.data, "\1\2\x18\x0e\4\x10\0", b.len);
	buf_clear(&b);
	recipe_encode(sample + 2, 3, &b);
	/* (gap, length, pack; 16384, 1, +3, 2^32 - 1), (length, node, pack; 100, 65535, 2^32 - 4, -2^32),
	 * (gap, length, node, pack; ...) */
	assert_memory_equal(b.data, "\1\3\x0b\x80\x80\1\1\6\xfe\xff\xff\xff\x1f"
				    "\x0e\x64\xff\xff\3\xf8\xff\xff\xff\x1f\xff\xff\xff\xff\x1f"
				    "\x0f", 29);
	buf_release(&b);
}

static void a_fully_scattered_segment_round_trips(void **state)
{
	enum { N = 256 };
	struct extent in[N], *out;
	struct buf b = BUF_EMPTY;
	size_t nr;

	(void)state;
	for (uint32_t i = 0; i < N; i++) {
		uint32_t h = i * 2654435761u;

		in[i] = (struct extent){ i * 4096, 4096, { .pack = 1 + (h >> 8), .off = h & ~4095u } };
	}
	recipe_encode(in, N, &b);
	assert_int_equal(recipe_decode(b.data, b.len, &out, &nr), 0);
	assert_int_equal(nr, N);
	expect_extents(out, in, N);
	free(out);
	buf_release(&b);
}

static void every_cut_and_every_extra_byte_is_refused(void **state)
{
	struct extent *x = (struct extent *)sample;
	struct buf b = BUF_EMPTY;
	size_t nr = 99;

	(void)state;
	recipe_encode(sample, ARRAY_SIZE(sample), &b);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(recipe_decode(b.data, len, &x, &nr), -EBADMSG);
	buf_add_u8(&b, 0);
	assert_int_equal(recipe_decode(b.data, b.len, &x, &nr), -EBADMSG);
	assert_ptr_equal(x, sample);
	assert_int_equal(nr, 99);
	buf_release(&b);
}

static void impossible_values_are_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
	} cases[] = {
#define CASE(bytes) { bytes, sizeof(bytes) - 1 }
		CASE("\0\0"),				/* version */
		CASE("\2\0"),				/* version */
		CASE("\1\1\x18\2"),			/* no offset */
		CASE("\1\1\x38\2\0"),			/* unknown bit of the tag */
		CASE("\1\1\x10\0"),			/* pack 0: none is told */
		CASE("\1\1\x18\0\0"),			/* pack told, and the same */
		CASE("\1\1\x18\1\0"),			/* pack -1 */
		CASE("\1\1\x18\2\1"),			/* page -1 */
		CASE("\1\1\x19\0\2\0"),		/* gap told, and none */
		CASE("\1\1\x1a\1\2\0"),		/* length told, and the same */
		CASE("\1\1\x1a\0\2\0"),		/* length 0 */
		CASE("\1\1\x1c\0\2\0"),		/* node told, and the same */
		CASE("\1\1\x0a\x80\x40\2\0"),		/* two pages counted in bytes */
		CASE("\1\1\x08\2\0"),			/* a page counted in bytes */
		CASE("\1\1\x1b\1\x80\2\2\0"),		/* a page and 1 MiB: past the end */
		CASE("\1\1\x1a\x81\2\2\0"),		/* 257 pages */
		CASE("\1\1\x1a\x80\x80\x80\x80\x80\x80\x80\x80\x10\2\0"), /* length that wraps */
		CASE("\1\1\x19\x80\x80\x80\x80\x80\x80\x80\x80\x10\2\0"), /* gap that wraps */
		CASE("\1\1\x1c\x80\x80\4\2\0"),	/* node 65536 */
		CASE("\1\1\x18\x80\x80\x80\x80\x20\0"), /* pack 2^32 */
		CASE("\1\1\x18\2\x80\x80\x80\1"),	/* page 2^20 */
		CASE("\1\1\x18\2\x80\x80\x80\x80\x80\x80\x80\x80\x80\1"), /* offset that wraps */
		CASE("\1\1\x0a\2\2\xfe\xff\xff\xff\x1f"), /* two bytes at 2^32 - 1 */
		CASE("\1\2\x18\2\0"),			/* one of two */
		CASE("\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\x18\2\0"), /* 2^64 - 1 extents */
		CASE("\1\2\x18\2\0\x18\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1\0"), /* pack that overflows */
		CASE("\1\2\x18\2\0\x10\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"), /* offset that overflows */
		CASE("\1\x80\0"),			/* over-long number */
#undef CASE
	};
	static const struct extent largest = {
		0, SEGMENT_SIZE, { .pack = UINT32_MAX, .off = 0xfff00000, .node = UINT16_MAX }
	};
	struct extent *x = NULL;
	size_t nr;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(recipe_decode(cases[i].bytes, cases[i].len, &x, &nr), -EBADMSG);
	/* and the largest of what is possible is not */
	assert_int_equal(recipe_decode("\1\1\x1e\x80\2\xff\xff\3\xfe\xff\xff\xff\x1f\x80\xfc\x7f", 16, &x, &nr), 0);
	assert_int_equal(nr, 1);
	expect_extents(x, &largest, 1);
	free(x);
}

static void layers_have_keys_before_recipes(void **state)
{
	struct ns_key k = layer_key(0x0102030405060708), recipe = recipe_key(0, 0);
	uint64_t layer = 0;

	(void)state;
	assert_int_equal(k.len, 9);
	assert_memory_equal(k.b, "P\1\2\3\4\5\6\7\10", 9);
	assert_true(k.b[0] < recipe.b[0]);
	assert_int_equal(layer_prefix().len, 1);
	assert_int_equal(layer_prefix().b[0], 'P');
	assert_int_equal(layer_key_decode(k.b, k.len, &layer), 0);
	assert_int_equal(layer, 0x0102030405060708);
	assert_int_equal(layer_key_decode(k.b, k.len - 1, &layer), -EBADMSG);
	assert_int_equal(layer_key_decode(recipe.b, k.len, &layer), -EBADMSG);
	k = layer_key(0);
	assert_int_equal(layer_key_decode(k.b, k.len, &layer), -EBADMSG);
}

static void extents_over_a_layer_round_trip(void **state)
{
	static const uint64_t layers[] = { 0, 1, 127, 128, UINT64_MAX };
	struct buf b = BUF_EMPTY, plain = BUF_EMPTY;
	struct extent *x = NULL;
	uint64_t layer = 99;
	size_t nr;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(layers); i++)
		for (size_t n = 0; n <= ARRAY_SIZE(sample); n++) {
			buf_clear(&b);
			recipe_encode_over(layers[i], sample, n, &b);
			assert_int_equal(buf_error(&b), 0);
			assert_int_equal(recipe_decode_over(b.data, b.len, &layer, &x, &nr), 0);
			assert_int_equal(layer, layers[i]);
			assert_int_equal(nr, n);
			expect_extents(x, sample, n);
			free(x);
			for (size_t len = 0; len < b.len; len++)
				assert_int_equal(recipe_decode_over(b.data, len, &layer, &x, &nr), -EBADMSG);
			x = NULL;
			/* Where no layer can be, as in the journal, none is taken. */
			assert_int_equal(recipe_decode(b.data, b.len, &x, &nr), layers[i] ? -EBADMSG : 0);
			free(x);
		}
	buf_clear(&b);
	recipe_encode_over(0, sample, 5, &b);
	recipe_encode(sample, 5, &plain);
	assert_int_equal(b.len, plain.len);
	assert_memory_equal(b.data, plain.data, b.len);
	buf_clear(&b);
	recipe_encode_over(300, sample, 2, &b);
	/* version with the bit of a layer, layer 300, and then as without one */
	assert_int_equal(b.len, 1 + 2 + 6);
	assert_memory_equal(b.data, "\x81\xac\2\2\x18\x0e\4\x10\0", b.len);
	assert_int_equal(recipe_decode_over("\x81\0\0", 3, &layer, &x, &nr), -EBADMSG); /* layer 0 */
	assert_int_equal(recipe_decode_over("\x82\1\0", 3, &layer, &x, &nr), -EBADMSG); /* version */
	buf_release(&b);
	buf_release(&plain);
}

/* A pinned state has what it had. */
static void values_are_got_of_a_pinned_state(void **state)
{
	struct rig *rig = *state;
	struct buf b = BUF_EMPTY, got = BUF_EMPTY;
	struct ns_key k = layer_key(7), other = layer_key(8);
	struct db_snapshot *s;

	buf_add_u8(&b, 1);
	rig_put_bytes(rig, k.b, k.len, &b);
	assert_int_equal(db_snapshot_new(rig->db, &s), 0);
	b.data[0] = 2;
	rig_put_bytes(rig, k.b, k.len, &b);
	rig_put_bytes(rig, other.b, other.len, &b);
	assert_int_equal(db_get_at(rig->db, s, k.b, k.len, &got), 1);
	assert_int_equal(db_get_at(rig->db, NULL, k.b, k.len, &got), 1);
	assert_int_equal(got.len, 2);
	assert_memory_equal(got.data, "\1\2", 2);
	assert_int_equal(db_get_at(rig->db, s, other.b, other.len, &got), 0);
	assert_int_equal(db_get_at(rig->db, NULL, other.b, other.len, NULL), 1);
	db_snapshot_free(s);
	buf_release(&got);
	buf_release(&b);
}

static void segments_are_got_and_walked(void **state)
{
	struct rig *rig = *state;
	static const uint64_t segments[] = { 0, 2, 16777215 };
	struct buf b = BUF_EMPTY;
	struct buf got = BUF_EMPTY;
	struct ns_key k;
	uint64_t s = 77;

	recipe_encode(sample, 1, &b);
	for (size_t i = 0; i < ARRAY_SIZE(segments); i++) {
		k = recipe_key(5, segments[i]);
		rig_put_bytes(rig, k.b, k.len, &b);
	}
	k = recipe_key(4, 9);
	rig_put_bytes(rig, k.b, k.len, &b);
	k = recipe_key(6, 0);
	rig_put_bytes(rig, k.b, k.len, &b);
	assert_int_equal(recipe_get(rig->db, 5, 2, &got), 1);
	assert_int_equal(got.len, b.len);
	assert_memory_equal(got.data, b.data, b.len);
	assert_int_equal(recipe_get(rig->db, 5, 1, &got), 0);
	assert_int_equal(got.len, b.len);
	assert_int_equal(recipe_next(rig->db, 5, 0, &s), 1);
	assert_int_equal(s, 0);
	assert_int_equal(recipe_next(rig->db, 5, 1, &s), 1);
	assert_int_equal(s, 2);
	assert_int_equal(recipe_next(rig->db, 5, 3, &s), 1);
	assert_int_equal(s, 16777215);
	assert_int_equal(recipe_next(rig->db, 5, 16777216, &s), 0);
	assert_int_equal(recipe_next(rig->db, 7, 0, &s), 0);
	buf_release(&got);
	buf_release(&b);
}

static void recipes_have_these_bytes(void **state)
{
	_cleanup_(buf_release) struct buf all = BUF_EMPTY, v = BUF_EMPTY;
	struct ns_key k = layer_key(4);

	(void)state;
	recipe_encode(sample, 3, &v);
	rig_golden(&all, k.b, k.len, &v);
	k = recipe_key(5, 0);
	recipe_encode(sample, ARRAY_SIZE(sample), &v);
	rig_golden(&all, k.b, k.len, &v);
	k = recipe_key(5, 1);
	recipe_encode_over(4, sample + 3, 1, &v);
	rig_golden(&all, k.b, k.len, &v);
	golden_expect("index/v1-recipes.txt", "tables P R: lengths, key, value", all.data, all.len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(recipes_have_these_bytes),
		cmocka_unit_test(key_bytes_and_their_decoding),
		cmocka_unit_test(extents_round_trip),
		cmocka_unit_test(value_is_the_bytes_of_the_format),
		cmocka_unit_test(a_fully_scattered_segment_round_trips),
		cmocka_unit_test(every_cut_and_every_extra_byte_is_refused),
		cmocka_unit_test(impossible_values_are_refused),
		cmocka_unit_test(layers_have_keys_before_recipes),
		cmocka_unit_test(extents_over_a_layer_round_trip),
		rig_test(values_are_got_of_a_pinned_state),
		rig_test(segments_are_got_and_walked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
