/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Scrubbing: exactly what is damaged is found, files are named, and what is written again is sound again. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/check/scrub_job.h"
#include "tests/unit/golden.h"
#include "tests/unit/store/damage.h"
#include "tests/unit/store/rig.h"

#define LEN MiB(2)
#define PAGE 4096u

/* 0, or the errno of reading all of it. */
static int look(struct rig *rig, uint64_t ino, size_t len)
{
	_cleanup_(freep) uint8_t *p = malloc(len);
	struct content *c = rig_content(rig, ino);
	ssize_t n = content_read(c, p, len, 0);

	content_close(c);
	return n < 0 ? (int)n : 0;
}

/* --- what is told --- */

struct reported {
	char hits[16][160];
	unsigned nr;
};

static void on_hit(void *userdata, const char *path, uint64_t ino, uint64_t off, uint64_t len)
{
	struct reported *t = userdata;

	assert_true(t->nr < ARRAY_SIZE(t->hits));
	snprintf(t->hits[t->nr++], sizeof(t->hits[0]), "%s %" PRIu64 " %" PRIu64 "+%" PRIu64, path ? path : "-", ino,
		 off, len);
}

static bool was_reported(const struct reported *t, const char *hit)
{
	for (unsigned i = 0; i < t->nr; i++)
		if (strcmp(t->hits[i], hit) == 0)
			return true;
	return false;
}

static struct scrub_report scrub(struct rig *rig)
{
	return rig_scrub(rig, &(struct scrub_conf){ .restart = true });
}

static struct scrub_report scrub_and_report(struct rig *rig, struct reported *t)
{
	t->nr = 0;
	return rig_scrub(rig, &(struct scrub_conf){ .restart = true, .hit = on_hit, .userdata = t });
}

/* --- tests --- */

static void everything_that_is_committed_is_looked_at_once(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;
	struct scrub_state st;

	rig_write(rig, 101, LEN, 1);
	rig_write(rig, 102, 5 * PAGE, 2);
	rig_write(rig, 103, LEN, 1);
	rig_stats(rig);
	rig_write(rig, 104, 3 * PAGE, 3); /* not committed */
	rep = scrub(rig);
	assert_true(rep.complete);
	assert_int_equal(rep.bytes, LEN + 5 * PAGE);
	assert_int_equal(rep.nr_chunks, LEN / PAGE + 5);
	assert_int_equal(rep.read_bytes, rep.bytes + rep.nr_frames * PAGE);
	assert_int_equal(rep.nr_damaged + rep.nr_tables + rep.nr_left, 0);
	engine_scrub_state(rig->e, &st);
	assert_int_equal(st.pack, 0);
	assert_true(st.last_ns > 0);
	assert_int_equal(st.last.bytes, rep.bytes);
	assert_int_equal(st.last.nr_damaged, 0);
	rig_reopen(rig);
	engine_scrub_state(rig->e, &st);
	assert_int_equal(st.last.bytes, rep.bytes);
}

static void exactly_what_is_damaged_is_found_and_repairs(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;
	struct reported reported;
	size_t len = MiB(1); /* one frame */

	rig_write(rig, 101, len, 1);
	rig_write(rig, 102, len, 1);
	rig_write(rig, 103, len, 2);
	rig_name(rig, "first", 101);
	rig_name(rig, "twin", 102);
	rig_name(rig, "other", 103);
	rig_stats(rig);
	damage_chunk(rig, 1, 0, 3);
	damage_chunk(rig, 1, 0, 4);
	damage_chunk(rig, 1, 0, 255);
	rep = scrub_and_report(rig, &reported);
	assert_int_equal(rep.nr_damaged, 3);
	assert_int_equal(rep.nr_left, 3);
	assert_int_equal(rep.nr_tables + rep.nr_repaired + rep.nr_unused, 0);
	assert_int_equal(rep.nr_files, 2);
	assert_int_equal(rep.lost_bytes, 6 * PAGE);
	assert_true(rep.complete);
	assert_int_equal(reported.nr, 4);
	assert_true(was_reported(&reported, "first 101 12288+8192"));
	assert_true(was_reported(&reported, "first 101 1044480+4096"));
	assert_true(was_reported(&reported, "twin 102 12288+8192"));
	assert_true(was_reported(&reported, "twin 102 1044480+4096"));
	assert_int_equal(rig_stats(rig).nr_damaged, 3);
	assert_int_equal(look(rig, 101, len), -EIO);
	assert_int_equal(look(rig, 103, len), 0);

	rig_write(rig, 110, len, 1); /* the same bytes again */
	assert_int_equal(rig_stats(rig).nr_damaged, 0);
	assert_int_equal(rig_stats(rig).nr_repaired, 3);
	rep = scrub_and_report(rig, &reported);
	assert_int_equal(rep.nr_damaged + rep.nr_left + reported.nr, 0);
	rig_check(rig, 101, len, 1);
	rig_check(rig, 102, len, 1);
}

