/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The engine as a producer sees it: what is written comes back, once stored, after every kind of close. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "store/engine.h"
#include "store/engine_state.h"
#include "store/file/content_state.h"
#include "store/file/file_state.h"
#include "store/superblock_format.h"
#include "tests/content_sync.h"
#include "tests/unit/store/rig.h"

static void what_is_written_is_read_back(void **state)
{
	struct rig *rig = *state;
	static const struct {
		uint64_t off;
		size_t len;
	} writes[] = { { 0, 1 },      { 1, 4095 },	   { 4096, 4096 },
		       { 100, 5000 }, { MiB(1) - 10, 20 }, { MiB(3) + 77, MiB(2) } };
	_cleanup_(freep) uint8_t *model = calloc(1, MiB(6)), *got = malloc(MiB(6));
	struct content *c = rig_content(rig, 7);
	struct ns_content st;
	uint64_t size = 0;

	for (size_t i = 0; i < ARRAY_SIZE(writes); i++) {
		rig_pattern(model + writes[i].off, writes[i].len, i + 1);
		assert_int_equal(content_write(c, model + writes[i].off, writes[i].len, writes[i].off), 0);
		size = MAX(size, writes[i].off + writes[i].len);
		assert_int_equal(content_read(c, got, MiB(6), 0), size);
		assert_memory_equal(got, model, size);
	}
	content_stat(c, &st);
	assert_int_equal(st.size, size);
	assert_int_equal(content_sync(c), 0);
	content_close(c);
	rig_reopen(rig);
	c = rig_content(rig, 7);
	assert_int_equal(content_read(c, got, MiB(6), 0), size);
	assert_memory_equal(got, model, size);
	content_close(c);
}

static void same_bytes_twice_are_stored_once(void **state)
{
	struct rig *rig = *state;
	struct engine_stats before, after;

	rig_write(rig, 10, MiB(3) + 4096, 1);
	before = rig_stats(rig);
	assert_int_equal(before.stored_bytes, MiB(3) + 4096);
	rig_write(rig, 11, MiB(3) + 4096, 1);
	after = rig_stats(rig);
	assert_int_equal(after.stored_bytes, before.stored_bytes);
	rig_check(rig, 10, MiB(3) + 4096, 1);
	rig_check(rig, 11, MiB(3) + 4096, 1);
}

static void a_store_that_was_closed_still_knows_its_pages(void **state)
{
	struct rig *rig = *state;
	struct engine_stats st;

	rig_write(rig, 10, MiB(2), 1);
	rig_reopen(rig);
	rig_write(rig, 11, MiB(2), 1);
	st = rig_stats(rig);
	assert_int_equal(st.stored_bytes, MiB(2));
	rig_check(rig, 11, MiB(2), 1);
}

static void zeros_are_holes(void **state)
{
	struct rig *rig = *state;
	_cleanup_(freep) uint8_t *zeros = calloc(1, MiB(2));
	struct content *c = rig_content(rig, 5);
	struct engine_stats st;
	struct ns_content ct;
	uint64_t at;

	assert_int_equal(content_write(c, zeros, MiB(2), 0), 0);
	assert_int_equal(content_flush(c), 0);
	st = rig_stats(rig);
	assert_int_equal(st.stored_bytes, 0);
	content_stat(c, &ct);
	assert_int_equal(ct.size, MiB(2));
	assert_int_equal(ct.mapped, 0);
	assert_int_equal(content_seek(c, 0, SEEK_DATA, &at), -ENXIO);
	assert_int_equal(content_seek(c, 5, SEEK_HOLE, &at), 0);
	assert_int_equal(at, 5);
	content_close(c);
}

