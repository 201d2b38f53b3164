/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "tests/unit/gpu/format/rig_lineage.h"
#include "tests/unit/gpu/format/whole_object.h"

#define CHUNK 128u
#define NR_CHUNKS 1024u

static const struct delta_take tree = { .method = DELTA_METHOD_TREE };
static uint8_t data[NR_CHUNKS * CHUNK];

static void noise(uint64_t seed, size_t chunk, size_t nr)
{
	rig_noise(&seed, data + chunk * CHUNK, nr * CHUNK);
}

static void move(size_t to, size_t from, size_t nr)
{
	memmove(data + to * CHUNK, data + from * CHUNK, nr * CHUNK);
}

/* A lineage of one version of noise. */
static void start(struct lineage *l, uint64_t table_limit)
{
	lineage_init(l, CHUNK, table_limit);
	noise(1, 0, NR_CHUNKS);
	lineage_checkpoint(l, &tree, data, sizeof(data));
}

static void add_region(struct buf *lines, struct delta_region *r)
{
	r->off /= CHUNK;
	r->len /= CHUNK;
	r->payload_off /= CHUNK;
	r->src_off /= CHUNK;
	if (r->len > 0)
		rig_region(lines, r);
}

/* The regions of the newest object, in the words of golden inputs, counted in chunks. A stretch of first occurrences is
 * one, with as much payload before it as the stretches before it have. */
static void assert_regions(const struct lineage *l, const char *want)
{
	_cleanup_(buf_release) struct buf lines = BUF_EMPTY;
	struct delta_region r, stretch = { .kind = DELTA_FIRST };
	uint64_t payload_off = 0;
	struct delta_tables t;
	struct delta_iter it;

	assert_int_equal(delta_decode(l->object.data, l->object.len, &t), 0);
	it = delta_iter(&t);
	while (delta_iter_next(&it, &r) > 0) {
		if (r.kind == DELTA_FIRST && stretch.off + stretch.len == r.off && stretch.len > 0) {
			stretch.len += r.len;
			payload_off += r.len;
			continue;
		}
		add_region(&lines, &stretch);
		stretch.len = 0;
		if (r.kind == DELTA_FIRST) {
			stretch = r;
			stretch.payload_off = payload_off;
			payload_off += r.len;
		} else
			add_region(&lines, &r);
	}
	add_region(&lines, &stretch);
	buf_add_u8(&lines, 0);
	assert_string_equal((char *)lines.data, want);
}