static void what_no_file_uses_is_distinguished(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;
	struct reported reported;

	rig_write(rig, 101, LEN, 1);
	rig_stats(rig);
	rig_drop(rig, 101);
	damage_chunk(rig, 1, 0, 9);
	rep = scrub_and_report(rig, &reported);
	assert_int_equal(rep.nr_damaged, 1);
	assert_int_equal(rep.nr_unused, 1);
	assert_int_equal(rep.nr_left + reported.nr, 0);
	rig_collect(rig, &(struct gc_conf){ .delete = true });
	rep = scrub(rig);
	assert_int_equal(rep.nr_damaged, 0);
	assert_int_equal(rep.bytes, 0);
}

static void chunks_of_varied_lengths_are_compared(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;

	rig_close(rig);
	rig->conf.chunking = CHUNKING_CDC;
	rig_open(rig);
	rig_write(rig, 101, LEN, 1);
	rig_stats(rig);
	rep = scrub(rig);
	assert_int_equal(rep.bytes, LEN);
	assert_int_equal(rep.nr_damaged, 0);
	damage_chunk(rig, 1, 0, 0);
	damage_chunk(rig, 1, 0, 50);
	rep = scrub(rig);
	assert_int_equal(rep.nr_damaged, 2);
	assert_int_equal(rep.nr_left, 2);
	rig_write(rig, 102, LEN, 1);
	rig_stats(rig);
	rep = scrub(rig);
	assert_int_equal(rep.nr_damaged, 0);
	assert_int_equal(rig_stats(rig).nr_repaired, 2);
	rig_check(rig, 101, LEN, 1);
}

static void compressed_frames_are_compared(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;
	uint32_t nr;

	for (unsigned kind = COMPRESS_LZ4; kind <= COMPRESS_ZSTD; kind++)
		for (unsigned cut = CHUNKING_PAGE; cut <= CHUNKING_CDC; cut++) {
			rig_teardown(state);
			rig_setup(state);
			rig = *state;
			rig_close(rig);
			rig->conf.compress.kind = kind;
			rig->conf.chunking = cut;
			rig_open(rig);
			rig_write_soft(rig, 101, LEN, 1);
			rig_stats(rig);
			rep = scrub(rig);
			assert_int_equal(rep.bytes, LEN);
			assert_int_equal(rep.nr_damaged, 0);
			assert_true(rep.read_bytes < LEN * 9 / 10);
			nr = damage_part(rig, 1, 0, 3);
			rep = scrub(rig);
			assert_in_range(rep.nr_damaged, 1, nr);
			assert_int_equal(rep.nr_left, rep.nr_damaged);
			assert_int_equal(look(rig, 101, LEN), -EIO);
			rig_write_soft(rig, 102, LEN, 1);
			rig_wait_until_repaired(rig, rep.nr_damaged);
			rig_stats(rig);
			rep = scrub(rig); /* the damaged copies are still there, and unreferenced */
			assert_int_equal(rep.nr_damaged + rep.nr_left, 0);
			assert_int_equal(look(rig, 101, LEN), 0);
			rig_reopen(rig);
			rep = scrub(rig); /* finds the good copies, and forgets the others again */
			assert_int_equal(rep.nr_left + rep.nr_unused, 0);
			assert_int_equal(rep.nr_repaired, rep.nr_damaged);
		}
}

