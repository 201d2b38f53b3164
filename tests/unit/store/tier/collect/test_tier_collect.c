/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * In any order of requests of writers, collectors and readers, and whichever of them ends at any request: checkpoints
 * that a writer has reported as flushed are there byte for byte, unless retention has removed them. No checkpoint is
 * shown in part. Two complete collections leave no garbage.
 */
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
#include "tests/unit/store/tier/restore.h"

/* --- actors --- */

/* Flushes its checkpoints, and opens a new writer after a failure, as the daemon does. */
static void write_all(struct actor *a)
{
	struct writer_actor *wa = a->userdata;
	struct rig *rig = wa->rig;
	unsigned next = 0, attempts = 0;

	while (next < PER_WRITER && attempts++ < 8 && !a->is_dead) {
		struct tier_writer_conf conf = rig_conf(wa->store);
		struct tier_writer *w;
		int r;

		if (wa->store_dirfd >= 0) { /* and memory for few chunks, so that most are found through the index */
			conf.has_store = true;
			conf.store_dirfd = wa->store_dirfd;
			conf.known_max = 8;
		}
		r = tier_writer_open(&a->tier, &conf, &w);

		if (r < 0)
			continue;
		for (; r == 0 && next < PER_WRITER; next += r == 0) {
			const struct tier_checkpoint *c = &rig->all[wa->first + next].c;
			struct tier_flushed f;

			if (tier_writer_was_removed(w, c->ino, c->sealed_ns))
				continue;
			r = tier_flush(w, c, &f);
			if (r == 0)
				rig->is_acknowledged[wa->first + next] = true;
		}
		tier_writer_close(w);
	}
}

static void collect_some(struct actor *a)
{
	unsigned nr = 1 + (unsigned)(world_draw(a->world) % 3);
	uint64_t removes = world_draw(a->world) % 4; /* in 4 */

	for (unsigned i = 0; i < nr && !a->is_dead; i++) {
		_cleanup_(tier_collector_closep) struct tier_collector *c = NULL;
		struct tier_sealed *v;
		size_t nr_sealed;

		if (tier_collector_open(&a->tier, &(struct tier_collect_conf){ 0 }, &c) < 0)
			continue;
		v = tier_collector_sealed(c, &nr_sealed);
		for (size_t k = 0; k < nr_sealed; k++)
			v[k].is_removed = world_draw(a->world) % 4 < removes;
		if (tier_collector_mark(c) == 0)
			(void)tier_collector_delete(c);
	}
}

static int to_nowhere(void *userdata _unused_, const void *p _unused_, size_t len _unused_)
{
	return 0;
}

/* Opens one checkpoint that is shown, and reads its tables later. */
static void read_some(struct actor *a)
{
	for (unsigned i = 0; i < 3; i++) {
		_cleanup_(restore_closep) struct restore *reader = NULL;
		_cleanup_(buf_release) struct buf names = BUF_EMPTY;
		struct tier_log log = { 0 };
		struct tier_marks marks = { 0 };
		const char *name = NULL;
		uint8_t store[TIER_ID_LEN];
		uint64_t number;
		int r = tier_list_all(&a->tier, TIER_SEALED_PREFIX, &names);

		if (r == 0)
			r = tier_log_read(&a->tier, &log);
		for (size_t at = 0; r == 0 && at < names.len; at += strlen((char *)names.data + at) + 1)
			if (tier_manifest_name_parse((char *)names.data + at, store, &number) &&
			    tier_log_keeps(&log, store, number) && (!name || world_draw(a->world) % 2 == 0))
				name = (char *)names.data + at;
		tier_log_release(&log);
		if (!name || restore_open(&a->tier, name, &reader) < 0)
			continue;
		r = restore_catalog(reader, &(struct tier_sink){ to_nowhere, NULL });
		rig_last_marks(a->world->m, &marks);
		tier_manifest_name_parse(name, store, &number);
		if (r < 0 && !a->is_dead && a->fail_at == 0 && rig_is_valid(&marks, store, number))
			a->world->failure = "a reader got an error for a checkpoint that is kept";
		tier_marks_release(&marks);
	}
}

