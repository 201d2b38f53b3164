/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Flushing sealed checkpoints to a tier and reading them on a machine that has nothing: complete or absent, wherever
 * the writer ends.
 */
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
#include "store/tier/tier_dir.h"
#include "store/tier/tier_gets.h"
#include "tests/unit/place.h"
#include "tests/unit/store/tier/checkpoints.h"
#include "tests/unit/store/tier/flush/flush_rig.h"
#include "tests/unit/store/tier/memory.h"

/* --- what was flushed is read --- */

static void any_checkpoint_is_read_back(void **state _unused_)
{
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct memory *m = memory_new();
		struct checkpoint a, b;
		struct tier_flushed f;
		struct pool pool;

		pool_init(&pool, seed, 120);
		checkpoint_init(&a, &pool, seed, 10, 0, 80);
		checkpoint_init(&b, &pool, seed + 1000, 11, 40, 120);
		assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ .seed = seed }), &a, &f), 0);
		assert_int_equal(f.number, 1);
		assert_int_equal(f.packs, flush_nr_packs(m));
		assert_int_equal(flush_check(m, &a, &b), 1);
		assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ .seed = seed }), &b, &f), 0);
		assert_int_equal(f.number, 2);
		assert_int_equal(flush_check(m, &a, &b), 2);
		checkpoint_release(&a);
		checkpoint_release(&b);
		pool_release(&pool);
		memory_free(m);
	}
}

static void it_is_the_same_in_a_directory(void **state _unused_)
{
	char dir[64], command[100];
	const struct checkpoint *v[1];
	struct checkpoint a;
	struct tier_flushed f;
	struct pool pool;
	struct tier *t;

	snprintf(dir, sizeof(dir), "%s/ckptfs-test-tier-XXXXXX", test_place());
	assert_non_null(mkdtemp(dir));
	assert_int_equal(tier_dir_open(dir, &(struct tier_dir_conf){ 0 }, &t), 0);
	pool_init(&pool, 5, 300);
	checkpoint_init(&a, &pool, 5, 10, 0, 300);
	assert_int_equal(flush_once(t, &a, &f), 0);
	assert_true(f.packs > 3);
	v[0] = &a;
	assert_int_equal(checkpoints_check(t, v, 1), 1);
	tier_close(t);
	checkpoint_release(&a);
	pool_release(&pool);
	snprintf(command, sizeof(command), "rm -r '%s'", dir);
	assert_int_equal(system(command), 0);
}

static void what_the_tier_has_is_not_sent_again(void **state _unused_)
{
	struct tier_writer_conf conf = flush_conf();
	struct memory *m = memory_new();
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
	unsigned first[256], second[256];
	struct checkpoint a, b, other;
	struct tier_flushed f;
	struct tier_writer *w;
	struct pool pool;

	pool_init_pages(&pool, 1, 320);
	for (unsigned i = 0; i < 256; i++) {
		first[i] = i;
		second[i] = i % 4 == 0 ? 256 + i / 4 : i; /* a quarter is new */
	}
	checkpoint_init_file(&a, &pool, 10, first, 256);
	checkpoint_init_file(&b, &pool, 11, second, 256);
	checkpoint_init_file(&other, &pool, 12, second, 256);
	conf.pack_bytes = MiB(64);
	assert_int_equal(tier_writer_open(t, &conf, &w), 0);
	assert_int_equal(tier_flush(w, &a.c, &f), 0);
	assert_int_equal(f.chunk_bytes, MiB(1));
	assert_int_equal(f.packs, 1);
	assert_in_range(f.bytes, MiB(1), MiB(1) * 102 / 100); /* one table, a footer, and a manifest with few runs */
	assert_int_equal(tier_flush(w, &b.c, &f), 0);
	assert_int_equal(f.chunk_bytes, KiB(256));
	assert_int_equal(tier_flush(w, &b.c, &f), 0); /* again */
	assert_true(f.was_there);
	assert_int_equal(f.number, 2);
	tier_writer_close(w);

	/* another node of the job finds all of it */
	memset(conf.store, 0x77, sizeof(conf.store));
	assert_int_equal(tier_writer_open(t, &conf, &w), 0);
	assert_int_equal(tier_flush(w, &other.c, &f), 0);
	assert_int_equal(f.chunks, 0);
	assert_int_equal(f.packs, 0);
	assert_int_equal(f.number, 1);
	assert_false(f.was_there);
	tier_writer_close(w);
	assert_int_equal(flush_nr_packs(m), 2);
	{
		const struct checkpoint *v[] = { &a, &b, &other };

		assert_int_equal(checkpoints_check(t, v, 3), 3);
	}

	/* one with another secret has another key and shares nothing */
	tier_key_init(&conf.key, FP_CLMUL, (const uint8_t[FP_KEY_LEN]){ 1 });
	assert_int_equal(tier_writer_open(t, &conf, &w), 0);
	assert_int_equal(tier_flush(w, &a.c, &f), -EBADMSG); /* the fingerprints are those of the first key */
	tier_writer_close(w);
	checkpoint_release(&a);
	checkpoint_release(&b);
	checkpoint_release(&other);
	pool_release(&pool);
	memory_free(m);
}

