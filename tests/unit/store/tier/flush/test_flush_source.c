/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Reading a checkpoint that is flushed: its catalog fails or is late, and so do its chunks. */
#include "store/tier/flush/tier_flush.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/tier/tier.h"
#include "tests/unit/store/tier/checkpoints.h"
#include "tests/unit/store/tier/flush/flush_rig.h"
#include "tests/unit/store/tier/memory.h"
#include "tests/unit/store/tier/restore.h"

static void a_source_that_fails_commits_nothing(void **state _unused_)
{
	struct memory *m = memory_new();
	struct checkpoint a;
	struct tier_flushed f;
	struct pool pool;

	pool_init(&pool, 3, 100);
	checkpoint_init(&a, &pool, 3, 10, 0, 100);
	pool.returns_others = true;
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), -EBADMSG);
	pool.returns_others = false;
	pool.read_fails = -EIO;
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), -EIO);
	pool.read_fails = 0;
	a.catalog_fails = -ESTALE; /* unsealed meanwhile */
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), -ESTALE);
	a.catalog_fails = 0;
	a.catalog.len -= 3;
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), -EBADMSG);
	a.catalog.len += 3;
	assert_int_equal(flush_check(m, &a, &a), 0);
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
	assert_int_equal(flush_check(m, &a, &a), 1);
	checkpoint_release(&a);
	pool_release(&pool);
	memory_free(m);
}

/* Like a directory that is unsealed while it is flushed. The next flush does not share the packs of the one before. */
static void a_writer_goes_on_after_a_source_that_failed(void **state _unused_)
{
	struct tier_writer_conf conf = flush_conf();

	for (unsigned i = 0; i < 4; i++) {
		struct memory *m = memory_new();
		struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
		struct checkpoint a, b, c;
		struct tier_flushed f, without;
		struct tier_writer *w;
		struct pool pool;
		size_t before;

		pool_init(&pool, 3, 300);
		checkpoint_init(&a, &pool, 3, 10, 0, 100);
		checkpoint_init(&b, &pool, 4, 11, 50, 200);
		checkpoint_init(&c, &pool, 5, 12, 50, 300);
		assert_int_equal(flush_once(t, &a, &f), 0);
		assert_int_equal(flush_once(t, &c, &without), 0);
		memory_free(m);
		m = memory_new();
		t = memory_open(m, &(struct memory_faults){ 0 });
		assert_int_equal(tier_writer_open(t, &conf, &w), 0);
		assert_int_equal(tier_flush(w, &a.c, &f), 0);
		before = flush_nr_packs(m);
		pool.returns_others = i == 0;
		pool.read_fails = i == 1 ? -EIO : 0;
		b.catalog_fails = i >= 2 ? -ESTALE : 0;
		pool.reads_late = i == 3;
		assert_int_equal(tier_flush(w, &b.c, &f), i == 0 ? -EBADMSG : i == 1 ? -EIO : -ESTALE);
		assert_false(tier_writer_has_failed(w));
		assert_true(i < 2 || flush_nr_packs(m) > before); /* some were put */
		pool.returns_others = false;
		pool.read_fails = 0;
		b.catalog_fails = 0;
		assert_int_equal(tier_flush(w, &c.c, &f), 0);
		assert_int_equal(f.number, 2);
		assert_int_equal(f.chunks, without.chunks); /* shares those of the first one, and no others */
		assert_int_equal(flush_check(m, &a, &c), 2);
		tier_writer_close(w);
		checkpoint_release(&a);
		checkpoint_release(&b);
		checkpoint_release(&c);
		pool_release(&pool);
		memory_free(m);
	}
}

/* Chunks of a record are read while those of the record before it are appended. The objects are the same. */
static void a_source_that_reads_late_is_awaited(void **state _unused_)
{
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct memory *m[2] = { memory_new(), memory_new() };
		struct tier_flushed f[2][2];
		struct checkpoint a, b;
		struct pool pool;

		pool_init(&pool, seed, 300);
		checkpoint_init(&a, &pool, seed, 10, 0, 200);
		checkpoint_init(&b, &pool, seed + 1000, 11, 100, 300);
		for (unsigned late = 0; late < 2; late++) {
			pool.reads_late = late == 1;
			assert_int_equal(flush_once(memory_open(m[late], &(struct memory_faults){ 0 }), &a, &f[late][0]),
					 0);
			assert_int_equal(flush_once(memory_open(m[late], &(struct memory_faults){ 0 }), &b, &f[late][1]),
					 0);
			assert_null(a.late);
			assert_null(b.late);
			assert_int_equal(flush_check(m[late], &a, &b), 2);
		}
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(f[0][i].chunks, f[1][i].chunks);
			assert_int_equal(f[0][i].bytes, f[1][i].bytes);
		}
		assert_int_equal(memory_nr(m[0]), memory_nr(m[1]));
		for (size_t i = 0; i < memory_nr(m[0]); i++) /* packs are named by their content */
			assert_string_equal(memory_name(m[0], i), memory_name(m[1], i));
		pool.read_fails = -EIO; /* reported by await() */
		memory_free(m[0]);
		m[0] = memory_new();
		assert_int_equal(flush_once(memory_open(m[0], &(struct memory_faults){ 0 }), &a, &f[0][0]), -EIO);
		assert_null(a.late);
		assert_int_equal(flush_check(m[0], &a, &b), 0);
		checkpoint_release(&a);
		checkpoint_release(&b);
		pool_release(&pool);
		memory_free(m[0]);
		memory_free(m[1]);
	}
}

