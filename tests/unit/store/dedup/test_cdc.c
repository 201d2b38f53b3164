/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Files that are cut by content: what a change costs, what is shared, and that bytes are always right. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/content_sync.h"
#include "tests/unit/store/crowd.h"
#include "tests/unit/store/model.h"
#include "tests/unit/store/rig.h"

#define LEN MiB(8)
#define MEAN 4096u
#define MAX_CHUNK 32768u

static int setup(void **state)
{
	struct rig *rig;

	if (rig_setup(state) < 0)
		return -1;
	rig = *state;
	rig_close(rig);
	rig->conf.chunking = CHUNKING_CDC;
	rig_open(rig);
	return 0;
}

static void write_bytes(struct rig *rig, uint64_t ino, const uint8_t *p, size_t len, uint64_t off, size_t step)
{
	struct content *c = rig_content(rig, ino);

	for (size_t done = 0; done < len; done += step)
		assert_int_equal(content_write(c, p + done, MIN(step, len - done), off + done), 0);
	assert_int_equal(content_flush(c), 0);
	content_close(c);
}

static uint64_t fresh(struct rig *rig)
{
	return rig_stats(rig).fresh;
}

static void an_insertion_costs_a_few_chunks(void **state)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1), *q = malloc(LEN + 100);
	struct rig *rig = *state;
	uint64_t before;

	memcpy(q, p, LEN / 2);
	rig_pattern(q + LEN / 2, 100, 2);
	memcpy(q + LEN / 2 + 100, p + LEN / 2, LEN / 2);
	write_bytes(rig, 101, p, LEN, 0, MiB(1));
	before = fresh(rig);
	assert_int_equal(before, LEN);
	write_bytes(rig, 102, q, LEN + 100, 0, MiB(1));
	assert_int_equal(fresh(rig) - before, 8675); /* two chunks: the one that it is in, and the one behind */
	rig_check_bytes(rig, 101, p, LEN);
	rig_check_bytes(rig, 102, q, LEN + 100);
	/* The same after a mount, when the index is asked. */
	rig_reopen(rig);
	before = fresh(rig);
	write_bytes(rig, 103, q + 1, LEN + 99, 0, KiB(300));
	assert_in_range(fresh(rig) - before, 1, 3 * MAX_CHUNK);
	rig_check_bytes(rig, 103, q + 1, LEN + 99);
	rig_fsck(rig);
}

static void how_the_bytes_come_does_not_matter(void **state)
{
	static const size_t steps[] = { 1000, 4096, 65536, 786432, 1048576, 3000001 };
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1);
	struct rig *rig = *state;
	uint64_t before;

	for (size_t at = 20000; at < LEN; at += 30011)
		memset(p + at, 0, at % 13001);
	write_bytes(rig, 100, p, LEN, 0, LEN);
	before = fresh(rig);
	for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
		write_bytes(rig, 101 + i, p, LEN, 0, steps[i]);
		assert_int_equal(fresh(rig), before);
		rig_check_bytes(rig, 101 + i, p, LEN);
	}
}

static void an_append_after_a_flush_goes_on_with_the_last_chunk(void **state)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1);
	struct content *c = rig_content(*state, 101);
	struct rig *rig = *state;
	uint64_t before;

	for (size_t done = 0, n; done < LEN; done += n) {
		n = MIN(LEN - done, (size_t)1000003);
		assert_int_equal(content_write(c, p + done, n, CONTENT_APPEND), 0);
		assert_int_equal(content_flush(c), 0);
	}
	content_close(c);
	rig_check_bytes(rig, 101, p, LEN);
	before = fresh(rig);
	assert_in_range(before, LEN, LEN + 9 * MAX_CHUNK);
	write_bytes(rig, 102, p, LEN, 0, LEN); /* all of its chunks are there */
	assert_int_equal(fresh(rig), before);
}

static void an_overwrite_in_the_middle_is_cut_anew_only_near_it(void **state)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1);
	struct rig *rig = *state;
	uint64_t before;

	write_bytes(rig, 101, p, LEN, 0, LEN);
	for (unsigned i = 0; i < 20; i++) {
		size_t off = (i * 7919993u) % (LEN - 5000), len = 1 + i * 211;

		rig_pattern(p + off, len, 100 + i);
		before = fresh(rig);
		write_bytes(rig, 101, p + off, len, off, len);
		assert_in_range(fresh(rig) - before, 1, len + 5 * MEAN);
		rig_check_bytes(rig, 101, p, LEN);
	}
	/* It is cut as if it had been written so at once. */
	before = fresh(rig);
	write_bytes(rig, 102, p, LEN, 0, LEN);
	assert_int_equal(fresh(rig), before);
	rig_fsck(rig);
}