/* Nodes of a job mount at its start, and flush one after the other. */
static void what_others_flush_meanwhile_is_not_sent_again(void **state _unused_)
{
	struct memory *m = memory_new();
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
	unsigned first[256], second[256], third[256];
	const struct checkpoint *all[5];
	struct checkpoint c[5];
	struct tier_writer *w[3];
	struct tier_flushed f;
	struct pool pool;

	pool_init_pages(&pool, 1, 384);
	for (unsigned i = 0; i < 256; i++) {
		first[i] = i;
		second[i] = i % 4 == 0 ? 256 + i / 4 : i;
		third[i] = i % 4 == 1 ? 320 + i / 4 : second[i];
	}
	for (unsigned i = 0; i < 3; i++) {
		struct tier_writer_conf conf = flush_conf();

		memset(conf.store, (int)(0x70 + i), sizeof(conf.store));
		conf.known_max = 1500;
		assert_int_equal(tier_writer_open(t, &conf, &w[i]), 0);
	}
	checkpoint_init_file(&c[0], &pool, 10, first, 256);
	checkpoint_init_file(&c[1], &pool, 11, first, 256);
	checkpoint_init_file(&c[2], &pool, 12, second, 256);
	checkpoint_init_file(&c[3], &pool, 13, second, 256);
	checkpoint_init_file(&c[4], &pool, 14, third, 256);
	assert_int_equal(tier_flush(w[0], &c[0].c, &f), 0);
	assert_int_equal(f.chunks, 256);
	assert_int_equal(tier_flush(w[1], &c[1].c, &f), 0);
	assert_int_equal(f.chunks, 0);
	assert_int_equal(f.packs, 0);
	assert_int_equal(tier_flush(w[1], &c[2].c, &f), 0);
	assert_int_equal(f.chunks, 64);
	assert_int_equal(tier_flush(w[0], &c[3].c, &f), 0);
	assert_int_equal(f.chunks, 0);
	assert_int_equal(tier_flush(w[2], &c[4].c, &f), 0); /* which has flushed nothing so far */
	assert_int_equal(f.chunks, 64);
	for (unsigned i = 0; i < 5; i++)
		all[i] = &c[i];
	assert_int_equal(checkpoints_check(t, all, 5), 5);
	for (unsigned i = 0; i < 3; i++)
		tier_writer_close(w[i]);
	for (unsigned i = 0; i < 5; i++)
		checkpoint_release(&c[i]);
	pool_release(&pool);
	memory_free(m);
}

