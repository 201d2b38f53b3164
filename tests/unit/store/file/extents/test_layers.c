/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Recipes of the view that share layers: they say what was made, cost what was changed, and nothing is left of them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/check/check.h"
#include "store/engine_state.h"
#include "store/file/content_state.h"
#include "store/file/file_table.h"
#include "store/file/extents/layer_set.h"
#include "store/file/extents/layer_stack.h"
#include "tests/unit/store/check_rig.h"
#include "tests/unit/store/rig.h"
#include "store/log/view.h"
#include "store/file/write_back.h"

#define LEN (3 * MiB(1) + 1234)
#define STAGING 5
#define FIRST 100
#define CHANGE 64 /* bytes */
#define CHANGES 1500 /* in a version: some 500 for each segment */
#define NR_MAX 32

/* A file, and what its versions have. */
struct lineage {
	uint64_t first; /* its inode, and so on; none is used twice */
	uint8_t *bytes[NR_MAX]; /* NULL: not there */
	unsigned nr;
	uint64_t random;
};

static uint64_t next_random(uint64_t *x)
{
	*x = *x * 6364136223846793005u + 1442695040888963407u;
	return *x >> 30;
}

static void first_version_at(struct rig *rig, struct lineage *l, uint64_t ino)
{
	*l = (struct lineage){ .first = ino, .nr = 1, .random = 7 };
	l->bytes[0] = rig_bytes(LEN, 9);
	rig_write_bytes(rig, ino, l->bytes[0], LEN);
}

static void first_version(struct rig *rig, struct lineage *l)
{
	first_version_at(rig, l, FIRST);
}

/* As a delta does it: what is new lies, one after the other, in a file of its own. Version `of` and changes of it. */
static void version_of(struct rig *rig, struct lineage *l, unsigned of, unsigned nr_changes)
{
	_cleanup_(freep) uint8_t *bytes = rig_bytes(nr_changes * CHANGE, next_random(&l->random));
	struct content *parent = rig_content(rig, l->first + of), *c = rig_content(rig, l->first + l->nr), *staging;
	_cleanup_(freep) struct content_patch *p = calloc(nr_changes, sizeof(*p));
	uint64_t done, off = 0;
	unsigned nr = 0;
	uint8_t *to;

	assert_true(l->nr < NR_MAX);
	to = l->bytes[l->nr++] = malloc(LEN);
	memcpy(to, l->bytes[of], LEN);
	rig_write_bytes(rig, STAGING, bytes, nr_changes * CHANGE);
	staging = rig_content(rig, STAGING);
	assert_int_equal(content_clone(parent, 0, c, 0, LEN, &done), 0);
	assert_int_equal(done, LEN);
	for (; nr < nr_changes; nr++) {
		off += next_random(&l->random) % (2 * LEN / nr_changes - CHANGE);
		if (off + CHANGE > LEN)
			break;
		p[nr] = (struct content_patch){ staging, nr * CHANGE, off, CHANGE };
		memcpy(to + off, bytes + nr * CHANGE, CHANGE);
		off += CHANGE;
	}
	assert_int_equal(content_patch(c, p, nr), 0);
	content_close(staging);
	content_close(c);
	content_close(parent);
}

static void next_version(struct rig *rig, struct lineage *l)
{
	version_of(rig, l, l->nr - 1, CHANGES);
}

static void drop_version(struct rig *rig, struct lineage *l, unsigned n)
{
	rig_drop(rig, l->first + n);
	free(TAKE(l->bytes[n]));
}

static void check_all(struct rig *rig, struct lineage *l)
{
	for (unsigned i = 0; i < l->nr; i++)
		if (l->bytes[i])
			rig_check_bytes(rig, l->first + i, l->bytes[i], LEN);
}

static void release(struct lineage *l)
{
	for (unsigned i = 0; i < l->nr; i++)
		free(l->bytes[i]);
}

static void flush(struct rig *rig)
{
	assert_int_equal(view_flush(rig->e, false), 0);
}