static uint64_t processor_ns(void)
{
	struct timespec t;

	assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* A page in each of 40,000 segments, more than fit into the cache as long as they are dirty. Each step looks for what
 * is next: were that all segments each time, this would take minutes of a processor. */
static void many_segments_are_gone_through_in_order(void **state)
{
	const uint64_t nr = 40000, begin = processor_ns();
	struct rig *rig = *state;
	struct content *c;
	uint64_t at = 0;
	uint8_t page[4096];

	rig_close(rig);
	rig->conf.cache = MiB(16);
	rig_open(rig);
	c = rig_content(rig, 5);
	for (uint64_t i = 0; i < nr; i++) {
		rig_pattern(page, sizeof(page), i);
		assert_int_equal(content_write(c, page, sizeof(page), i * MiB(1)), 0);
	}
	for (uint64_t i = 0; i < nr; i++) {
		assert_int_equal(content_seek(c, at, SEEK_DATA, &at), 0);
		assert_int_equal(at, i * MiB(1));
		assert_int_equal(content_seek(c, at, SEEK_HOLE, &at), 0);
		assert_int_equal(at, i * MiB(1) + sizeof(page));
	}
	assert_int_equal(content_truncate(c, sizeof(page)), 0);
	assert_int_equal(content_seek(c, 0, SEEK_HOLE, &at), 0);
	assert_int_equal(at, sizeof(page));
	content_close(c);
	assert_true(processor_ns() - begin < 30 * UINT64_C(1000000000));
}

static void truncate_cuts_and_extends_with_zeros(void **state)
{
	struct rig *rig = *state;
	_cleanup_(freep) uint8_t *want = calloc(1, MiB(3)), *got = malloc(MiB(3));
	struct content *c = rig_content(rig, 5);

	rig_pattern(want, MiB(3), 9);
	assert_int_equal(content_write(c, want, MiB(3), 0), 0);
	assert_int_equal(content_truncate(c, MiB(1) + 123), 0);
	assert_int_equal(content_truncate(c, MiB(3)), 0);
	memset(want + MiB(1) + 123, 0, MiB(2) - 123);
	assert_int_equal(content_read(c, got, MiB(3), 0), MiB(3));
	assert_memory_equal(got, want, MiB(3));
	content_close(c);
}

static void a_clone_shares_and_then_differs(void **state)
{
	struct rig *rig = *state;
	struct content *a, *b;
	struct engine_stats st;
	uint64_t done;

	rig_write(rig, 20, MiB(4), 3);
	a = rig_content(rig, 20);
	b = rig_content(rig, 21);
	assert_int_equal(content_clone(a, 0, b, 0, MiB(4), &done), 0);
	assert_int_equal(done, MiB(4));
	rig_check(rig, 21, MiB(4), 3);
	assert_int_equal(content_write(b, "x", 1, MiB(2)), 0);
	assert_int_equal(content_flush(b), 0);
	rig_check(rig, 20, MiB(4), 3);
	st = rig_stats(rig);
	assert_int_equal(st.stored_bytes, MiB(4) + 4096);
	content_close(a);
	content_close(b);
}

static void a_synced_change_survives_losing_the_engine(void **state)
{
	struct rig *rig = *state;

	rig_write(rig, 30, MiB(1) + 5, 4);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_write(rig, 31, MiB(1), 5); /* not synced */
	rig_crash(rig);
	rig_check(rig, 30, MiB(1) + 5, 4);
	rig_check_absent(rig, 31);
}

static void a_deleted_index_is_rebuilt(void **state)
{
	struct rig *rig = *state;
	struct engine_stats st;

	rig_write(rig, 40, MiB(2) + 9, 6);
	rig_name(rig, "forty", 40);
	rig_close(rig);
	rig_remove_index(rig);
	assert_int_equal(engine_open(rig->path, &rig->conf, &rig->e), -ENODATA);
	assert_int_equal(engine_rebuild(rig->path, &rig->conf), 0);
	rig_open(rig);
	rig_check(rig, 40, MiB(2) + 9, 6);
	assert_int_equal(rig_find(rig, "forty"), 40);
	rig_write(rig, 41, MiB(2), 6);
	st = rig_stats(rig);
	assert_int_equal(st.stored_bytes, MiB(2) + 4096); /* only the short last page of the first differs */
	assert_int_equal(st.logical, MiB(4) + 9);
}

static void a_dropped_content_is_empty(void **state)
{
	struct rig *rig = *state;
	struct engine_stats st;

	rig_write(rig, 50, MiB(2), 7);
	rig_drop(rig, 50);
	rig_check_absent(rig, 50);
	st = rig_stats(rig);
	assert_int_equal(st.logical, 0);
	rig_reopen(rig);
	rig_check_absent(rig, 50);
}

static void numbers_are_never_given_twice(void **state)
{
	struct rig *rig = *state;
	uint64_t last = 0, n;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 5000; i++) {
			assert_int_equal(engine_new_number(rig->e, &n), 0);
			assert_true(n > last);
			last = n;
		}
		assert_int_equal(engine_sync(rig->e), 0);
		round == 1 ? rig_crash(rig) : rig_reopen(rig);
	}
}

