/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Collecting: what no file refers to goes, what any file refers to stays, whatever happens meanwhile. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "tests/content_sync.h"
#include "tests/unit/store/rig.h"

#define LEN MiB(2)
#define PAGE 4096u

static struct gc_report collect(struct rig *rig)
{
	return rig_collect(rig, &(struct gc_conf){ .delete = true });
}

static void what_no_file_refers_to_is_freed(void **state)
{
	struct rig *rig = *state;
	struct gc_report report;

	rig_write(rig, 101, LEN, 1);
	rig_write(rig, 102, LEN, 2);
	rig_stats(rig);
	rig_drop(rig, 101);
	report = collect(rig);
	assert_true(report.complete);
	assert_int_equal(report.freed_bytes, LEN);
	assert_int_equal(report.freed_chunks, LEN / PAGE);
	assert_int_equal(report.live_bytes, LEN);
	assert_int_equal(rig_stats(rig).stored_bytes, LEN);
	assert_int_equal(rig_stats(rig).stored_chunks, LEN / PAGE);
	assert_in_range(rig_stats(rig).pack_disk, LEN, LEN + LEN / 50);
	rig_check(rig, 102, LEN, 2);
	assert_int_equal(collect(rig).freed_chunks, 0);
}

static void what_another_file_shares_stays(void **state)
{
	struct rig *rig = *state;

	rig_write(rig, 101, LEN, 1);
	rig_write(rig, 102, LEN, 1);
	rig_write(rig, 103, LEN / 2, 1);
	rig_drop(rig, 101);
	rig_drop(rig, 102);
	assert_int_equal(collect(rig).freed_bytes, LEN / 2);
	rig_check(rig, 103, LEN / 2, 1);
	rig_reopen(rig);
	rig_check(rig, 103, LEN / 2, 1);
}

static void overwritten_punched_and_cut_off_bytes_go(void **state)
{
	struct rig *rig = *state;
	struct content *c;

	rig_write(rig, 101, LEN, 1);
	c = rig_content(rig, 101);
	assert_int_equal(content_punch(c, 0, 10 * PAGE), 0);
	assert_int_equal(content_truncate(c, LEN - 5 * PAGE), 0);
	content_close(c);
	assert_int_equal(collect(rig).freed_bytes, 15 * PAGE);
	rig_write(rig, 101, LEN, 2);
	assert_int_equal(collect(rig).freed_bytes, LEN - 15 * PAGE);
	rig_check(rig, 101, LEN, 2);
}

static void a_report_changes_nothing(void **state)
{
	struct rig *rig = *state;
	struct gc_report report;

	rig_write(rig, 101, LEN, 1);
	rig_drop(rig, 101);
	report = rig_collect(rig, &(struct gc_conf){ 0 });
	assert_int_equal(report.dead_bytes, LEN);
	assert_int_equal(report.freed_bytes, 0);
	assert_int_equal(rig_stats(rig).stored_bytes, LEN);
	report = rig_collect(rig, &(struct gc_conf){ 0 });
	assert_int_equal(report.dead_bytes, LEN);
}

/* The tables in the packs still name what is gone, and so do RocksDB and what a mount reads from the packs. */
static void what_is_gone_is_never_shared_again(void **state)
{
	struct rig *rig = *state;

	rig_write(rig, 110, LEN, 1);
	rig_write(rig, 102, LEN, 2);
	for (uint64_t i = 0; i < 4; i++) {
		rig_drop(rig, 110 + i);
		collect(rig);
		if (i == 1)
			rig_reopen(rig);
		if (i == 2)
			rig_crash(rig);
		if (i == 3) {
			rig_close(rig);
			rig_remove_index(rig);
			assert_int_equal(engine_rebuild(rig->path, &rig->conf), 0);
			rig_open(rig);
		}
		rig_write(rig, 111 + i, LEN, 1);
		rig_check(rig, 111 + i, LEN, 1);
		rig_reopen(rig);
		rig_check(rig, 111 + i, LEN, 1);
		rig_check(rig, 102, LEN, 2);
		assert_int_equal(rig_stats(rig).stored_bytes, 2 * LEN);
	}
}