struct in_view {
	uint64_t nr_layers, nr_over; /* layers; recipes that name one */
	uint64_t bytes; /* of all values of both tables */
};

static struct in_view look(struct rig *rig)
{
	static const uint8_t tables[] = { VIEW_LAYER, VIEW_RECIPE };
	struct in_view v = { 0 };

	for (unsigned i = 0; i < ARRAY_SIZE(tables); i++) {
		const void *key, *value;
		size_t key_len, len;
		struct db_iter *it;
		int r;

		assert_int_equal(db_iter_new(rig->e->db, NULL, &tables[i], 1, NULL, 0, &it), 0);
		while ((r = db_iter_next(it, &key, &key_len, &value, &len)) > 0) {
			v.nr_layers += tables[i] == VIEW_LAYER;
			v.nr_over += tables[i] == VIEW_RECIPE && recipe_has_layer(value, len);
			v.bytes += len;
		}
		assert_int_equal(r, 0);
		db_iter_free(it);
	}
	return v;
}

/* The files have no names. */
static void fail_with_finding(void *userdata, const struct check_finding *f)
{
	if (f->area != CHECK_NAMES && !strstr(f->text, "of a file that does not exist"))
		fail_msg("%s: %s", check_area_name(f->area), f->text);
	(void)userdata;
}

static struct check_result sound(struct rig *rig)
{
	struct check_conf conf = { .cache = MiB(16), .read_data = true, .finding = fail_with_finding };
	struct check_result res;

	rig_close(rig);
	assert_int_equal(check_store(rig->path, &conf, &res), 0);
	rig_open(rig);
	return res;
}

static const struct gc_conf collect_all = { .delete = true };

/* --- sets of them --- */

static void a_set_has_what_was_put_into_it(void **state)
{
	struct layer_set s = { 0 };
	uint64_t x = 1;

	(void)state;
	assert_false(layer_set_has(&s, 1));
	for (unsigned i = 0; i < 5000; i++) {
		assert_int_equal(layer_set_add(&s, i * 3 + 1), 0);
		assert_int_equal(layer_set_add(&s, next_random(&x) << 33 | 7), 0);
	}
	x = 1;
	for (unsigned i = 0; i < 5000; i++) {
		assert_true(layer_set_has(&s, i * 3 + 1));
		assert_false(layer_set_has(&s, i * 3 + 2));
		assert_true(layer_set_has(&s, next_random(&x) << 33 | 7));
	}
	assert_int_equal(layer_set_add(&s, UINT64_MAX), 0);
	assert_true(layer_set_has(&s, UINT64_MAX));
	assert_false(layer_set_has(&s, UINT64_MAX - 1));
	layer_set_release(&s);
}

/* --- reading --- */

static void put_value(struct rig *rig, struct ns_key key, uint64_t layer, const struct extent *x, size_t nr)
{
	struct buf b = BUF_EMPTY;
	struct db_batch *batch;

	recipe_encode_over(layer, x, nr, &b);
	assert_int_equal(db_batch_new(rig->e->db, &batch), 0);
	db_batch_put(batch, key.b, key.len, b.data, b.len);
	assert_int_equal(db_batch_apply(batch), 0);
	db_batch_free(batch);
	buf_release(&b);
}

static int read_over(struct rig *rig, uint64_t layer, const struct extent *x, size_t nr, struct extent **ret,
		     size_t *ret_nr)
{
	struct buf b = BUF_EMPTY;
	int r;

	recipe_encode_over(layer, x, nr, &b);
	r = recipe_read(rig->e->db, NULL, b.data, b.len, ret, ret_nr);
	buf_release(&b);
	return r;
}