static void a_second_opening_is_refused(void **state)
{
	struct rig *rig = *state;
	struct engine *second;

	assert_int_equal(engine_open(rig->path, &rig->conf, &second), -EBUSY);
}

static void another_hash_is_refused(void **state)
{
	struct rig *rig = *state;
	struct engine_conf conf = rig->conf;

	rig_close(rig);
	conf.hash = FP_SHA256;
	assert_int_equal(engine_open(rig->path, &conf, &rig->e), -EINVAL);
	rig->e = NULL;
	rig_open(rig);
}

/* A store keeps its hash, and programs that open it need not name it. */
static void every_hash_finds_its_pages_again(void **state)
{
	for (enum fp_kind kind = FP_XXH3; kind < NR_FP_KINDS; kind++) {
		struct rig *rig = calloc(1, sizeof(*rig));
		uint64_t stored;

		rig->conf = ((struct rig *)*state)->conf;
		rig->conf.hash = kind;
		snprintf(rig->path, sizeof(rig->path), "%.40s.%d", ((struct rig *)*state)->path, (int)kind);
		rig_open(rig);
		rig_write(rig, 5, MiB(1), 1);
		stored = rig_stats(rig).stored_chunks;
		rig->conf.hash = 0;
		rig_reopen(rig);
		rig_write(rig, 6, MiB(1), 1);
		rig_check(rig, 5, MiB(1), 1);
		rig_check(rig, 6, MiB(1), 1);
		assert_int_equal(rig_stats(rig).stored_chunks, stored);
		rig_fsck(rig);
		assert_int_equal(rig_teardown((void **)&rig), 0);
	}
}

static void superblock_copies(struct rig *rig, int flags, struct superblock_disk copies[2])
{
	char path[RIG_PATH_MAX];
	ssize_t n;
	int fd;

	rig_path_of(rig, "superblock", path);
	fd = open(path, flags | O_CLOEXEC);
	assert_true(fd >= 0);
	n = flags == O_RDONLY ? pread(fd, copies, 2 * sizeof(*copies), 0) : pwrite(fd, copies, 2 * sizeof(*copies), 0);
	assert_int_equal(n, 2 * sizeof(*copies));
	close(fd);
}

/* Another version or an unknown bit in one copy is enough, and neither copy is written. */
static void a_store_of_a_later_version_is_refused(void **state)
{
	struct rig *rig = *state;
	struct superblock_disk now[2], later[2], got[2];
	struct engine *e;

	rig_write(rig, 5, MiB(1), 1);
	rig_close(rig);
	superblock_copies(rig, O_RDONLY, now);
	for (unsigned i = 0; i < 12; i++) {
		unsigned copies = 1 + i % 3;

		memcpy(later, now, sizeof(later));
		for (unsigned copy = 0; copy < 2; copy++) {
			if (!(copies & 1u << copy))
				continue;
			if (i < 6)
				later[copy].version = le32_put(SUPERBLOCK_VERSION + 1);
			else
				later[copy].incompat = le32_put(i < 9 ? 1 : 1u << 31);
			later[copy].crc32c =
				le32_put(crc32c(&later[copy], offsetof(struct superblock_disk, crc32c)));
		}
		superblock_copies(rig, O_WRONLY, later);
		rig->conf.read_only = i % 2;
		assert_int_equal(engine_open(rig->path, &rig->conf, &e), -EOPNOTSUPP);
		superblock_copies(rig, O_RDONLY, got);
		assert_memory_equal(got, later, sizeof(got));
	}
	superblock_copies(rig, O_WRONLY, now);
	rig->conf.read_only = false;
	rig_open(rig);
	rig_check(rig, 5, MiB(1), 1);
}

