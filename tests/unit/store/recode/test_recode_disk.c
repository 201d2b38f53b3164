/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Compacting, and moving of any kind, frees more of the disk than it uses, also in compressed stores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "tests/unit/store/rig.h"

#define INO 100u
#define LEN MiB(4)
#define PART KiB(64)
#define NR_PARTS (LEN / PART)
#define NR_FILES 6u

static const struct coding_shape doubles = { .type = { CODE_FLOAT, 8, false } };

/* Every part begins with `field` bytes of doubles, which are coded much smaller than zstd makes them. The rest is what
 * zstd halves. */
static uint8_t *make_bytes(size_t field, uint64_t seed)
{
	uint8_t *p = rig_soft_bytes(LEN, seed);

	for (size_t part = 0; part < NR_PARTS; part++)
		for (size_t i = 0; i < field / 8; i++) {
			double t = (double)((part * field / 8 + i) % 20000) / 20000, x = 2 + t * (1 - t);
			uint64_t bits;

			memcpy(&bits, &x, 8);
			bits ^= i * 2654435761u & 0xffffff;
			memcpy(p + part * PART + 8 * i, &bits, 8);
		}
	return p;
}

static void mount_with(struct rig *rig, enum chunking chunking, enum compress_kind compress)
{
	rig_close(rig);
	rig->conf.chunking = chunking;
	rig->conf.compress = (struct compress){ .kind = compress };
	rig_open(rig);
}

static struct compact_report compact_field_of(struct rig *rig, uint64_t ino, size_t field,
					      bool (*step)(void *userdata, const struct compact_report *so_far),
					      void *userdata)
{
	struct compact_extent extent[NR_PARTS];
	struct compact_variable variable = { "field", doubles, extent, NR_PARTS, 0, 0 };
	struct compact_result result;
	struct compact_conf conf = {
		.inos = &ino,
		.variable = &variable,
		.nr_variables = 1,
		.result = &result,
		.block = KiB(64),
		.step = step,
		.userdata = userdata,
	};
	struct compact_report report;

	for (size_t i = 0; i < NR_PARTS; i++)
		extent[i] = (struct compact_extent){ 0, i * PART, field };
	assert_int_equal(engine_compact(rig->e, &conf, &report), 0);
	return report;
}

static struct compact_report compact_field_while(struct rig *rig, size_t field,
						 bool (*step)(void *userdata, const struct compact_report *so_far),
						 void *userdata)
{
	return compact_field_of(rig, INO, field, step, userdata);
}

static struct compact_report compact_field(struct rig *rig, size_t field)
{
	struct compact_report report = compact_field_while(rig, field, NULL, NULL);

	assert_true(report.complete);
	return report;
}

/* Whatever stays of each part, and however it is stored. */
static void a_store_never_grows_by_compacting(void **state)
{
	static const enum chunking chunkings[] = { CHUNKING_PAGE, CHUNKING_CDC, CHUNKING_AUTO };
	static const enum compress_kind kinds[] = { COMPRESS_NONE, COMPRESS_LZ4, COMPRESS_ZSTD };
	struct rig *rig = *state;

	for (size_t i = 0; i < ARRAY_SIZE(chunkings) * ARRAY_SIZE(kinds); i++)
		for (size_t field = KiB(4); field < PART; field += KiB(12)) {
			_cleanup_(freep) uint8_t *p = make_bytes(field, 10 * i + field);
			struct compact_report report;
			uint64_t before, after;

			mount_with(rig, chunkings[i % ARRAY_SIZE(chunkings)], kinds[i / ARRAY_SIZE(chunkings)]);
			rig_write_bytes(rig, INO, p, LEN);
			before = rig_stats(rig).pack_disk;
			report = compact_field(rig, field);
			after = rig_stats(rig).pack_disk;
			assert_in_range(after, 1, before);
			/* what is said to be saved is; but for the header of a pack that was begun */
			assert_in_range(before - after + KiB(8), report.freed - report.written,
					report.freed - report.written + KiB(8));
			rig_check_bytes(rig, INO, p, LEN);
			rig_drop(rig, INO);
			rig_collect(rig, &(struct gc_conf){ .delete = true });
		}
}

