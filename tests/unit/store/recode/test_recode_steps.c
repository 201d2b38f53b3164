/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Steps of a variable that are coded against one another: every byte of every file stays, whatever becomes of the
 * others. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/codec/code_format.h"
#include "store/engine_state.h"
#include "store/file/content_state.h"
#include "store/pack/pack.h"
#include "store/pack/pack_format.h"
#include "tests/unit/store/rig.h"

#define HEAD 777u
#define VARIABLE (MiB(1) + KiB(200) + 24) /* rows, and what is left over */
#define LEN (HEAD + VARIABLE)
#define FIRST 100u /* inode of the first step */
#define STEPS 7u

static const struct coding_shape doubles = { .type = { CODE_FLOAT, 8, false } };

/* Numbers of which nothing is known, and which change in their last bits from step to step. Of every tenth page nothing
 * changes. */
static void fill(uint8_t *p, unsigned step)
{
	rig_pattern(p, LEN, 5);
	for (size_t i = 0; i < VARIABLE / 8; i++) {
		size_t at = HEAD + 8 * i;
		uint64_t x = (i + 1) * 0x9e3779b97f4a7c15, bits;

		x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
		bits = 0x3ff0000000000000 | (x ^ x >> 27) >> 12;
		if (at / 4096 % 10 != 3)
			bits += (bits >> 20) * step & 0xffff;
		memcpy(p + at, &bits, 8);
	}
}

static void write_step(struct rig *rig, unsigned step)
{
	uint8_t *p = malloc(LEN);

	fill(p, step);
	rig_write_bytes(rig, FIRST + step, p, LEN);
	free(p);
}

static void check_step(struct rig *rig, unsigned step)
{
	uint8_t *p = malloc(LEN);

	fill(p, step);
	rig_check_bytes(rig, FIRST + step, p, LEN);
	free(p);
}

static void check_steps(struct rig *rig, unsigned from, unsigned end, unsigned dropped)
{
	for (unsigned i = from; i < end; i++)
		if (!(dropped >> i & 1))
			check_step(rig, i);
}

struct plan {
	uint64_t inos[STEPS];
	struct compact_extent x[STEPS];
	struct compact_variable variable[STEPS];
	struct compact_result result[STEPS];
	struct compact_conf conf;
};

/* Steps [from, end). */
static struct plan *plan_new(unsigned from, unsigned end, unsigned back)
{
	struct plan *p = calloc(1, sizeof(*p));

	for (unsigned i = 0; i < end - from; i++) {
		p->inos[i] = FIRST + from + i;
		p->x[i] = (struct compact_extent){ i, HEAD, VARIABLE };
		p->variable[i] = (struct compact_variable){ "field", doubles, &p->x[i], 1, i, 0 };
	}
	p->conf = (struct compact_conf){ .inos = p->inos,
					 .variable = p->variable,
					 .nr_variables = end - from,
					 .result = p->result,
					 .block = KiB(64),
					 .chain = back,
					 .chain_forced = true };
	return p;
}

static struct compact_report run(struct rig *rig, const struct plan *p)
{
	struct compact_report report;

	assert_int_equal(engine_sync(rig->e), 0);
	assert_int_equal(engine_compact(rig->e, &p->conf, &report), 0);
	assert_int_equal(report.nr_variables, p->conf.nr_variables);
	return report;
}

static void write_and_compact(struct rig *rig, unsigned nr, unsigned back)
{
	struct plan *p = plan_new(0, nr, back);

	for (unsigned i = 0; i < nr; i++)
		write_step(rig, i);
	assert_true(run(rig, p).complete);
	free(p);
}