/* spread() of fp_clmul_twin.h, backwards. */
static struct fp gathered(struct fp f)
{
	uint64_t lo = f.lo;

	f.hi = (f.hi - (lo * 0x9e3779b185ebca87 >> 8)) & UINT64_MAX >> 8;
	lo = (lo ^ lo >> 32) * 0xe9e9f4c41d6df849; /* the factors' inverses */
	lo = (lo ^ lo >> 29 ^ lo >> 58) * 0xba79078168d4baf;
	return (struct fp){ .lo = lo ^ lo >> 33, .hi = f.hi };
}

/*
 * Products without carry are linear. If programs could read them, a page at several places with an xor of zero would
 * give values with an xor of zero, and enough such equations lead to collisions.
 */
static void what_a_file_reports_of_its_fingerprints_gives_no_equations(void **state)
{
	static const unsigned places[] = { 1, 2, 4, 7 };
	struct fp sum = FP_NONE, first = FP_NONE;
	struct rig *rig = *state;
	struct content_info info;
	uint8_t page[4096];

	rig_pattern(page, sizeof(page), 1);
	for (size_t i = 0; i <= ARRAY_SIZE(places); i++) {
		struct content *c = rig_content(rig, 10 + i);
		struct fp f;

		/* the first one once more: equal files have equal ones */
		assert_int_equal(content_write(c, page, sizeof(page), places[i % ARRAY_SIZE(places)] * sizeof(page)), 0);
		assert_int_equal(content_truncate(c, 9 * sizeof(page)), 0);
		assert_int_equal(content_info(c, &info), 0);
		content_close(c);
		if (i == 0)
			first = info.fingerprint;
		assert_int_equal(fp_equal(info.fingerprint, first), i % ARRAY_SIZE(places) == 0);
		if (i == ARRAY_SIZE(places))
			break;
		info.fingerprint.lo ^= info.size;
		f = gathered(info.fingerprint);
		sum.lo ^= f.lo;
		sum.hi ^= f.hi;
	}
	assert_false(fp_is_none(sum));
}

/* Nothing is left of it in memory, and nothing of it is for the index. */
static void what_comes_and_goes_between_two_flushes_is_forgotten(void **state)
{
	struct rig *rig = *state;
	uint64_t nr = 0;

	rig_write(rig, 101, KiB(4), 1);
	for (uint64_t ino = 102; ino < 202; ino++) {
		rig_write(rig, ino, KiB(4), ino);
		rig_drop(rig, ino);
	}
	mutex_lock(&rig->e->files->lock);
	for (const struct content *c = rig->e->files->dirty; c; c = c->next_dirty)
		nr += c->ino == 101 ? 1 : 1000;
	mutex_unlock(&rig->e->files->lock);
	assert_int_equal(nr, 1);
	rig_write(rig, 102, KiB(8), 9); /* one of them again */
	rig_reopen(rig);
	rig_check(rig, 101, KiB(4), 1);
	rig_check(rig, 102, KiB(8), 9);
	rig_drop(rig, 101); /* that the index knows, and has to hear of */
	rig_reopen(rig);
	rig_check_absent(rig, 101);
	rig_check_absent(rig, 103);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(what_is_written_is_read_back),
		rig_test(same_bytes_twice_are_stored_once),
		rig_test(a_store_that_was_closed_still_knows_its_pages),
		rig_test(zeros_are_holes),
		rig_test(many_segments_are_gone_through_in_order),
		rig_test(truncate_cuts_and_extends_with_zeros),
		rig_test(a_clone_shares_and_then_differs),
		rig_test(a_synced_change_survives_losing_the_engine),
		rig_test(a_deleted_index_is_rebuilt),
		rig_test(a_dropped_content_is_empty),
		rig_test(numbers_are_never_given_twice),
		rig_test(a_second_opening_is_refused),
		rig_test(another_hash_is_refused),
		rig_test(every_hash_finds_its_pages_again),
		rig_test(what_a_file_reports_of_its_fingerprints_gives_no_equations),
		rig_test(a_store_of_a_later_version_is_refused),
		rig_test(what_comes_and_goes_between_two_flushes_is_forgotten),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
