/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Compacting: variables become small, files keep every byte, whatever comes between; and what does not get smaller
 * stays. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "tests/unit/store/rig.h"
#include "store/dedup/compress.h"

#define HEAD 2105u /* bytes before the variable: elements begin at an odd byte */
#define VARIABLE (MiB(2) + 24) /* bytes of it */
#define LEN (HEAD + VARIABLE + 1000u)
#define FIRST 100u /* inode of rank 0 */

static const struct coding_shape doubles = { .type = { CODE_FLOAT, 8, false } };
static const struct coding_shape bytes_shape = { .type = { CODE_BYTES, 1, false } };

/* A rank's file: a head and a tail of noise, and between them a field that goes on from rank to rank. */
static void fill(uint8_t *p, unsigned rank, unsigned step)
{
	rig_pattern(p, LEN, 77 + rank + 1000 * step);
	for (size_t i = 0; i < VARIABLE / 8; i++) {
		double t = (double)((rank * (VARIABLE / 8) + i + 300 * step) % 20000) / 20000, x = 2 + t * (1 - t);
		uint64_t bits;

		memcpy(&bits, &x, 8);
		bits ^= (i * 2654435761u ^ rank) & 0xffffff; /* the last digits are noise */
		memcpy(p + HEAD + 8 * i, &bits, 8);
	}
}

static void write_rank(struct rig *rig, unsigned rank, unsigned step)
{
	uint8_t *p = malloc(LEN);

	fill(p, rank, step);
	rig_write_bytes(rig, FIRST + rank, p, LEN);
	free(p);
}

static void check_rank(struct rig *rig, unsigned rank, unsigned step)
{
	uint8_t *p = malloc(LEN);

	fill(p, rank, step);
	rig_check_bytes(rig, FIRST + rank, p, LEN);
	free(p);
}

#define RANKS_MAX 8u

/* The variable of some ranks, and all that is not of it. */
struct plan {
	uint64_t inos[RANKS_MAX];
	struct compact_extent of_variable[RANKS_MAX], of_rest[2 * RANKS_MAX];
	struct compact_variable variable[2];
	struct compact_result result[2];
	struct compact_conf conf;
};

static struct plan *plan_new(unsigned nr_ranks)
{
	struct plan *p = calloc(1, sizeof(*p));

	for (unsigned i = 0; i < nr_ranks; i++) {
		p->inos[i] = FIRST + i;
		p->of_variable[i] = (struct compact_extent){ i, HEAD, VARIABLE };
		p->of_rest[2 * i] = (struct compact_extent){ i, 0, HEAD };
		p->of_rest[2 * i + 1] = (struct compact_extent){ i, HEAD + VARIABLE, LEN - HEAD - VARIABLE };
	}
	p->variable[0] = (struct compact_variable){ "field", doubles, p->of_variable, nr_ranks, 0, 0 };
	p->variable[1] = (struct compact_variable){ "", bytes_shape, p->of_rest, 2 * nr_ranks, 0, 0 };
	p->conf = (struct compact_conf){ .inos = p->inos,
					 .variable = p->variable,
					 .nr_variables = 2,
					 .result = p->result,
					 .block = KiB(64) };
	return p;
}

static struct compact_report run(struct rig *rig, const struct plan *p)
{
	struct compact_report report;

	assert_int_equal(engine_sync(rig->e), 0);
	assert_int_equal(engine_compact(rig->e, &p->conf, &report), 0);
	return report;
}

static void a_variable_gets_smaller_and_every_byte_stays(void **state)
{
	struct rig *rig = *state;
	struct plan *p = plan_new(1);
	struct compact_report report;
	struct engine_stats before, after;

	write_rank(rig, 0, 0);
	before = rig_stats(rig);
	report = run(rig, p);
	after = rig_stats(rig);
	assert_true(report.complete);
	assert_int_equal(report.nr_variables, 2);
	assert_in_range(p->result[0].coded, VARIABLE - MiB(1), VARIABLE + 8192);
	assert_in_range(p->result[0].after, 1, p->result[0].before * 7 / 10); /* zstd alone: 0.9 */
	assert_int_equal(p->result[0].coder.steps.type.class, CODE_FLOAT);
	assert_int_equal(p->result[1].coded, 0); /* noise */
	assert_int_equal(p->result[0].plain + p->result[1].plain, round_up(LEN, 4096));
	assert_int_equal(after.stored_chunks, before.stored_chunks); /* the old places are gone */
	assert_in_range(after.pack_disk, 1, before.pack_disk * 8 / 10); /* from the disk, too */
	check_rank(rig, 0, 0);
	rig_crash(rig);
	check_rank(rig, 0, 0);
	rig_fsck(rig);
	check_rank(rig, 0, 0);
	free(p);
}

