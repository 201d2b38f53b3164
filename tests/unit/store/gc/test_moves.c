/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Chunks that are in two places for a while: none is when that is over, whatever came between. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/check/check.h"
#include "store/engine.h"
#include "tests/unit/store/rig.h"

static void open_with(struct rig *rig, const struct io_hook *hook)
{
	rig_close(rig);
	io_set_hook(hook);
	rig_open(rig);
}

static void count_finding(void *nr, const struct check_finding *f)
{
	if (f->area == CHECK_FINGERPRINTS || f->area == CHECK_DATA || f->area == CHECK_PACKS)
		(*(unsigned *)nr)++;
}

/* Every chunk that is there is found by its fingerprint, or an equal one is. Of frames that have been absorbed. */
static void check_fingerprints(struct rig *rig)
{
	unsigned nr = 0;
	struct check_conf conf = { .cache = MiB(8), .finding = count_finding, .userdata = &nr };
	struct check_result result;

	rig_close(rig);
	assert_int_equal(check_store(rig->path, &conf, &result), 0);
	assert_int_equal(nr, 0);
	rig_open(rig);
}

static bool is_in(int fd, const char *folder)
{
	char link[64], path[256] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, folder);
}

/* --- no room --- */

static _Atomic int nr_frames_left; /* that may be written before there is no room */

static int run_out(void *userdata, const struct io_event *ev)
{
	(void)userdata;
	if (ev->op != IO_WRITE || !is_in(ev->fd, "/packs/"))
		return 0;
	return nr_frames_left-- > 0 ? 0 : -ENOSPC;
}

/* 8 MiB in two packs, of which 40 % stay; `want` is what is in the file then. It is open. */
static struct content *write_holes(struct rig *rig, uint64_t ino, uint8_t want[MiB(8)])
{
	struct content *c = rig_content(rig, ino);

	rig_pattern(want, MiB(8), ino);
	for (size_t off = 0; off < MiB(8); off += MiB(1)) {
		assert_int_equal(content_write(c, want + off, MiB(1), off), 0);
		assert_int_equal(content_flush(c), 0); /* four frames to a pack */
	}
	for (size_t off = 0; off < MiB(8); off += MiB(1)) {
		assert_int_equal(content_punch(c, off, KiB(600)), 0);
		memset(want + off, 0, KiB(600));
	}
	assert_int_equal(engine_sync(rig->e), 0);
	return c;
}

static const struct gc_conf moving = { .delete = true, .move_below = 50, .window_frames = 8 };

/*
 * Two packs of which 40 % are live are emptied; there is room for the first frame of copies, in the third pack, and
 * that one comes to be looked at by the same collection.
 */
static void a_move_that_finds_no_room_leaves_every_file_right(void **state)
{
	static const struct io_hook hook = { .before = run_out };
	_cleanup_(freep) uint8_t *want = malloc(MiB(8));
	struct rig *rig = *state;
	struct content *c;

	rig->conf.pack_bytes = MiB(4);
	nr_frames_left = 1000;
	open_with(rig, &hook);
	rig_write(rig, 102, MiB(1), 2);
	c = write_holes(rig, 101, want);
	nr_frames_left = 1;
	rig_collect(rig, &moving);
	assert_in_range(nr_frames_left, INT32_MIN, -1); /* it was met */
	nr_frames_left = 1000;
	assert_true(rig_collect(rig, &moving).complete);
	rig_collect(rig, &moving);
	content_close(c);
	rig_check_bytes(rig, 101, want, MiB(8));
	rig_check(rig, 102, MiB(1), 2);
	rig_reopen(rig);
	rig_check_bytes(rig, 101, want, MiB(8));
	rig_close(rig);
	io_set_hook(NULL);
	rig_open(rig);
}

/* Lookups in memory find copies as soon as they are made; the next collection frees them if nothing has come to refer
 * to them. */
static void what_was_copied_before_there_was_no_room_is_found(void **state)
{
	static const struct io_hook hook = { .before = run_out };
	_cleanup_(freep) uint8_t *want = malloc(MiB(8));
	struct rig *rig = *state;

	rig->conf.pack_bytes = MiB(4);
	rig->conf.ingest_entries = 16; /* absorbed at once */
	nr_frames_left = 1000;
	open_with(rig, &hook);
	for (int room = 0; room < 5; room++) { /* of four that are needed */
		content_close(write_holes(rig, 101 + (uint64_t)room, want));
		nr_frames_left = room;
		rig_collect(rig, &moving);
		nr_frames_left = 1000;
		rig_collect(rig, &(struct gc_conf){ .delete = true });
		check_fingerprints(rig);
		rig_check_bytes(rig, 101 + (uint64_t)room, want, MiB(8));
	}
	rig_close(rig);
	io_set_hook(NULL);
	rig_open(rig);
}