static void neighbouring_records_share_chunks(void **state _unused_)
{
	struct memory *m = memory_new();
	unsigned chunks[400];
	struct checkpoint a;
	struct tier_flushed f;
	struct pool pool;

	pool_init_pages(&pool, 1, 40);
	pool.reads_late = true;
	for (unsigned i = 0; i < 400; i++) /* records have up to 60 of them */
		chunks[i] = i % 40;
	checkpoint_init_file(&a, &pool, 10, chunks, 400);
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
	assert_int_equal(f.chunks, 40);
	assert_int_equal(flush_check(m, &a, &a), 1);
	checkpoint_release(&a);
	pool_release(&pool);
	memory_free(m);
}

static void nothing_reads_into_memory_that_was_freed(void **state _unused_)
{
	struct memory *m = memory_new();
	unsigned chunks[200];
	struct checkpoint a;
	struct tier_flushed f;
	struct pool pool;

	pool_init_pages(&pool, 1, 200);
	pool.reads_late = true;
	for (unsigned i = 0; i < 200; i++)
		chunks[i] = i;
	checkpoint_init_file(&a, &pool, 10, chunks, 200);
	a.catalog.len -= 3; /* the end is cut off, while chunks of the last record are being read */
	a.catalog_fails = -ESTALE;
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), -ESTALE);
	assert_null(a.late);
	checkpoint_release(&a);
	pool_release(&pool);
	memory_free(m);
}

static int ignore_bytes(void *userdata _unused_, const void *p _unused_, size_t len _unused_)
{
	return 0;
}

/* A gateway answers in milliseconds, and each request costs. */
static void neighbours_are_read_together(void **state _unused_)
{
	struct memory *m = memory_new();
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
	struct tier_want wants[256];
	unsigned chunks[256];
	struct checkpoint a;
	struct tier_flushed f;
	struct restore *r;
	struct pool pool;
	uint8_t *bytes = malloc(MiB(1));

	assert_non_null(bytes);
	pool_init_pages(&pool, 1, 256);
	for (unsigned i = 0; i < 256; i++)
		chunks[i] = i;
	checkpoint_init_file(&a, &pool, 10, chunks, 256);
	assert_int_equal(flush_once(t, &a, &f), 0);
	t = memory_open(m, &(struct memory_faults){ .seed = 5 });
	assert_int_equal(restore_open(t, tier_manifest_name(checkpoint_writer.store, 1).s, &r), 0);
	assert_int_equal(memory_nr_requests(m), 2); /* manifest, key */
	assert_int_equal(restore_catalog(r, &(struct tier_sink){ ignore_bytes, NULL }), 0);
	assert_int_equal(memory_nr_requests(m), 2 + f.packs);
	for (unsigned turn = 0; turn < 2; turn++) {
		for (unsigned i = 0; i < 256; i++) /* in one buffer, and with the halves of each two exchanged */
			wants[i] = (struct tier_want){ pool.v[i].fp, 4096, bytes + (size_t)4096 * (i ^ turn) };
		memset(bytes, 0, MiB(1));
		assert_int_equal(restore_chunks(r, wants, 256), 0);
		assert_int_equal(memory_nr_requests(m), 2 + (2 + turn) * f.packs);
		for (unsigned i = 0; i < 256; i++)
			assert_memory_equal(wants[i].buf, pool.v[i].bytes, 4096);
	}
	wants[7].fp.lo ^= 1;
	assert_int_equal(restore_chunks(r, wants, 256), -EINVAL);
	restore_close(r);
	free(bytes);
	checkpoint_release(&a);
	pool_release(&pool);
	memory_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_source_that_fails_commits_nothing),
		cmocka_unit_test(a_writer_goes_on_after_a_source_that_failed),
		cmocka_unit_test(a_source_that_reads_late_is_awaited),
		cmocka_unit_test(neighbouring_records_share_chunks),
		cmocka_unit_test(nothing_reads_into_memory_that_was_freed),
		cmocka_unit_test(neighbours_are_read_together),
	};

	flush_rig_log();
	return cmocka_run_group_tests_name("flush_source", tests, NULL, NULL);
}
