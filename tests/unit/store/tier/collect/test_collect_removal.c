/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What a collection removes, and what it refuses to remove: checkpoints of a tier with missing or damaged objects. */
#include "store/tier/collect/tier_collect.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/tier/collect/tier_log.h"
#include "tests/unit/store/tier/actors.h"
#include "tests/unit/store/tier/collect/collect_rig.h"
#include "tests/unit/store/tier/memory.h"

/* As while a file server restarts: for a moment an object is not found. */
static void what_is_not_found_once_is_not_removed(void **state _unused_)
{
	for (uint64_t at = 1; at <= 40; at++) {
		const struct memory_faults faults = { .page = 100000, .fail_at = at, .fail_with = -ENOENT };
		struct rig *rig = rig_new(1);

		for (unsigned i = 0; i < 2; i++) {
			rig_add(rig, 1, false);
			assert_int_equal(rig_flush(rig, NULL, i), 0);
		}
		(void)rig_collect(memory_open(rig->w.m, &faults), 1000);
		assert_int_equal(rig_check_content(rig), 2);
		rig_free(rig);
	}
}

/*
 * As while a server of a shared directory is down: one manifest is neither listed nor found. The collection before has
 * kept it, or it is a new one with a later one behind it. It is there again afterwards.
 */
static void a_manifest_that_is_missing_ends_the_collection(void **state _unused_)
{
	enum { CHECKPOINTS = 5, OLD = 2 };

	for (unsigned lost = 1; lost <= CHECKPOINTS; lost++) {
		struct rig *rig = rig_new(1);
		struct tier *t = world_tier(&rig->w);
		_cleanup_(buf_release) struct buf bytes = BUF_EMPTY;
		struct tier_object_name name;
		uint8_t store[TIER_ID_LEN];
		size_t nr_before;

		memset(store, 1, sizeof(store));
		for (unsigned i = 0; i < CHECKPOINTS; i++) {
			rig_add(rig, 1, false);
			assert_int_equal(rig_flush(rig, NULL, i), 0);
			if (i + 1 == OLD) /* its fence has the next number */
				assert_int_equal(rig_collect(t, 1000), 0);
		}
		name = tier_manifest_name(store, lost + (lost > OLD));
		assert_int_equal(tier_get_all(t, name.s, MiB(1), &bytes), 0);
		assert_int_equal(tier_call(t, &(struct tier_request){ .op = TIER_DELETE, .name = name.s }), 0);
		nr_before = memory_nr(rig->w.m);
		if (lost < CHECKPOINTS) { /* the last one cannot be told from one that was never there */
			assert_int_equal(rig_collect(t, 1000), -EBADMSG);
			assert_int_equal(rig_collect(t, 1), -EBADMSG);
			assert_int_equal(memory_nr(rig->w.m), nr_before);
		}
		assert_int_equal(tier_put_new(t, name.s, bytes.data, bytes.len), 0);
		assert_int_equal(rig_collect(t, 1000), 0);
		assert_int_equal(rig_check_content(rig), CHECKPOINTS);

		assert_int_equal(tier_call(t, &(struct tier_request){ .op = TIER_DELETE, .name = name.s }), 0);
		assert_int_equal(rig_collect_with(t, 1000, &(struct tier_collect_conf){ .forget_missing = true }), 0);
		assert_int_equal(rig_collect(t, 1000), 0);
		assert_int_equal(rig_nr_objects(rig, "sealed/"), CHECKPOINTS - 1 + 1); /* and a fence */
		rig->is_acknowledged[lost - 1] = false;
		assert_int_equal(rig_check_content(rig), CHECKPOINTS - 1);
		assert_int_equal(rig_flush(rig, NULL, lost - 1), 0); /* it is not there, and was not removed */
		rig_check_end(rig);
		rig_free(rig);
	}
}

static void delete_packs(struct rig *rig)
{
	uint8_t id[TIER_ID_LEN];

	for (size_t i = memory_nr(rig->w.m); i-- > 0;) {
		struct tier_request q = { .op = TIER_DELETE, .name = memory_name(rig->w.m, i) };

		if (tier_pack_name_parse(q.name, id))
			assert_int_equal(tier_call(world_tier(&rig->w), &q), 0);
	}
}