/* If there is memory for the chunks of one store, these are its own, and the newest ones; whatever its id is. */
static void own_chunks_are_loaded_first(void **state _unused_)
{
	for (unsigned which = 0; which < 2; which++) {
		struct tier_writer_conf conf = flush_conf();
		struct memory *m = memory_new();
		struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
		unsigned chunks[100];
		struct checkpoint a, b, c;
		struct tier_flushed f;
		struct tier_writer *w;
		struct pool pool;

		pool_init_pages(&pool, 1, 400);
		for (unsigned i = 0; i < 100; i++)
			chunks[i] = i;
		checkpoint_init_file(&a, &pool, 10, chunks, 100);
		checkpoint_init_file(&b, &pool, 11, chunks, 100);
		checkpoint_init(&c, &pool, 3, 12, 100, 400);
		memset(conf.store, which == 0 ? 0x01 : 0xfe, sizeof(conf.store)); /* the first or the last one in a list */
		assert_int_equal(tier_writer_open(t, &conf, &w), 0);
		assert_int_equal(tier_flush(w, &a.c, &f), 0);
		tier_writer_close(w);
		for (unsigned i = 0; i < 4; i++) {
			struct tier_writer_conf other = flush_conf();

			memset(other.store, (int)(0x20 + 0x30 * i), sizeof(other.store));
			assert_int_equal(tier_writer_open(t, &other, &w), 0);
			assert_int_equal(tier_flush(w, &c.c, &f), 0);
			tier_writer_close(w);
		}
		conf.known_max = 210;
		assert_int_equal(tier_writer_open(t, &conf, &w), 0);
		assert_true(tier_writer_has(w, 10, a.c.sealed_ns));
		assert_int_equal(tier_flush(w, &b.c, &f), 0);
		assert_int_equal(f.chunks, 0);
		tier_writer_close(w);
		checkpoint_release(&a);
		checkpoint_release(&b);
		checkpoint_release(&c);
		pool_release(&pool);
		memory_free(m);
	}
}

/* Manifests and tables are got side by side, and no key. */
static void a_writer_is_opened_with_requests_in_flight(void **state _unused_)
{
	struct tier_writer_conf conf = flush_conf();
	struct memory *m = memory_new();
	struct tier_flushed f;
	struct checkpoint c;
	struct tier_writer *w;
	struct pool pool;
	uint64_t nr = 0, nr_keys = 0;

	pool_init(&pool, 3, 300);
	for (unsigned i = 0; i < 40; i++) {
		checkpoint_init(&c, &pool, i, 10 + i, 0, 300);
		assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &c, &f), 0);
		checkpoint_release(&c);
	}
	for (size_t i = 0; i < memory_nr(m); i++) {
		nr += strncmp(memory_name(m, i), TIER_SEALED_PREFIX, strlen(TIER_SEALED_PREFIX)) == 0;
		nr_keys += strncmp(memory_name(m, i), "keys/", 5) == 0;
	}
	assert_int_equal(nr, 40);
	assert_int_equal(nr_keys, 1);
	assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ .page = 1000 }), &conf, &w), 0);
	assert_true(memory_in_flight_max(m) > TIER_GETS_MAX); /* tables, while manifests are in flight */
	/* put the key, get it; list; 4 of the log; manifests; packs; the next number; the last manifest, twice */
	assert_int_equal(memory_nr_requests(m), 7 + 40 + flush_nr_packs(m) + 1 + 2);
	tier_writer_close(w);
	pool_release(&pool);
	memory_free(m);
}

/* With memory for few chunks, more is sent; a record is encoded with all of its chunks nevertheless. */
static void little_memory_costs_bytes_only(void **state _unused_)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct tier_writer_conf conf = flush_conf();
		struct memory *m = memory_new();
		struct tier *t = memory_open(m, &(struct memory_faults){ .seed = seed });
		struct tier_flushed f;
		struct checkpoint a, b;
		struct tier_writer *w;
		struct pool pool;

		pool_init(&pool, seed, 120);
		checkpoint_init(&a, &pool, seed, 10, 0, 120);
		checkpoint_init(&b, &pool, seed + 1000, 11, 0, 120);
		conf.known_max = 16;
		assert_int_equal(tier_writer_open(t, &conf, &w), 0);
		assert_int_equal(tier_flush(w, &a.c, &f), 0);
		tier_writer_close(w);
		assert_int_equal(tier_writer_open(t, &conf, &w), 0); /* learns few */
		assert_int_equal(tier_flush(w, &b.c, &f), 0);
		tier_writer_close(w);
		assert_true(f.chunks > 0);
		assert_int_equal(tier_writer_open(t, &conf, &w), 0);
		assert_true(tier_writer_has(w, 11, b.c.sealed_ns));
		assert_true(tier_writer_has(w, 10, a.c.sealed_ns)); /* none of its chunks is in the table */
		tier_writer_close(w);
		assert_int_equal(flush_check(m, &a, &b), 2);
		checkpoint_release(&a);
		checkpoint_release(&b);
		pool_release(&pool);
		memory_free(m);
	}
}

