/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sizes that are claimed cost nothing: every walk over a file takes time with its data. Counted in reads of the index,
 * of which one per MiB of a hole would be 10^11. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "store/engine_state.h"
#include "store/log/record_format.h"
#include "tests/unit/store/rig.h"

#define PiB(n) ((uint64_t)(n) << 50)
#define READS_MAX 200u /* of one call: some for each of the few places with data */
#define LEN 10000u

static const uint64_t sizes[] = { PiB(512), PiB(900), CONTENT_MAX_SIZE };

/* Where the bytes are: at the beginning, far behind, and before the end. */
static uint64_t place(uint64_t size, unsigned i)
{
	return i == 0 ? 0 : i == 1 ? size / 2 + 4097 : i == 2 ? size / 2 + MiB(3) : size - LEN;
}
#define NR_PLACES 4u

static uint64_t nr_reads(struct rig *rig)
{
	struct db_stats s;

	db_stats(rig->e->db, &s);
	return s.nr_reads;
}

#define assert_cheap(rig, before) assert_true(nr_reads(rig) - (before) <= READS_MAX)

static void make(struct rig *rig, uint64_t ino, uint64_t size)
{
	struct content *c = rig_content(rig, ino);
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, ino);

	assert_int_equal(content_truncate(c, size), 0);
	for (unsigned i = 0; i < NR_PLACES; i++)
		assert_int_equal(content_write(c, p, LEN, place(size, i)), 0);
	assert_int_equal(content_flush(c), 0);
	content_close(c);
}

static void check(struct rig *rig, uint64_t ino, uint64_t as, uint64_t size)
{
	struct content *c = rig_content(rig, ino);
	_cleanup_(freep) uint8_t *want = rig_bytes(LEN, as), *p = malloc(LEN);
	struct ns_content st;

	content_stat(c, &st);
	assert_int_equal(st.size, size);
	for (unsigned i = 0; i < NR_PLACES; i++) {
		assert_int_equal(content_read(c, p, LEN, place(size, i)), LEN);
		assert_memory_equal(p, want, LEN);
	}
	content_close(c);
}

/* In the view, and not in memory. */
static void settle(struct rig *rig)
{
	assert_int_equal(engine_sync(rig->e), 0);
	rig_reopen(rig);
}

static void clones(void **state)
{
	struct rig *rig = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t ino = 10 + 10 * i, done, before;
		struct content *from, *to, *over;

		make(rig, ino, sizes[i]);
		make(rig, ino + 2, sizes[i]); /* is cloned over */
		settle(rig);
		from = rig_content(rig, ino);
		to = rig_content(rig, ino + 1);
		over = rig_content(rig, ino + 2);
		before = nr_reads(rig);
		assert_int_equal(content_clone(from, 0, to, 0, sizes[i], &done), 0);
		assert_int_equal(done, sizes[i]);
		assert_cheap(rig, before);
		before = nr_reads(rig);
		assert_int_equal(content_clone(to, 1, over, 1, sizes[i] - 1, &done), 0);
		assert_int_equal(done, sizes[i] - 1);
		assert_int_equal(content_clone(from, 0, over, 0, 1, &done), 0);
		assert_cheap(rig, before);
		content_close(from);
		content_close(to);
		content_close(over);
	}
	rig_crash(rig);
	settle(rig);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) /* of the last crash only what was synced is there */
		check(rig, 10 + 10 * i, 10 + 10 * i, sizes[i]);
}

static void clones_are_in_the_log(void **state)
{
	struct rig *rig = *state;
	struct content *from, *to;
	uint64_t done;

	make(rig, 10, PiB(900));
	from = rig_content(rig, 10);
	to = rig_content(rig, 11);
	assert_int_equal(content_clone(from, 0, to, 0, PiB(900), &done), 0);
	content_close(from);
	content_close(to);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_crash(rig);
	check(rig, 11, 10, PiB(900));
	rig_fsck(rig);
	check(rig, 11, 10, PiB(900));
}

static void patches(void **state)
{
	struct rig *rig = *state;
	uint64_t size = PiB(900), before;
	struct content_patch p = { .len = size };
	struct content *to;

	make(rig, 10, size);
	settle(rig);
	p.from = rig_content(rig, 10);
	to = rig_content(rig, 11);
	before = nr_reads(rig);
	assert_int_equal(content_patch(to, &p, 1), 0);
	assert_true(nr_reads(rig) - before <= 10 * READS_MAX); /* up to 512 MiB behind each place at once */
	content_close(p.from);
	content_close(to);
	check(rig, 11, 10, size);
}