static void the_highest_of_what_layers_cover_is_read(void **state)
{
	const struct extent lowest = { 0, 1000, { .pack = 1, .off = 10000 } },
			    middle[] = { { 100, 100, { .pack = 2, .off = 20000 } },
					 { 900, 50, { .pack = 2, .off = 30000 } } },
			    own = { 150, 10, { .pack = 3, .off = 40000 } };
	static const struct extent want[] = {
		{ 0, 100, { .pack = 1, .off = 10000 } },   { 100, 50, { .pack = 2, .off = 20000 } },
		{ 150, 10, { .pack = 3, .off = 40000 } },  { 160, 40, { .pack = 2, .off = 20060 } },
		{ 200, 700, { .pack = 1, .off = 10200 } }, { 900, 50, { .pack = 2, .off = 30000 } },
		{ 950, 50, { .pack = 1, .off = 10950 } },
	};
	struct rig *rig = *state;
	struct extent *x = NULL;
	size_t nr;

	put_value(rig, layer_key(7), 0, &lowest, 1);
	put_value(rig, layer_key(9), 7, middle, 2);
	assert_int_equal(read_over(rig, 9, &own, 1, &x, &nr), 0);
	assert_int_equal(nr, ARRAY_SIZE(want));
	for (size_t i = 0; i < nr; i++) {
		assert_int_equal(x[i].off, want[i].off);
		assert_int_equal(x[i].len, want[i].len);
		assert_true(addr_equal(x[i].addr, want[i].addr));
	}
	free(x);
	assert_int_equal(read_over(rig, 7, NULL, 0, &x, &nr), 0); /* nothing of its own */
	assert_int_equal(nr, 1);
	free(x);
}

static void what_cannot_be_is_refused(void **state)
{
	const struct extent x = { 0, 1000, { .pack = 1, .off = 10000 } };
	struct rig *rig = *state;
	struct extent *got = NULL;
	size_t nr;

	assert_int_equal(read_over(rig, 5, &x, 1, &got, &nr), -EBADMSG); /* not there */
	put_value(rig, layer_key(5), 4, &x, 1);
	assert_int_equal(read_over(rig, 5, &x, 1, &got, &nr), -EBADMSG); /* the one below is not */
	put_value(rig, layer_key(4), 5, &x, 1);
	assert_int_equal(read_over(rig, 5, &x, 1, &got, &nr), -EBADMSG); /* in a circle */
	put_value(rig, layer_key(4), 4, &x, 1);
	assert_int_equal(read_over(rig, 5, &x, 1, &got, &nr), -EBADMSG); /* on itself */
	put_value(rig, layer_key(4), 0, &x, 1);
	assert_int_equal(read_over(rig, 5, &x, 1, &got, &nr), 0);
	free(TAKE(got));
	put_value(rig, layer_key(1000), 0, &x, 1);
	for (uint64_t i = 1; i <= STACK_MAX; i++)
		put_value(rig, layer_key(1000 + i), 1000 + i - 1, &x, 1);
	assert_int_equal(read_over(rig, 1000 + STACK_MAX - 1, &x, 1, &got, &nr), 0);
	free(TAKE(got));
	assert_int_equal(read_over(rig, 1000 + STACK_MAX, &x, 1, &got, &nr), -EBADMSG); /* one too many */
}

/* --- versions --- */

static void versions_cost_the_view_what_they_change(void **state)
{
	struct rig *rig = *state;
	struct in_view before, first, v;
	struct lineage l;
	uint64_t most = 0;

	first_version(rig, &l);
	flush(rig);
	before = look(rig);
	assert_int_equal(before.nr_layers, 0);
	next_version(rig, &l);
	flush(rig);
	first = look(rig);
	assert_int_equal(first.nr_layers, 3);
	assert_int_equal(first.nr_over, 3); /* what is left behind them is short */
	while (l.nr < 20) {
		before = look(rig);
		next_version(rig, &l);
		flush(rig);
		v = look(rig);
		most += v.bytes - before.bytes;
		if (l.nr == 10) { /* what was read again is layers again */
			contents_cool(rig->e);
			rig_reopen(rig);
		}
	}
	/* Each whole would be twice its number as much as the first. */
	assert_true(most / 18 < 3 * first.bytes);
	check_all(rig, &l);
	assert_int_equal(sound(rig).nr_unused_layers, 0);
	check_all(rig, &l);
	release(&l);
}