/* Without its lead every element would straddle two. */
static void elements_are_found_wherever_they_begin(void **state)
{
	struct rig *rig = *state;
	struct plan *p = plan_new(1);
	uint64_t right;

	write_rank(rig, 0, 0);
	p->conf.dry_run = true;
	run(rig, p);
	right = p->result[0].after;
	p->of_variable[0] = (struct compact_extent){ 0, HEAD + 3, VARIABLE - 3 };
	run(rig, p);
	assert_in_range(p->result[0].after, right * 11 / 10, UINT64_MAX);
	free(p);
}

static void ranks_are_merged_in_either_order(void **state)
{
	struct rig *rig = *state;
	uint64_t after[3];

	for (enum compact_order order = COMPACT_WHOLE; order <= COMPACT_BEST; order++) {
		struct plan *p = plan_new(4);

		for (unsigned i = 0; i < 4; i++)
			write_rank(rig, i, order);
		p->conf.order = order;
		assert_true(run(rig, p).complete);
		if (order != COMPACT_BEST)
			assert_int_equal(p->result[0].turns, order == COMPACT_TURNS);
		assert_in_range(p->result[0].coded, 4 * VARIABLE - MiB(1), 4 * VARIABLE + 4 * 8192);
		after[order] = p->result[0].after;
		for (unsigned i = 0; i < 4; i++)
			check_rank(rig, i, order);
		free(p);
	}
	assert_in_range(after[COMPACT_BEST], 1, MIN(after[COMPACT_WHOLE], after[COMPACT_TURNS]) * 102 / 100);
	rig_fsck(rig);
}

static void what_is_coded_is_left_alone_the_next_time(void **state)
{
	struct rig *rig = *state;
	struct plan *p = plan_new(2);
	uint64_t coded, disk;

	write_rank(rig, 0, 0);
	write_rank(rig, 1, 0);
	run(rig, p);
	coded = p->result[0].coded;
	disk = rig_stats(rig).pack_disk;
	run(rig, p);
	assert_int_equal(p->result[0].coded, 0);
	assert_int_equal(p->result[0].known, coded);
	assert_int_equal(rig_stats(rig).pack_disk, disk);
	free(p);
}

static void a_dry_run_changes_nothing(void **state)
{
	struct rig *rig = *state;
	struct plan *p = plan_new(2), *real = plan_new(2);
	struct engine_stats before, after;

	write_rank(rig, 0, 0);
	write_rank(rig, 1, 0);
	before = rig_stats(rig);
	p->conf.dry_run = true;
	run(rig, p);
	after = rig_stats(rig);
	assert_int_equal(after.pack_disk, before.pack_disk);
	assert_int_equal(after.journal_number, before.journal_number);
	run(rig, real);
	assert_int_equal(real->result[0].coded, p->result[0].coded);
	assert_in_range(real->result[0].after, p->result[0].after * 95 / 100, p->result[0].after * 105 / 100);
	free(p);
	free(real);
}

/* Found by what was coded, whichever file it is written to. */
static void bytes_that_are_coded_are_not_stored_again(void **state)
{
	struct rig *rig = *state;
	struct plan *p = plan_new(1);
	uint64_t chunks;
	uint8_t *bytes = malloc(LEN);

	write_rank(rig, 0, 0);
	run(rig, p);
	chunks = rig_stats(rig).stored_chunks;
	fill(bytes, 0, 0);
	rig_write_bytes(rig, 500, bytes, LEN);
	assert_int_equal(rig_stats(rig).stored_chunks, chunks);
	rig_reopen(rig);
	rig_write_bytes(rig, 501, bytes, LEN);
	assert_int_equal(rig_stats(rig).stored_chunks, chunks);
	rig_check_bytes(rig, 501, bytes, LEN);
	free(bytes);
	free(p);
}

/* Clones at any byte, of which the plan knows nothing, are pointed to the new places as well. */
static void all_that_share_are_pointed_there(void **state)
{
	struct rig *rig = *state;
	struct plan *p = plan_new(1);
	struct content *from, *to;
	uint8_t *bytes = malloc(LEN);
	uint64_t done;

	write_rank(rig, 0, 0);
	from = rig_content(rig, FIRST);
	to = rig_content(rig, 600);
	assert_int_equal(content_clone(from, 777, to, 0, LEN - 777, &done), 0);
	content_close(from);
	content_close(to);
	run(rig, p);
	assert_in_range(p->result[0].coded, MiB(1), UINT64_MAX);
	fill(bytes, 0, 0);
	rig_check_bytes(rig, 600, bytes + 777, LEN - 777);
	rig_drop(rig, FIRST);
	rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 100, .place = true });
	rig_check_bytes(rig, 600, bytes + 777, LEN - 777);
	rig_fsck(rig);
	rig_check_bytes(rig, 600, bytes + 777, LEN - 777);
	free(bytes);
	free(p);
}