static void long_runs_of_zeros_are_holes_wherever_they_begin(void **state)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1);
	struct rig *rig = *state;
	struct content *c;
	struct ns_content st;
	uint64_t at;

	memset(p + 1000001, 0, 3000000);
	memset(p + 5000001, 0, 5000);
	memset(p + LEN - 7000, 0, 7000);
	write_bytes(rig, 101, p, LEN, 0, KiB(700));
	rig_check_bytes(rig, 101, p, LEN);
	assert_int_equal(fresh(rig), LEN - 3000000 - 5000 - 7000);
	c = rig_content(rig, 101);
	content_stat(c, &st);
	assert_int_equal(st.size, LEN);
	assert_int_equal(st.mapped, LEN - 3000000 - 5000 - 7000);
	assert_int_equal(content_seek(c, 0, SEEK_HOLE, &at), 0);
	assert_int_equal(at, 1000001);
	assert_int_equal(content_seek(c, at, SEEK_DATA, &at), 0);
	assert_int_equal(at, 4000001);
	assert_int_equal(content_seek(c, at, SEEK_HOLE, &at), 0);
	assert_int_equal(at, 5000001);
	content_close(c);
}

static void pages_and_cuts_live_side_by_side(void **state)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1);
	enum chunking pages = CHUNKING_PAGE, cuts = CHUNKING_CDC;
	struct rig *rig = *state;
	struct content *c = rig_content(rig, 101);

	/* A file of pages that is changed by content, and the other way round. */
	content_set_chunking(c, &pages);
	assert_int_equal(content_write(c, p, LEN, 0), 0);
	content_set_chunking(c, &cuts);
	rig_pattern(p + 3000001, 100000, 7);
	assert_int_equal(content_write(c, p + 3000001, 100000, 3000001), 0);
	content_set_chunking(c, &pages);
	rig_pattern(p + 3050001, 100000, 8);
	assert_int_equal(content_write(c, p + 3050001, 100000, 3050001), 0);
	rig_pattern(p + LEN - 10, 10, 9);
	content_set_chunking(c, &cuts);
	assert_int_equal(content_write(c, p + LEN - 10, 10, LEN - 10), 0);
	assert_int_equal(content_flush(c), 0);
	content_close(c);
	rig_check_bytes(rig, 101, p, LEN);
	rig_reopen(rig);
	rig_check_bytes(rig, 101, p, LEN);
	rig_fsck(rig);
	rig_check_bytes(rig, 101, p, LEN);
}

static void equal_files_share_everything_after_a_rebuild_too(void **state)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1);
	struct rig *rig = *state;

	rig_name(rig, "a", 101);
	write_bytes(rig, 101, p, LEN, 0, LEN);
	rig_close(rig);
	rig_remove_index(rig);
	assert_int_equal(engine_rebuild(rig->path, &rig->conf), 0);
	rig_open(rig);
	rig_check_bytes(rig, 101, p, LEN);
	write_bytes(rig, 102, p, LEN, 0, LEN);
	assert_int_equal(rig_stats(rig).fresh, 0);
	rig_check_bytes(rig, 102, p, LEN);
}

static void what_is_acknowledged_survives_a_crash(void **state)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1);
	struct rig *rig = *state;
	struct content *c;

	write_bytes(rig, 101, p, LEN, 0, LEN);
	rig_pattern(p + 100, 5000, 3);
	write_bytes(rig, 101, p + 100, 5000, 100, 5000);
	assert_int_equal(engine_sync(rig->e), 0);
	c = rig_content(rig, 101);
	assert_int_equal(content_write(c, "lost", 4, LEN / 2), 0);
	content_close(c);
	rig_crash(rig);
	rig_check_bytes(rig, 101, p, LEN);
	rig_fsck(rig);
}

static void collecting_leaves_what_is_shared(void **state)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1), *q = rig_bytes(LEN, 1);
	struct gc_conf conf = { .delete = true, .move_below = 50 };
	struct rig *rig = *state;
	struct gc_report report;
	uint64_t other;

	for (size_t off = 0; off + KiB(64) < LEN; off += KiB(128))
		rig_pattern(q + off, KiB(64), off + 5);
	write_bytes(rig, 101, p, LEN, 0, LEN);
	write_bytes(rig, 102, q, LEN, 0, LEN);
	other = fresh(rig) - LEN;
	rig_drop(rig, 101);
	report = rig_collect(rig, &conf);
	assert_true(report.complete);
	/* What they do not share: as much in one as in the other, but for a file that the timer has cut once more. */
	assert_in_range(report.freed_bytes, other - 2 * MAX_CHUNK, other + 2 * MAX_CHUNK);
	rig_check_bytes(rig, 102, q, LEN);
	rig_fsck(rig);
	rig_check_bytes(rig, 102, q, LEN);
	write_bytes(rig, 103, p, LEN, 0, LEN); /* what is gone is not shared */
	rig_check_bytes(rig, 103, p, LEN);
	rig_drop(rig, 102);
	rig_drop(rig, 103);
	rig_collect(rig, &conf);
	assert_int_equal(rig_stats(rig).stored_bytes, 0);
	assert_int_equal(rig_stats(rig).stored_chunks, 0);
	rig_fsck(rig);
}