static void golden_objects_are_what_is_made_today(void **state _unused_)
{
	static const struct {
		const char *name;
		enum delta_method method;
		const char *chunks[2], *tails[2];
	} t[] = {
		{ "v1-full", DELTA_METHOD_FULL, { "ABCDEFGHIJ" }, { "kkkkk" } },
		{ "v1-basic", DELTA_METHOD_BASIC, { "ABCDEFGHIJ", "ABwxCDEFyxGGG.wxy" }, { "kkkkk", "qqqqqqq" } },
		{ "v1-list", DELTA_METHOD_LIST, { "ABCDEFGHIJ", "ABwxCDEFyxGGG.wxy" }, { "kkkkk", "qqqqqqq" } },
		{ "v1-tree", DELTA_METHOD_TREE, { "ABCDEFGHIJ", "ABwxCDEFyxGGG.wxy" }, { "kkkkk", "qqqqqqq" } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		_cleanup_(rig_input_release) struct rig_input in;
		_cleanup_(lineage_release) struct lineage l;
		char path[256];

		lineage_init(&l, 32, LINEAGE_NO_LIMIT);
		for (size_t v = 0; v < 2 && t[i].chunks[v]; v++) {
			struct delta_take take = { 0 };
			uint8_t bytes[1024];
			size_t len = 0;

			for (const char *c = t[i].chunks[v]; *c; c++, len += 32)
				memset(bytes + len, *c == '.' ? 0 : *c, 32);
			memcpy(bytes + len, t[i].tails[v], strlen(t[i].tails[v]));
			take.method = v == 0 && t[i].chunks[1] ? DELTA_METHOD_LIST : t[i].method;
			lineage_checkpoint(&l, &take, bytes, len + strlen(t[i].tails[v]));
		}
		snprintf(path, sizeof(path), "%s/golden/delta/%s.txt", TESTS_DIR, t[i].name);
		rig_input_load(&in, path);
		assert_int_equal(l.object.len, in.object.len);
		assert_memory_equal(l.object.data, in.object.data, in.object.len);
	}
}

static void a_stretch_costs_one_entry_however_long(void **state _unused_)
{
	_cleanup_(lineage_release) struct lineage l;

	start(&l, LINEAGE_NO_LIMIT);
	assert_int_equal(l.object.len, 4096 + sizeof(data) + 4); /* the root of the tree */
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_int_equal(l.object.len, 256);

	noise(2, 11, 500);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_regions(&l, "first 11 500 0\n");
	assert_int_equal(l.object.len, 4096 + 500 * CHUNK + 8);

	move(307, 100, 500); /* by no power of two */
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_regions(&l, "shifted 307 500 3 100\n");
	assert_int_equal(l.object.len, 256 + 16);

	memset(data + 3 * CHUNK, 'c', 900 * CHUNK);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_regions(&l, "first 3 1 0\nrepeated 4 899 5 3\n");
	assert_int_equal(l.object.len, 256 + CHUNK + 4 + 16);

	for (size_t i = 0; i < NR_CHUNKS; i += 2)
		noise(100 + i, i, 1);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_int_equal(l.object.len, 256 + 512 * CHUNK + NR_CHUNKS / 8);
}

static void what_moves_is_one_run_though_parts_of_it_came_at_different_times(void **state _unused_)
{
	_cleanup_(lineage_release) struct lineage l;

	start(&l, LINEAGE_NO_LIMIT);
	for (uint64_t i = 0; i < 5; i++) {
		for (size_t k = 0; k < 20; k++)
			noise(1000 * (i + 1) + k, 100 + 13 * k + i, 1);
		lineage_checkpoint(&l, &tree, data, sizeof(data));
	}
	move(501, 90, 300);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_regions(&l, "shifted 501 300 6 90\n");
}

static void what_comes_back_is_one_run_though_parts_of_it_never_left(void **state _unused_)
{
	_cleanup_(lineage_release) struct lineage l;

	start(&l, LINEAGE_NO_LIMIT);
	for (size_t i = 0; i < 100; i += 3)
		noise(100 + i, i, 1);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	memcpy(data + 300 * CHUNK, l.versions[1].data, 100 * CHUNK);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_regions(&l, "shifted 300 100 1 0\n");
}

static void zeros_behind_the_end_of_the_parent_cost_nothing(void **state _unused_)
{
	_cleanup_(lineage_release) struct lineage l;

	lineage_init(&l, CHUNK, LINEAGE_NO_LIMIT);
	memset(data, 0, sizeof(data));
	lineage_checkpoint(&l, &tree, data, 100 * CHUNK + 5);
	assert_int_equal(l.object.len, 256);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_int_equal(l.object.len, 256);
	lineage_checkpoint(&l, &tree, NULL, 0);
	assert_int_equal(l.object.len, 256);
	noise(2, 5, 1);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_regions(&l, "first 5 1 0\n");
}

/* Filled up with zeros, version 2's last chunk equals what version 1 has there; but it has only half of it. */
static void a_short_last_chunk_is_no_source(void **state _unused_)
{
	_cleanup_(lineage_release) struct lineage l;

	lineage_init(&l, CHUNK, LINEAGE_NO_LIMIT);
	noise(1, 0, NR_CHUNKS);
	memset(data + 10 * CHUNK + CHUNK / 2, 0, CHUNK / 2);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	lineage_checkpoint(&l, &tree, data, 10 * CHUNK + CHUNK / 2);
	assert_int_equal(l.object.len, 256);
	move(3, 10, 1);
	lineage_checkpoint(&l, &tree, data, 10 * CHUNK);
	assert_regions(&l, "shifted 3 1 1 10\n");
	move(4, 10, 1);
	lineage_checkpoint(&l, &tree, data, 4 * CHUNK + CHUNK / 2);
	assert_int_equal(l.nr_regions[DELTA_FIRST], 1); /* nor is it one that takes */
	assert_int_equal(l.object.len, 256 + CHUNK / 2 + 1);
}

static void a_forgotten_version_is_no_source_but_what_stayed_is(void **state _unused_)
{
	_cleanup_(lineage_release) struct lineage l;

	start(&l, LINEAGE_NO_LIMIT);
	noise(2, 0, 10);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	lineage_delete(&l, 1);
	memcpy(data + 50 * CHUNK, l.versions[1].data, 20 * CHUNK); /* of these version 2 still has the last 10 */
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_regions(&l, "first 50 10 0\nshifted 60 10 2 10\n");

	lineage_delete(&l, 3); /* the newest: no parent, but version 2 is there */
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_regions(&l, "shifted 0 50 2 0\nfirst 50 10 0\nshifted 60 10 2 10\nshifted 70 954 2 70\n");
}

static void without_room_deltas_get_larger(void **state _unused_)
{
	_cleanup_(lineage_release) struct lineage l;

	start(&l, 0);
	move(0, 500, 100); /* nothing is known */
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_regions(&l, "first 0 100 0\n");
	memset(data, 'c', 100 * CHUNK);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_regions(&l, "first 0 100 0\n");
}

static void what_is_no_longer_there_makes_room_for_the_next(void **state _unused_)
{
	_cleanup_(lineage_release) struct lineage l;

	start(&l, (NR_CHUNKS + 4) * 42); /* 1049 */
	noise(2, 0, 20); /* fit in beside the others; then the 20 that they replaced go */
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	noise(3, 20, 40); /* 25 of them fit in; then 40 go */
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	move(100, 0, 60); /* the last 15 are entered now */
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_regions(&l, "shifted 100 45 3 0\nfirst 145 15 0\n");
	move(300, 100, 60);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_int_equal(l.nr_regions[DELTA_FIRST], 0);
	memcpy(data + 200 * CHUNK, l.versions[1].data, 60 * CHUNK); /* forgotten */
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_regions(&l, "first 200 60 0\n");
}

static void the_first_of_those_there_is_no_room_for_are_known(void **state _unused_)
{
	_cleanup_(lineage_release) struct lineage l;

	start(&l, 100 * 42);
	move(500, 0, 500);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_int_equal(l.nr_regions[DELTA_SHIFTED], 1);
	assert_int_equal(l.nr_regions[DELTA_FIRST], 3); /* one stretch: before its whole pages, these, behind them */
	assert_true(l.object.len < 4096 + 402 * CHUNK);
}

static void literals_are_sent_in_whole_chunks_where_they_changed(void **state _unused_)
{
	static const struct delta_span spans[] = {
		{ 5, 10 }, { 200, 1 }, { 250, 20 }, { 20 * CHUNK, 0 }, { 30 * CHUNK + 1, 3 }
	};
	struct delta_take take = { .method = DELTA_METHOD_TREE, .literals = spans, .nr_literals = ARRAY_SIZE(spans) };
	_cleanup_(lineage_release) struct lineage l;

	lineage_init(&l, CHUNK, LINEAGE_NO_LIMIT);
	noise(1, 0, NR_CHUNKS);
	lineage_checkpoint(&l, &take, data, sizeof(data));
	assert_regions(&l, "literal 0 3 1020\nfirst 3 27 0\nliteral 30 1 1023\nfirst 31 993 27\n");
	lineage_checkpoint(&l, &take, data, sizeof(data));
	assert_regions(&l, "");
	data[201] ^= 1;
	noise(2, 3, 1);
	lineage_checkpoint(&l, &take, data, sizeof(data));
	assert_regions(&l, "literal 0 3 1\nfirst 3 1 0\n");
	move(700, 0, 4); /* of literals nothing is remembered */
	lineage_checkpoint(&l, &take, data, sizeof(data));
	assert_regions(&l, "first 700 3 0\nshifted 703 1 3 3\n");
	take.method = DELTA_METHOD_FULL;
	lineage_checkpoint(&l, &take, data, sizeof(data));
	assert_regions(&l, "literal 0 3 1020\nfirst 3 27 0\nliteral 30 1 1023\nfirst 31 993 27\n");
}

/*
 * Chunks of 32 bytes that collide, made with the secret: with 1 as a factor of both products a chunk's other two words
 * are added and xored as they are, and their highest bits cancel.
 */
static void collide(const struct leaf_key *k, uint8_t a[32], uint8_t b[32])
{
	struct le64 words[4];

	for (int i = 0; i < 4; i++)
		words[i] = le64_put(i % 2 ? 12345 : xxh3_read64(k->leaf + 8 * i) ^ 1);
	memcpy(a, words, 32);
	memcpy(b, words, 32);
	b[15] ^= 0x80;
	b[31] ^= 0x80;
	assert_digest_equal(leaf_hash(k, a, 32, 32), leaf_hash(k, b, 32, 32));
}

static void collisions_in_the_buffer_are_noticed_if_wanted(void **state _unused_)
{
	_cleanup_(lineage_release) struct lineage l;
	uint8_t a[32], b[32];

	lineage_init(&l, 32, LINEAGE_NO_LIMIT);
	collide(&l.key, a, b);
	noise(1, 0, 10);
	memcpy(data + 64, a, 32);
	memcpy(data + 320, b, 32);
	memcpy(data + 640, a, 32);
	lineage_checkpoint(&l, &(struct delta_take){ .method = DELTA_METHOD_TREE, .compare = true }, data, 1280);
	assert_int_equal(l.nr_regions[DELTA_SHIFTED], 1); /* the second `a`; lineage_take() has compared the bytes */
	memcpy(data + 960, b, 32); /* `a` is where it was, in the buffer and in the version before */
	lineage_checkpoint(&l, &(struct delta_take){ .method = DELTA_METHOD_TREE, .compare = true }, data, 1280);
	assert_int_equal(l.nr_regions[DELTA_SHIFTED], 0);
	assert_int_equal(l.nr_regions[DELTA_FIRST], 1);
}

static void wrong_calls_are_refused_and_change_nothing(void **state _unused_)
{
	static const struct delta_span unsorted[] = { { 10, 1 }, { 9, 1 } }, overlapping[] = { { 10, 2 }, { 11, 1 } },
				       past_end[] = { { sizeof(data), 1 } }, wraps[] = { { 10, UINT64_MAX } };
	const struct delta_take bad[] = {
		{ .number = 0 },
		{ .number = 1 },
		{ .number = 2, .literals = unsorted, .nr_literals = 2 },
		{ .number = 2, .literals = overlapping, .nr_literals = 2 },
		{ .number = 2, .literals = past_end, .nr_literals = 1 },
		{ .number = 2, .literals = wraps, .nr_literals = 1 },
	};
	struct delta_record_params params = { .chunk_len = 48 };
	_cleanup_(buf_release) struct buf object = BUF_EMPTY;
	_cleanup_(lineage_release) struct lineage l;
	struct delta_record *rec = NULL;

	assert_int_equal(delta_record_new(&params, &rec), -EINVAL);
	assert_null(rec);
	start(&l, LINEAGE_NO_LIMIT);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(delta_record_take(l.rec, data, sizeof(data), &bad[i], &object), -EINVAL);
	assert_int_equal(delta_record_take(l.rec, data, sizeof(data), &(struct delta_take){ .number = 7 }, &object), 0);
	assert_int_equal(delta_record_take(l.rec, data, sizeof(data), &(struct delta_take){ .number = 8 }, &object),
			 -EBUSY);
	delta_record_abandon(l.rec);
	delta_record_abandon(l.rec);
	lineage_checkpoint(&l, &tree, data, sizeof(data));
	assert_int_equal(l.object.len, 256);
}

static void drop_line(void *userdata _unused_, enum log_level level _unused_, const char *line _unused_)
{
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_objects_are_what_is_made_today),
		cmocka_unit_test(a_stretch_costs_one_entry_however_long),
		cmocka_unit_test(what_moves_is_one_run_though_parts_of_it_came_at_different_times),
		cmocka_unit_test(what_comes_back_is_one_run_though_parts_of_it_never_left),
		cmocka_unit_test(zeros_behind_the_end_of_the_parent_cost_nothing),
		cmocka_unit_test(a_short_last_chunk_is_no_source),
		cmocka_unit_test(a_forgotten_version_is_no_source_but_what_stayed_is),
		cmocka_unit_test(without_room_deltas_get_larger),
		cmocka_unit_test(what_is_no_longer_there_makes_room_for_the_next),
		cmocka_unit_test(the_first_of_those_there_is_no_room_for_are_known),
		cmocka_unit_test(literals_are_sent_in_whole_chunks_where_they_changed),
		cmocka_unit_test(collisions_in_the_buffer_are_noticed_if_wanted),
		cmocka_unit_test(wrong_calls_are_refused_and_change_nothing),
	};

	log_to_function(drop_line, NULL);
	return cmocka_run_group_tests_name("delta_record", tests, NULL, NULL);
}