/* Of a compressed chunk that was replaced, the damaged copy is repaired on the disk; then the good one is damaged. */
static void a_second_copy_repairs_at_once(void **state)
{
	struct rig *rig = *state;
	struct pack_table t;
	struct scrub_report rep;
	uint64_t off;
	uint8_t b;
	int fd;

	rig_close(rig);
	rig->conf.compress.kind = COMPRESS_LZ4;
	rig_open(rig);
	rig_write_soft(rig, 101, MiB(1), 1);
	rig_stats(rig);
	assert_true(damage_table(rig, 1, 0, &t));
	off = pack_data_off(0) + (pack_part_start(&t.coding, 2) + t.coding.part_end[2]) / 2;
	fd = damage_open(rig, 1);
	assert_int_equal(pread(fd, &b, 1, (off_t)off), 1);
	damage_byte(rig, 1, off);
	rep = scrub(rig);
	assert_true(rep.nr_left > 0);
	rig_close(rig); /* copies in plain frames from now on */
	rig->conf.compress.kind = COMPRESS_NONE;
	rig_open(rig);
	scrub(rig);
	rig_write_soft(rig, 102, MiB(1), 1);
	rig_wait_until_repaired(rig, rep.nr_left);
	rig_stats(rig);
	assert_int_equal(pwrite(fd, &b, 1, (off_t)off), 1);
	assert_int_equal(fsync(fd), 0);
	close(fd);
	rig_reopen(rig);
	assert_int_equal(scrub(rig).nr_damaged, 0); /* two good copies of some chunks */

	for (uint32_t pack = 2; pack < 4; pack++) {
		char path[128];

		snprintf(path, sizeof(path), "%s/packs/%08" PRIx32 ".pack", rig->path, pack);
		if (access(path, F_OK) == 0 && damage_table(rig, pack, 0, &t))
			damage_chunk(rig, pack, 0, 0);
	}
	rep = scrub(rig);
	assert_int_equal(rep.nr_damaged, 1);
	assert_int_equal(rep.nr_repaired, 1);
	assert_int_equal(rep.nr_left + rep.nr_unused, 0);
	assert_int_equal(look(rig, 101, MiB(1)), 0);
	damage_byte(rig, 1, off); /* and the other way round: what cannot be written over is replaced */
	rep = scrub(rig);
	assert_true(rep.nr_damaged > 0);
	assert_int_equal(rep.nr_repaired, rep.nr_damaged);
	assert_int_equal(scrub(rig).nr_damaged, 0);
	assert_int_equal(look(rig, 101, MiB(1)), 0);
	assert_int_equal(look(rig, 102, MiB(1)), 0);
}

static void damaged_tables_are_repaired_where_they_can_be(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;
	struct reported reported;

	rig_write(rig, 101, LEN, 1);
	rig_name(rig, "file", 101);
	rig_stats(rig);
	damage_byte(rig, 1, pack_table_off(0) + 300); /* memory has it */
	rep = scrub(rig);
	assert_int_equal(rep.nr_tables, 1);
	assert_int_equal(rep.nr_repaired, 1);
	assert_int_equal(rep.nr_left + rep.nr_damaged, 0);
	assert_int_equal(rep.bytes, LEN);
	rig_reopen(rig);
	rig_check(rig, 101, LEN, 1);
	rig_reopen(rig);
	damage_byte(rig, 1, pack_table_off(1) + 300); /* proved by the bytes */
	rep = scrub(rig);
	assert_int_equal(rep.nr_tables, 1);
	assert_int_equal(rep.nr_repaired, 1);
	assert_int_equal(rep.bytes, LEN);
	rig_check(rig, 101, LEN, 1);
	rig_reopen(rig);
	for (unsigned i = 0; i < PAGE; i += 2)
		damage_byte(rig, 1, pack_table_off(0) + i);
	rep = scrub_and_report(rig, &reported);
	assert_int_equal(rep.nr_tables, 1);
	assert_int_equal(rep.nr_left, 1);
	assert_int_equal(reported.nr, 1);
	assert_int_equal(rep.lost_bytes, MiB(1));
	damage_byte(rig, 1, 100); /* of the header */
	rep = scrub(rig);
	assert_int_equal(rep.nr_tables, 2);
	assert_int_equal(rep.nr_repaired, 1);
	assert_int_equal(rep.nr_left, 1);
}