/* What is little stands in the recipe. */
static void small_changes_need_no_layers(void **state)
{
	struct rig *rig = *state;
	struct lineage l;

	first_version(rig, &l);
	for (unsigned i = 0; i < 5; i++)
		version_of(rig, &l, i, 10);
	flush(rig);
	assert_int_equal(look(rig).nr_layers, 0);
	rig_reopen(rig);
	check_all(rig, &l);
	release(&l);
}

/* A tree of versions, deleted in any order, with collections in between. */
static void versions_go_in_any_order(void **state)
{
	static const unsigned of[] = { 0, 0, 1, 1, 2, 4, 3 };
	struct rig *rig = *state;

	for (unsigned round = 0; round < 12; round++) {
		uint64_t x = round + 1, nr_freed = 0;
		struct lineage l;
		unsigned left;

		first_version_at(rig, &l, FIRST * (round + 1));
		for (unsigned i = 0; i < ARRAY_SIZE(of); i++) {
			version_of(rig, &l, of[i], CHANGES);
			if (next_random(&x) % 3 == 0)
				flush(rig);
		}
		for (left = l.nr; left > 0; left--) {
			unsigned n = (unsigned)(next_random(&x) % l.nr);

			while (!l.bytes[n])
				n = (n + 1) % l.nr;
			drop_version(rig, &l, n);
			if (next_random(&x) % 3 == 0)
				nr_freed += rig_collect(rig, &collect_all).nr_freed_layers;
			if (next_random(&x) % 4 == 0)
				rig_reopen(rig);
			check_all(rig, &l);
		}
		rig_drop(rig, STAGING);
		rig_write(rig, STAGING, KiB(64), round); /* so that there is something to look at */
		nr_freed += rig_collect(rig, &collect_all).nr_freed_layers;
		assert_true(nr_freed > 0);
		assert_int_equal(look(rig).nr_layers, 0);
		release(&l);
	}
	sound(rig);
}

static void only_a_collection_that_deletes_takes_layers(void **state)
{
	struct rig *rig = *state;
	struct check_result res;
	struct lineage l;
	uint64_t nr;

	first_version(rig, &l);
	for (unsigned i = 0; i < 3; i++)
		next_version(rig, &l);
	flush(rig);
	nr = look(rig).nr_layers;
	assert_int_equal(rig_collect(rig, &collect_all).nr_freed_layers, 0); /* all are needed */
	drop_version(rig, &l, 3);
	assert_int_equal(rig_collect(rig, &(struct gc_conf){ 0 }).nr_freed_layers, 0);
	assert_int_equal(look(rig).nr_layers, nr);
	res = sound(rig); /* they do no harm */
	assert_int_equal(res.nr_layers, nr);
	assert_in_range(res.nr_unused_layers, 1, nr - 1);
	assert_int_equal(rig_collect(rig, &collect_all).nr_freed_layers, res.nr_unused_layers);
	rig_crash(rig); /* the view was not written out since: they are back, or not; both are right */
	check_all(rig, &l);
	rig_collect(rig, &collect_all);
	res = sound(rig);
	assert_int_equal(res.nr_layers, look(rig).nr_layers);
	assert_int_equal(res.nr_unused_layers, 0);
	check_all(rig, &l);
	release(&l);
}

/* A version is derived from one in memory. The layers of that one have just been collected from below others. */
static void what_is_in_memory_keeps_its_layers(void **state)
{
	struct rig *rig = *state;
	struct content *held;
	struct lineage l;

	first_version(rig, &l);
	for (unsigned i = 0; i < 4; i++)
		next_version(rig, &l);
	held = rig_content(rig, FIRST + 4);
	for (unsigned i = 0; i < 4; i++)
		drop_version(rig, &l, i);
	rig_collect(rig, &collect_all);
	next_version(rig, &l);
	content_close(held);
	flush(rig);
	contents_cool(rig->e);
	rig_collect(rig, &collect_all);
	drop_version(rig, &l, 4);
	rig_collect(rig, &collect_all);
	rig_reopen(rig);
	check_all(rig, &l);
	sound(rig);
	release(&l);
}