/* --- wherever it ends --- */

static uint64_t nr_states;

/* Kill the writer of b at request k; then another one goes on. */
static void kill_at(const struct checkpoint *a, const struct checkpoint *b, uint64_t seed, uint64_t k, bool after,
		    bool is_there, size_t packs)
{
	struct memory *m = memory_new();
	struct tier_flushed f;

	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ .seed = seed }), a, &f), 0);
	assert_int_equal(
		flush_once(memory_open(m, &(struct memory_faults){ .seed = seed, .kill_at = k, .kill_after = after }),
			   b, &f),
		-ECANCELED);
	assert_int_equal(flush_has_manifest(m, 2), is_there);
	assert_int_equal(flush_check(m, a, b), flush_has_manifest(m, 2) ? 2 : 1);
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ .seed = seed + 1 }), b, &f), 0);
	assert_int_equal(f.was_there, is_there);
	assert_int_equal(flush_check(m, a, b), 2);
	assert_int_equal(flush_nr_packs(m), packs); /* the second one found the packs of the first */
	memory_lose_power(m); /* what it found is durable as well */
	assert_int_equal(flush_check(m, a, b), 2);
	memory_free(m);
	nr_states++;
}

static void a_writer_that_is_killed_leaves_all_or_nothing(void **state _unused_)
{
	uint64_t wanted = kill_states_wanted(700), first = kill_first_seed();

	for (uint64_t seed = first; nr_states < wanted; seed++) {
		struct memory *m = memory_new();
		struct checkpoint a, b;
		struct tier_flushed f;
		struct pool pool;
		uint64_t nr;
		size_t packs;

		if (first != 1)
			print_message("seed %llu\n", (unsigned long long)seed);

		pool_init(&pool, seed, 200);
		checkpoint_init(&a, &pool, seed, 10, 0, 100);
		checkpoint_init(&b, &pool, seed + 1000, 11, 50, 200);
		assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ .seed = seed }), &a, &f), 0);
		assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ .seed = seed }), &b, &f), 0);
		nr = memory_nr_requests(m);
		packs = flush_nr_packs(m);
		memory_free(m);
		for (uint64_t k = 1; k <= nr; k++) { /* the last one reads the log of collections; before it, the manifest */
			kill_at(&a, &b, seed, k, false, k == nr, packs);
			kill_at(&a, &b, seed, k, true, k >= nr - 1, packs);
		}
		checkpoint_release(&a);
		checkpoint_release(&b);
		pool_release(&pool);
	}
	print_message("a writer has ended in %llu states\n", (unsigned long long)nr_states);
}

/* The request took effect or not, and the writer learns only that it failed. */
static void a_failed_request_leaves_all_or_nothing(void **state _unused_)
{
	static const int errors[] = { -EAGAIN, -EIO, -ENOSPC };
	struct memory *m = memory_new();
	struct checkpoint a;
	struct tier_flushed f;
	struct pool pool;
	uint64_t nr;

	pool_init(&pool, 3, 200);
	checkpoint_init(&a, &pool, 3, 10, 0, 200);
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
	nr = memory_nr_requests(m);
	memory_free(m);
	for (uint64_t k = 1; k <= nr; k++)
		for (unsigned i = 0; i < 2 * ARRAY_SIZE(errors); i++) {
			struct memory_faults faults = {
				.seed = k, .fail_at = k, .fail_with = errors[i / 2], .fail_after = i % 2
			};
			struct tier_writer_conf conf = flush_conf();
			struct tier_writer *w = NULL;
			bool is_there;
			int r;

			m = memory_new();
			r = tier_writer_open(memory_open(m, &faults), &conf, &w);
			if (r == 0) {
				r = tier_flush(w, &a.c, &f);
				assert_true(tier_writer_has_failed(w));
				assert_int_equal(tier_flush(w, &a.c, &f), -ESTALE); /* it does not go on */
			}
			assert_int_equal(r, errors[i / 2]);
			tier_writer_close(w);
			is_there = k == nr || (k == nr - 1 && faults.fail_after);
			assert_int_equal(flush_check(m, &a, &a), is_there);
			assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
			assert_int_equal(f.was_there, is_there);
			memory_lose_power(m);
			assert_int_equal(flush_check(m, &a, &a), 1);
			memory_free(m);
		}
	checkpoint_release(&a);
	pool_release(&pool);
}