static void sparse_packs_are_emptied(void **state)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1), *q = rig_bytes(LEN, 2);
	struct gc_conf conf = { .delete = true, .move_below = 50 };
	struct rig *rig = *state;
	struct gc_report report;

	rig_close(rig);
	rig->conf.pack_bytes = MiB(2);
	rig_open(rig);
	for (size_t off = 0; off < LEN; off += KiB(512))
		memcpy(q + off + 5, p + off, KiB(100));
	write_bytes(rig, 101, p, LEN, 0, LEN);
	write_bytes(rig, 102, q, LEN, 0, LEN);
	rig_drop(rig, 101);
	report = rig_collect(rig, &conf);
	assert_in_range(report.nr_moved_packs, 2, 5);
	assert_in_range(report.nr_removed, 2, 5);
	rig_check_bytes(rig, 102, q, LEN);
	rig_fsck(rig);
	rig_check_bytes(rig, 102, q, LEN);
	write_bytes(rig, 103, q, LEN, 0, LEN);
	assert_int_equal(rig_stats(rig).fresh, 0); /* since the store was opened again: all is found where it is now */
}

static void compressed_chunks_are_read_and_shared(void **state)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1);
	struct rig *rig = *state;
	struct engine_stats st;

	for (size_t i = 0; i < LEN; i++)
		p[i] &= 0x0f;
	rig_close(rig);
	rig->conf.compress.kind = COMPRESS_ZSTD;
	rig_open(rig);
	write_bytes(rig, 101, p, LEN, 0, LEN);
	rig_check_bytes(rig, 101, p, LEN);
	write_bytes(rig, 102, p + 77, LEN - 77, 0, LEN);
	rig_check_bytes(rig, 102, p + 77, LEN - 77);
	st = rig_stats(rig);
	assert_in_range(st.fresh, LEN, LEN + 3 * MAX_CHUNK);
	assert_true(st.compressed_to < st.compressed * 6 / 10);
	rig_fsck(rig);
	rig_check_bytes(rig, 101, p, LEN);
}

static void verify_compares_varied_chunks_too(void **state)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1);
	struct rig *rig = *state;

	rig_close(rig);
	rig->conf.verify = true;
	rig_open(rig);
	write_bytes(rig, 101, p, LEN, 0, LEN);
	write_bytes(rig, 102, p, LEN, 0, LEN);
	assert_int_equal(fresh(rig), LEN);
	assert_int_equal(rig_stats(rig).verified_different, 0);
	rig_check_bytes(rig, 102, p, LEN);
}

/* Plain: overwritten in place. Compressed: stored again, and the background thread points the file there. */
static void damage_repairs_when_the_content_comes_again(struct rig *rig)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(MiB(2), 1), *got = malloc(MiB(2));
	struct content *c;
	ssize_t n;

	for (size_t i = 0; i < MiB(2); i++)
		p[i] &= 0x3f;
	write_bytes(rig, 101, p, MiB(2), 0, MiB(2));
	rig_close(rig);
	rig_flip(rig, "packs/00000001.pack", 8192 + 100000);
	rig_open(rig);
	c = rig_content(rig, 101);
	assert_int_equal(content_read(c, got, MiB(2), 0), -EIO);
	write_bytes(rig, 102, p + 3, MiB(2) - 3, 0, MiB(2)); /* moved, and still the same chunks */
	for (unsigned i = 0; i < 1200 && (n = content_read(c, got, MiB(2), 0)) < 0; i++)
		usleep(50000);
	assert_int_equal(n, MiB(2));
	assert_memory_equal(got, p, MiB(2));
	content_close(c);
	rig_check_bytes(rig, 102, p + 3, MiB(2) - 3);
	assert_int_not_equal(rig_stats(rig).nr_repaired, 0);
	rig_reopen(rig);
	rig_check_bytes(rig, 101, p, MiB(2));
}

static void damage_repairs_in_place(void **state)
{
	damage_repairs_when_the_content_comes_again(*state);
}

static void damage_of_compressed_chunks_heals_elsewhere(void **state)
{
	struct rig *rig = *state;

	rig_close(rig);
	rig->conf.compress.kind = COMPRESS_LZ4;
	rig->conf.commit_s = 1;
	rig_open(rig);
	damage_repairs_when_the_content_comes_again(rig);
}