/* The newest checkpoint has lost its packs: the one before it stays. */
static void no_checkpoint_is_removed_for_one_that_lacks_packs(void **state _unused_)
{
	struct rig *rig = rig_new(1);
	struct tier_marks marks;

	for (unsigned i = 0; i < 2; i++) {
		rig_add(rig, 1, false);
		assert_int_equal(rig_flush(rig, NULL, i), 0);
	}
	delete_packs(rig);
	assert_int_equal(rig_collect(world_tier(&rig->w), 1), -EBADMSG);
	assert_false(rig_last_marks(rig->w.m, &marks));
	assert_int_equal(rig_collect(world_tier(&rig->w), 1000),
			 -EBADMSG); /* nor garbage from a tier that is not complete */
	rig_free(rig);
}

static void damage_packs(struct rig *rig, bool is_cut)
{
	struct tier *t = world_tier(&rig->w);
	uint8_t id[TIER_ID_LEN];

	for (size_t i = 0; i < memory_nr(rig->w.m); i++) {
		const char *name = memory_name(rig->w.m, i);
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct tier_request q = { .op = TIER_PUT, .name = name };

		if (!tier_pack_name_parse(name, id))
			continue;
		assert_int_equal(tier_get_all(t, name, MiB(1), &b), 0);
		b.data[b.len - sizeof(struct tier_footer_disk)] ^= !is_cut;
		q.data = b.data;
		q.len = b.len - is_cut;
		assert_int_equal(tier_call(t, &q), 0);
	}
}

/* The same for packs that are there, but not whole. */
static void no_checkpoint_is_removed_for_one_with_damaged_packs(void **state _unused_)
{
	for (unsigned is_cut = 0; is_cut <= 1; is_cut++) {
		struct rig *rig = rig_new(1);

		for (unsigned i = 0; i < 2; i++) {
			rig_add(rig, 1, false);
			assert_int_equal(rig_flush(rig, NULL, i), 0);
		}
		damage_packs(rig, is_cut == 1);
		assert_int_equal(rig_collect(world_tier(&rig->w), 1), -EBADMSG);
		assert_int_equal(rig_nr_objects(rig, "sealed/"), 2);
		assert_int_equal(rig_collect(world_tier(&rig->w), 1000), 0); /* removes no checkpoint */
		rig_free(rig);
	}
}

/* A seal with two manifests, as its packs were lost once: when the first one is removed, the seal is not. */
static void a_seal_with_another_manifest_is_not_removed(void **state _unused_)
{
	struct tier_writer_conf conf = rig_conf(1);
	struct rig *rig = rig_new(1);
	struct tier_writer *w;

	rig_add(rig, 1, false);
	assert_int_equal(rig_flush(rig, NULL, 0), 0);
	delete_packs(rig);
	assert_int_equal(rig_flush(rig, NULL, 0), 0);
	assert_int_equal(rig_collect(world_tier(&rig->w), 1), 0);
	assert_int_equal(rig_check_content(rig), 1);
	assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &w), 0);
	assert_true(tier_writer_has(w, rig->all[0].c.ino, rig->all[0].c.sealed_ns));
	tier_writer_close(w);
	delete_packs(rig);
	assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &w), 0);
	assert_false(tier_writer_has(w, rig->all[0].c.ino, rig->all[0].c.sealed_ns));
	assert_false(tier_writer_was_removed(w, rig->all[0].c.ino, rig->all[0].c.sealed_ns));
	tier_writer_close(w);
	rig_free(rig);
}

/* One store has as many removed seals as are recorded of one, and there are many others. */
static void removed_seals_take_bounded_space(void **state _unused_)
{
	enum { OTHERS = 200 };
	struct tier_store_marks stores[1 + OTHERS] = { 0 };
	struct tier_seal_disk *removed = calloc(TIER_REMOVED_MAX, sizeof(*removed));
	struct tier_marks marks = { .number = 1, .stores = stores, .nr_stores = ARRAY_SIZE(stores) };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct rig *rig = rig_new(1);
	struct tier *t = world_tier(&rig->w);
	uint8_t id[TIER_ID_LEN];
	struct tier_log log;

	assert_non_null(removed);
	for (unsigned i = 0; i < TIER_REMOVED_MAX; i++)
		removed[i].sealed_ns = le64_put(1 + i);
	for (unsigned i = 0; i < ARRAY_SIZE(stores); i++)
		stores[i].id[0] = (uint8_t)i;
	stores[0].base = 1;
	stores[0].removed = removed;
	stores[0].nr_removed = TIER_REMOVED_MAX;
	tier_marks_encode(&marks, &b);
	tier_marks_id(b.data, b.len, id);
	assert_int_equal(tier_put_new(t, tier_marks_name(1, id).s, b.data, b.len), 0);
	assert_int_equal(tier_log_read(t, &log), 0);
	assert_int_equal(tier_log_append_generation(&log, id, b.len), 0);
	tier_log_release(&log);

	assert_int_equal(rig_collect(t, 1000), 0);
	assert_true(rig_last_marks(rig->w.m, &marks));
	assert_int_equal(marks.number, 2);
	assert_int_equal(marks.stores[0].nr_removed, TIER_REMOVED_ALL_MAX / ARRAY_SIZE(stores));
	assert_true(tier_marks_removed(&marks.stores[0], 0, TIER_REMOVED_MAX));
	assert_false(tier_marks_removed(&marks.stores[0], 0, 1));
	tier_marks_release(&marks);
	free(removed);
	rig_free(rig);
}

