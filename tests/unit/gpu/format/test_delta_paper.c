/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The paper's algorithm (Tan et al., ICPP 2023, algorithm 1), to the letter and with a map of all nodes, beside ours
 * with one of leaves: the same bytes are sent, and ours never takes more regions to say where the others come from.
 */
#include <string.h>

#include "base/util.h"
#include "gpu/format/delta_table.h"
#include "tests/unit/gpu/format/rig_lineage.h"

#define HEIGHT 8
#define LEAVES (1u << HEIGHT)
#define CHUNK 32u

enum label { MIXED, FIXED, FIRST, SHIFTED };

struct paper {
	struct leaf_key key;
	struct digest tree[2 * LEAVES]; /* node 1 is the root; of leaves those of the version before */
	enum label labels[2 * LEAVES];
	struct delta_table map; /* leaves and nodes of all versions */
	unsigned nr_first_chunks, nr_first, nr_shifted;
};

static void paper_init(struct paper *p)
{
	memset(p, 0, sizeof(*p));
	leaf_key_init(&p->key, rig_key);
	delta_table_init(&p->map, UINT64_MAX);
	for (unsigned i = 0; i < LEAVES; i++)
		p->tree[LEAVES + i] =
			leaf_hash(&p->key, NULL, 0, CHUNK); /* before the first version: zeros, as ours has it */
}

/* Lines 1 to 23, in ascending order: what a thread that comes later would take back never happens. */
static void label_leaves(struct paper *p, const uint8_t *data, uint32_t version)
{
	p->nr_first_chunks = 0;
	for (unsigned i = 0; i < LEAVES; i++) {
		struct digest d = leaf_hash(&p->key, data + i * CHUNK, CHUNK, CHUNK);

		if (digest_equal(d, p->tree[LEAVES + i])) {
			p->labels[LEAVES + i] = FIXED;
			continue;
		}
		p->labels[LEAVES + i] = delta_table_find(&p->map, d) ? SHIFTED : FIRST;
		if (p->labels[LEAVES + i] == FIRST) {
			assert_int_equal(delta_table_enter(&p->map, d, version, i), 0);
			p->nr_first_chunks++;
		}
		p->tree[LEAVES + i] = d;
	}
}

/* Lines 24 to 46: first occurrences all the way up, then shifted duplicates. */
static void label_nodes(struct paper *p, uint32_t version, enum label label)
{
	for (unsigned node = LEAVES - 1; node > 0; node--) {
		bool known;

		if (label == FIRST)
			p->labels[node] = MIXED;
		if (p->labels[2 * node] != label || p->labels[2 * node + 1] != label)
			continue;
		p->tree[node] = leaf_hash_group(&p->key, p->tree + 2 * node, 2);
		known = delta_table_find(&p->map, p->tree[node]) != NULL;
		if (label == FIRST && !known)
			assert_int_equal(delta_table_enter(&p->map, p->tree[node], version, node), 0);
		if (label == FIRST || known)
			p->labels[node] = label;
	}
}

static unsigned count_roots(const struct paper *p, enum label label)
{
	unsigned nr = p->labels[1] == label;

	for (unsigned node = 2; node < 2 * LEAVES; node++)
		nr += p->labels[node] == label && p->labels[node / 2] != label;
	return nr;
}

static void paper_checkpoint(struct paper *p, const uint8_t *data, uint32_t version)
{
	label_leaves(p, data, version);
	label_nodes(p, version, FIRST);
	label_nodes(p, version, SHIFTED);
	p->nr_first = count_roots(p, FIRST);
	p->nr_shifted = count_roots(p, SHIFTED);
}

static void never_more_regions_than_with_all_nodes_in_the_map(void **state _unused_)
{
	static const enum pattern patterns[] = { PATTERN_SPARSE,	  PATTERN_RUNS,	    PATTERN_MOVED,
						 PATTERN_MOVED_UNALIGNED, PATTERN_SWAPPED,  PATTERN_ZEROS,
						 PATTERN_CONSTANT,	  PATTERN_PERIODIC, PATTERN_OLD };
	const struct delta_take take = { .method = DELTA_METHOD_TREE };
	unsigned nr_same = 0, nr_fewer = 0, nr_shifted_nodes = 0;

	for (uint64_t round = 0; round < 150; round++) {
		_cleanup_(lineage_release) struct lineage l;
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		uint64_t seed = round;
		struct paper p;

		paper_init(&p);
		lineage_init(&l, CHUNK, LINEAGE_NO_LIMIT);
		assert_int_equal(buf_reserve(&b, LEAVES * CHUNK), 0);
		b.len = LEAVES * CHUNK;
		lineage_change(&l, PATTERN_ALL, CHUNK, b.len, &seed, &b);
		for (uint32_t version = 1; version <= 12; version++) {
			uint64_t nr_shifted;

			lineage_checkpoint(&l, &take, b.data, b.len);
			paper_checkpoint(&p, b.data, version);
			nr_shifted = l.nr_regions[DELTA_SHIFTED] + l.nr_regions[DELTA_REPEATED];
			assert_true(l.nr_regions[DELTA_FIRST] <= p.nr_first);
			assert_true(nr_shifted <= p.nr_shifted);
			nr_same += nr_shifted == p.nr_shifted;
			nr_fewer += nr_shifted < p.nr_shifted;
			for (unsigned node = 1; node < LEAVES; node++)
				nr_shifted_nodes += p.labels[node] == SHIFTED;
			for (uint64_t n = 1 + rig_random(&seed) % 2; n > 0; n--)
				lineage_change(&l, patterns[rig_random(&seed) % ARRAY_SIZE(patterns)], CHUNK, b.len,
					       &seed, &b);
		}
		delta_table_release(&p.map);
	}
	assert_true(nr_same > 100 && nr_fewer > 100 && nr_shifted_nodes > 1000); /* it is put to the test */
}

static void the_same_chunks_are_sent(void **state _unused_)
{
	const struct delta_take take = { .method = DELTA_METHOD_LIST };

	for (uint64_t round = 0; round < 50; round++) {
		_cleanup_(lineage_release) struct lineage l;
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		uint64_t seed = round;
		struct paper p;

		paper_init(&p);
		lineage_init(&l, CHUNK, LINEAGE_NO_LIMIT);
		assert_int_equal(buf_reserve(&b, LEAVES * CHUNK), 0);
		b.len = LEAVES * CHUNK;
		memset(b.data, 0, b.len);
		for (uint32_t version = 1; version <= 12; version++) {
			struct delta_header h;

			lineage_change(&l, rig_random(&seed) % PATTERN_GROWN, CHUNK, b.len, &seed, &b);
			lineage_checkpoint(&l, &take, b.data, b.len);
			paper_checkpoint(&p, b.data, version);
			assert_int_equal(delta_header_decode(l.object.data, l.object.len, &h), 0);
			assert_int_equal(h.payload_len, p.nr_first_chunks * CHUNK);
		}
		delta_table_release(&p.map);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(never_more_regions_than_with_all_nodes_in_the_map),
		cmocka_unit_test(the_same_chunks_are_sent),
	};

	return cmocka_run_group_tests_name("delta_paper", tests, NULL, NULL);
}