/* Chunks of all of them are moved: every version refers to the new places. */
static void moves_reach_what_lies_in_layers(void **state)
{
	struct gc_conf conf = { .delete = true, .move_below = 95 };
	struct gc_report report;
	struct rig *rig = *state;
	struct lineage l;

	rig_close(rig);
	rig->conf.pack_bytes = MiB(2);
	rig_open(rig);
	first_version(rig, &l);
	for (unsigned i = 0; i < 6; i++) {
		rig_write(rig, 50 + i, KiB(700), 100 + i); /* in the same packs */
		next_version(rig, &l);
	}
	flush(rig);
	for (unsigned i = 0; i < 6; i++)
		rig_drop(rig, 50 + i);
	drop_version(rig, &l, 0);
	drop_version(rig, &l, 3);
	report = rig_collect(rig, &conf);
	assert_true(report.nr_moved_packs > 0);
	check_all(rig, &l);
	next_version(rig, &l);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_crash(rig);
	check_all(rig, &l);
	sound(rig);
	check_all(rig, &l);
	release(&l);
}

/* --- crashes --- */

/* Layers and recipes are in RocksDB's memory, and none, or all, on the disk. */
static void a_crash_leaves_all_of_a_state_or_none(void **state)
{
	struct rig *rig = *state;
	struct lineage l;

	first_version(rig, &l);
	next_version(rig, &l);
	for (unsigned round = 0; round < 6; round++) {
		next_version(rig, &l);
		assert_int_equal(engine_sync(rig->e), 0);
		view_lock_exclusive(rig->e);
		assert_int_equal(files_write_back(rig->e), 0);
		view_unlock_exclusive(rig->e);
		assert_true(look(rig).nr_layers > 0);
		if (round % 2)
			flush(rig);
		next_version(rig, &l);
		assert_int_equal(engine_sync(rig->e), 0);
		rig_crash(rig);
		check_all(rig, &l);
	}
	assert_int_equal(sound(rig).nr_unused_layers, 0);
	check_all(rig, &l);
	release(&l);
}

/* A batch that never came into the view: its layers are not taken for ones that are there. */
static void what_a_failed_batch_had_is_put_again(void **state)
{
	struct rig *rig = *state;
	struct view_batch batch;
	struct content *c;
	struct lineage l;
	struct stack s;
	struct buf b = BUF_EMPTY;

	first_version(rig, &l);
	next_version(rig, &l);
	next_version(rig, &l);
	c = rig_content(rig, FIRST + 2);
	view_lock_exclusive(rig->e);
	mutex_lock(&c->lock);
	assert_int_equal(view_batch_init(rig->e, &batch), 0);
	assert_int_equal(content_write_back(c, &batch), 0);
	assert_true(batch.nr > 0);
	assert_true(batch.layers[0]->number > 0);
	view_batch_release(&batch);
	mutex_unlock(&c->lock);
	view_unlock_exclusive(rig->e);
	content_close(c);
	assert_int_equal(look(rig).nr_layers, 0);
	flush(rig);
	assert_true(look(rig).nr_layers > 0);
	assert_int_equal(recipe_get(rig->e->db, FIRST + 2, 0, &b), 1);
	assert_int_equal(stack_read(rig->e->db, NULL, b.data, b.len, &s), 0);
	assert_true(s.nr > 1);
	stack_release(&s);
	buf_release(&b);
	rig_reopen(rig);
	check_all(rig, &l);
	sound(rig);
	release(&l);
}

/* From a snapshot of the journal, which has layers as the view had them, and records after it. */
static void a_new_index_has_the_layers_of_the_snapshot(void **state)
{
	struct rig *rig = *state;
	struct lineage l;
	uint64_t nr;

	first_version(rig, &l);
	for (unsigned i = 0; i < 4; i++)
		next_version(rig, &l);
	assert_int_equal(view_flush(rig->e, true), 0);
	nr = look(rig).nr_layers;
	next_version(rig, &l);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_close(rig);
	rig_remove_index(rig);
	assert_int_equal(engine_rebuild(rig->path, &rig->conf), 0);
	rig_open(rig);
	check_all(rig, &l);
	next_version(rig, &l); /* and gets unused numbers */
	flush(rig);
	assert_true(look(rig).nr_layers > nr);
	rig_reopen(rig);
	check_all(rig, &l);
	assert_int_equal(sound(rig).nr_unused_layers, 0);
	drop_version(rig, &l, 2);
	rig_collect(rig, &collect_all);
	check_all(rig, &l);
	release(&l);
}