static void a_second_machine_with_the_same_store_stops(void **state _unused_)
{
	struct tier_writer_conf conf = flush_conf();
	struct memory *m = memory_new();
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
	struct tier_writer *one, *two;
	struct checkpoint a, b;
	struct tier_flushed f;
	struct pool pool;

	pool_init(&pool, 3, 100);
	checkpoint_init(&a, &pool, 3, 10, 0, 100);
	checkpoint_init(&b, &pool, 4, 11, 0, 100);
	assert_int_equal(tier_writer_open(t, &conf, &one), 0);
	assert_int_equal(tier_writer_open(t, &conf, &two), 0);
	assert_int_equal(tier_flush(two, &b.c, &f), 0);
	assert_int_equal(tier_flush(one, &a.c, &f), -ENOTUNIQ);
	assert_non_null(strstr(flush_logged, "another machine writes for this store"));
	assert_int_equal(tier_flush(one, &b.c, &f), -ESTALE);
	tier_writer_close(one);
	tier_writer_close(two);
	assert_int_equal(flush_check(m, &a, &b), 1);
	checkpoint_release(&a);
	checkpoint_release(&b);
	pool_release(&pool);
	memory_free(m);
}

static void a_writer_says_which_seals_are_there(void **state _unused_)
{
	struct tier_writer_conf conf = flush_conf();
	struct memory *m = memory_new();
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
	struct checkpoint a, b;
	struct tier_written last;
	struct tier_flushed f;
	struct tier_writer *w;
	struct pool pool;

	pool_init(&pool, 2, 60);
	checkpoint_init(&a, &pool, 2, 10, 0, 30);
	checkpoint_init(&b, &pool, 3, 11, 30, 60);
	assert_int_equal(tier_writer_open(t, &conf, &w), 0);
	tier_writer_last(w, &last);
	assert_int_equal(last.number, 0);
	assert_int_equal(tier_flush(w, &a.c, &f), 0);
	assert_int_equal(tier_flush(w, &b.c, &f), 0);
	tier_writer_last(w, &last);
	assert_int_equal(last.number, 2);
	assert_int_equal(last.ino, 11);
	tier_writer_close(w);
	/* the same from the manifests; a damaged one is skipped, but its number is in use */
	memory_damage(m, tier_manifest_name(conf.store, 2).s, 100);
	assert_int_equal(tier_writer_open(t, &conf, &w), 0);
	tier_writer_last(w, &last);
	assert_int_equal(last.number, 2);
	assert_int_equal(last.ino, 0);
	assert_true(tier_writer_has(w, 10, a.c.sealed_ns));
	assert_false(tier_writer_has(w, 10, a.c.sealed_ns + 1));
	assert_false(tier_writer_has(w, 11, b.c.sealed_ns));
	tier_writer_close(w);
	checkpoint_release(&a);
	checkpoint_release(&b);
	pool_release(&pool);
	memory_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_checkpoint_is_read_back),
		cmocka_unit_test(it_is_the_same_in_a_directory),
		cmocka_unit_test(what_the_tier_has_is_not_sent_again),
		cmocka_unit_test(what_others_flush_meanwhile_is_not_sent_again),
		cmocka_unit_test(own_chunks_are_loaded_first),
		cmocka_unit_test(a_writer_is_opened_with_requests_in_flight),
		cmocka_unit_test(little_memory_costs_bytes_only),
		cmocka_unit_test(a_writer_that_is_killed_leaves_all_or_nothing),
		cmocka_unit_test(a_failed_request_leaves_all_or_nothing),
		cmocka_unit_test(a_second_machine_with_the_same_store_stops),
		cmocka_unit_test(a_writer_says_which_seals_are_there),
	};

	flush_rig_log();
	return cmocka_run_group_tests_name("tier_flush", tests, NULL, NULL);
}