static void questions(void **state)
{
	struct rig *rig = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t ino = 10 + 10 * i, size = sizes[i], at, before;
		struct content_piece pieces[100];
		struct content_sameness same;
		struct content_info info;
		struct content *a, *b;
		int nr;

		make(rig, ino, size);
		make(rig, ino + 1, size);
		settle(rig);
		a = rig_content(rig, ino);
		b = rig_content(rig, ino + 1);
		before = nr_reads(rig);
		at = 0;
		while ((nr = content_pieces(a, at, pieces, ARRAY_SIZE(pieces))) > 0)
			for (int k = 0; k < nr; k++)
				at += pieces[k].len;
		assert_int_equal(nr, 0);
		assert_int_equal(at, size);
		assert_cheap(rig, before);
		for (at = 0; at < size; at = same.differ_end) {
			assert_int_equal(content_compare(a, b, at, size, &same), 0);
			assert_true(same.differ_end > at);
		}
		assert_int_equal(content_compare(a, a, 0, UINT64_MAX, &same), 0);
		assert_int_equal(same.equal_end, UINT64_MAX);
		assert_int_equal(content_info(a, &info), 0);
		assert_int_equal(info.size, size);
		assert_int_equal(content_seek(a, MiB(1), SEEK_DATA, &at), 0);
		assert_int_equal(at, round_down(place(size, 1), 4096));
		assert_cheap(rig, before);
		content_close(a);
		content_close(b);
	}
}

static void changes(void **state)
{
	struct rig *rig = *state;
	uint64_t before;
	struct content *c;

	make(rig, 10, CONTENT_MAX_SIZE);
	settle(rig);
	c = rig_content(rig, 10);
	before = nr_reads(rig);
	assert_int_equal(content_truncate(c, INT64_MAX), -EFBIG);
	assert_int_equal(content_punch(c, LEN, CONTENT_MAX_SIZE - 2 * LEN), 0);
	assert_int_equal(content_truncate(c, LEN), 0);
	assert_int_equal(content_truncate(c, CONTENT_MAX_SIZE), 0);
	assert_cheap(rig, before);
	content_close(c);
}

static void collecting_and_checking(void **state)
{
	struct exclusive_name name = { .dir = NS_ROOT_INO };
	struct exclusive_conf exclusive = { .names = &name, .nr_names = 1 };
	struct exclusive_report freed;
	struct rig *rig = *state;
	struct gc_report gc;
	uint64_t before;

	make(rig, 10, PiB(900));
	make(rig, 11, PiB(512));
	rig_drop(rig, 11);
	settle(rig);
	before = nr_reads(rig);
	assert_int_equal(engine_exclusive(rig->e, &exclusive, &freed), 0);
	gc = rig_collect(rig, &(struct gc_conf){ .delete = true, .place = true });
	assert_true(gc.complete);
	rig_scrub(rig, &(struct scrub_conf){ .restart = true });
	assert_true(nr_reads(rig) - before <= 10 * READS_MAX);
	rig_fsck(rig);
	check(rig, 10, 10, PiB(900));
}

static uint64_t seek(struct content *c, uint64_t off, int whence)
{
	uint64_t found;

	assert_int_equal(content_seek(c, off, whence, &found), 0);
	return found;
}

#define DENSE MiB(512)

/* The kernel locks a file while one of its readers seeks. */
static void seeking_again_costs_nothing(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, 10);
	_cleanup_(freep) uint8_t *p = rig_bytes(MiB(1), 10);
	uint64_t done, before;

	assert_int_equal(content_write(c, p, MiB(1), 0), 0);
	for (uint64_t len = MiB(1); len < DENSE; len *= 2)
		assert_int_equal(content_clone(c, 0, c, len, len, &done), 0);
	content_close(c);
	settle(rig);
	c = rig_content(rig, 10);
	before = nr_reads(rig);
	assert_int_equal(seek(c, 0, SEEK_HOLE), DENSE); /* there are none */
	assert_true(nr_reads(rig) - before <= 10);
	assert_int_equal(content_truncate(c, 2 * DENSE), 0);
	assert_int_equal(seek(c, 0, SEEK_HOLE), DENSE);
	before = nr_reads(rig);
	for (uint64_t off = 0; off < DENSE; off += MiB(1))
		assert_int_equal(seek(c, off, SEEK_HOLE), DENSE);
	assert_int_equal(seek(c, DENSE, SEEK_HOLE), DENSE);
	assert_true(nr_reads(rig) - before <= 10);
	assert_int_equal(content_punch(c, MiB(10) + 4096, 4096), 0); /* what was found is not valid any more */
	assert_int_equal(seek(c, 0, SEEK_HOLE), MiB(10) + 4096);
	assert_int_equal(seek(c, MiB(10) + 8192, SEEK_HOLE), DENSE);
	assert_int_equal(content_punch(c, MiB(20), DENSE - MiB(40)), 0);
	before = nr_reads(rig);
	assert_int_equal(seek(c, MiB(20), SEEK_DATA), DENSE - MiB(20));
	assert_int_equal(seek(c, MiB(19), SEEK_HOLE), MiB(20));
	assert_true(nr_reads(rig) - before <= 20);
	content_close(c);
}

struct countdown {
	unsigned nr; /* so many calls succeed */
};

static bool is_cancelled(void *userdata)
{
	struct countdown *down = userdata;

	return down->nr == 0 || down->nr-- == 0;
}