/* --- damage --- */

static uint64_t some_layer; /* of the recipe of the last version */

static void remove_layer(struct rig *rig, struct db_batch *b, const struct fp_key *key)
{
	struct ns_key k = layer_key(some_layer);

	(void)rig;
	(void)key;
	db_batch_del(b, k.b, k.len);
}

static void add_layers(struct rig *rig, struct db_batch *b, const struct fp_key *key)
{
	static const struct extent x = { 0, PAGE, { .pack = 1, .off = 2 * PAGE } };
	struct ns_key k = layer_key(UINT64_MAX);
	struct buf value = BUF_EMPTY;

	(void)rig;
	(void)key;
	recipe_encode_over(UINT64_MAX - 1, &x, 1, &value); /* never issued, with a base that is missing */
	db_batch_put(b, k.b, k.len, value.data, value.len);
	buf_clear(&value);
	recipe_encode_over(77777, &x, 1, &value); /* on a later one */
	k = layer_key(77776);
	db_batch_put(b, k.b, k.len, value.data, value.len);
	k = layer_key(77775);
	db_batch_put(b, k.b, k.len, "\2", 1);
	buf_release(&value);
}

static bool was_said(const struct said *s, const char *part)
{
	for (size_t i = 0; i < s->nr; i++)
		if (strstr(s->text[i], part))
			return true;
	return false;
}

static void the_checker_finds_what_is_wrong_with_them(void **state)
{
	static edit_fn *const edits[] = { remove_layer, add_layers };
	static const char *const said[][4] = {
		{ "segment 1 has layers that are missing, damaged, or too many", NULL },
		{ "has a number that was never issued", "its base is missing",
		  "its base is a later layer", "its extents do not decode" },
	};
	struct rig *rig = *state;
	struct buf b = BUF_EMPTY;
	struct lineage l;
	struct stack s;

	first_version(rig, &l);
	for (unsigned i = 0; i < 3; i++)
		next_version(rig, &l);
	flush(rig);
	assert_int_equal(recipe_get(rig->e->db, FIRST + 3, 1, &b), 1);
	assert_int_equal(stack_read(rig->e->db, NULL, b.data, b.len, &s), 0);
	some_layer = s.v[s.nr - 1].layer;
	stack_release(&s);
	buf_release(&b);
	for (unsigned i = 0; i < ARRAY_SIZE(edits); i++) {
		struct said found;

		rig_close(rig);
		edit_index(rig, NULL, edits[i]);
		found = check(rig);
		for (unsigned k = 0; k < ARRAY_SIZE(said[i]) && said[i][k]; k++)
			if (!was_said(&found, said[i][k]))
				fail_msg("not said: %s", said[i][k]);
		found = repair(rig);
		assert_true(found.result.rebuilt);
		rig_open(rig);
		check_all(rig, &l);
		sound(rig);
	}
	release(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_set_has_what_was_put_into_it),
		rig_test(the_highest_of_what_layers_cover_is_read),
		rig_test(what_cannot_be_is_refused),
		rig_test(versions_cost_the_view_what_they_change),
		rig_test(small_changes_need_no_layers),
		rig_test(versions_go_in_any_order),
		rig_test(only_a_collection_that_deletes_takes_layers),
		rig_test(what_is_in_memory_keeps_its_layers),
		rig_test(moves_reach_what_lies_in_layers),
		rig_test(a_crash_leaves_all_of_a_state_or_none),
		rig_test(what_a_failed_batch_had_is_put_again),
		rig_test(a_new_index_has_the_layers_of_the_snapshot),
		rig_test(the_checker_finds_what_is_wrong_with_them),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
