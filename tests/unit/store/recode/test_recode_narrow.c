/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Variables that others were rounded from: what was rounded off is left of them, and every byte comes back, whatever
 * becomes of the others. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/codec/twin.h"
#include "store/engine.h"
#include "tests/unit/store/rig.h"

#define NR (300u * 1024 + 7) /* elements */
#define WIDE_AT 999u /* in the file; neither begins where a page or an element does */
#define NARROW_AT (WIDE_AT + 4 * NR + 5001)
#define LEN (NARROW_AT + 2 * NR + 100)
#define FIRST 100u /* inode of the first step */
#define STEPS 5u

static const struct coding_shape floats = { .type = { CODE_FLOAT, 4, false } },
				 halves = { .type = { CODE_BFLOAT, 2, false } };

/* Noise that changes in its lower half from step to step, and that rounded. */
static void fill(uint8_t *p, unsigned step)
{
	rig_pattern(p, LEN, 5 + step);
	for (uint32_t i = 0; i < NR; i++) {
		uint64_t x = (i + 1) * 0x9e3779b97f4a7c15;
		uint32_t bits;

		x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
		bits = 0x3c000000 + (uint32_t)(x >> 38) + step * (uint32_t)(x & 0xfff);
		memcpy(p + WIDE_AT + 4 * (size_t)i, &bits, 4);
	}
	twin_round(halves.type, floats.type, p + WIDE_AT, NR, p + NARROW_AT);
}

static void write_step(struct rig *rig, unsigned step)
{
	uint8_t *p = malloc(LEN);

	fill(p, step);
	rig_write_bytes(rig, FIRST + step, p, LEN);
	free(p);
}

static void check_steps(struct rig *rig, unsigned nr, unsigned dropped)
{
	rig_check_steps(rig, FIRST, nr, dropped, LEN, fill);
}

struct plan {
	uint64_t inos[STEPS];
	struct compact_extent x[2 * STEPS];
	struct compact_variable variable[2 * STEPS];
	struct compact_result result[2 * STEPS];
	struct compact_conf conf;
};

static struct plan *plan_new(unsigned nr, unsigned chain)
{
	struct plan *p = calloc(1, sizeof(*p));

	for (unsigned i = 0; i < nr; i++) {
		p->inos[i] = FIRST + i;
		p->x[2 * i] = (struct compact_extent){ i, WIDE_AT, 4 * NR };
		p->x[2 * i + 1] = (struct compact_extent){ i, NARROW_AT, 2 * NR };
		p->variable[2 * i] =
			(struct compact_variable){ "wide", floats, &p->x[2 * i], 1, i > 0 ? 2 * i - 1 : 0, 0 };
		p->variable[2 * i + 1] = (struct compact_variable){ "narrow", halves, &p->x[2 * i + 1], 1, 0, 2 * i + 1 };
	}
	p->conf = (struct compact_conf){ .inos = p->inos,
					 .variable = p->variable,
					 .nr_variables = 2 * nr,
					 .result = p->result,
					 .block = KiB(64),
					 .chain = chain,
					 .chain_forced = true };
	return p;
}

static void run(struct rig *rig, const struct plan *p)
{
	struct compact_report report;

	assert_int_equal(engine_sync(rig->e), 0);
	assert_int_equal(engine_compact(rig->e, &p->conf, &report), 0);
	assert_true(report.complete);
	assert_int_equal(report.nr_variables, p->conf.nr_variables);
}

static void write_and_compact(struct rig *rig, unsigned nr, unsigned chain, struct plan **ret)
{
	*ret = plan_new(nr, chain);
	for (unsigned i = 0; i < nr; i++)
		write_step(rig, i);
	run(rig, *ret);
}

static void what_was_rounded_off_is_left(void **state)
{
	struct rig *rig = *state;
	struct compact_result *wide, *narrow;
	struct plan *p;

	write_and_compact(rig, 1, 0, &p);
	wide = &p->result[0];
	narrow = &p->result[1];
	assert_in_range(wide->coded, NR * 4 * 8 / 10, NR * 4 + 4096);
	assert_in_range(narrow->coded, NR * 2 * 8 / 10, NR * 2 + 4096); /* the last rows are not whole */
	assert_in_range(wide->after, 1, wide->coded * 58 / 100); /* half of it, these rows, and the table */
	assert_in_range(narrow->after, 1, narrow->coded * 7 / 10);
	assert_true(wide->coder.steps.base != CODE_BASE_NONE && narrow->coder.steps.base == CODE_BASE_NONE);
	check_steps(rig, 1, 0);
	rig_fsck(rig);
	check_steps(rig, 1, 0);
	free(p);
}