static void steps_are_small_against_one_another(void **state)
{
	struct rig *rig = *state;
	uint64_t chunks, alone, together;
	struct plan *p;

	for (unsigned i = 0; i < 5; i++)
		write_step(rig, i);
	chunks = rig_stats(rig).stored_chunks;
	p = plan_new(0, 5, 0);
	p->conf.dry_run = true;
	run(rig, p);
	alone = 0;
	for (unsigned i = 0; i < 5; i++)
		alone += p->result[i].after + p->result[i].kept;
	p->conf.chain = 4;
	p->conf.dry_run = false;
	assert_true(run(rig, p).complete);
	together = p->result[0].after + p->result[0].kept;
	assert_in_range(together, 1, alone * 6 / 10);
	assert_int_equal(p->result[0].coder.steps.base, CODE_BASE_SUB);
	/* the old places are gone, and nothing is there twice */
	assert_int_equal(rig_stats(rig).stored_chunks, chunks);
	for (unsigned i = 0; i < 3; i++) {
		check_steps(rig, 0, 5, 0);
		if (i == 0)
			rig_crash(rig);
		else
			rig_fsck(rig); /* and an index from packs and journal */
	}
	assert_int_equal(rig_scrub(rig, &(struct scrub_conf){ .restart = true }).nr_damaged, 0);
	free(p);
}

/* Parts that are decoded for the page at `a`: its own, and what that is coded against. */
static unsigned nr_decoded(struct rig *rig, struct addr a)
{
	struct code_header h;
	uint32_t in, place;
	unsigned nr = 1;

	while (packs_block_header(rig->e->packs, a, &h, &in) > 0 && code_place_how(h.base_place) == CODE_PLACE_SAME) {
		place = code_place_off(h.base_place);
		assert_int_equal(place % PACK_PART_BYTES, 0); /* else two parts would be needed */
		a.off = a.off - pack_in_frame(a) + place;
		nr++;
	}
	return nr;
}

/* Whatever page is read: five steps are one frame, and 256 KiB are decoded at most. */
static void a_page_is_read_with_four_parts(void **state)
{
	struct rig *rig = *state;
	struct extent_list l = { 0 };
	unsigned most = 0;
	struct content *c;

	write_and_compact(rig, 5, 4);
	for (unsigned i = 0; i < 5; i++) {
		c = rig_content(rig, FIRST + i);
		for (uint64_t off = 0; off < LEN; off += SEGMENT_SIZE) {
			l.nr = 0;
			mutex_lock(&c->lock);
			assert_int_equal(content_extents(c, off, MIN((uint64_t)SEGMENT_SIZE, LEN - off), &l), 0);
			mutex_unlock(&c->lock);
			for (size_t k = 0; k < l.nr; k++)
				for (uint32_t in = 0; in < l.x[k].len; in += PACK_BLOCK) {
					struct addr a = l.x[k].addr;

					a.off += in;
					most = MAX(most, nr_decoded(rig, a));
				}
		}
		content_close(c);
	}
	extent_list_release(&l);
	assert_int_equal(most, 4);
}

/* Numbers of which half the bits are new with each step: one against the other they take a third less, but more has to
 * be read for one than it has bytes. So they are together only where that is told; and where only the last bits are new,
 * and space is halved, in any case. */
static void what_is_slow_to_read_is_coded_by_itself(void **state)
{
	struct rig *rig = *state;
	uint64_t *p = malloc(round_up(LEN, 8));
	unsigned base[3];

	for (unsigned i = 0; i < 3; i++) {
		struct plan *plan = plan_new(0, 5, 4);

		for (unsigned step = 0; step < 5; step++) {
			fill((uint8_t *)p, step);
			for (size_t k = HEAD / 8 + 1; k < LEN / 8 && i < 2; k++)
				p[k] ^= (k * 0x9e3779b97f4a7c15 + step) * 0xbf58476d1ce4e5b9 >> 26;
			rig_write_bytes(rig, FIRST + step, (uint8_t *)p, LEN);
		}
		plan->conf.chain_forced = i == 1;
		assert_true(run(rig, plan).complete);
		base[i] = plan->result[0].coder.steps.base;
		for (unsigned step = 0; step < 5; step++)
			rig_drop(rig, FIRST + step);
		rig_collect(rig, &(struct gc_conf){ .delete = true });
		free(plan);
	}
	assert_int_equal(base[0], CODE_BASE_NONE);
	assert_int_not_equal(base[1], CODE_BASE_NONE);
	assert_int_not_equal(base[2], CODE_BASE_NONE);
	free(p);
}

