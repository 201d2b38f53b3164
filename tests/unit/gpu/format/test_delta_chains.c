/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Random chains of versions: each comes back byte by byte, whatever changes, with every method and chunk length. */
#include <string.h>

#include "base/util.h"
#include "tests/unit/gpu/format/rig_lineage.h"

#define NR_METHODS (DELTA_METHOD_TREE + 1)

static const uint32_t chunk_lens[] = { 32, 64, 128, 256, 512, 1024, 2048, 4096 };

/* Chunks are few, so that several patterns meet in one. */
static size_t size_of(uint32_t chunk_len, uint64_t *seed)
{
	return rig_random(seed) % (200 * chunk_len);
}

static void start(const struct lineage *l, uint32_t chunk_len, uint64_t *seed, struct buf *b)
{
	size_t len = size_of(chunk_len, seed);

	assert_int_equal(buf_reserve(b, 300 * chunk_len), 0);
	b->len = len;
	lineage_change(l, PATTERN_ALL, chunk_len, 0, seed, b);
	lineage_change(l, PATTERN_PERIODIC, chunk_len, 0, seed, b);
	lineage_change(l, PATTERN_CONSTANT, chunk_len, 0, seed, b);
}

/* One to three patterns at once. */
static void change(const struct lineage *l, uint32_t chunk_len, uint64_t *seed, struct buf *b)
{
	for (uint64_t nr = 1 + rig_random(seed) % 3; nr > 0; nr--)
		lineage_change(l, rig_random(seed) % NR_PATTERNS, chunk_len, 300 * chunk_len, seed, b);
}

static void check_chain(uint32_t chunk_len, int method, uint64_t seed)
{
	_cleanup_(lineage_release) struct lineage l;
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct delta_take take = { .compare = seed % 2 };

	lineage_init(&l, chunk_len, seed % 3 ? LINEAGE_NO_LIMIT : rig_random(&seed) % (250 * 41));
	start(&l, chunk_len, &seed, &b);
	for (int i = 0; i < 10; i++) {
		take.method = method < NR_METHODS ? (enum delta_method)method : rig_random(&seed) % NR_METHODS;
		lineage_checkpoint(&l, &take, b.data, b.len);
		change(&l, chunk_len, &seed, &b);
		if (rig_random(&seed) % 4 == 0) { /* one that is not committed */
			lineage_take(&l, &take, b.data, b.len);
			delta_record_abandon(l.rec);
			change(&l, chunk_len, &seed, &b);
		}
		if (rig_random(&seed) % 4 == 0)
			lineage_delete(&l, 1 + rig_random(&seed) % l.last);
	}
}

static void every_version_of_a_chain_comes_back(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(chunk_lens); i++)
		for (int method = 0; method <= NR_METHODS; method++) /* the last: all of them in turn */
			for (uint64_t seed = 0; seed < (chunk_lens[i] > 256 ? 4 : 16); seed++)
				check_chain(chunk_lens[i], method, 1000 * i + 100 * method + seed);
}

/* The same versions with all four methods. */
static void check_sizes(enum pattern pattern, uint32_t chunk_len, uint64_t seed)
{
	struct lineage l[NR_METHODS];
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	for (int m = 0; m < NR_METHODS; m++)
		lineage_init(&l[m], chunk_len, seed % 4 ? LINEAGE_NO_LIMIT : 100 * 41);
	start(&l[0], chunk_len, &seed, &b);
	for (int i = 0; i < 8; i++) {
		size_t tree;

		for (int m = 0; m < NR_METHODS; m++)
			lineage_checkpoint(&l[m], &(struct delta_take){ .method = m }, b.data, b.len);
		tree = l[DELTA_METHOD_TREE].object.len;
		assert_true(tree <= l[DELTA_METHOD_FULL].object.len);
		assert_true(tree <= l[DELTA_METHOD_BASIC].object.len);
		assert_true(tree <= l[DELTA_METHOD_LIST].object.len);
		if (pattern < NR_PATTERNS)
			lineage_change(&l[0], pattern, chunk_len, 300 * chunk_len, &seed, &b);
		else
			change(&l[0], chunk_len, &seed, &b);
	}
	for (int m = 0; m < NR_METHODS; m++)
		lineage_release(&l[m]);
}

static void tree_is_never_larger_than_any_other(void **state _unused_)
{
	for (int pattern = 0; pattern <= NR_PATTERNS; pattern++) /* the last: all of them mixed */
		for (uint64_t seed = 0; seed < 40; seed++)
			check_sizes(pattern, chunk_lens[seed % 3], 1000 * pattern + seed);
}

static void the_same_versions_give_the_same_objects(void **state _unused_)
{
	for (uint64_t round = 0; round < 20; round++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		uint64_t seed = round;
		struct lineage l[2];

		lineage_init(&l[0], 64, round % 2 ? LINEAGE_NO_LIMIT : 150 * 41);
		lineage_init(&l[1], 64, round % 2 ? LINEAGE_NO_LIMIT : 150 * 41);
		start(&l[0], 64, &seed, &b);
		for (int i = 0; i < 10; i++) {
			for (int k = 0; k < 2; k++)
				lineage_checkpoint(&l[k], &(struct delta_take){ .method = DELTA_METHOD_TREE }, b.data,
						   b.len);
			assert_int_equal(l[0].object.len, l[1].object.len);
			assert_memory_equal(l[0].object.data, l[1].object.data, l[0].object.len);
			change(&l[0], 64, &seed, &b);
		}
		lineage_release(&l[0]);
		lineage_release(&l[1]);
	}
}

static void what_is_abandoned_leaves_no_trace(void **state _unused_)
{
	for (uint64_t round = 0; round < 20; round++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY, lost = BUF_EMPTY;
		struct delta_take take = { .method = round % 2 ? DELTA_METHOD_TREE : DELTA_METHOD_LIST };
		uint64_t seed = round;
		struct lineage l[2];

		lineage_init(&l[0], 64, LINEAGE_NO_LIMIT);
		lineage_init(&l[1], 64, LINEAGE_NO_LIMIT);
		start(&l[0], 64, &seed, &b);
		for (int i = 0; i < 10; i++) {
			buf_clear(&lost);
			buf_add(&lost, b.data, b.len);
			assert_int_equal(buf_reserve(&lost, 300 * 64), 0);
			for (uint64_t n = rig_random(&seed) % 3; n > 0; n--) {
				change(&l[0], 64, &seed, &lost);
				lineage_take(&l[1], &take, lost.data, lost.len);
				delta_record_abandon(l[1].rec);
			}
			for (int k = 0; k < 2; k++)
				lineage_checkpoint(&l[k], &take, b.data, b.len);
			assert_int_equal(l[0].object.len, l[1].object.len);
			assert_memory_equal(l[0].object.data, l[1].object.data, l[0].object.len);
			change(&l[0], 64, &seed, &b);
		}
		lineage_release(&l[0]);
		lineage_release(&l[1]);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_version_of_a_chain_comes_back),
		cmocka_unit_test(tree_is_never_larger_than_any_other),
		cmocka_unit_test(the_same_versions_give_the_same_objects),
		cmocka_unit_test(what_is_abandoned_leaves_no_trace),
	};

	return cmocka_run_group_tests_name("delta_chains", tests, NULL, NULL);
}