/* --- chunks that share a block --- */

#define PART KiB(64)
#define LEN MiB(1)
#define MUCH MiB(16) /* so that little is collected, and the index is not compacted with all requests locked out */

static void use_small_chunks(struct rig *rig, const struct io_hook *hook)
{
	rig->conf.chunking = CHUNKING_CDC;
	rig->conf.cdc = (struct cdc_params){ 256, 1024, 8192 }; /* four to a block */
	rig->conf.ingest_entries = 16; /* absorbed at once */
	open_with(rig, hook);
}

static void wait_until_absorbed(struct rig *rig)
{
	while (rig_stats(rig).fptable_entries >= rig->conf.ingest_entries)
		usleep(10000);
}

/* As much of a file as is too little to be placed. */
static void clone_some(struct rig *rig, struct content *from, uint64_t ino)
{
	struct content *to = rig_content(rig, ino);
	uint64_t done;

	for (uint64_t off = 1500; off < 10 * 3000; off += 3000)
		assert_int_equal(content_clone(from, off, to, off, 1500, &done), 0);
	content_close(to);
}

/*
 * A file is put together from pieces of many, which makes it scattered: it is placed, and beside what has moved lie
 * chunks that others have. Then it is deleted.
 */
static void what_has_moved_is_gone_from_beside_what_stays(void **state)
{
	static uint8_t bytes[PART];
	struct rig *rig = *state;
	struct content *from, *to;
	uint64_t done;

	use_small_chunks(rig, NULL);
	to = rig_content(rig, 200);
	for (unsigned i = 0; i < LEN / PART; i++) {
		rig_pattern(bytes, PART, 100 + i);
		rig_write_bytes(rig, 100 + i, bytes, PART);
		assert_int_equal(engine_sync(rig->e), 0); /* a frame each */
		from = rig_content(rig, 100 + i);
		for (uint64_t off = 0; off + 3000 <= PART; off += 3000)
			assert_int_equal(content_clone(from, off, to, i * PART + off, 1500, &done), 0);
		clone_some(rig, from, 300 + i);
		content_close(from);
		rig_drop(rig, 100 + i);
	}
	content_close(to);
	assert_int_equal(engine_sync(rig->e), 0);
	assert_in_range(rig_collect(rig, &(struct gc_conf){ .delete = true, .place = true }).placed_bytes, LEN / 4,
			LEN);
	wait_until_absorbed(rig); /* RocksDB knows the copies now and no longer what they were made of */
	rig_drop(rig, 200);
	rig_collect(rig, &(struct gc_conf){ .delete = true });
	check_fingerprints(rig);
}

/* --- bytes that are written while they are freed --- */

static struct rig *writing;
static _Atomic unsigned nr_slices; /* written so far */
static uint8_t old_bytes[LEN];

/* At every commit of the collection a slice of what has been there before. */
static int write_slice(void *userdata, const struct io_event *ev)
{
	unsigned i = nr_slices;

	(void)userdata;
	if (!writing || ev->op != IO_SYNC || i == LEN / PART || !is_in(ev->fd, "/journal/"))
		return 0;
	nr_slices++;
	rig_write_bytes(writing, 300 + i, old_bytes + i * PART, PART);
	return 0;
}

static void collect_and_write(struct rig *rig)
{
	nr_slices = 0;
	writing = rig;
	rig_collect(rig, &(struct gc_conf){ .delete = true });
	writing = NULL;
	assert_in_range(nr_slices, 1, LEN / PART);
}

static void check_slices(struct rig *rig)
{
	for (unsigned i = 0; i < nr_slices; i++) {
		static uint8_t bytes[PART];
		struct content *c = rig_content(rig, 300 + i);

		assert_int_equal(content_read(c, bytes, PART, 0), PART);
		assert_memory_equal(bytes, old_bytes + i * PART, PART);
		content_close(c);
	}
}