static uint64_t noise(uint64_t x)
{
	x *= 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* 28 bits of 64 are noise, and 14 of them new with each step: 0.44 of the bytes for the newest, 0.22 for each other. The
 * third is read with 0.88, the fourth would be with more than 1. */
static void as_many_go_together_as_are_quick_to_read(void **state)
{
	struct rig *rig = *state;
	uint64_t *p = calloc(1, round_up(LEN, 8));
	struct plan *plan = plan_new(0, 5, 4);
	uint64_t after = 0;

	for (unsigned step = 0; step < 5; step++) {
		for (size_t k = HEAD / 8 + 1; k < LEN / 8; k++) {
			uint64_t old = noise(k), new = noise(k + (uint64_t)(step + 1) * LEN);

			p[k] = 0x3ff0000000000000 | (old & 0xfffc000) | (new & 0x3fff);
		}
		rig_write_bytes(rig, FIRST + step, (uint8_t *)p, LEN);
	}
	plan->conf.chain_forced = false;
	assert_true(run(rig, plan).complete);
	for (unsigned i = 0; i < 5; i++)
		after += plan->result[i].after;
	/* 2 * 0.44, and 0.44 + 2 * 0.22; with tables */
	assert_in_range(after, VARIABLE * 170 / 100, VARIABLE * 190 / 100);
	free(plan);
	free(p);
}

/* With every number of steps, in one go or several: rows of any number of versions. */
static void any_number_of_steps_and_any_way_back(void **state)
{
	struct rig *rig = *state;
	struct plan *p;

	for (unsigned i = 0; i < STEPS; i++)
		write_step(rig, i);
	for (unsigned back = 1; back < 6; back++) {
		unsigned from = back - 1, end = MIN(from + back + 1, STEPS);

		p = plan_new(from, end, back);
		assert_true(run(rig, p).complete);
		check_steps(rig, 0, STEPS, 0);
		free(p);
	}
	rig_fsck(rig);
	check_steps(rig, 0, STEPS, 0);
}

static void collect(struct rig *rig, unsigned move_below)
{
	rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = move_below, .place = true });
}

/* Whichever steps go, in whichever order: the others are there, before and after they have been moved, and the space
 * comes back. */
static void steps_go_and_the_others_stay(void **state)
{
	static const unsigned orders[][4] = { { 0, 1, 2, 3 }, { 4, 3, 2, 1 }, { 2, 4, 0, 1 }, { 3, 1, 4, 2 } };
	struct rig *rig = *state;
	unsigned o = 0;

	for (; o < ARRAY_SIZE(orders); o++) {
		unsigned dropped = 0;

		write_and_compact(rig, 5, 4);
		for (unsigned i = 0; i < 4; i++) {
			rig_drop(rig, FIRST + orders[o][i]);
			dropped |= 1u << orders[o][i];
			collect(rig, 0);
			check_steps(rig, 0, 5, dropped);
			if (i % 2 == 1) {
				collect(rig, 100); /* everything that is live moves */
				rig_crash(rig);
				check_steps(rig, 0, 5, dropped);
			}
		}
		rig_fsck(rig);
		check_steps(rig, 0, 5, dropped);
		assert_in_range(rig_stats(rig).pack_disk, 1, 2 * LEN);
		for (unsigned i = 0; i < 5; i++)
			rig_drop(rig, FIRST + i);
		collect(rig, 0);
	}
	/* what no variable has, in packs that are being filled */
	assert_in_range(rig_stats(rig).pack_disk, 0, KiB(300));
}

/* An overwritten base is needed as before. */
static void steps_are_overwritten(void **state)
{
	struct rig *rig = *state;

	write_and_compact(rig, 5, 4);
	rig_write(rig, FIRST + 4, LEN, 4711); /* the newest: all others hang on it */
	rig_write(rig, FIRST + 2, LEN, 4712);
	for (unsigned below = 0; below <= 100; below += 50) {
		collect(rig, below);
		check_steps(rig, 0, 5, 1 << 4 | 1 << 2);
		rig_check(rig, FIRST + 4, LEN, 4711);
		rig_reopen(rig);
	}
	/* and freed chunks are not found any more, nor taken for chunks with their old bytes */
	write_step(rig, 4);
	write_step(rig, 2);
	rig_fsck(rig);
	check_steps(rig, 0, 5, 0);
}