static void together_with_steps(void **state)
{
	struct rig *rig = *state;
	struct plan *p;

	write_and_compact(rig, 5, 4, &p);
	assert_in_range(p->result[1].coded, 5 * NR * 2 * 8 / 10, 5 * (NR * 2 + 4096));
	assert_in_range(p->result[1].after, 1, p->result[1].coded / 4); /* it hardly changes */
	assert_in_range(p->result[0].after, 1, p->result[0].coded * 58 / 100);
	check_steps(rig, 5, 0);
	rig_crash(rig);
	check_steps(rig, 5, 0);
	rig_fsck(rig);
	check_steps(rig, 5, 0);
	assert_int_equal(rig_scrub(rig, &(struct scrub_conf){ .restart = true }).nr_damaged, 0);
	free(p);
}

/* The wide one alone is overwritten; or whole steps go: before and after everything has moved. */
static void what_they_were_rounded_from_goes(void **state)
{
	struct rig *rig = *state;
	uint8_t *bytes = malloc(LEN), *noise = rig_bytes(4 * NR, 999);
	struct content *c;
	struct plan *p;

	write_and_compact(rig, 5, 4, &p);
	c = rig_content(rig, FIRST + 3);
	assert_int_equal(content_write(c, noise, 4 * NR, WIDE_AT), 0);
	assert_int_equal(content_flush(c), 0);
	content_close(c);
	rig_drop(rig, FIRST + 4);
	fill(bytes, 3);
	memcpy(bytes + WIDE_AT, noise, 4 * NR);
	for (unsigned below = 0; below <= 100; below += 50) {
		rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = below });
		check_steps(rig, 5, 1 << 3 | 1 << 4);
		rig_check_bytes(rig, FIRST + 3, bytes, LEN);
		rig_crash(rig);
	}
	rig_fsck(rig);
	check_steps(rig, 5, 1 << 3 | 1 << 4);
	rig_check_bytes(rig, FIRST + 3, bytes, LEN);
	free(bytes);
	free(noise);
	free(p);
}

/* When all is moved that is there, nothing of it is lost. */
static void moving_keeps_it_small(void **state)
{
	struct rig *rig = *state;
	struct plan *p;
	uint64_t before;

	write_and_compact(rig, 2, 1, &p);
	rig_write(rig, 900, MiB(2), 1);
	rig_reopen(rig);
	before = rig_stats(rig).pack_disk;
	rig_drop(rig, 900);
	rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 101 });
	assert_in_range(rig_stats(rig).pack_disk, 1, before);
	check_steps(rig, 2, 0);
	free(p);
}

/* What was said is not true: of other types, lengths, twice, of itself, of what comes later. */
static void lies_cost_no_byte(void **state)
{
	struct rig *rig = *state;

	for (unsigned k = 0; k < 8; k++) {
		struct plan *p = plan_new(3, 2);

		for (unsigned i = 0; i < 3; i++)
			write_step(rig, i);
		p->variable[3].wide = (size_t[]){ 3, 4, 6, SIZE_MAX, 1, 2, 3, 5 }[k];
		p->variable[5].wide = k == 1 ? 4 : 5;
		p->x[3].off += k == 6; /* the elements are others */
		p->x[3].len -= k == 7 ? 4096 : 0;
		p->variable[1].shape.type = k == 5 ? floats.type : halves.type;
		run(rig, p);
		check_steps(rig, 3, 0);
		for (unsigned i = 0; i < 3; i++)
			rig_drop(rig, FIRST + i);
		rig_collect(rig, &(struct gc_conf){ .delete = true });
		free(p);
	}
	rig_fsck(rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(what_was_rounded_off_is_left),
		rig_test(together_with_steps),
		rig_test(what_they_were_rounded_from_goes),
		rig_test(moving_keeps_it_small),
		rig_test(lies_cost_no_byte),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("compact_narrow", tests, NULL, NULL);
}
