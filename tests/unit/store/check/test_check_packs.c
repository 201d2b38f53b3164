/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The checker on packs: damaged bytes are told with the files that have them, and what is known twice is mended. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "store/log/commit.h"
#include "store/log/record_format.h"
#include "store/pack/pack_format.h"
#include "tests/unit/store/check_rig.h"

static void a_header_is_rewritten(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	rig_flip(rig, "packs/00000001.pack", 20);
	s = check(rig);
	ASSERT_SAID(s, "pack 1: the header is damaged; its chunks can still be read");
	s = repair(rig);
	ASSERT_SAID(s, "+pack 1: the header is damaged; rewritten");
	assert_clean(rig);
	rig_open(rig);
	rig_check(rig, FILE_F, 3 * PAGE, 1);
	rig_close(rig);
}

/* Every field of it, and every part of a fingerprint. */
static void a_table_is_rewritten_from_the_bytes(void **state)
{
	static const uint64_t places[] = { 0,  8,   17,	 20,	   24,	     29,	   33,	37,
					   41, 100, 256, 256 + 15, 256 + 29, 256 + 15 * 7, 4095 };
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		rig_flip(rig, "packs/00000001.pack", pack_table_off(0) + places[i]);
		s = repair(rig);
		ASSERT_SAID(s, "+pack 1 frame 0: the table of fingerprints is damaged; "
			       "rewritten, for 6 of 6 chunks");
		assert_clean(rig);
	}
}

static void zero(struct rig *rig, uint64_t off, size_t len)
{
	char path[RIG_PATH_MAX], zeros[PAGE] = { 0 };
	int fd;

	rig_path_of(rig, "packs/00000001.pack", path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pwrite(fd, zeros, len, (off_t)off), len);
	close(fd);
}

static void files_of_a_lost_table_are_named(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	zero(rig, pack_table_off(0), 1024); /* all that was there; none of it absorbed, so no hint proves anything */
	rig_flip(rig, "packs/00000001.pack", pack_table_off(0));
	s = check(rig);
	ASSERT_SAID(
		s, "g: bytes 0 to 8291 cannot be read: the fingerprints are damaged in pack 1 offset 20480",
		"d/f: bytes 0 to 12287 cannot be read: the fingerprints are damaged in pack 1 offset 8192",
		"d/e/hard: bytes 0 to 12287 cannot be read: the fingerprints are damaged in pack 1 offset 8192",
		"pack 1 frame 0: the table of fingerprints is damaged; "
		"its chunks, up to 1 MiB, cannot be read; -p may repair it");
	assert_int_equal(s.result.nr_lost_files, 2);
	assert_int_equal(s.result.lost_bytes, 5 * PAGE + 100);
	s = repair(rig);
	assert_int_equal(s.result.nr_left, 4);
}

static void hints_prove_the_chunks_of_a_lost_table(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	s = check_with(rig, (struct check_conf){ .repair = true, .rebuild = true }); /* absorbs */
	assert_int_equal(s.nr, 0);
	assert_true(s.result.rebuilt);
	zero(rig, pack_table_off(0) + 256 + 15, 45); /* three of six entries */
	s = repair(rig);
	ASSERT_SAID(s, "+pack 1 frame 0: the table of fingerprints is damaged; rewritten, for 6 of 6 chunks");
	assert_clean(rig);
}

static void files_of_a_damaged_chunk_are_named(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	rig_flip(rig, "packs/00000001.pack", pack_data_off(0) + PAGE + 77);
	s = check(rig);
	assert_int_equal(s.nr, 0); /* the bytes were not read */
	s = check_with(rig, (struct check_conf){ .read_data = true });
	ASSERT_SAID(s, "d/f: bytes 4096 to 8191 cannot be read: the data is damaged in pack 1 offset 12288",
		    "d/e/hard: bytes 4096 to 8191 cannot be read: the data is damaged in pack 1 offset 12288",
		    "pack 1 offset 12288: a chunk of 4096 bytes is damaged");
	assert_int_equal(s.result.nr_lost_files, 1);
	s = check_with(rig, (struct check_conf){ .read_data = true, .repair = true });
	assert_int_equal(s.result.nr_left, 3);
	assert_string_equal(s.text[2],
			    "pack 1 offset 12288: a chunk of 4096 bytes is damaged; there is no second copy");
}

static void a_missing_pack_is_reported_with_its_files(void **state)
{
	struct rig *rig = *state;
	char path[RIG_PATH_MAX];
	struct said s;

	rig_close(rig);
	rig_path_of(rig, "packs/00000001.pack", path);
	assert_int_equal(unlink(path), 0);
	s = check(rig);
	ASSERT_SAID(s, "pack 1: the file is missing",
		    "g: bytes 0 to 8291 cannot be read: there is no data in pack 1 offset 20480",
		    "d/f: bytes 0 to 12287 cannot be read: there is no data in pack 1 offset 8192",
		    "d/e/hard: bytes 0 to 12287 cannot be read: there is no data in pack 1 offset 8192",
		    "packs: should have 6 chunks with 24576 bytes, have 0 with 0");
}

/* Only the journal has the record of freed chunks, and of the recipes that refer to these zeros: they are not taken for
 * freed ones. */