static void add_writer(struct rig *rig, uint8_t store)
{
	struct writer_actor *wa = &rig->writers[rig->nr_writers++];

	*wa = (struct writer_actor){ .rig = rig, .store = store, .first = rig->nr, .store_dirfd = -1 };
	if (rig->nr_writers % 2 == 0) {
		char path[100];

		snprintf(path, sizeof(path), "%s/%u", rig->dir, rig->nr_writers);
		assert_int_equal(mkdir(path, 0700), 0);
		wa->store_dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(wa->store_dirfd >= 0);
	}
	for (unsigned i = 0; i < PER_WRITER; i++)
		rig_add(rig, store, false);
	world_add(&rig->w, write_all, wa);
}

/* --- tests --- */

static void any_order_of_requests_is_safe(void **state _unused_)
{
	uint64_t nr_runs = getenv("TIER_COLLECT_RUNS") ? strtoull(getenv("TIER_COLLECT_RUNS"), NULL, 10) : 500;
	uint64_t first =
		getenv("TIER_COLLECT_SEED") ? strtoull(getenv("TIER_COLLECT_SEED"), NULL, 10) : kill_first_seed();
	uint64_t nr_steps = 0;

	for (uint64_t seed = first; seed < first + nr_runs; seed++) {
		struct rig *rig = rig_new(seed);
		struct world *w = &rig->w;
		unsigned nr_writers = 1 + (unsigned)(world_draw(w) % 3);

		w->lists_lag = world_draw(w) % 2 == 0;
		for (unsigned i = 0; i < nr_writers; i++) /* sometimes two machines write for one store */
			add_writer(rig, (uint8_t)(1 + (world_draw(w) % 8 == 0 ? 0 : i)));
		for (unsigned i = 1 + (unsigned)(world_draw(w) % 3); i > 0; i--)
			world_add(w, collect_some, NULL);
		if (world_draw(w) % 2 == 0)
			world_add(w, read_some, NULL);
		for (unsigned i = 0; i < w->nr_actors; i++) {
			struct actor *a = &w->actors[i];

			if (world_draw(w) % 2 == 0)
				a->pause_at = 1 + world_draw(w) % 60;
			a->pause = world_draw(w) % 400;
			if (world_draw(w) % 3 == 0)
				a->kill_at = 1 + world_draw(w) % 120;
			a->kill_mode = (enum kill_mode)(world_draw(w) % NR_KILL_MODES);
			if (world_draw(w) % 3 == 0)
				a->fail_at = 1 + world_draw(w) % 120;
			a->fail_mode = (enum kill_mode)(world_draw(w) % NR_KILL_MODES);
		}
		if (getenv("TIER_COLLECT_SEED"))
			print_message("seed %llu\n", (unsigned long long)seed);
		world_run(w);
		if (w->failure)
			print_error("seed %llu: %s\n", (unsigned long long)seed, w->failure);
		rig_check_end(rig);
		nr_steps += w->nr_steps;
		rig_free(rig);
	}
	print_message("%llu runs, %llu requests\n", (unsigned long long)nr_runs, (unsigned long long)nr_steps);
}

/* --- a collector that stands still --- */

struct pauses {
	struct rig *rig;
	struct tier_writer *old; /* opened before the checkpoint 0 was removed */
	uint64_t first, second; /* requests of the collector */
};

static void others_work(struct actor *a, uint64_t request)
{
	struct pauses *p = a->userdata;

	if (request == p->first)
		assert_int_equal(rig_flush(p->rig, p->old, 1), 0);
	if (request == p->second) {
		rig_remove_one(world_tier(&p->rig->w), 0);
		assert_int_equal(rig_flush(p->rig, NULL, 2), 0);
		assert_int_equal(rig_remove_one(world_tier(&p->rig->w), p->rig->all[1].c.ino), 1);
	}
}