static void a_writer_that_follows_the_log_has_what_was_removed(void **state _unused_)
{
	struct tier_writer_conf conf = rig_conf(1);
	struct rig *rig = rig_new(1);
	struct tier_writer *w;

	rig_add(rig, 1, false);
	rig_add(rig, 1, false);
	assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &w), 0);
	assert_int_equal(rig_flush(rig, w, 0), 0);
	assert_int_equal(rig_flush(rig, w, 1), 0);
	assert_int_equal(tier_writer_follow(w), 0);
	assert_int_equal(tier_writer_generation(w), 0);
	assert_int_equal(rig_collect(world_tier(&rig->w), 1), 0);
	assert_true(tier_writer_has(w, rig->all[0].c.ino, rig->all[0].c.sealed_ns));
	assert_int_equal(tier_writer_follow(w), 0);
	assert_true(tier_writer_generation(w) > 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct tier_checkpoint *c = &rig->all[i].c;

		assert_int_equal(tier_writer_has(w, c->ino, c->sealed_ns), i == 1);
		assert_int_equal(tier_writer_was_removed(w, c->ino, c->sealed_ns), i == 0);
	}
	assert_false(tier_writer_has_failed(w));
	tier_writer_close(w);
	rig_free(rig);
}

/* A writer's life; the same chunks in a directory `ino`. Returns the number of chunks sent. */
static uint64_t flush_with_index(struct rig *rig, const struct tier_writer_conf *conf, uint64_t ino)
{
	struct tier_checkpoint c = rig->all[0].c;
	struct tier_flushed f = { 0 };
	struct tier_writer *w;

	c.ino = ino;
	assert_int_equal(tier_writer_open(world_tier(&rig->w), conf, &w), 0);
	assert_int_equal(tier_flush(w, &c, &f), 0);
	tier_writer_close(w);
	return f.chunks;
}

/* Collections end while a store is not mounted. Its index has places in packs that are not there any more. */
static void packs_of_an_index_may_have_been_deleted(void **state _unused_)
{
	struct rig *rig = rig_new(1);
	struct tier_writer_conf conf = rig_conf(1);
	uint64_t nr;

	rig_add(rig, 1, false);
	conf.has_store = true;
	conf.store_dirfd = open(rig->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(conf.store_dirfd >= 0);
	nr = flush_with_index(rig, &conf, 1000);
	assert_true(nr > 0);
	assert_int_equal(flush_with_index(rig, &conf, 1001), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(rig_collect(world_tier(&rig->w), 0), 0); /* both checkpoints, and then their packs */
	assert_int_equal(rig_nr_packs(rig->w.m), 0);
	assert_int_equal(flush_with_index(rig, &conf, 1002), nr);
	assert_int_equal(flush_with_index(rig, &conf, 1003), 0);
	close(conf.store_dirfd);
	rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_writer_that_follows_the_log_has_what_was_removed),
		cmocka_unit_test(packs_of_an_index_may_have_been_deleted),
		cmocka_unit_test(what_is_not_found_once_is_not_removed),
		cmocka_unit_test(a_manifest_that_is_missing_ends_the_collection),
		cmocka_unit_test(no_checkpoint_is_removed_for_one_that_lacks_packs),
		cmocka_unit_test(no_checkpoint_is_removed_for_one_with_damaged_packs),
		cmocka_unit_test(a_seal_with_another_manifest_is_not_removed),
		cmocka_unit_test(removed_seals_take_bounded_space),
	};

	rig_no_log();
	return cmocka_run_group_tests_name("collect_removal", tests, NULL, NULL);
}
