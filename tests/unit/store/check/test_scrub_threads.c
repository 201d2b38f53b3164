/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Scrubbing, however much is written, given back, moved and removed meanwhile: damage is found, and nothing else. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/unit/store/damage.h"
#include "tests/unit/store/rig.h"

#define LEN MiB(2)
#define PAGE 4096u
#define NR_WRITERS 2u
#define NR_ROUNDS 25u

struct writer {
	struct rig *rig;
	unsigned number;
	pthread_t thread;
};

static _Atomic bool all_written;

static struct scrub_report scrub(struct rig *rig)
{
	return rig_scrub(rig, &(struct scrub_conf){ .restart = true });
}

static void *write_and_drop(void *arg)
{
	struct writer *w = arg;

	for (uint64_t ino = 1000 * (w->number + 1), end = ino + NR_ROUNDS; ino < end; ino++) {
		if (ino % 2)
			rig_write(w->rig, ino, MiB(1) + 20 * PAGE, ino % 7);
		else
			rig_write_soft(w->rig, ino, MiB(1) + 20 * PAGE, ino % 7);
		assert_int_equal(engine_sync(w->rig->e), 0);
		if (ino % 5)
			rig_drop(w->rig, ino);
	}
	return NULL;
}

static void *collect_on(void *arg)
{
	struct writer *w = arg;

	for (unsigned i = 0; !all_written; i++)
		rig_collect(w->rig, &(struct gc_conf){ .delete = true, .move_below = i % 2 ? 90 : 0 });
	return NULL;
}

static void scrub_beside_others(struct rig *rig, uint64_t nr_damaged)
{
	struct writer w[NR_WRITERS + 1];

	all_written = false;
	for (unsigned i = 0; i <= NR_WRITERS; i++) {
		w[i] = (struct writer){ .rig = rig, .number = i };
		assert_int_equal(
			pthread_create(&w[i].thread, NULL, i < NR_WRITERS ? write_and_drop : collect_on, &w[i]), 0);
	}
	for (unsigned i = 0; i < 50; i++) {
		struct scrub_report rep = scrub(rig);

		assert_int_equal(rep.nr_damaged, nr_damaged);
		assert_int_equal(rep.nr_left, nr_damaged);
		assert_int_equal(rep.nr_tables, 0);
	}
	for (unsigned i = 0; i < NR_WRITERS; i++)
		pthread_join(w[i].thread, NULL);
	all_written = true;
	pthread_join(w[NR_WRITERS].thread, NULL);
	assert_int_equal(scrub(rig).nr_damaged, nr_damaged);
	assert_int_equal(rig_stats(rig).nr_damaged, nr_damaged);
}

static void make_small_packs(struct rig *rig)
{
	rig_close(rig);
	rig->conf.pack_bytes = MiB(3);
	rig->conf.ingest_entries = 2048;
	rig->conf.compress.kind = COMPRESS_LZ4;
	rig_open(rig);
}

static void sound_data_is_never_taken_for_damaged(void **state)
{
	struct rig *rig = *state;

	make_small_packs(rig);
	scrub_beside_others(rig, 0);
}

static void damage_is_found_beside_writers_and_collections(void **state)
{
	struct rig *rig = *state;

	make_small_packs(rig);
	rig_write(rig, 50, MiB(1), 12345);
	rig_stats(rig);
	damage_chunk(rig, 1, 0, 7);
	damage_chunk(rig, 1, 0, 200);
	scrub_beside_others(rig, 2);
	rig_write(rig, 51, MiB(1), 12345);
	rig_stats(rig);
	assert_int_equal(scrub(rig).nr_damaged, 0);
	rig_check(rig, 50, MiB(1), 12345);
}

static void *repair_on(void *arg)
{
	struct writer *w = arg;

	for (uint64_t ino = 5000; !all_written; ino++)
		rig_write(w->rig, ino, LEN, 1);
	return NULL;
}

/* A writer overwrites damaged bytes during the scrub: in the end nothing is damaged, or reported as damaged. */
static void repairing_beside_a_scrub_leaves_no_damage(void **state)
{
	struct rig *rig = *state;
	struct writer w = { .rig = rig };
	struct scrub_report rep;

	rig_write(rig, 101, LEN, 1);
	rig_stats(rig);
	all_written = false;
	assert_int_equal(pthread_create(&w.thread, NULL, repair_on, &w), 0);
	for (uint32_t i = 0; i < 40; i++) {
		damage_chunk(rig, 1, i % 2, i);
		scrub(rig);
	}
	all_written = true;
	pthread_join(w.thread, NULL);
	rig_write(rig, 102, LEN, 1);
	rep = scrub(rig);
	assert_int_equal(rep.nr_damaged, 0);
	assert_int_equal(rig_stats(rig).nr_damaged, 0);
	rig_check(rig, 101, LEN, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(sound_data_is_never_taken_for_damaged),
		rig_test(damage_is_found_beside_writers_and_collections),
		rig_test(repairing_beside_a_scrub_leaves_no_damage),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("scrub_threads", tests, NULL, NULL);
}