/*
 * All checkpoints have the same content. The collector finds packs of a removed one that nothing needs. It stands still
 * until one checkpoint that needs them has been flushed, another one has been made from that, and the former has been
 * removed.
 */
static uint64_t collect_with_pauses(uint64_t first, uint64_t second)
{
	static const unsigned chunks[] = { 0, 1, 2, 3 };
	struct tier_writer_conf conf = rig_conf(2);
	struct rig *rig = rig_new(1);
	struct pauses p = { .rig = rig, .first = first, .second = second };
	struct actor *a = world_add(&rig->w, NULL, &p);
	uint64_t nr;

	for (unsigned i = 0; i < 3; i++) {
		checkpoint_init_file(&rig->all[i], &rig->pool, 100 + i, chunks, ARRAY_SIZE(chunks));
		rig->known[i] = &rig->all[i];
		rig->store[i] = (uint8_t)(1 + i);
	}
	rig->nr = 3;
	assert_int_equal(rig_flush(rig, NULL, 0), 0);
	assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &p.old), 0);
	assert_int_equal(rig_remove_one(world_tier(&rig->w), 100), 1);
	a->before = others_work;
	(void)rig_collect(&a->tier, 1000);
	nr = a->nr_requests;
	tier_writer_close(p.old);
	if (rig->w.failure)
		fail_msg("requests %llu, %llu: %s", (unsigned long long)first, (unsigned long long)second,
			 rig->w.failure);
	if (first > 0)
		rig_check_end(rig);
	rig_free(rig);
	return nr;
}

static void a_collector_may_stand_still(void **state _unused_)
{
	uint64_t nr = collect_with_pauses(0, 0);

	for (uint64_t first = 1; first <= nr; first++)
		for (uint64_t second = first; second <= nr; second++)
			collect_with_pauses(first, second);
	print_message("%llu requests\n", (unsigned long long)nr);
}

/*
 * A second machine has flushed as this store, and collections have ended since. The first machine must not continue
 * behind the numbers that these have recorded.
 */
static void a_collection_does_not_hide_a_second_machine(void **state _unused_)
{
	struct tier_writer_conf conf = rig_conf(1);
	struct rig *rig = rig_new(1);
	struct tier_writer *w;

	for (unsigned i = 0; i < 4; i++)
		rig_add(rig, 1, false);
	assert_int_equal(rig_flush(rig, NULL, 0), 0);
	assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &w), 0);
	assert_int_equal(rig_collect(world_tier(&rig->w), 1000), 0);
	assert_int_equal(rig_flush(rig, w, 1), 0); /* its own manifest is no other machine's */
	assert_int_equal(rig_collect(world_tier(&rig->w), 1000), 0);
	assert_int_equal(rig_flush(rig, NULL, 2), 0); /* the second machine */
	assert_int_equal(rig_collect(world_tier(&rig->w), 1), 0);
	assert_int_equal(rig_flush(rig, w, 3), -ENOTUNIQ);
	tier_writer_close(w);
	rig_check_end(rig);
	rig_free(rig);
}

static void flush_before_fence(struct actor *a, uint64_t request)
{
	struct pauses *p = a->userdata;

	if (request == p->first)
		assert_int_equal(rig_flush(p->rig, p->old, 1), 0);
}

/*
 * A reader has opened a checkpoint before it is removed. Its packs stay until the next collection, also if the one before
 * had dropped them.
 */