static void a_pack_without_anything_live_is_removed(void **state)
{
	struct rig *rig = *state;
	struct gc_report report;

	rig_close(rig);
	rig->conf.pack_bytes = MiB(1);
	rig_open(rig);
	for (uint64_t ino = 101; ino <= 108; ino++)
		rig_write(rig, ino, LEN, ino);
	rig_stats(rig);
	for (uint64_t ino = 101; ino <= 107; ino++)
		rig_drop(rig, ino);
	report = collect(rig);
	assert_int_equal(report.freed_bytes, 7 * LEN);
	assert_true(report.nr_removed >= 7);
	rig_check(rig, 108, LEN, 108);
	rig_reopen(rig);
	rig_check(rig, 108, LEN, 108);
	rig_write(rig, 111, LEN, 101);
	rig_check(rig, 111, LEN, 101);
	rig_reopen(rig);
	rig_check(rig, 111, LEN, 101);
	assert_int_equal(rig_stats(rig).stored_bytes, 2 * LEN);
}

#define NR_BIG 4u /* files; their packs keep a page of ten because of one more file */

static void write_sparse(struct rig *rig, uint64_t first)
{
	_cleanup_(freep) uint8_t *p = malloc(LEN);
	struct content *keep = rig_content(rig, first + NR_BIG);

	assert_non_null(p);
	for (unsigned i = 0; i < NR_BIG; i++) {
		rig_write(rig, first + i, LEN, i);
		rig_pattern(p, LEN, i);
		for (size_t page = 0; page < LEN / PAGE; page += 10)
			assert_int_equal(content_write(keep, p + page * PAGE, PAGE, CONTENT_APPEND), 0);
	}
	assert_int_equal(content_sync(keep), 0);
	content_close(keep);
	for (unsigned i = 0; i < NR_BIG; i++)
		rig_drop(rig, first + i);
}

static void check_sparse(struct rig *rig, uint64_t first)
{
	_cleanup_(freep) uint8_t *p = malloc(LEN);
	struct content *keep = rig_content(rig, first + NR_BIG);
	uint8_t page[PAGE];
	uint64_t off = 0;

	assert_non_null(p);
	for (unsigned i = 0; i < NR_BIG; i++) {
		rig_pattern(p, LEN, i);
		for (size_t n = 0; n < LEN / PAGE; n += 10, off += PAGE) {
			assert_int_equal(content_read(keep, page, PAGE, off), PAGE);
			assert_memory_equal(page, p + n * PAGE, PAGE);
		}
	}
	content_close(keep);
}

static void little_that_is_left_of_packs_is_moved_together(void **state)
{
	struct rig *rig = *state;
	struct ns_content before, after;
	struct gc_report report;
	uint64_t live;

	rig_close(rig);
	rig->conf.pack_bytes = MiB(1);
	rig_open(rig);
	write_sparse(rig, 100);
	assert_int_equal(content_peek(rig->e, 100 + NR_BIG, &before), 0);
	live = before.size;
	report = rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 50 });
	assert_int_equal(report.live_bytes, live);
	assert_true(report.nr_moved_packs >= 3);
	assert_in_range(report.moved_bytes, live / 2, live);
	assert_int_equal(report.freed_bytes, 4 * LEN - live + report.moved_bytes);
	assert_int_equal(rig_stats(rig).stored_bytes, live);
	assert_int_equal(content_peek(rig->e, 100 + NR_BIG, &after), 0);
	assert_memory_equal(&before, &after, sizeof(before));
	check_sparse(rig, 100);
	rig_crash(rig);
	check_sparse(rig, 100);
	rig_write(rig, 300, LEN, 1); /* what was moved is found where it is now */
	assert_int_equal(rig_stats(rig).stored_bytes, live + LEN - (LEN / PAGE + 9) / 10 * PAGE);
	rig_check(rig, 300, LEN, 1);
}

struct meanwhile {
	struct rig *rig;
	uint64_t ino;
	unsigned at, calls;
};

static bool write_meanwhile(void *userdata, const struct gc_report *so_far)
{
	struct meanwhile *m = userdata;

	(void)so_far;
	if (m->calls++ == m->at)
		rig_write(m->rig, m->ino, LEN, 1);
	return true;
}