/* Half of a pack is gone, now the rest goes, and the pack with it: what was gone does not come back before that. */
static void what_is_gone_stays_gone_while_its_pack_is_removed(void **state)
{
	static const struct io_hook hook = { .before = write_slice };
	struct rig *rig = *state;
	struct content *c;

	rig->conf.pack_bytes = MiB(1);
	rig->conf.ingest_entries = 16;
	open_with(rig, &hook);
	rig_pattern(old_bytes, LEN, 5);
	rig_write(rig, 101, LEN, 5);
	rig_write(rig, 102, MUCH, 6); /* in other packs */
	wait_until_absorbed(rig);
	c = rig_content(rig, 101);
	assert_int_equal(content_punch(c, 0, LEN / 2), 0);
	content_close(c);
	assert_int_equal(rig_collect(rig, &(struct gc_conf){ .delete = true }).freed_bytes, LEN / 2);
	rig_drop(rig, 101);
	assert_int_equal(engine_sync(rig->e), 0);
	collect_and_write(rig);
	check_slices(rig);
	rig_close(rig);
	io_set_hook(NULL);
	rig_open(rig);
	check_slices(rig);
}

/* Chunks that live beside condemned ones are refused as well, and stored again: in the end each is there once. */
static void what_is_stored_again_while_it_is_gc_pending_is_stored_once(void **state)
{
	static const struct io_hook hook = { .before = write_slice };
	struct rig *rig = *state;
	uint64_t nr_chunks;

	use_small_chunks(rig, &hook);
	rig_pattern(old_bytes, LEN, 5);
	for (unsigned i = 0; i < LEN / PART; i++)
		rig_write_bytes(rig, 100 + i, old_bytes + i * PART, PART);
	rig_write(rig, 200, MUCH, 6);
	nr_chunks = rig_stats(rig).stored_chunks;
	for (unsigned i = 0; i < LEN / PART; i++) {
		struct content *c = rig_content(rig, 100 + i);

		for (uint64_t off = 0; off < PART; off += 8000)
			assert_int_equal(content_punch(c, off, 4000), 0);
		content_close(c);
	}
	assert_int_equal(engine_sync(rig->e), 0);
	collect_and_write(rig);
	check_slices(rig);
	for (unsigned i = 0; i < LEN / PART; i++)
		rig_write_bytes(rig, 400 + i, old_bytes + i * PART, PART);
	assert_int_equal(rig_stats(rig).stored_chunks, nr_chunks);
	wait_until_absorbed(rig);
	check_fingerprints(rig);
	rig_close(rig);
	io_set_hook(NULL);
	rig_open(rig);
	check_slices(rig);
}

/* --- a commit that fails --- */

static _Atomic int nr_commits_left = INT32_MAX; /* that are written before there is no room */

static int fail_commits(void *userdata, const struct io_event *ev)
{
	(void)userdata;
	if (ev->op != IO_WRITE || !is_in(ev->fd, "/journal/"))
		return 0;
	return nr_commits_left-- > 0 ? 0 : -ENOSPC;
}

/* It is in the log nevertheless, and takes effect with the next commit: no file may share it. */
static void what_could_not_be_committed_as_gone_is_not_shared(void **state)
{
	static const struct io_hook hook = { .before = fail_commits };
	struct rig *rig = *state;
	struct gc_report report;

	for (int i = 0; i < 4; i++) {
		open_with(rig, &hook);
		rig_write(rig, 101, LEN, 1);
		rig_write(rig, 102, MUCH, 2);
		rig_drop(rig, 101);
		assert_int_equal(engine_sync(rig->e), 0);
		nr_commits_left = i;
		engine_gc(rig->e, &(struct gc_conf){ .delete = true }, &report);
		nr_commits_left = INT32_MAX;
		rig_write(rig, 103, LEN, 1);
		rig_check(rig, 103, LEN, 1);
		rig_close(rig);
		io_set_hook(NULL);
		rig_open(rig);
		rig_check(rig, 103, LEN, 1);
		rig_collect(rig, &(struct gc_conf){ .delete = true });
		rig_check(rig, 103, LEN, 1);
		rig_drop(rig, 103);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_could_not_be_committed_as_gone_is_not_shared, rig_setup,
						rig_teardown),
		cmocka_unit_test_setup_teardown(what_is_stored_again_while_it_is_gc_pending_is_stored_once, rig_setup,
						rig_teardown),
		cmocka_unit_test_setup_teardown(what_is_gone_stays_gone_while_its_pack_is_removed, rig_setup,
						rig_teardown),
		rig_test(what_has_moved_is_gone_from_beside_what_stays),
		rig_test(what_was_copied_before_there_was_no_room_is_found),
		cmocka_unit_test_setup_teardown(a_move_that_finds_no_room_leaves_every_file_right, rig_setup,
						rig_teardown),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