static void packs_of_a_removed_checkpoint_stay_for_one_collection(void **state _unused_)
{
	static const unsigned chunks[] = { 0, 1, 2, 3 };
	unsigned nr_dropped = 0;

	for (uint64_t first = 1; first <= 23; first++) {
		struct tier_writer_conf conf = rig_conf(2);
		struct rig *rig = rig_new(1);
		struct pauses p = { .rig = rig, .first = first };
		struct actor *a = world_add(&rig->w, NULL, &p);
		struct tier_marks marks = { 0 };
		unsigned nr;

		for (unsigned i = 0; i < 2; i++) {
			checkpoint_init_file(&rig->all[i], &rig->pool, 100 + i, chunks, ARRAY_SIZE(chunks));
			rig->known[i] = &rig->all[i];
			rig->store[i] = (uint8_t)(1 + i);
		}
		rig->nr = 2;
		assert_int_equal(rig_flush(rig, NULL, 0), 0);
		nr = rig_nr_packs(rig->w.m);
		assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &p.old), 0);
		assert_int_equal(rig_remove_one(world_tier(&rig->w), 100), 1);
		a->before = flush_before_fence;
		(void)rig_collect(&a->tier, 1000);
		assert_true(rig_last_marks(rig->w.m, &marks));
		tier_writer_close(p.old);
		if (rig_nr_packs(rig->w.m) == nr && marks.nr_dropped > 0) {
			nr_dropped++; /* needed again: the flush came behind the marks, and before the fence */
			assert_int_equal(rig_remove_one(world_tier(&rig->w), 101), 1);
			assert_int_equal(rig_nr_packs(rig->w.m), nr);
			assert_int_equal(rig_collect(world_tier(&rig->w), 1000), 0);
			assert_int_equal(rig_nr_packs(rig->w.m), 0);
		}
		tier_marks_release(&marks);
		rig_free(rig);
	}
	assert_true(nr_dropped > 0);
}

/* --- ends at each request --- */

/* Checkpoints are flushed and removed; the second collection ends at request `at`. Returns the number of its requests. */
static uint64_t collect_and_kill(uint64_t seed, uint64_t at, enum kill_mode mode)
{
	struct rig *rig = rig_new(seed);
	struct actor *a = world_add(&rig->w, NULL, NULL);
	struct tier_writer_conf conf = rig_conf(1);
	struct tier_writer *w;
	uint64_t nr;

	for (unsigned i = 0; i < 6; i++)
		rig_add(rig, (uint8_t)(1 + i % 2), false);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(rig_flush(rig, NULL, i), 0);
	assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &w), 0);
	assert_int_equal(rig_collect(world_tier(&rig->w), 3), 0);
	a->before = others_work;
	a->userdata = &(struct pauses){ .rig = rig };
	a->kill_at = at;
	a->kill_mode = mode;
	assert_int_equal(rig_collect(&a->tier, 2), at > 0 ? -ECANCELED : 0);
	nr = a->nr_requests;
	if (rig->w.failure)
		fail_msg("request %llu: %s", (unsigned long long)at, rig->w.failure);
	rig_check_content(rig);
	if (rig_flush(rig, w, 4) == -ESTALE) /* packs of this flush were deleted */
		assert_int_equal(rig_flush(rig, NULL, 4), 0);
	tier_writer_close(w);
	assert_int_equal(rig_flush(rig, NULL, 5), 0);
	rig_check_content(rig);
	rig_check_end(rig);
	rig_free(rig);
	return nr;
}

static void a_collector_that_is_killed_leaves_nothing_for_long(void **state _unused_)
{
	uint64_t wanted = kill_states_wanted(50), first = kill_first_seed(), nr_states = 0;

	for (uint64_t seed = first; nr_states < wanted; seed++) {
		uint64_t nr = collect_and_kill(seed, 0, KILL_BEFORE);

		if (first != 1)
			print_message("seed %llu\n", (unsigned long long)seed);
		for (uint64_t at = 1; at <= nr; at++)
			for (enum kill_mode mode = 0; mode <= KILL_AFTER; mode++, nr_states++)
				collect_and_kill(seed, at, mode);
	}
	print_message("a collector has ended in %llu states\n", (unsigned long long)nr_states);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_collector_may_stand_still),
		cmocka_unit_test(a_collection_does_not_hide_a_second_machine),
		cmocka_unit_test(packs_of_a_removed_checkpoint_stay_for_one_collection),
		cmocka_unit_test(a_collector_that_is_killed_leaves_nothing_for_long),
		cmocka_unit_test(any_order_of_requests_is_safe),
	};

	rig_no_log();
	return cmocka_run_group_tests_name("tier_collect", tests, NULL, NULL);
}