static void what_is_shared_while_it_is_looked_for_stays(void **state)
{
	struct rig *rig = *state;

	for (unsigned at = 0; at < 4; at++) {
		struct meanwhile m = { .rig = rig, .ino = 200 + at, .at = at };

		rig_write(rig, 100 + at, LEN, 1);
		rig_stats(rig);
		rig_drop(rig, 100 + at);
		rig_collect(rig, &(struct gc_conf){ .delete = true, .step = write_meanwhile, .userdata = &m });
		if (m.calls > at)
			rig_check(rig, m.ino, LEN, 1);
		rig_reopen(rig);
		if (m.calls > at)
			rig_check(rig, m.ino, LEN, 1);
		rig_drop(rig, m.ino);
	}
}

static bool stop_at_once(void *userdata, const struct gc_report *so_far)
{
	unsigned *calls = userdata;

	(void)so_far;
	return (*calls)-- > 0;
}

static void a_stopped_collection_is_gone_on_with(void **state)
{
	struct rig *rig = *state;

	rig_close(rig);
	rig->conf.pack_bytes = MiB(1);
	rig_open(rig);
	for (unsigned upto = 0; upto < 12; upto++) {
		uint64_t first = 100 + 10 * upto;
		unsigned calls = upto;

		write_sparse(rig, first);
		rig_collect(rig, &(struct gc_conf){ .delete = true,
						    .move_below = 50,
						    .step = stop_at_once,
						    .userdata = &calls });
		check_sparse(rig, first);
		rig_drop(rig, first + NR_BIG);
		assert_int_equal(engine_sync(rig->e), 0);
		if (upto % 3 == 0)
			rig_crash(rig);
		while (!rig_collect(rig, &(struct gc_conf){ .delete = true }).complete)
			;
		collect(rig); /* what it had passed by when it was stopped */
		assert_int_equal(rig_stats(rig).stored_bytes, 0);
	}
}

static _Atomic bool refusing;

static int refuse_punching(void *userdata, const struct io_event *ev)
{
	(void)userdata;
	return refusing && ev->op == IO_PUNCH ? -EIO : 0;
}

static void space_that_could_not_be_given_back_is_next_time(void **state)
{
	static const struct io_hook hook = { .before = refuse_punching };
	struct rig *rig = *state;
	struct gc_report report;

	rig_close(rig);
	io_set_hook(&hook);
	rig_open(rig);
	rig_write(rig, 101, LEN, 1);
	rig_write(rig, 102, LEN, 2);
	rig_stats(rig);
	rig_drop(rig, 101);
	refusing = true;
	assert_int_equal(engine_gc(rig->e, &(struct gc_conf){ .delete = true }, &report), -EIO);
	refusing = false;
	rig_close(rig);
	io_set_hook(NULL);
	rig_open(rig);
	assert_true(rig_stats(rig).pack_disk > 2 * LEN);
	assert_int_equal(rig_stats(rig).stored_bytes, LEN);
	collect(rig);
	assert_true(rig_stats(rig).pack_disk < 2 * LEN);
	rig_check(rig, 102, LEN, 2);
}

static void a_pack_of_which_nothing_is_left_goes_before_it_is_full(void **state)
{
	struct rig *rig = *state;

	for (unsigned i = 0; i < 3; i++) {
		rig_write(rig, 101, LEN, i);
		assert_int_equal(engine_sync(rig->e), 0);
		rig_drop(rig, 101);
		if (i == 1)
			rig_write(rig, 102, LEN, 7); /* into the same pack, after what goes; then it stays */
		collect(rig);
		if (i == 0)
			assert_int_equal(rig_stats(rig).pack_disk, 0);
		rig_crash(rig);
	}
	rig_check(rig, 102, LEN, 7);
	rig_fsck(rig);
}

static bool collect_inside(void *userdata, const struct gc_report *so_far)
{
	struct gc_report report;

	(void)so_far;
	assert_int_equal(engine_gc(userdata, &(struct gc_conf){ 0 }, &report), -EBUSY);
	return true;
}

static void one_collection_at_a_time(void **state)
{
	struct rig *rig = *state;

	rig_write(rig, 101, LEN, 1);
	rig_collect(rig, &(struct gc_conf){ .step = collect_inside, .userdata = rig->e });
}

/* --- all at once --- */

/*
 * What makes it likely that the wrong moment is met: few different pages, of which most are garbage at any time; a slow
 * disk, so that a job has found what it shares long before it is in the log (it waits for its own new pages to be
 * written), and the collector knows what it frees long before that is durable.
 */
