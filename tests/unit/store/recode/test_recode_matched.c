/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Variables of which rows repeat within a file: stored once, and every byte stays, whatever becomes of the other
 * files. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/engine.h"
#include "tests/unit/store/rig.h"

#define HEAD 2692u /* doubles begin inside a page, at half of one */
#define HALF KiB(180) /* of a variable: what follows repeats it */
#define LEN (HEAD + 2 * HALF)
#define FIRST 100u /* inode of the first file */
#define FILES 6u

/* The second half has 70 of 100 numbers of the first, as D has those of E. */
static void fill(uint8_t *p, unsigned file)
{
	rig_pattern(p, LEN, file);
	for (size_t i = 0; i < 2 * HALF / 8; i++) {
		uint64_t x = (i + 1 + file * HALF) * 0x9e3779b97f4a7c15, bits;

		x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
		bits = 0x3ff0000000000000 | (x ^ x >> 27) >> 12;
		if (8 * i >= HALF && i % 100 < 70)
			memcpy(&bits, p + HEAD + 8 * i - HALF, 8);
		memcpy(p + HEAD + 8 * i, &bits, 8);
	}
}

static void write_files(struct rig *rig)
{
	uint8_t *p = malloc(LEN);

	for (unsigned i = 0; i < FILES; i++) {
		fill(p, i);
		rig_write_bytes(rig, FIRST + i, p, LEN);
	}
	free(p);
}

static void check_files(struct rig *rig, unsigned dropped)
{
	uint8_t *p = malloc(LEN);

	for (unsigned i = 0; i < FILES; i++)
		if (!(dropped >> i & 1)) {
			fill(p, i);
			rig_check_bytes(rig, FIRST + i, p, LEN);
		}
	free(p);
}

/* All of them as one variable: of doubles, or whole files of which nothing is known. */
static struct compact_result compact(struct rig *rig, bool whole)
{
	const struct coding_shape bytes = { .type = { CODE_BYTES, 1, false } },
				  doubles = { .type = { CODE_FLOAT, 8, false } };
	struct compact_extent x[FILES];
	uint64_t inos[FILES];
	struct compact_variable v = { whole ? "files" : "field", whole ? bytes : doubles, x, FILES, 0, 0 };
	struct compact_result result = { 0 };
	struct compact_conf conf = { .inos = inos, .variable = &v, .nr_variables = 1, .result = &result, .block = KiB(64) };
	struct compact_report report;

	for (unsigned i = 0; i < FILES; i++) {
		inos[i] = FIRST + i;
		x[i] = (struct compact_extent){ i, whole ? 0 : HEAD, whole ? LEN : 2 * HALF };
	}
	assert_int_equal(engine_sync(rig->e), 0);
	assert_int_equal(engine_compact(rig->e, &conf, &report), 0);
	assert_true(report.complete);
	return result;
}

static void rows_are_stored_once(void **state)
{
	struct rig *rig = *state;

	for (unsigned whole = 0; whole < 2; whole++) {
		struct compact_result r;

		write_files(rig);
		r = compact(rig, whole);
		assert_int_equal(r.coder.steps.base, CODE_BASE_MATCHED);
		assert_in_range(r.after, 1, r.coded * 63 / 100); /* 0.65 of it are new, and shrink to 0.85 */
		for (unsigned i = 0; i < 3; i++) {
			check_files(rig, 0);
			if (i == 0)
				rig_crash(rig);
			else
				rig_fsck(rig); /* and an index from packs and journal */
		}
		assert_int_equal(rig_scrub(rig, &(struct scrub_conf){ .restart = true }).nr_damaged, 0);
		for (unsigned i = 0; i < FILES; i++)
			rig_drop(rig, FIRST + i);
		rig_collect(rig, &(struct gc_conf){ .delete = true });
	}
}

static void files_go_and_the_others_stay(void **state)
{
	struct rig *rig = *state;
	unsigned dropped = 0;

	write_files(rig);
	compact(rig, false);
	for (unsigned i = 0; i < FILES; i += 2) {
		rig_drop(rig, FIRST + i);
		dropped |= 1u << i;
		rig_collect(rig, &(struct gc_conf){ .delete = true });
		check_files(rig, dropped);
	}
	rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 100 }); /* everything that is live moves */
	rig_crash(rig);
	check_files(rig, dropped);
	/* what repeats is not there again */
	assert_in_range(rig_stats(rig).pack_disk, 1, 3 * LEN * 72 / 100 + KiB(100));
	rig_fsck(rig);
	check_files(rig, dropped);
}

static int count_read(void *userdata, const struct io_event *ev)
{
	*(unsigned *)userdata += ev->op == IO_READ;
	return 0;
}

/* Each by one call, as the kernel has them read. Frames have whole files, if these are matched, and so are not full. */
static void the_next_file_is_read_ahead(void **state)
{
	struct rig *rig = *state;
	unsigned nr_reads = 0;
	struct io_hook hook = { .before = count_read, .userdata = &nr_reads };
	uint8_t *want = malloc(LEN), *got = malloc(LEN);

	write_files(rig);
	compact(rig, true);
	for (unsigned is_helped = 0; is_helped < 2; is_helped++) {
		rig_close(rig);
		io_set_hook(&hook);
		rig_open(rig);
		for (unsigned i = 0; i < FILES; i++) {
			struct content *c = rig_content(rig, FIRST + i);

			nr_reads = 0;
			assert_int_equal(content_read(c, got, LEN, 0), LEN);
			assert_int_equal(nr_reads == 0, is_helped && i > 1);
			fill(want, i);
			assert_memory_equal(got, want, LEN);
			if (is_helped)
				engine_read_ahead(rig->e);
			content_close(c);
		}
		rig_close(rig);
		io_set_hook(NULL);
		rig_open(rig);
	}
	free(want);
	free(got);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(rows_are_stored_once),
		rig_test(files_go_and_the_others_stay),
		rig_test(the_next_file_is_read_ahead),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("compact_matched", tests, NULL, NULL);
}