static void a_table_of_zeros_is_missed_before_the_journal_is_applied(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_write(rig, FILE_G, 100 * PAGE, 50); /* nothing of its old bytes is left, which is too little to tidy up */
	rig_reopen(rig);
	assert_int_equal(rig_collect(rig, &(struct gc_conf){ .delete = true }).freed_chunks, 3);
	rig_write(rig, FILE_F, 4 * PAGE, 51);
	assert_int_equal(engine_sync(rig->e), 0);
	commit_confirm(rig->e); /* else the last commit counts as one that a crash cut short */
	rig_copy_as_it_is(rig);
	rig_close_to_copy(rig);
	assert_clean(rig);
	zero(rig, pack_table_off(1), PAGE);
	s = check(rig);
	assert_true(s.result.unapplied > 1);
	ASSERT_SAID(s, "packs: should have 107 chunks with 438272 bytes, have 103 with 421888");
	s = repair(rig);
	ASSERT_SAID(s, "d/f: bytes 0 to 16383 cannot be read: there is no data in pack 1 offset 1060864",
		    "d/e/hard: bytes 0 to 16383 cannot be read: there is no data in pack 1 offset 1060864",
		    "+packs: should have 107 chunks with 438272 bytes, have 103 with 421888; recounted");
}

static void wrong_counts_are_recounted(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	zero(rig, pack_table_off(0), PAGE); /* there is no frame now, and no record of its removal */
	s = repair(rig);
	assert_int_equal(s.nr, 4);
	assert_string_equal(s.text[3], "+packs: should have 6 chunks with 24576 bytes, have 0 with 0; recounted");
	s = repair(rig);
	assert_int_equal(s.nr, 3); /* the files that miss their bytes */
}

/* --- hints --- */

/* As if all had been absorbed: the tables of the packs are not read for it, and RocksDB does not have it. */
/* As many bytes are lost as compression of others has saved. Frames must not count as uncompressed after that, or a
 * collection would free bytes after their end. */
static void frames_are_still_compressed_after_recounting(void **state)
{
	struct rig *rig = *state;
	uint8_t *bytes = rig_soft_bytes(128 * PAGE, 60);
	struct engine_stats st;

	rig_close(rig);
	rig->conf.compress.kind = COMPRESS_ZSTD;
	rig_open(rig);
	rig_write_bytes(rig, FILE_F, bytes, 128 * PAGE);
	st = rig_stats(rig);
	rig_close(rig);
	rig->conf.compress.kind = COMPRESS_NONE;
	rig_open(rig);
	assert_in_range(st.compressed - st.compressed_to, PAGE, 127 * PAGE);
	rig_write(rig, FILE_G, st.compressed - st.compressed_to, 61);
	rig_close(rig);
	zero(rig, pack_table_off(2), PAGE);
	assert_int_equal(repair(rig).result.nr_repaired, 1);
	rig_open(rig);
	rig_write(rig, FILE_F, 64 * PAGE, 62);
	rig_pattern(bytes, 64 * PAGE, 62);
	rig_drop(rig, FILE_G);
	assert_int_equal(engine_sync(rig->e), 0);
	assert_int_equal(rig_collect(rig, &(struct gc_conf){ .delete = true }).freed_chunks, 6 + 64);
	rig_reopen(rig);
	rig_check_bytes(rig, FILE_F, bytes, 128 * PAGE);
	rig_close(rig);
	free(bytes);
}

static void pretend_absorbed(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	struct pack_marks m = { .stream = { { 1, 1 }, { 1, 1 } }, .next_pack = 2 };
	struct ns_key mark = ns_key_meta("absorbed");
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	marks_encode(&m, &value);
	db_batch_put(b, mark.b, mark.len, value.data, value.len);
}

static void missing_hints_are_put_back(void **state)
{
	struct rig *rig = *state;
	struct fp_key key = *engine_key(rig->e);
	struct said s;

	rig_close(rig);
	edit_index(rig, &key, pretend_absorbed);
	s = check(rig);
	ASSERT_SAID(s, "index: 6 chunks cannot be found by their fingerprints and would be stored again");
	s = repair(rig);
	ASSERT_SAID(s, "+index: 6 chunks cannot be found by their fingerprints and would be stored again; put back");
	assert_clean(rig);
}

static void a_chunk_is_repaired_from_its_second_copy(void **state)
{
	struct rig *rig = *state;
	struct fp_key key = *engine_key(rig->e);
	struct said s;

	rig_close(rig);
	edit_index(rig, &key, pretend_absorbed);
	rig_open(rig);
	rig_write(rig, FILE_G, 3 * PAGE, 1); /* what f has, stored once more */
	rig_close(rig);
	s = repair(rig);
	assert_int_equal(s.result.nr_left, 0);
	assert_int_equal(s.result.nr_chunks, 9);
	rig_flip(rig, "packs/00000001.pack", pack_data_off(0) + 2 * PAGE + 5);
	s = check_with(rig, (struct check_conf){ .read_data = true, .repair = true });
	ASSERT_SAID(s, "+pack 1 offset 16384: a chunk of 4096 bytes is damaged; repaired from pack 1 offset 1069056");
	assert_clean(rig);
	rig_open(rig);
	rig_check(rig, FILE_F, 3 * PAGE, 1);
	rig_close(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		check_test(a_header_is_rewritten),
		check_test(a_table_is_rewritten_from_the_bytes),
		check_test(files_of_a_lost_table_are_named),
		check_test(hints_prove_the_chunks_of_a_lost_table),
		check_test(files_of_a_damaged_chunk_are_named),
		check_test(a_missing_pack_is_reported_with_its_files),
		check_test(a_table_of_zeros_is_missed_before_the_journal_is_applied),
		check_test(wrong_counts_are_recounted),
		check_test(frames_are_still_compressed_after_recounting),
		check_test(missing_hints_are_put_back),
		check_test(a_chunk_is_repaired_from_its_second_copy),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("check_packs", tests, NULL, NULL);
}