static void chunks_of_any_lengths_are_coded_too(void **state)
{
	struct rig *rig = *state;
	struct plan *p = plan_new(2);

	rig->conf.chunking = CHUNKING_CDC;
	rig_reopen(rig);
	write_rank(rig, 0, 0);
	write_rank(rig, 1, 0);
	run(rig, p);
	assert_in_range(p->result[0].coded, VARIABLE, UINT64_MAX);
	check_rank(rig, 0, 0);
	check_rank(rig, 1, 0);
	rig_fsck(rig);
	check_rank(rig, 1, 0);
	free(p);
}

/* What ckptfs-stat shows; of variables, not of single files, and it survives. */
static void what_became_of_a_variable_is_remembered(void **state)
{
	struct rig *rig = *state;
	struct variable_note v, v_behind;
	uint64_t coded = 0, after = 0;

	for (unsigned step = 0; step < 2; step++) {
		struct plan *p = plan_new(2);

		write_rank(rig, 0, step);
		write_rank(rig, 1, step);
		p->conf.order = step == 1 ? COMPACT_TURNS : COMPACT_WHOLE;
		run(rig, p);
		coded += p->result[0].coded;
		after += p->result[0].after;
		free(p);
		rig_crash(rig);
	}
	assert_int_equal(engine_variable_next(rig->e, NULL, &v), 1);
	assert_string_equal(v.key, "field");
	assert_int_equal(v.coded, coded);
	assert_int_equal(v.after, after);
	assert_true(v.turns && v.code_ns > 0 && v.last_ns > 0);
	assert_int_equal(v.coder.steps.type.class, CODE_FLOAT);
	assert_int_equal(engine_variable_next(rig->e, v.key, &v_behind), 0); /* of the rest nothing was coded */
	free(v.key);
	assert_int_equal(engine_variable_next(rig->e, "fiel", &v), 1);
	assert_string_equal(v.key, "field");
	free(v.key);
	assert_int_equal(engine_variable_next(rig->e, "field2", &v), 0);
	rig_fsck(rig);
}

/* It comes from users' files. */
static void lies_cost_no_byte(void **state)
{
	static const struct code_type types[] = { { CODE_FLOAT, 8, true },
						  { CODE_BFLOAT, 2, false },
						  { CODE_INT, 4, false } };
	struct rig *rig = *state;
	struct compact_extent x[] = {
		{ 0, 5, 1 },
		{ 0, LEN - 5, MiB(40) },
		{ 0, MiB(1) + 1, KiB(100) },
		{ 1, UINT64_MAX / 2, MiB(1) },
		{ 2, 0, LEN },
		{ 0, MiB(1) - 7, KiB(300) },
		{ 1, 0, LEN },
	};
	struct compact_variable v[ARRAY_SIZE(types)];
	struct compact_result result[ARRAY_SIZE(types)];
	struct compact_conf conf = { .inos = (uint64_t[]){ FIRST, FIRST + 1, 4711 }, /* the last one is not there */
				     .variable = v,
				     .nr_variables = ARRAY_SIZE(v),
				     .result = result,
				     .order = COMPACT_TURNS,
				     .block = 3 };
	struct compact_report report;

	for (unsigned i = 0; i < ARRAY_SIZE(v); i++)
		v[i] = (struct compact_variable){ NULL, { types[i], 2, 1u << 31, 7 }, x, ARRAY_SIZE(x), 0, 0 };
	write_rank(rig, 0, 0);
	write_rank(rig, 1, 0);
	assert_int_equal(engine_sync(rig->e), 0);
	conf.block = 4096;
	assert_int_equal(engine_compact(rig->e, &conf, &report), 0);
	check_rank(rig, 0, 0);
	check_rank(rig, 1, 0);
	rig_fsck(rig);
	check_rank(rig, 0, 0);
}

static bool stop_after(void *userdata, const struct compact_report *so_far)
{
	unsigned *left = userdata;

	(void)so_far;
	return *left > 0 && (*left)-- > 0;
}