/* In parts, in between of which other changes proceed: a file shrinks from its end. */
static void much_data_is_removed_in_parts(void **state)
{
	struct rig *rig = *state;
	_cleanup_(freep) uint8_t *want = rig_bytes(MiB(1), 10), *p = malloc(MiB(1));
	struct countdown down = { 0 };
	struct cancel cancel = { is_cancelled, &down };
	uint64_t size = 4 * DENSE, done;
	struct content *c = rig_content(rig, 10);
	struct ns_content st;
	unsigned nr = 0;

	assert_int_equal(content_write(c, want, MiB(1), 0), 0);
	for (uint64_t len = MiB(1); len < size; len *= 2)
		assert_int_equal(content_clone(c, 0, c, len, len, &done), 0);
	content_close(c);
	settle(rig);
	c = rig_content(rig, 10);
	cancel_set(&cancel);
	for (int r = -EINTR; r == -EINTR; nr++) {
		down.nr = nr; /* some only look for the parts */
		r = content_truncate(c, 4096);
		assert_true(r == 0 || r == -EINTR);
		content_stat(c, &st);
		assert_true(st.size <= size && st.mapped == st.size);
		size = st.size;
		assert_int_equal(content_read(c, p, MiB(1), round_down(size - 1, MiB(1))), size > 4096 ? MiB(1) : 4096);
		assert_memory_equal(p, want, size > 4096 ? MiB(1) : 4096);
	}
	cancel_set(NULL);
	assert_in_range(nr, 4, 20);
	assert_int_equal(size, 4096);
	content_close(c);
	settle(rig);
	rig_fsck(rig);
}

/* Processor time that truncating a file of this many segments takes. */
static uint64_t truncate_ns(struct rig *rig, uint64_t ino, uint64_t nr_segments)
{
	_cleanup_(freep) uint8_t *bytes = rig_bytes(MiB(1), 10);
	struct content *c = rig_content(rig, ino);
	struct timespec from, to;
	uint64_t done;

	assert_int_equal(content_write(c, bytes, MiB(1), 0), 0);
	for (uint64_t len = MiB(1); len < nr_segments * MiB(1); len *= 2)
		assert_int_equal(content_clone(c, 0, c, len, len, &done), 0);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	assert_int_equal(content_truncate(c, 0), 0);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
	content_close(c);
	return (uint64_t)(to.tv_sec - from.tv_sec) * 1000000000 + (uint64_t)to.tv_nsec - (uint64_t)from.tv_nsec;
}

/* 16 times the data may take 16 times as long; quadratic time would be 256 times as long. */
static void removing_data_takes_linear_time(void **state)
{
	struct rig *rig = *state;
	uint64_t little = UINT64_MAX, much = UINT64_MAX;

	for (unsigned i = 0; i < 3; i++) { /* the best of some: interrupts count as processor time */
		little = MIN(little, truncate_ns(rig, 10 + 2 * i, 2048));
		much = MIN(much, truncate_ns(rig, 11 + 2 * i, 32768));
	}
	if (much > 64 * little)
		fail_msg("2048 segments: %" PRIu64 " us, 32768 segments: %" PRIu64 " us", little / 1000, much / 1000);
}

static void a_long_hole_is_punched_in_parts(void **state)
{
	struct rig *rig = *state;
	_cleanup_(freep) uint8_t *want = rig_bytes(MiB(1), 10);
	struct countdown down = { 1 };
	struct cancel cancel = { is_cancelled, &down };
	struct content *c = rig_content(rig, 10);
	struct ns_content st;
	uint64_t done;

	assert_int_equal(content_write(c, want, MiB(1), 0), 0);
	for (uint64_t len = MiB(1); len < 2 * DENSE; len *= 2)
		assert_int_equal(content_clone(c, 0, c, len, len, &done), 0);
	cancel_set(&cancel);
	assert_int_equal(content_punch(c, MiB(1), 2 * DENSE - MiB(2)), -EINTR);
	cancel_set(NULL);
	content_stat(c, &st);
	assert_int_equal(st.size, 2 * DENSE);
	assert_int_equal(st.mapped, 2 * DENSE - DENSE); /* two parts */
	assert_int_equal(content_punch(c, MiB(1), 2 * DENSE - MiB(2)), 0);
	content_stat(c, &st);
	assert_int_equal(st.mapped, MiB(2));
	assert_int_equal(seek(c, MiB(1), SEEK_DATA), 2 * DENSE - MiB(1));
	content_close(c);
	settle(rig);
	rig_fsck(rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(clones), rig_test(clones_are_in_the_log),   rig_test(patches), rig_test(questions),
		rig_test(changes), rig_test(collecting_and_checking), rig_test(seeking_again_costs_nothing),
		rig_test(much_data_is_removed_in_parts), rig_test(removing_data_takes_linear_time),
		rig_test(a_long_hole_is_punched_in_parts),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("sparse", tests, NULL, NULL);
}