/* The oldest need nothing to be read, and go with their space. */
static void the_oldest_give_their_space_back_at_once(void **state)
{
	struct rig *rig = *state;
	uint64_t before, after;

	write_and_compact(rig, 5, 4);
	before = rig_stats(rig).pack_disk;
	for (unsigned i = 0; i < 4; i++) {
		rig_drop(rig, FIRST + i);
		collect(rig, 0);
		after = rig_stats(rig).pack_disk;
		assert_in_range(after, 1, before - KiB(100));
		before = after;
	}
	check_step(rig, 4);
}

/* As they come: each is coded by itself, and when there are enough of them, all together. */
static void steps_that_come_one_by_one_are_together_in_the_end(void **state)
{
	struct rig *rig = *state;
	uint64_t together = 0;

	for (unsigned i = 0; i < STEPS; i++) {
		struct plan *p = plan_new(i >= 5 ? i - 4 : 0, i + 1, 4);

		write_step(rig, i);
		assert_true(run(rig, p).complete);
		if (i == 4)
			together = rig_stats(rig).pack_disk;
		check_steps(rig, 0, i + 1, 0);
		free(p);
	}
	assert_in_range(together, 1, 3 * LEN); /* five of them; by themselves they take 4.4 */
	rig_fsck(rig);
	check_steps(rig, 0, STEPS, 0);
	rig_drop(rig, FIRST + 4);
	collect(rig, 100);
	check_steps(rig, 0, STEPS, 1 << 4);
}

/* What a plan says of steps need not be true. */
static void lies_about_steps_cost_no_byte(void **state)
{
	static const size_t before[][5] = {
		{ 1, 2, 3, 4, 5 }, { 5, 5, 5, 5, 5 }, { 0, 1, 1, 1, 1 }, { 0, 0, 2, 1000, SIZE_MAX }
	};
	struct rig *rig = *state;

	for (unsigned i = 0; i < 5; i++)
		write_step(rig, i);
	for (unsigned k = 0; k < ARRAY_SIZE(before); k++) {
		struct plan *p = plan_new(0, 5, 1 + k);

		for (unsigned i = 0; i < 5; i++)
			p->variable[i].before = before[k][i];
		p->x[2].off += k; /* other pages belong to it, */
		p->x[3].len -= 4096 * k; /* it is shorter, */
		p->inos[4] = k == 3 ? 9999 : p->inos[4]; /* not there */
		assert_true(run(rig, p).complete);
		check_steps(rig, 0, 5, 0);
		free(p);
	}
	rig_fsck(rig);
	check_steps(rig, 0, 5, 0);
}

static void too_far_back_is_refused(void **state)
{
	struct rig *rig = *state;
	struct plan *p = plan_new(0, 1, COMPACT_CHAIN_MAX + 1);
	struct compact_report report;

	write_step(rig, 0);
	assert_int_equal(engine_compact(rig->e, &p->conf, &report), -EINVAL);
	free(p);
}

/* Chunks cut by content have no places in common: they are coded by themselves. */
static void chunks_of_any_lengths_are_coded_too(void **state)
{
	struct rig *rig = *state;

	rig->conf.chunking = CHUNKING_CDC;
	rig_reopen(rig);
	write_and_compact(rig, 5, 4);
	check_steps(rig, 0, 5, 0);
	rig_fsck(rig);
	check_steps(rig, 0, 5, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(steps_are_small_against_one_another),
		rig_test(a_page_is_read_with_four_parts),
		rig_test(what_is_slow_to_read_is_coded_by_itself),
		rig_test(as_many_go_together_as_are_quick_to_read),
		rig_test(any_number_of_steps_and_any_way_back),
		rig_test(steps_go_and_the_others_stay),
		rig_test(steps_are_overwritten),
		rig_test(the_oldest_give_their_space_back_at_once),
		rig_test(steps_that_come_one_by_one_are_together_in_the_end),
		rig_test(lies_about_steps_cost_no_byte),
		rig_test(too_far_back_is_refused),
		rig_test(chunks_of_any_lengths_are_coded_too),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("compact_steps", tests, NULL, NULL);
}