#define NR_WRITERS 3u
#define NR_ROUNDS 40u
#define NR_SEEDS 3u
#define SHARED (48 * PAGE)

static int be_slow(void *userdata, const struct io_event *ev)
{
	(void)userdata;
	if (ev->op == IO_WRITE || ev->op == IO_SYNC)
		nanosleep(&(struct timespec){ .tv_nsec = 2 * 1000 * 1000 }, NULL);
	return 0;
}

struct writer {
	struct rig *rig;
	unsigned number;
	pthread_t thread;
};

static _Atomic bool all_written;

static void fill(uint8_t *p, uint64_t ino)
{
	rig_pattern(p, SHARED, ino % NR_SEEDS);
	rig_pattern(p + SHARED, MiB(1) - SHARED, ino);
}

static void check_filled(struct rig *rig, uint64_t ino)
{
	_cleanup_(freep) uint8_t *expected = malloc(MiB(1)), *p = malloc(MiB(1));
	struct content *c = rig_content(rig, ino);

	assert_true(expected && p);
	fill(expected, ino);
	assert_int_equal(content_read(c, p, MiB(1), 0), MiB(1));
	assert_memory_equal(p, expected, MiB(1));
	content_close(c);
}

static void *write_and_drop(void *arg)
{
	_cleanup_(freep) uint8_t *p = malloc(MiB(1));
	struct writer *w = arg;

	assert_non_null(p);
	for (uint64_t ino = 1000 * (w->number + 1), end = ino + NR_ROUNDS; ino < end; ino++) {
		struct content *c = rig_content(w->rig, ino);

		fill(p, ino);
		assert_int_equal(content_write(c, p, MiB(1), 0), 0);
		assert_int_equal(content_flush(c), 0);
		content_close(c);
		check_filled(w->rig, ino);
		if (ino % 4 == 0) {
			nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000 * 1000 }, NULL);
			check_filled(w->rig, ino);
		}
		rig_drop(w->rig, ino);
	}
	return NULL;
}

static void *collect_on(void *arg)
{
	struct writer *w = arg;

	for (unsigned i = 0; !all_written; i++)
		rig_collect(w->rig, &(struct gc_conf){ .delete = true, .move_below = i % 4 == 3 ? 90 : 0 });
	return NULL;
}

static void nothing_is_lost_while_all_write_and_drop(void **state)
{
	static const struct io_hook slow = { .before = be_slow };
	struct rig *rig = *state;
	struct writer w[NR_WRITERS + 1];

	rig_close(rig);
	rig->conf.pack_bytes = MiB(4);
	rig->conf.ingest_entries = 2048;
	rig->conf.view_flush_bytes = KiB(16); /* the background thread writes the index out all the time, too */
	rig->conf.snapshot_bytes = KiB(24);
	io_set_hook(&slow);
	rig_open(rig);
	all_written = false;
	for (unsigned i = 0; i <= NR_WRITERS; i++) {
		w[i] = (struct writer){ .rig = rig, .number = i };
		assert_int_equal(
			pthread_create(&w[i].thread, NULL, i < NR_WRITERS ? write_and_drop : collect_on, &w[i]), 0);
	}
	for (unsigned i = 0; i < NR_WRITERS; i++)
		pthread_join(w[i].thread, NULL);
	all_written = true;
	pthread_join(w[NR_WRITERS].thread, NULL);
	collect(rig);
	collect(rig);
	assert_int_equal(rig_stats(rig).stored_bytes, 0);
	rig_close(rig);
	io_set_hook(NULL);
	rig_open(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(what_no_file_refers_to_is_freed),
		rig_test(what_another_file_shares_stays),
		rig_test(overwritten_punched_and_cut_off_bytes_go),
		rig_test(a_report_changes_nothing),
		rig_test(what_is_gone_is_never_shared_again),
		rig_test(a_pack_without_anything_live_is_removed),
		rig_test(little_that_is_left_of_packs_is_moved_together),
		rig_test(what_is_shared_while_it_is_looked_for_stays),
		rig_test(a_stopped_collection_is_gone_on_with),
		rig_test(space_that_could_not_be_given_back_is_next_time),
		rig_test(a_pack_of_which_nothing_is_left_goes_before_it_is_full),
		rig_test(one_collection_at_a_time),
		rig_test(nothing_is_lost_while_all_write_and_drop),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