static void what_was_stopped_goes_on_the_next_time(void **state)
{
	struct rig *rig = *state;
	struct plan *p = plan_new(2);
	unsigned left = 600; /* it asks once for each chunk */
	uint64_t coded;

	write_rank(rig, 0, 0);
	write_rank(rig, 1, 0);
	p->conf.step = stop_after;
	p->conf.userdata = &left;
	assert_false(run(rig, p).complete);
	coded = p->result[0].coded;
	assert_in_range(coded, MiB(1), 3 * MiB(1));
	check_rank(rig, 0, 0);
	p->conf.step = NULL;
	assert_true(run(rig, p).complete);
	assert_int_equal(p->result[0].known, coded);
	assert_in_range(p->result[0].coded, MiB(1), 2 * VARIABLE - coded + 8192);
	check_rank(rig, 0, 0);
	check_rank(rig, 1, 0);
	rig_fsck(rig);
	free(p);
}

/* --- no room --- */

static _Atomic int nr_writes_left;

static int run_out(void *userdata, const struct io_event *ev)
{
	(void)userdata;
	return ev->op != IO_WRITE || nr_writes_left-- > 0 ? 0 : -ENOSPC;
}

static void where_there_is_no_room_every_file_stays_right(void **state)
{
	static const struct io_hook hook = { .before = run_out };
	struct rig *rig = *state;

	for (int left = 1; left < 12; left += 2) {
		struct plan *p = plan_new(2);
		struct compact_report report;
		int r;

		write_rank(rig, 0, (unsigned)left);
		write_rank(rig, 1, (unsigned)left);
		assert_int_equal(engine_sync(rig->e), 0);
		rig_close(rig);
		nr_writes_left = 1000000;
		io_set_hook(&hook);
		rig_open(rig);
		nr_writes_left = left;
		r = engine_compact(rig->e, &p->conf, &report);
		assert_true(r == 0 || r == -ENOSPC);
		nr_writes_left = 1000000;
		check_rank(rig, 0, (unsigned)left);
		check_rank(rig, 1, (unsigned)left);
		rig_close(rig);
		io_set_hook(NULL);
		rig_open(rig);
		check_rank(rig, 0, (unsigned)left);
		check_rank(rig, 1, (unsigned)left);
		rig_fsck(rig);
		free(p);
	}
}

/* --- others --- */

static void placing_leaves_coded_chunks_where_they_are(void **state)
{
	struct rig *rig = *state;
	struct plan *p = plan_new(8);
	uint64_t disk;

	for (unsigned i = 0; i < 8; i++)
		write_rank(rig, i, 0);
	p->conf.order = COMPACT_TURNS; /* each file lies in all frames */
	run(rig, p);
	disk = rig_stats(rig).pack_disk;
	rig_collect(rig, &(struct gc_conf){ .delete = true, .place = true });
	assert_in_range(rig_stats(rig).pack_disk, disk / 2, disk * 101 / 100);
	for (unsigned i = 0; i < 8; i++)
		check_rank(rig, i, 0);
	free(p);
}

static void what_the_collector_moves_stays_coded(void **state)
{
	struct rig *rig = *state;
	struct plan *p = plan_new(4), *again = plan_new(1);
	struct gc_report report;
	uint64_t after;

	rig->conf.pack_bytes = MiB(2); /* only packs that are full are emptied */
	rig_reopen(rig);
	for (unsigned i = 0; i < 4; i++)
		write_rank(rig, i, 0);
	p->conf.order = COMPACT_TURNS;
	run(rig, p);
	for (unsigned i = 1; i < 4; i++)
		rig_drop(rig, FIRST + i);
	report = rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 100 });
	assert_in_range(report.moved_bytes, VARIABLE / 2, UINT64_MAX);
	after = rig_stats(rig).pack_disk;
	assert_in_range(after, 1, VARIABLE * 7 / 10);
	check_rank(rig, 0, 0);
	run(rig, again);
	assert_in_range(again->result[0].known, VARIABLE - MiB(1) / 2, UINT64_MAX);
	rig_fsck(rig);
	check_rank(rig, 0, 0);
	free(p);
	free(again);
}

/* Readers, a writer, a deleter and a thread that clones, while it compacts again and again. */
struct crowd {
	struct rig *rig;
	_Atomic bool end;
	_Atomic unsigned nr_read;
};

static void *read_all(void *userdata)
{
	struct crowd *c = userdata;

	while (!c->end) {
		check_rank(c->rig, c->nr_read % 2, 0);
		engine_read_ahead(c->rig->e);
		c->nr_read++;
	}
	return NULL;
}