/* --- several at once --- */

/* The same bytes, each time a little shorter at their beginning and in other pieces. */
static void write_on(struct crowd_writer *w)
{
	for (unsigned i = 0; i < 8; i++) {
		rig_drop(w->rig, w->ino);
		crowd_next(w, i);
		write_bytes(w->rig, w->ino, w->p, w->len, 0, 100000 + i * 77777);
		rig_check_bytes(w->rig, w->ino, w->p, w->len);
	}
}

static void writers_share_while_a_collection_runs(void **state)
{
	crowd_run(*state, write_on, &(struct gc_conf){ .delete = true, .move_below = 70 });
}

/* --- anything, against a plain copy in memory --- */

static void clone_some(struct model *m, unsigned f, struct content *c, size_t off, size_t len)
{
	unsigned g = model_some(m, MODEL_FILES);
	size_t from = model_some(m, MODEL_SPACE);
	struct content *d;
	uint64_t done;

	len = from < m->size[g] ? MIN(len, m->size[g] - from) : 0;
	len = MIN(len, MODEL_SPACE - off);
	if (len == 0 || (f == g && from < off + len && off < from + len))
		return;
	d = rig_content(m->rig, model_ino(g));
	assert_int_equal(content_clone(d, from, c, off, len, &done), 0);
	assert_int_equal(done, len);
	model_grow(m, f, off + len);
	memmove(m->bytes[f] + off, m->bytes[g] + from, len);
	content_close(d);
}

static void model_step(struct model *m)
{
	static const struct model_writes writes = { 4, 20000, .zeros = 1, .copies = 1, .others = 2 };
	unsigned f = model_some(m, MODEL_FILES);
	struct content *c = rig_content(m->rig, model_ino(f));
	enum chunking how = model_some(m, 4) == 0 ? CHUNKING_PAGE : CHUNKING_CDC;
	size_t off = model_some(m, MODEL_SPACE), len = 1 + model_some(m, 100000);

	content_set_chunking(c, &how);
	switch (model_some(m, 14)) {
	case 0:
		model_truncate(m, f, c, off);
		break;
	case 1:
		model_punch(m, f, c, off, len);
		break;
	case 2:
		clone_some(m, f, c, off, len);
		break;
	case 3:
		assert_int_equal(content_flush(c), 0);
		break;
	case 4:
		assert_int_equal(content_sync(c), 0);
		break;
	default:
		model_write(m, f, c, &writes);
	}
	content_close(c);
	if (model_some(m, 3) == 0)
		model_check(m, model_some(m, MODEL_FILES));
}

static void anything_reads_as_in_memory(void **state)
{
	struct gc_conf conf = { .delete = true, .move_below = 60 };
	struct model m = { .rig = *state };

	m.rig->conf.pack_bytes = MiB(4);
	rig_reopen(m.rig);
	model_start(&m, 1);
	for (unsigned i = 0; i < 600; i++) {
		model_step(&m);
		if (i % 150 == 149)
			rig_collect(m.rig, &conf);
		if (i % 200 == 199)
			rig_fsck(m.rig);
	}
	model_finish(&m);
}

int main(void)
{
#define TEST_WITH_STORE(f) cmocka_unit_test_setup_teardown(f, setup, rig_teardown)
	static const struct CMUnitTest tests[] = {
		TEST_WITH_STORE(an_insertion_costs_a_few_chunks),
		TEST_WITH_STORE(how_the_bytes_come_does_not_matter),
		TEST_WITH_STORE(an_append_after_a_flush_goes_on_with_the_last_chunk),
		TEST_WITH_STORE(an_overwrite_in_the_middle_is_cut_anew_only_near_it),
		TEST_WITH_STORE(long_runs_of_zeros_are_holes_wherever_they_begin),
		TEST_WITH_STORE(pages_and_cuts_live_side_by_side),
		TEST_WITH_STORE(equal_files_share_everything_after_a_rebuild_too),
		TEST_WITH_STORE(what_is_acknowledged_survives_a_crash),
		TEST_WITH_STORE(collecting_leaves_what_is_shared),
		TEST_WITH_STORE(sparse_packs_are_emptied),
		TEST_WITH_STORE(compressed_chunks_are_read_and_shared),
		TEST_WITH_STORE(verify_compares_varied_chunks_too),
		TEST_WITH_STORE(damage_repairs_in_place),
		TEST_WITH_STORE(damage_of_compressed_chunks_heals_elsewhere),
		TEST_WITH_STORE(writers_share_while_a_collection_runs),
		TEST_WITH_STORE(anything_reads_as_in_memory),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("cdc", tests, NULL, NULL);
}