static void a_lost_table_and_a_lost_pack_are_reported(void **state)
{
	static const uint8_t zeros[PAGE];
	struct rig *rig = *state;
	struct scrub_report rep;
	struct reported reported;
	char path[128];
	int fd;

	rig_close(rig);
	rig->conf.pack_bytes = MiB(1);
	rig_open(rig);
	for (uint64_t i = 1; i <= 4; i++) {
		rig_write(rig, 100 + i, MiB(1), i);
		rig_name(rig, (const char[]){ 'f', (char)('0' + i), 0 }, 100 + i);
		rig_stats(rig);
	}
	rig_reopen(rig);
	fd = damage_open(rig, 2);
	assert_int_equal(pwrite(fd, zeros, PAGE, pack_table_off(0)), PAGE);
	assert_int_equal(fsync(fd), 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/packs/00000003.pack", rig->path);
	assert_int_equal(unlink(path), 0);
	rep = scrub_and_report(rig, &reported);
	assert_int_equal(rep.nr_tables, 2);
	assert_int_equal(rep.nr_left, 2);
	assert_int_equal(rep.nr_files, 2);
	assert_int_equal(rep.lost_bytes, MiB(2));
	assert_int_equal(reported.nr, 2);
	assert_true(was_reported(&reported, "f2 102 0+1048576"));
	assert_true(was_reported(&reported, "f3 103 0+1048576"));
	rig_check(rig, 101, MiB(1), 1);
	rig_check(rig, 104, MiB(1), 4);
}

static uint64_t unreadable_off; /* 0: everything can be read */
static uint64_t unreadable_end;

static int refuse_reading(void *userdata, const struct io_event *ev)
{
	(void)userdata;
	return ev->op == IO_READ && ev->off < unreadable_end && ev->off + ev->len > unreadable_off ? -EIO : 0;
}

static void a_block_that_the_disk_cannot_read_is_damage_to_its_chunk(void **state)
{
	static const struct io_hook hook = { .before = refuse_reading };
	struct rig *rig = *state;
	struct scrub_report rep;

	rig_write(rig, 101, LEN, 1);
	rig_stats(rig);
	rig_close(rig);
	io_set_hook(&hook);
	rig_open(rig);
	unreadable_off = pack_data_off(0) + 7 * PAGE;
	unreadable_end = unreadable_off + PAGE;
	rep = scrub(rig);
	assert_int_equal(rep.nr_damaged, 1);
	assert_int_equal(rep.nr_left, 1);
	assert_int_equal(rep.bytes, LEN);
	unreadable_end = 0; /* the disk has put another block in its place */
	assert_int_equal(rig_stats(rig).nr_damaged, 1);
	rig_write(rig, 102, LEN, 1);
	assert_int_equal(rig_stats(rig).nr_repaired, 1);
	assert_int_equal(scrub(rig).nr_damaged, 0);
	rig_close(rig);
	io_set_hook(NULL);
	rig_open(rig);
}

static void what_is_well_again_is_not_damaged_any_more(void **state)
{
	struct rig *rig = *state;

	rig_write(rig, 101, LEN, 1);
	rig_stats(rig);
	damage_chunk(rig, 1, 0, 3);
	assert_int_equal(scrub(rig).nr_damaged, 1);
	damage_chunk(rig, 1, 0, 3); /* back */
	assert_int_equal(scrub(rig).nr_damaged, 0);
	assert_int_equal(rig_stats(rig).nr_damaged, 0);
	assert_int_equal(rig_stats(rig).nr_repaired, 0);
}

static bool stop_after(void *userdata, const struct scrub_report *so_far)
{
	unsigned *frames = userdata;

	return so_far->nr_frames < *frames;
}

static void a_stopped_scrub_is_gone_on_with(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;
	struct scrub_state st;
	unsigned frames = 3;
	uint64_t bytes = 0;
	struct scrub_conf conf = { .step = stop_after, .userdata = &frames };

	rig_write(rig, 101, 4 * LEN, 1);
	rig_stats(rig);
	do {
		rep = rig_scrub(rig, &conf);
		bytes += rep.bytes;
		assert_int_equal(rep.round_bytes, bytes);
		assert_true(rep.complete || rep.nr_frames == frames);
		assert_int_equal(engine_sync(rig->e), 0);
		rig_crash(rig);
	} while (!rep.complete);
	assert_int_equal(bytes, 4 * LEN);
	engine_scrub_state(rig->e, &st);
	assert_int_equal(st.last.bytes, 4 * LEN);

	damage_chunk(rig, 1, 1, 5); /* stopped before its files were looked for: it is met again */
	rep = rig_scrub(rig, &conf);
	assert_int_equal(rep.nr_damaged, 1);
	assert_int_equal(rep.nr_left, 1);
	assert_false(rep.is_named);
	engine_scrub_state(rig->e, &st);
	assert_int_equal(st.pack, 1);
	assert_int_equal(st.frame, 1);
	frames = 100;
	rep = rig_scrub(rig, &conf);
	assert_true(rep.complete && rep.is_named);
	assert_int_equal(rep.nr_damaged, 1);
	assert_int_equal(rep.bytes, 3 * LEN + LEN / 2);
	engine_scrub_state(rig->e, &st);
	assert_int_equal(st.last.nr_damaged, 1);
	assert_int_equal(st.last.nr_left, 1);
	assert_int_equal(st.last.bytes, 4 * LEN);
}

static bool scrub_inside(void *userdata, const struct scrub_report *so_far)
{
	struct scrub_report report;

	(void)so_far;
	assert_int_equal(engine_scrub(userdata, &(struct scrub_conf){ 0 }, &report), -EBUSY);
	return true;
}

static void one_scrub_at_a_time(void **state)
{
	struct rig *rig = *state;

	rig_write(rig, 101, LEN, 1);
	rig_stats(rig);
	rig_scrub(rig, &(struct scrub_conf){ .step = scrub_inside, .userdata = rig->e });
}

static void the_note_comes_back_and_nothing_else_passes_for_one(void **state)
{
	struct scrub_state st = { 7, 299, { 1, UINT64_MAX, 3, 4 }, 1763212345123456789, { 5, 6, 7, 8 } }, got;
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	(void)state;
	scrub_state_encode(&st, &b);
	golden_expect("index/v1-note-scrub.txt", "the note about scrubbing", b.data, b.len);
	assert_int_equal(scrub_state_decode(b.data, b.len, &got), 0);
	assert_memory_equal(&got.round, &st.round, sizeof(st.round));
	assert_memory_equal(&got.last, &st.last, sizeof(st.last));
	assert_int_equal(got.pack, st.pack);
	assert_int_equal(got.frame, st.frame);
	assert_int_equal(got.last_ns, st.last_ns);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(scrub_state_decode(b.data, len, &got), -EBADMSG);
	b.data[0]++;
	assert_int_equal(scrub_state_decode(b.data, b.len, &got), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(everything_that_is_committed_is_looked_at_once),
		rig_test(exactly_what_is_damaged_is_found_and_repairs),
		rig_test(what_no_file_uses_is_distinguished),
		rig_test(chunks_of_varied_lengths_are_compared),
		rig_test(compressed_frames_are_compared),
		rig_test(a_second_copy_repairs_at_once),
		rig_test(damaged_tables_are_repaired_where_they_can_be),
		rig_test(a_lost_table_and_a_lost_pack_are_reported),
		rig_test(a_block_that_the_disk_cannot_read_is_damage_to_its_chunk),
		rig_test(what_is_well_again_is_not_damaged_any_more),
		rig_test(a_stopped_scrub_is_gone_on_with),
		rig_test(one_scrub_at_a_time),
		cmocka_unit_test(the_note_comes_back_and_nothing_else_passes_for_one),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("scrub", tests, NULL, NULL);
}