static void *write_and_drop(void *userdata)
{
	struct crowd *c = userdata;
	uint8_t *p = malloc(LEN);
	uint64_t done;

	for (unsigned i = 0; !c->end; i++) {
		struct content *from = rig_content(c->rig, FIRST + i % 3), *to = rig_content(c->rig, 2000 + i);

		fill(p, 2, i % 4); /* the same as the file has that is being compacted, now and then */
		rig_write_bytes(c->rig, FIRST + 2, p, LEN);
		assert_int_equal(content_clone(from, 100, to, 0, MiB(1), &done), 0);
		content_close(from);
		content_close(to);
		if (i > 2)
			rig_drop(c->rig, 2000 + i - 2);
	}
	free(p);
	return NULL;
}

static void no_reader_notices(void **state)
{
	struct rig *rig = *state;
	struct crowd c = { .rig = rig };
	pthread_t threads[3];

	for (unsigned i = 0; i < 3; i++)
		write_rank(rig, i, 0);
	assert_int_equal(pthread_create(&threads[0], NULL, read_all, &c), 0);
	assert_int_equal(pthread_create(&threads[1], NULL, read_all, &c), 0);
	assert_int_equal(pthread_create(&threads[2], NULL, write_and_drop, &c), 0);
	for (unsigned i = 0; i < 6 || c.nr_read < 4; i++) {
		struct plan *p = plan_new(3);

		p->conf.order = i % 3;
		p->conf.yields = i % 2;
		run(rig, p);
		rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 60 });
		free(p);
	}
	c.end = true;
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	check_rank(rig, 0, 0);
	check_rank(rig, 1, 0);
	rig_fsck(rig);
	check_rank(rig, 0, 0);
}

/* A writer that comes to wait after each frame that is coded, and goes when he has been looked at a few times in a
 * row. */
struct writer {
	struct engine *e;
	bool waits;
	uint64_t nr_coded, plain; /* bytes, when he came; when it was looked last */
	unsigned nr_looks, nr_turns, nr_ignored; /* ignored: looked at, and something was coded all the same */
};

static bool watch_writer(void *userdata, const struct compact_report *so_far)
{
	uint64_t nr_coded = so_far->sum.coded + so_far->sum.kept;
	struct writer *w = userdata;

	if (!w->waits && nr_coded > w->nr_coded) {
		w->nr_coded = nr_coded;
		w->waits = true;
		w->nr_looks = 0;
		compress_wait_begins(w->e);
	} else if (w->waits) {
		w->nr_ignored += nr_coded != w->nr_coded;
		w->nr_looks += so_far->sum.plain == w->plain; /* no chunk has been gathered since: it waits */
		if (w->nr_looks == 3) {
			w->waits = false;
			w->nr_turns++;
			compress_wait_ends(w->e);
		}
	}
	w->plain = so_far->sum.plain;
	return true;
}

static void no_frame_is_coded_while_a_writer_waits(void **state)
{
	struct rig *rig = *state;
	struct writer w = { .e = rig->e };
	struct plan *p = plan_new(2);

	write_rank(rig, 0, 0);
	write_rank(rig, 1, 0);
	p->conf.yields = true;
	p->conf.step = watch_writer;
	p->conf.userdata = &w;
	assert_true(run(rig, p).complete);
	if (w.waits)
		compress_wait_ends(rig->e);
	assert_int_equal(w.nr_ignored, 0);
	assert_in_range(w.nr_turns, 3, 100); /* 4 MiB: a frame, and he waits; ... */
	check_rank(rig, 0, 0);
	free(p);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(a_variable_gets_smaller_and_every_byte_stays),
		rig_test(elements_are_found_wherever_they_begin),
		rig_test(ranks_are_merged_in_either_order),
		rig_test(what_is_coded_is_left_alone_the_next_time),
		rig_test(a_dry_run_changes_nothing),
		rig_test(bytes_that_are_coded_are_not_stored_again),
		rig_test(all_that_share_are_pointed_there),
		rig_test(chunks_of_any_lengths_are_coded_too),
		rig_test(what_became_of_a_variable_is_remembered),
		rig_test(lies_cost_no_byte),
		rig_test(what_was_stopped_goes_on_the_next_time),
		rig_test(where_there_is_no_room_every_file_stays_right),
		rig_test(placing_leaves_coded_chunks_where_they_are),
		rig_test(what_the_collector_moves_stays_coded),
		rig_test(no_reader_notices),
		rig_test(no_frame_is_coded_while_a_writer_waits),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("compact", tests, NULL, NULL);
}