static uint64_t index_disk(const struct rig *rig)
{
	char command[128];
	unsigned long kib = 0;
	FILE *f;

	snprintf(command, sizeof(command), "du -sk %s/index", rig->path);
	f = popen(command, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu", &kib), 1);
	assert_int_equal(pclose(f), 0);
	return KiB(kib);
}

/* Their old places do not stay in the index beside the new ones. */
static void the_index_does_not_grow_by_fingerprints_that_move(void **state)
{
	struct rig *rig = *state;
	uint64_t before;

	rig->conf.ingest_entries = 5 * LEN / KiB(4); /* all when a store is opened; fewer in a quiet moment */
	mount_with(rig, CHUNKING_PAGE, COMPRESS_ZSTD);
	for (uint64_t ino = INO; ino < INO + NR_FILES; ino++) {
		_cleanup_(freep) uint8_t *p = make_bytes(KiB(4), ino);

		rig_write_bytes(rig, ino, p, LEN);
	}
	rig_reopen(rig); /* absorbs them */
	rig_close(rig);
	before = index_disk(rig);
	for (uint64_t ino = INO; ino < INO + NR_FILES; ino++) {
		struct compact_report report;

		rig_open(rig);
		report = compact_field_of(rig, ino, KiB(60), NULL, NULL);
		assert_true(report.freed > report.written);
		rig_close(rig);
	}
	rig_open(rig);
	rig_write(rig, INO + NR_FILES, LEN, 1);
	rig_reopen(rig);
	rig_close(rig);
	/* not by 16 bytes for each page */
	assert_in_range(index_disk(rig), 1, before + NR_FILES * LEN / KiB(4) * 16 / 2);
	rig_open(rig);
}

/* 9 of 16 pages of each part are coded: they, and the space of the other 7, are given back, which move along. */
static void chunks_beside_those_that_are_coded_keep_no_space(void **state)
{
	struct rig *rig = *state;
	_cleanup_(freep) uint8_t *p = make_bytes(KiB(36), 1);
	struct compact_report report;
	struct engine_stats before, after;

	mount_with(rig, CHUNKING_PAGE, COMPRESS_ZSTD);
	rig_write_bytes(rig, INO, p, LEN);
	before = rig_stats(rig);
	report = compact_field(rig, KiB(36));
	after = rig_stats(rig);
	assert_int_equal(report.sum.coded, NR_PARTS * KiB(36));
	assert_in_range(after.pack_disk, 1, before.pack_disk * 9 / 10);
	assert_int_equal(after.stored_chunks, before.stored_chunks);
	rig_crash(rig);
	rig_check_bytes(rig, INO, p, LEN);
	rig_fsck(rig);
}

/* A page in each part takes next to nothing beside 15 others, though its share is a sixteenth: coding it saves nothing. */
static void moves_that_save_nothing_are_reversed(void **state)
{
	struct rig *rig = *state;
	_cleanup_(freep) uint8_t *p = rig_soft_bytes(LEN, 3);
	struct compact_report report;
	struct engine_stats before, after;

	for (size_t i = 0; i < NR_PARTS; i++) {
		memset(p + i * PART, 1, KiB(4));
		memcpy(p + i * PART, &i, sizeof(i));
	}
	mount_with(rig, CHUNKING_PAGE, COMPRESS_ZSTD);
	rig_write_bytes(rig, INO, p, LEN);
	before = rig_stats(rig);
	report = compact_field(rig, KiB(4));
	after = rig_stats(rig);
	assert_in_range(report.written, KiB(4), UINT64_MAX); /* it was tried */
	assert_int_equal(report.sum.coded, 0);
	assert_int_equal(report.sum.kept, NR_PARTS * KiB(4));
	assert_in_range(after.pack_disk, 1, before.pack_disk + KiB(4)); /* the header of a pack that was begun */
	assert_int_equal(after.stored_chunks, before.stored_chunks);
	rig_write_bytes(rig, INO + 1, p, LEN); /* all of it is found where it is */
	assert_int_equal(rig_stats(rig).stored_chunks, before.stored_chunks);
	rig_crash(rig);
	rig_check_bytes(rig, INO, p, LEN);
	rig_check_bytes(rig, INO + 1, p, LEN);
	rig_fsck(rig);
}

static bool stop_after(void *userdata, const struct compact_report *so_far)
{
	unsigned *left = userdata;

	(void)so_far;
	return *left > 0 && --*left > 0;
}

static void a_stopped_run_returns_the_space_of_what_it_moved(void **state)
{
	struct rig *rig = *state;
	_cleanup_(freep) uint8_t *p = make_bytes(PART, 1);
	unsigned left = LEN / KiB(4) / 2; /* it asks once for each chunk */
	struct compact_report report;
	uint64_t before, after;

	mount_with(rig, CHUNKING_PAGE, COMPRESS_NONE);
	rig_write_bytes(rig, INO, p, LEN);
	before = rig_stats(rig).pack_disk;
	report = compact_field_while(rig, PART, stop_after, &left);
	after = rig_stats(rig).pack_disk;
	assert_false(report.complete);
	assert_in_range(report.sum.coded, LEN / 4, LEN / 2);
	assert_in_range(after, 1, before - LEN / 8); /* coded to half of its size */
	assert_in_range(before - after + KiB(8), report.freed - report.written, report.freed - report.written + KiB(8));
	rig_check_bytes(rig, INO, p, LEN);
	rig_fsck(rig);
}

static int die_before_punching(void *userdata, const struct io_event *ev)
{
	struct rig **rig = userdata;

	if (ev->op == IO_PUNCH && *rig)
		rig_copy_as_it_is(TAKE(*rig));
	return 0;
}

/* Nothing is left for it to move. */
static void the_next_run_returns_the_space_that_a_killed_one_left(void **state)
{
	struct rig *rig = *state, *dies = NULL;
	_cleanup_(freep) uint8_t *p = make_bytes(KiB(48), 1);
	const struct io_hook hook = { .before = die_before_punching, .userdata = &dies };
	uint64_t before, after;

	rig_close(rig);
	io_set_hook(&hook);
	rig_open(rig);
	mount_with(rig, CHUNKING_PAGE, COMPRESS_NONE);
	rig_write_bytes(rig, INO, p, LEN);
	before = rig_stats(rig).pack_disk;
	dies = rig;
	compact_field(rig, KiB(48));
	assert_null(dies);
	after = rig_stats(rig).pack_disk;
	rig_close_to_copy(rig);
	io_set_hook(NULL);
	rig_open(rig);
	assert_in_range(rig_stats(rig).pack_disk, before + LEN / 4, 2 * before); /* copies, and all that they were made of */
	assert_int_equal(compact_field(rig, KiB(48)).sum.coded, 0);
	assert_int_equal(rig_stats(rig).pack_disk, after);
	rig_check_bytes(rig, INO, p, LEN);
	rig_fsck(rig);
}

/* Of each part one page is left, which keeps all of the part until the collector moves it. It stays compressed, also by a
 * mount that compresses nothing. */
static void the_collector_frees_parts_of_which_little_is_left(void **state)
{
	static const enum compress_kind kinds[] = { COMPRESS_LZ4, COMPRESS_ZSTD };
	struct rig *rig = *state;

	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		_cleanup_(freep) uint8_t *p = rig_soft_bytes(LEN, 5 + k), *small = malloc(NR_PARTS * KiB(4));
		struct gc_report report;
		uint64_t before;

		mount_with(rig, CHUNKING_PAGE, kinds[k]);
		rig_write_bytes(rig, INO, p, LEN);
		for (size_t i = 0; i < NR_PARTS; i++)
			memcpy(small + i * KiB(4), p + i * PART, KiB(4));
		rig_write_bytes(rig, INO + 1, small, NR_PARTS * KiB(4));
		rig_drop(rig, INO);
		before = rig_stats(rig).pack_disk;
		mount_with(rig, CHUNKING_PAGE, COMPRESS_NONE);
		rig_collect(rig, &(struct gc_conf){ .delete = true });
		assert_int_equal(rig_stats(rig).pack_disk, before); /* every part has a page that is needed */
		report = rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 50 });
		assert_int_equal(report.moved_bytes, NR_PARTS * KiB(4));
		assert_in_range(rig_stats(rig).pack_disk, 1, NR_PARTS * KiB(4) * 3 / 4 + KiB(16));
		/* and once is enough */
		report = rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 50 });
		assert_int_equal(report.moved_bytes, 0);
		rig_check_bytes(rig, INO + 1, small, NR_PARTS * KiB(4));
		rig_fsck(rig);
		rig_drop(rig, INO + 1);
		rig_collect(rig, &(struct gc_conf){ .delete = true });
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(a_store_never_grows_by_compacting),
		rig_test(the_index_does_not_grow_by_fingerprints_that_move),
		rig_test(chunks_beside_those_that_are_coded_keep_no_space),
		rig_test(moves_that_save_nothing_are_reversed),
		rig_test(a_stopped_run_returns_the_space_of_what_it_moved),
		rig_test(the_next_run_returns_the_space_that_a_killed_one_left),
		rig_test(the_collector_frees_parts_of_which_little_is_left),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("compact_disk", tests, NULL, NULL);
}
