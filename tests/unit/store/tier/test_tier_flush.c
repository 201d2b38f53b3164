/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Flushing sealed checkpoints to a tier and reading them on a machine that has nothing: complete or absent, wherever
 * the writer ends.
 */
#include "store/tier/flush/tier_flush.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_gets.h"
#include "store/tier/collect/tier_log_format.h"
#include "store/tier/index/tier_index.h"
#include "store/tier/tier_dir.h"
#include "tests/unit/place.h"
#include "tests/unit/store/tier/checkpoints.h"
#include "tests/unit/store/tier/memory.h"

static char logged[1000];

static void note(void *userdata _unused_, enum log_level level _unused_, const char *line)
{
	snprintf(logged, sizeof(logged), "%s", line);
}

static struct tier_writer_conf conf_of(void)
{
	static const uint8_t secret[FP_KEY_LEN] = "a secret of thirty-two bytes...";
	struct tier_writer_conf conf = checkpoint_writer;

	tier_key_init(&conf.key, FP_CLMUL, secret);
	return conf;
}

/* One writer's life. */
static int flush(struct tier *t, const struct checkpoint *c, struct tier_flushed *ret)
{
	struct tier_writer_conf conf = conf_of();
	struct tier_writer *w = NULL;
	int r = tier_writer_open(t, &conf, &w);

	if (r == 0)
		r = tier_flush(w, &c->c, ret);
	tier_writer_close(w);
	return r;
}

static unsigned check(struct memory *m, const struct checkpoint *a, const struct checkpoint *b)
{
	const struct checkpoint *v[] = { a, b };

	return checkpoints_check(memory_open(m, &(struct memory_faults){ 0 }), v, 2);
}

static size_t nr_packs(const struct memory *m)
{
	size_t nr = 0;

	for (size_t i = 0; i < memory_nr(m); i++)
		nr += strncmp(memory_name(m, i), "packs/", 6) == 0;
	return nr;
}

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
		assert_int_equal(flush(memory_open(m, &(struct memory_faults){ .seed = seed }), &a, &f), 0);
		assert_int_equal(f.number, 1);
		assert_int_equal(f.packs, nr_packs(m));
		assert_int_equal(check(m, &a, &b), 1);
		assert_int_equal(flush(memory_open(m, &(struct memory_faults){ .seed = seed }), &b, &f), 0);
		assert_int_equal(f.number, 2);
		assert_int_equal(check(m, &a, &b), 2);
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
	assert_int_equal(flush(t, &a, &f), 0);
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
	struct tier_writer_conf conf = conf_of();
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
	assert_int_equal(nr_packs(m), 2);
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
		struct tier_writer_conf conf = conf_of();

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
		struct tier_writer_conf conf = conf_of();
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
			struct tier_writer_conf other = conf_of();

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
	struct tier_writer_conf conf = conf_of();
	struct memory *m = memory_new();
	struct tier_flushed f;
	struct checkpoint c;
	struct tier_writer *w;
	struct pool pool;
	uint64_t nr = 0, nr_keys = 0;

	pool_init(&pool, 3, 300);
	for (unsigned i = 0; i < 40; i++) {
		checkpoint_init(&c, &pool, i, 10 + i, 0, 300);
		assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &c, &f), 0);
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
	assert_int_equal(memory_nr_requests(m), 7 + 40 + nr_packs(m) + 1 + 2);
	tier_writer_close(w);
	pool_release(&pool);
	memory_free(m);
}

/* With memory for few chunks, more is sent; a record is encoded with all of its chunks nevertheless. */
static void little_memory_costs_bytes_only(void **state _unused_)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct tier_writer_conf conf = conf_of();
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
		assert_true(tier_writer_has(w, 10, a.c.sealed_ns)); /* of whose chunks it has learnt none */
		tier_writer_close(w);
		assert_int_equal(check(m, &a, &b), 2);
		checkpoint_release(&a);
		checkpoint_release(&b);
		pool_release(&pool);
		memory_free(m);
	}
}

/* --- wherever it ends --- */

static bool has_manifest(const struct memory *m, uint64_t number)
{
	size_t len;

	return memory_find(m, tier_manifest_name(checkpoint_writer.store, number).s, &len);
}

static uint64_t nr_states;

/* Kill the writer of b at request k; then another one goes on. */
static void kill_at(const struct checkpoint *a, const struct checkpoint *b, uint64_t seed, uint64_t k, bool after,
		    bool is_there, size_t packs)
{
	struct memory *m = memory_new();
	struct tier_flushed f;

	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ .seed = seed }), a, &f), 0);
	assert_int_equal(
		flush(memory_open(m, &(struct memory_faults){ .seed = seed, .kill_at = k, .kill_after = after }), b, &f),
		-ECANCELED);
	assert_int_equal(has_manifest(m, 2), is_there);
	assert_int_equal(check(m, a, b), has_manifest(m, 2) ? 2 : 1);
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ .seed = seed + 1 }), b, &f), 0);
	assert_int_equal(f.was_there, is_there);
	assert_int_equal(check(m, a, b), 2);
	assert_int_equal(nr_packs(m), packs); /* the second one found the packs of the first */
	memory_lose_power(m); /* what it found is durable as well */
	assert_int_equal(check(m, a, b), 2);
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
		assert_int_equal(flush(memory_open(m, &(struct memory_faults){ .seed = seed }), &a, &f), 0);
		assert_int_equal(flush(memory_open(m, &(struct memory_faults){ .seed = seed }), &b, &f), 0);
		nr = memory_nr_requests(m);
		packs = nr_packs(m);
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
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
	nr = memory_nr_requests(m);
	memory_free(m);
	for (uint64_t k = 1; k <= nr; k++)
		for (unsigned i = 0; i < 2 * ARRAY_SIZE(errors); i++) {
			struct memory_faults faults = {
				.seed = k, .fail_at = k, .fail_with = errors[i / 2], .fail_after = i % 2
			};
			struct tier_writer_conf conf = conf_of();
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
			assert_int_equal(check(m, &a, &a), is_there);
			assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
			assert_int_equal(f.was_there, is_there);
			memory_lose_power(m);
			assert_int_equal(check(m, &a, &a), 1);
			memory_free(m);
		}
	checkpoint_release(&a);
	pool_release(&pool);
}

static void a_second_machine_with_the_same_store_stops(void **state _unused_)
{
	struct tier_writer_conf conf = conf_of();
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
	assert_non_null(strstr(logged, "another machine writes for this store"));
	assert_int_equal(tier_flush(one, &b.c, &f), -ESTALE);
	tier_writer_close(one);
	tier_writer_close(two);
	assert_int_equal(check(m, &a, &b), 1);
	checkpoint_release(&a);
	checkpoint_release(&b);
	pool_release(&pool);
	memory_free(m);
}

static void a_writer_says_which_seals_are_there(void **state _unused_)
{
	struct tier_writer_conf conf = conf_of();
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
	/* the same from what is there; but nothing is known of a damaged one, whose number is taken */
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

static void a_source_that_fails_commits_nothing(void **state _unused_)
{
	struct memory *m = memory_new();
	struct checkpoint a;
	struct tier_flushed f;
	struct pool pool;

	pool_init(&pool, 3, 100);
	checkpoint_init(&a, &pool, 3, 10, 0, 100);
	pool.returns_others = true;
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), -EBADMSG);
	pool.returns_others = false;
	pool.read_fails = -EIO;
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), -EIO);
	pool.read_fails = 0;
	a.catalog_fails = -ESTALE; /* unsealed meanwhile */
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), -ESTALE);
	a.catalog_fails = 0;
	a.catalog.len -= 3;
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), -EBADMSG);
	a.catalog.len += 3;
	assert_int_equal(check(m, &a, &a), 0);
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
	assert_int_equal(check(m, &a, &a), 1);
	checkpoint_release(&a);
	pool_release(&pool);
	memory_free(m);
}

/* Like a directory that is unsealed while it is flushed. The next flush does not share the packs of the one before. */
static void a_writer_goes_on_after_a_source_that_failed(void **state _unused_)
{
	struct tier_writer_conf conf = conf_of();

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
		assert_int_equal(flush(t, &a, &f), 0);
		assert_int_equal(flush(t, &c, &without), 0);
		memory_free(m);
		m = memory_new();
		t = memory_open(m, &(struct memory_faults){ 0 });
		assert_int_equal(tier_writer_open(t, &conf, &w), 0);
		assert_int_equal(tier_flush(w, &a.c, &f), 0);
		before = nr_packs(m);
		pool.returns_others = i == 0;
		pool.read_fails = i == 1 ? -EIO : 0;
		b.catalog_fails = i >= 2 ? -ESTALE : 0;
		pool.reads_late = i == 3;
		assert_int_equal(tier_flush(w, &b.c, &f), i == 0 ? -EBADMSG : i == 1 ? -EIO : -ESTALE);
		assert_false(tier_writer_has_failed(w));
		assert_true(i < 2 || nr_packs(m) > before); /* some were put */
		pool.returns_others = false;
		pool.read_fails = 0;
		b.catalog_fails = 0;
		assert_int_equal(tier_flush(w, &c.c, &f), 0);
		assert_int_equal(f.number, 2);
		assert_int_equal(f.chunks, without.chunks); /* shares those of the first one, and no others */
		assert_int_equal(check(m, &a, &c), 2);
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
			assert_int_equal(flush(memory_open(m[late], &(struct memory_faults){ 0 }), &a, &f[late][0]), 0);
			assert_int_equal(flush(memory_open(m[late], &(struct memory_faults){ 0 }), &b, &f[late][1]), 0);
			assert_null(a.late);
			assert_null(b.late);
			assert_int_equal(check(m[late], &a, &b), 2);
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
		assert_int_equal(flush(memory_open(m[0], &(struct memory_faults){ 0 }), &a, &f[0][0]), -EIO);
		assert_null(a.late);
		assert_int_equal(check(m[0], &a, &b), 0);
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
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
	assert_int_equal(f.chunks, 40);
	assert_int_equal(check(m, &a, &a), 1);
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
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), -ESTALE);
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
	struct tier_reader *r;
	struct pool pool;
	uint8_t *bytes = malloc(MiB(1));

	assert_non_null(bytes);
	pool_init_pages(&pool, 1, 256);
	for (unsigned i = 0; i < 256; i++)
		chunks[i] = i;
	checkpoint_init_file(&a, &pool, 10, chunks, 256);
	assert_int_equal(flush(t, &a, &f), 0);
	t = memory_open(m, &(struct memory_faults){ .seed = 5 });
	assert_int_equal(tier_reader_open(t, tier_manifest_name(checkpoint_writer.store, 1).s, &r), 0);
	assert_int_equal(memory_nr_requests(m), 2); /* manifest, key */
	assert_int_equal(tier_reader_catalog(r, &(struct tier_sink){ ignore_bytes, NULL }), 0);
	assert_int_equal(memory_nr_requests(m), 2 + f.packs);
	for (unsigned turn = 0; turn < 2; turn++) {
		for (unsigned i = 0; i < 256; i++) /* in one buffer, and with the halves of each two exchanged */
			wants[i] = (struct tier_want){ pool.v[i].fp, 4096, bytes + (size_t)4096 * (i ^ turn) };
		memset(bytes, 0, MiB(1));
		assert_int_equal(tier_reader_chunks(r, wants, 256), 0);
		assert_int_equal(memory_nr_requests(m), 2 + (2 + turn) * f.packs);
		for (unsigned i = 0; i < 256; i++)
			assert_memory_equal(wants[i].buf, pool.v[i].bytes, 4096);
	}
	wants[7].fp.lo ^= 1;
	assert_int_equal(tier_reader_chunks(r, wants, 256), -EINVAL);
	tier_reader_close(r);
	free(bytes);
	checkpoint_release(&a);
	pool_release(&pool);
	memory_free(m);
}

/* --- damage in the tier --- */

/* Reads all of the one checkpoint. */
static int read_all(struct memory *m)
{
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
	struct tier_reader *r;
	int k = tier_reader_open(t, tier_manifest_name(checkpoint_writer.store, 1).s, &r);

	if (k < 0)
		return k;
	k = tier_reader_catalog(r, &(struct tier_sink){ ignore_bytes, NULL });
	for (uint32_t i = 0; k == 0 && i < tier_reader_manifest(r)->nr_packs; i++) {
		const struct tier_tables *tables;

		k = tier_reader_tables(r, i, &tables);
		for (uint32_t n = 0; k == 0 && n < tables->nr_chunks; n++) {
			uint32_t in;
			const struct tier_frame *frame = tier_tables_find(tables, n, &in);
			struct pack_cuts cuts = pack_table_cuts(&frame->table);
			struct tier_want w = { .fp = frame->table.fps[in], .len = pack_cut_len(&cuts, in) };

			w.buf = malloc(w.len);
			k = tier_reader_chunks(r, &w, 1);
			free(w.buf);
		}
	}
	tier_reader_close(r);
	return k;
}

static void damage_is_never_returned_as_data(void **state _unused_)
{
	struct memory *m = memory_new();
	struct checkpoint a;
	struct tier_flushed f;
	struct pool pool;

	pool_init(&pool, 9, 60);
	checkpoint_init(&a, &pool, 9, 10, 0, 60);
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
	assert_int_equal(read_all(m), 0);
	for (size_t i = 0; i < memory_nr(m); i++) {
		const char *name = memory_name(m, i);
		size_t len;

		if (strncmp(name, TIER_LOG_PREFIX, strlen(TIER_LOG_PREFIX)) == 0)
			continue; /* not read for a checkpoint */
		memory_data(m, i, &len);
		/* but the footer of a pack, which is for machines that have lost the manifest */
		if (strncmp(name, "packs/", 6) == 0)
			len -= sizeof(struct tier_footer_disk);
		for (size_t at = 0; at < len; at += 1 + len / 40) {
			memory_damage(m, name, at);
			assert_int_equal(read_all(m), -EBADMSG);
			memory_damage(m, name, at);
		}
	}
	assert_int_equal(read_all(m), 0);
	for (size_t i = 0; i < memory_nr(m); i++) {
		struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		char name[TIER_NAME_MAX + 1];
		int r;

		strcpy(name, memory_name(m, i));
		assert_int_equal(tier_get_all(t, name, MiB(1), &b), 0);
		assert_int_equal(tier_call(t, &(struct tier_request){ .op = TIER_DELETE, .name = name }), 0);
		r = read_all(m);
		if (strncmp(name, TIER_LOG_PREFIX, strlen(TIER_LOG_PREFIX)) == 0)
			assert_int_equal(r, 0);
		else
			assert_int_equal(r, strncmp(name, "sealed/", 7) == 0 ? -ENOENT : -EBADMSG);
		assert_int_equal(tier_put_new(memory_open(m, &(struct memory_faults){ 0 }), name, b.data, b.len), 0);
	}
	assert_int_equal(read_all(m), 0);
	checkpoint_release(&a);
	pool_release(&pool);
	memory_free(m);
}

/* It cannot be read, but its number is taken; and what it names is not relied on. */
static void a_damaged_manifest_does_not_stop_the_next(void **state _unused_)
{
	for (unsigned newer = 0; newer < 2; newer++) {
		struct memory *m = memory_new();
		struct tier_object_name name = tier_manifest_name(checkpoint_writer.store, 1);
		struct checkpoint a, b;
		struct tier_flushed f;
		struct pool pool;

		pool_init(&pool, 3, 100);
		checkpoint_init(&a, &pool, 3, 10, 0, 100);
		checkpoint_init(&b, &pool, 4, 11, 0, 100);
		assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
		if (newer)
			memory_set_version(m, name.s, 2);
		else
			memory_damage(m, name.s, 100);
		assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &b, &f), 0);
		assert_int_equal(f.number, 2);
		if (newer)
			memory_set_version(m, name.s, 1);
		else
			memory_damage(m, name.s, 100);
		assert_int_equal(check(m, &a, &b), 2);
		checkpoint_release(&a);
		checkpoint_release(&b);
		pool_release(&pool);
		memory_free(m);
	}
}

static void replace_object(struct memory *m, const char *name, const void *data, size_t len)
{
	struct tier_request q = { .op = TIER_PUT, .name = name, .data = data, .len = len };

	assert_int_equal(tier_call(memory_open(m, &(struct memory_faults){ 0 }), &q), 0);
}

/* The key and packs that the tier has under these names, cut off or with a bit flipped, are put again. */
static void what_is_damaged_in_the_tier_is_put_again(void **state _unused_)
{
	for (unsigned how = 0; how < 4; how++) {
		struct tier_writer_conf conf = conf_of();
		struct memory *m = memory_new();
		struct tier_writer *w;
		struct checkpoint a;
		struct tier_flushed f;
		struct pool pool;

		pool_init(&pool, 7, 100);
		checkpoint_init(&a, &pool, 7, 10, 0, 100);
		assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
		for (size_t i = 0; i < memory_nr(m); i++) {
			const char *name = memory_name(m, i);
			size_t len;
			const void *data = memory_data(m, i, &len);
			uint8_t *copy = malloc(len + 1);

			assert_non_null(copy);
			memcpy(copy, data, len);
			copy[len] = 0;
			if (strncmp(name, "sealed/", 7) == 0 ||
			    strncmp(name, TIER_LOG_PREFIX, strlen(TIER_LOG_PREFIX)) == 0) {
			} else if (how == 0) {
				replace_object(m, name, copy, 0);
			} else if (how == 1) {
				replace_object(m, name, copy, len / 2);
			} else if (how == 2) {
				memory_damage(m, name, len - 70); /* the secret; tables */
			} else {
				replace_object(m, name, copy, len + 1);
			}
			free(copy);
		}
		assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
		/* behind its end nothing is read */
		assert_int_equal(tier_writer_has(w, 10, a.c.sealed_ns), how == 3);
		assert_int_equal(tier_flush(w, &a.c, &f), 0);
		tier_writer_close(w);
		assert_int_equal(check(m, &a, &a), how == 3 ? 1 : 2);
		checkpoint_release(&a);
		pool_release(&pool);
		memory_free(m);
	}
}

static bool begins_with(const char *s, const char *with)
{
	return strncmp(s, with, strlen(with)) == 0;
}

static void delete_objects(struct memory *m, const char *prefix)
{
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });

	for (size_t i = memory_nr(m); i-- > 0;)
		if (begins_with(memory_name(m, i), prefix)) {
			struct tier_request q = { .op = TIER_DELETE, .name = memory_name(m, i) };

			assert_int_equal(tier_call(t, &q), 0);
		}
}

/* No manifest names deleted objects: the writer fails, and the next one puts them again. */
static void what_was_deleted_from_the_tier_is_missed(void **state _unused_)
{
	static const struct {
		const char *prefix;
		unsigned manifests;
	} cases[] = { { "", 2 }, { "packs/", 3 }, { "keys/", 2 }, { "sealed/", 2 } };

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct tier_writer_conf conf = conf_of();
		struct memory *m = memory_new();
		struct tier_flushed f;
		struct tier_writer *w;
		struct checkpoint a, b;
		struct pool pool;
		size_t before;

		pool_init(&pool, 9, 200);
		checkpoint_init(&a, &pool, 9, 10, 0, 150);
		checkpoint_init(&b, &pool, 10, 11, 100, 200);
		assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
		assert_int_equal(tier_flush(w, &a.c, &f), 0);
		delete_objects(m, cases[i].prefix);
		before = has_manifest(m, 1);
		logged[0] = '\0';
		assert_int_equal(tier_flush(w, &b.c, &f), -ENOENT);
		assert_non_null(strstr(logged, "was deleted from the tier"));
		assert_false(has_manifest(m, 2));
		assert_int_equal(has_manifest(m, 1), before);
		tier_writer_close(w);
		assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
		assert_int_equal(tier_writer_has(w, 10, a.c.sealed_ns), i == 2);
		assert_int_equal(tier_flush(w, &a.c, &f), 0);
		assert_int_equal(tier_flush(w, &b.c, &f), 0);
		tier_writer_close(w);
		assert_int_equal(check(m, &a, &b), cases[i].manifests);
		checkpoint_release(&a);
		checkpoint_release(&b);
		pool_release(&pool);
		memory_free(m);
	}
}

/* --- with an index in the store --- */

struct store_dir {
	char path[64];
	int fd;
};

static void store_dir_init(struct store_dir *d)
{
	snprintf(d->path, sizeof(d->path), "%s/ckptfs-test-tier-XXXXXX", test_place());
	assert_non_null(mkdtemp(d->path));
	d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(d->fd >= 0);
}

static void store_dir_clear(const struct store_dir *d)
{
	char command[200];

	snprintf(command, sizeof(command), "rm -rf '%s'/*", d->path);
	assert_int_equal(system(command), 0);
}

static void store_dir_release(struct store_dir *d)
{
	store_dir_clear(d);
	close(d->fd);
	assert_int_equal(rmdir(d->path), 0);
}

#define STATE 300u /* chunks */

/* Version `number` of a state: each one has `changed` chunks that the one before does not have. */
static void state_init(struct checkpoint *c, struct pool *pool, uint64_t ino, unsigned number, unsigned changed)
{
	unsigned chunks[STATE];

	for (unsigned i = 0; i < STATE; i++)
		chunks[i] = i;
	for (unsigned i = 0; i < number * changed; i++)
		chunks[i * 29 % STATE] = STATE + i;
	checkpoint_init_file(c, pool, ino, chunks, STATE);
}

static int flush_with_index(struct tier *t, const struct store_dir *d, uint64_t known_max, const struct checkpoint *c,
			    struct tier_flushed *ret)
{
	struct tier_writer_conf conf = conf_of();
	struct tier_writer *w = NULL;
	int r;

	conf.known_max = known_max;
	conf.has_store = true;
	conf.store_dirfd = d->fd;
	conf.pack_bytes = 20 * 4096;
	r = tier_writer_open(t, &conf, &w);
	if (r == 0) {
		r = tier_flush(w, &c->c, ret);
		assert_int_equal(tier_writer_has_failed(w), r < 0); /* so a caller opens a new one */
	}
	tier_writer_close(w);
	return r;
}

/* A state with twice as many chunks as there is memory for, flushed in order: each chunk is sent once. */
static void chunks_beyond_the_memory_are_known(void **state _unused_)
{
	for (unsigned reopens = 0; reopens < 2; reopens++) {
		struct memory *m = memory_new();
		struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
		struct tier_writer_conf conf = conf_of();
		const struct checkpoint *all[20];
		struct checkpoint c[20];
		struct tier_writer *w = NULL;
		struct store_dir d;
		struct tier_flushed f;
		struct pool pool;

		store_dir_init(&d);
		pool_init_pages(&pool, 1, STATE + 19 * 3);
		conf.known_max = STATE / 2;
		conf.has_store = true;
		conf.store_dirfd = d.fd;
		conf.pack_bytes = 20 * 4096;
		for (unsigned i = 0; i < 20; i++) {
			state_init(&c[i], &pool, 10 + i, i, 3); /* 1 % */
			all[i] = &c[i];
			if (!w)
				assert_int_equal(tier_writer_open(t, &conf, &w), 0);
			assert_int_equal(tier_flush(w, &c[i].c, &f), 0);
			assert_int_equal(f.chunks, i == 0 ? STATE : 3);
			if (reopens)
				tier_writer_close(TAKE(w));
		}
		tier_writer_close(w);
		assert_int_equal(checkpoints_check(t, all, 20), 20);

		/* without the index: all of the tables are read once, and the rest is found */
		store_dir_clear(&d);
		checkpoint_release(&c[0]);
		state_init(&c[0], &pool, 40, 19, 3);
		assert_int_equal(flush_with_index(t, &d, STATE / 2, &c[0], &f), 0);
		assert_int_equal(f.chunks, 0);
		for (unsigned i = 0; i < 20; i++)
			checkpoint_release(&c[i]);
		pool_release(&pool);
		store_dir_release(&d);
		memory_free(m);
	}
}

/* Runs that the index got from an abandoned flush are not searched, though the writer goes on. */
static void an_abandoned_flush_leaves_no_places_in_the_index(void **state _unused_)
{
	struct memory *m = memory_new();
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
	struct tier_writer_conf conf = conf_of();
	struct checkpoint a, b, c, d;
	const struct checkpoint *all[] = { &a, &c, &d };
	struct tier_flushed f;
	struct tier_writer *w;
	struct store_dir store;
	struct pool pool;
	unsigned chunks[300];
	size_t before;

	store_dir_init(&store);
	pool_init(&pool, 1, 400);
	for (unsigned i = 0; i < 300; i++)
		chunks[i] = 100 + i;
	checkpoint_init(&a, &pool, 3, 10, 0, 100);
	checkpoint_init(&b, &pool, 4, 11, 100, 300);
	checkpoint_init_file(&c, &pool, 12, chunks, 300);
	checkpoint_init_file(&d, &pool, 13, chunks, 300);
	conf.known_max = 40;
	conf.has_store = true;
	conf.store_dirfd = store.fd;
	assert_int_equal(tier_writer_open(t, &conf, &w), 0);
	assert_int_equal(tier_flush(w, &a.c, &f), 0);
	before = nr_packs(m);
	b.catalog_fails = -ESTALE;
	assert_int_equal(tier_flush(w, &b.c, &f), -ESTALE);
	assert_true(nr_packs(m) > before);
	assert_int_equal(tier_flush(w, &c.c, &f), 0);
	assert_int_equal(f.chunks, 300);
	tier_writer_close(w);
	assert_int_equal(flush_with_index(t, &store, 40, &d, &f), 0);
	assert_int_equal(f.chunks, 0);
	assert_int_equal(checkpoints_check(t, all, 3), 3);
	checkpoint_release(&a);
	checkpoint_release(&b);
	checkpoint_release(&c);
	checkpoint_release(&d);
	pool_release(&pool);
	store_dir_release(&store);
	memory_free(m);
}

/* Two nodes with one state flush in turn, and each has memory for half of it. */
static void chunks_of_others_beyond_the_memory_are_known(void **state _unused_)
{
	struct memory *m = memory_new();
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
	struct tier_writer *w[2];
	struct store_dir d[2];
	struct tier_flushed f;
	struct checkpoint c;
	struct pool pool;

	pool_init_pages(&pool, 1, STATE + 10 * 3);
	for (unsigned i = 0; i < 2; i++) {
		struct tier_writer_conf conf = conf_of();

		store_dir_init(&d[i]);
		memset(conf.store, (int)(0x70 + i), sizeof(conf.store));
		conf.known_max = STATE / 2;
		conf.has_store = true;
		conf.store_dirfd = d[i].fd;
		assert_int_equal(tier_writer_open(t, &conf, &w[i]), 0);
	}
	for (unsigned i = 0; i < 10; i++)
		for (unsigned k = 0; k < 2; k++) {
			state_init(&c, &pool, 10 + 2 * i + k, i, 3);
			c.c.bytes = STATE * 4096;
			assert_int_equal(tier_flush(w[(i + k) % 2], &c.c, &f), 0); /* the first one sends */
			assert_int_equal(f.chunks, k > 0 ? 0 : i == 0 ? STATE : 3);
			checkpoint_release(&c);
		}
	for (unsigned i = 0; i < 2; i++) {
		tier_writer_close(w[i]);
		store_dir_release(&d[i]);
	}
	pool_release(&pool);
	memory_free(m);
}

/* A sparse file may claim any size. Then no more than 16 times as many chunks of others as fit into memory are loaded. */
static void the_size_of_a_checkpoint_loads_a_bounded_number_of_chunks(void **state _unused_)
{
	struct memory *m = memory_new();
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
	struct tier_writer_conf conf = conf_of();
	struct checkpoint c[2];
	struct tier_writer *w;
	struct tier_flushed f;
	struct store_dir d;
	struct pool pool;

	store_dir_init(&d);
	pool_init_pages(&pool, 1, STATE + 3);
	state_init(&c[0], &pool, 10, 0, 3);
	state_init(&c[1], &pool, 11, 0, 3);
	conf.pack_bytes = 20 * 4096;
	memset(conf.store, 0x70, sizeof(conf.store));
	assert_int_equal(tier_writer_open(t, &conf, &w), 0);
	assert_int_equal(tier_flush(w, &c[0].c, &f), 0);
	assert_int_equal(f.chunks, STATE);
	tier_writer_close(w);

	memset(conf.store, 0x71, sizeof(conf.store));
	conf.known_max = 4;
	conf.has_store = true;
	conf.store_dirfd = d.fd;
	assert_int_equal(tier_writer_open(t, &conf, &w), 0);
	c[1].c.bytes = UINT64_MAX;
	assert_int_equal(tier_flush(w, &c[1].c, &f), 0);
	assert_in_range(f.chunks, STATE - 16 * 4 - 20, STATE - 1); /* whole packs are loaded */
	tier_writer_close(w);
	checkpoint_release(&c[0]);
	checkpoint_release(&c[1]);
	pool_release(&pool);
	store_dir_release(&d);
	memory_free(m);
}

/* With an index, a writer that is opened reads no tables, but a few bytes of each pack. */
static void a_reconnection_reads_no_tables(void **state _unused_)
{
	struct memory *m = memory_new();
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
	struct checkpoint a, b, c;
	struct store_dir d;
	struct tier_flushed f;
	struct pool pool;
	uint64_t bytes;

	store_dir_init(&d);
	pool_init_pages(&pool, 1, STATE + 3);
	state_init(&a, &pool, 10, 0, 3);
	state_init(&b, &pool, 11, 1, 3);
	state_init(&c, &pool, 12, 1, 3);
	assert_int_equal(flush_with_index(t, &d, STATE, &a, &f), 0);
	assert_int_equal(f.packs, 2); /* of a table each */
	t = memory_open(m, &(struct memory_faults){ 0 });
	assert_int_equal(flush_with_index(t, &d, STATE, &a, &f), 0);
	assert_true(f.was_there);
	bytes = memory_got_bytes(m);
	store_dir_clear(&d);
	t = memory_open(m, &(struct memory_faults){ 0 });
	assert_int_equal(flush_with_index(t, &d, STATE, &a, &f), 0);
	assert_int_equal(memory_got_bytes(m) - bytes, 2 * (PACK_BLOCK - 64));
	assert_int_equal(flush_with_index(t, &d, STATE, &b, &f), 0);
	assert_int_equal(f.chunks, 3);

	/* packs are missing: the manifest does not count, and their chunks are sent again */
	delete_objects(m, "packs/");
	t = memory_open(m, &(struct memory_faults){ 0 });
	assert_int_equal(flush_with_index(t, &d, STATE, &c, &f), 0);
	assert_int_equal(f.chunks, STATE);
	assert_int_equal(flush_with_index(t, &d, STATE, &a, &f), 0);
	assert_false(f.was_there);
	assert_int_equal(f.chunks, 3); /* that c does not have */
	checkpoint_release(&a);
	checkpoint_release(&b);
	checkpoint_release(&c);
	pool_release(&pool);
	store_dir_release(&d);
	memory_free(m);
}

/* The writer ends at any request; the files of the store are left as they are at that moment. */
static void a_killed_writer_leaves_an_index_that_is_right(void **state _unused_)
{
	struct checkpoint v[3];
	const struct checkpoint *all[3] = { &v[0], &v[1], &v[2] };
	struct pool pool;
	uint64_t nr = 0;

	pool_init_pages(&pool, 1, STATE + 80);
	for (unsigned i = 0; i < 3; i++)
		state_init(&v[i], &pool, 10 + i, i, 40);
	for (uint64_t k = 0; k <= nr; k++) /* 0: the writer is not killed */
		for (unsigned after = 0; after < 2; after++) {
			struct memory *m = memory_new();
			struct memory_faults faults = { .seed = k, .kill_at = k, .kill_after = after };
			struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
			struct store_dir d;
			struct tier_flushed f;
			int r;

			store_dir_init(&d);
			assert_int_equal(flush_with_index(t, &d, 100, &v[0], &f), 0);
			r = flush_with_index(memory_open(m, &faults), &d, 100, &v[1], &f);
			assert_int_equal(r, k > 0 ? -ECANCELED : 0);
			if (k == 0)
				nr = memory_nr_requests(m);
			t = memory_open(m, &(struct memory_faults){ 0 });
			if (k > 0) {
				assert_int_equal(flush_with_index(t, &d, 100, &v[1], &f), 0);
				assert_int_equal(f.chunks, f.was_there ? 0 : 40);
			}
			assert_int_equal(flush_with_index(t, &d, 100, &v[2], &f), 0);
			assert_int_equal(f.chunks, 40);
			assert_int_equal(checkpoints_check(t, all, 3), 3);
			store_dir_release(&d);
			memory_free(m);
		}
	assert_true(nr > 20);
	for (unsigned i = 0; i < 3; i++)
		checkpoint_release(&v[i]);
	pool_release(&pool);
}

/* An index that is damaged, of another tier, or cannot be written costs nothing but requests. */
static void an_index_that_cannot_be_used_is_made_again(void **state _unused_)
{
	static const char *const commands[] = {
		"printf x | dd of=list bs=1 seek=30 conv=notrunc status=none",
		"for f in *.run; do printf xyz | dd of=$f bs=1 seek=200 conv=notrunc status=none; done",
		"for f in *.run; do truncate -s -1 $f; done",
		"rm *.run",
		"rm list",
	};

	for (unsigned i = 0; i < ARRAY_SIZE(commands); i++) {
		struct memory *m = memory_new();
		struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
		struct checkpoint a, b, c;
		struct store_dir d;
		struct tier_flushed f;
		struct pool pool;
		char command[300];
		int r;

		store_dir_init(&d);
		pool_init_pages(&pool, 1, STATE + 6);
		state_init(&a, &pool, 10, 0, 3);
		state_init(&b, &pool, 11, 1, 3);
		state_init(&c, &pool, 12, 2, 3);
		assert_int_equal(flush_with_index(t, &d, 100, &a, &f), 0);
		snprintf(command, sizeof(command), "cd '%s/%s' && %s", d.path, TIER_INDEX_FOLDER, commands[i]);
		assert_int_equal(system(command), 0);
		logged[0] = '\0';
		r = flush_with_index(t, &d, 100, &b, &f);
		assert_int_equal(r, i == 1 ? -EIO : 0); /* of a block of entries that is noticed during the flush */
		if (i < 4)
			assert_non_null(strstr(logged, "made again"));
		if (r < 0)
			assert_int_equal(flush_with_index(t, &d, 100, &b, &f), 0);
		assert_int_equal(f.chunks, 3);
		assert_int_equal(flush_with_index(t, &d, 100, &c, &f), 0);
		assert_int_equal(f.chunks, 3);

		/* the same files with another tier */
		memory_free(m);
		m = memory_new();
		t = memory_open(m, &(struct memory_faults){ 0 });
		assert_int_equal(flush_with_index(t, &d, 100, &c, &f), 0);
		assert_int_equal(f.chunks, STATE);

		/* and where no folder can be made */
		store_dir_clear(&d);
		snprintf(command, sizeof(command), "touch '%s/%s'", d.path, TIER_INDEX_FOLDER);
		assert_int_equal(system(command), 0);
		assert_int_equal(flush_with_index(t, &d, 100, &a, &f), 0);
		assert_non_null(strstr(logged, "cannot open the index"));
		checkpoint_release(&a);
		checkpoint_release(&b);
		checkpoint_release(&c);
		pool_release(&pool);
		store_dir_release(&d);
		memory_free(m);
	}
}

/* A manifest of another store that is too large, or may not be read, is not used for sharing. The flush succeeds. */
static void manifests_of_others_that_cannot_be_read_stop_nothing(void **state _unused_)
{
	static const int errors[] = { -EFBIG, -EACCES, -EPERM };
	static const char other[] = "sealed/ffffffffffffffffffffffffffffffff/0000000000000001";

	for (unsigned i = 0; i < ARRAY_SIZE(errors); i++) {
		struct memory *m = memory_new();
		struct tier_writer_conf conf = conf_of();
		struct tier_writer *w = NULL;
		struct tier_flushed f;
		struct checkpoint a;
		struct pool pool;

		pool_init(&pool, 3, 60);
		checkpoint_init(&a, &pool, 3, 10, 0, 60);
		replace_object(m, other, "", 0);
		/* key, list, 5 of the log, and this */
		assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ .fail_at = 8, .fail_with = errors[i] }),
						  &conf, &w),
				 0);
		assert_non_null(strstr(logged, other));
		assert_int_equal(tier_flush(w, &a.c, &f), 0);
		tier_writer_close(w);
		/* an own one might be this seal: put the key, get it; list; 4 of the log; this and the other one, in any order */
		assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ .fail_at = 9, .fail_with = errors[i] }),
						  &conf, &w),
				 errors[i]);
		checkpoint_release(&a);
		pool_release(&pool);
		memory_free(m);
	}
}

/* The last manifest is not listed yet: it is found by its number. */
static void a_late_list_does_not_stop_a_writer(void **state _unused_)
{
	struct tier_writer_conf conf = conf_of();
	struct memory *m = memory_new();
	struct checkpoint a, b;
	struct tier_written last;
	struct tier_flushed f;
	struct tier_writer *w;
	struct pool pool;

	pool_init(&pool, 3, 60);
	checkpoint_init(&a, &pool, 3, 10, 0, 60);
	checkpoint_init(&b, &pool, 4, 10, 0, 60);
	b.c.ino = a.c.ino + 1;
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
	assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ .lists_are_late = true }), &conf, &w), 0);
	tier_writer_last(w, &last);
	assert_int_equal(last.number, 1);
	assert_true(tier_writer_has(w, a.c.ino, a.c.sealed_ns));
	assert_int_equal(tier_flush(w, &b.c, &f), 0);
	assert_int_equal(f.number, 2);
	tier_writer_close(w);
	checkpoint_release(&a);
	checkpoint_release(&b);
	pool_release(&pool);
	memory_free(m);
}

/* An object that has the name of a manifest but is none is not read as a whole: it may have 2 GiB. */
static void large_objects_that_are_no_manifests_are_not_read(void **state _unused_)
{
	struct tier_writer_conf conf = conf_of();
	uint8_t *bytes = calloc(1, MiB(1));
	struct memory *m = memory_new();
	struct tier_writer *w;

	assert_non_null(bytes);
	replace_object(m, "sealed/ffffffffffffffffffffffffffffffff/0000000000000001", bytes, MiB(1));
	assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
	assert_int_equal(memory_nr_requests(m), 9); /* key, list, 5 of the log, the first bytes of it; the first number */
	tier_writer_close(w);
	memory_free(m);
	free(bytes);
}

/* A manifest of another store that has lost its packs costs requests for the first ones, which are sent together. */
static void packs_that_others_have_lost_are_not_all_looked_for(void **state _unused_)
{
	struct tier_writer_conf conf = conf_of(), other = conf_of();
	struct memory *m = memory_new();
	struct tier_flushed f;
	struct tier_writer *w;
	struct checkpoint a;
	struct pool pool;

	other.store[0] ^= 1;
	other.pack_bytes = 6000;
	pool_init(&pool, 3, 300);
	checkpoint_init(&a, &pool, 3, 10, 0, 300);
	assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &other, &w), 0);
	assert_int_equal(tier_flush(w, &a.c, &f), 0);
	tier_writer_close(w);
	assert_true(f.packs > 40);
	delete_objects(m, "packs/");
	assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
	/* put the key, get it; list; 7 of the log; manifest, packs; number */
	assert_in_range(memory_nr_requests(m), 12 + 1, 12 + TIER_GETS_MAX);
	tier_writer_close(w);
	checkpoint_release(&a);
	pool_release(&pool);
	memory_free(m);
}

/* Without memory for its chunks, only the head of a manifest is read: it still says how long the manifest must be. */
static void a_manifest_that_is_cut_off_does_not_count(void **state _unused_)
{
	for (unsigned how = 0; how < 3; how++) {
		struct tier_writer_conf conf = conf_of();
		struct memory *m = memory_new();
		struct tier_object_name name = tier_manifest_name(conf.store, 1), next = tier_manifest_name(conf.store, 2);
		struct checkpoint a, b;
		struct tier_flushed f;
		struct tier_writer *w;
		struct pool pool;
		uint8_t *copy;
		size_t len;

		pool_init(&pool, 7, 100);
		checkpoint_init(&a, &pool, 7, 10, 0, 50);
		checkpoint_init(&b, &pool, 8, 11, 50, 100);
		assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
		assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &b, &f), 0);
		assert_non_null(memory_find(m, name.s, &len));
		copy = malloc(len);
		assert_non_null(copy);
		memcpy(copy, memory_find(m, name.s, &len), len);
		if (how == 1)
			replace_object(m, name.s, copy, len - 1);
		if (how == 2) /* a copy under another name */
			replace_object(m, next.s, copy, len);
		free(copy);
		conf.known_max = 2;
		assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
		assert_int_equal(tier_writer_has(w, 10, a.c.sealed_ns), how != 1);
		assert_int_equal(tier_writer_has(w, 11, b.c.sealed_ns), how != 2);
		tier_writer_close(w);
		checkpoint_release(&a);
		checkpoint_release(&b);
		pool_release(&pool);
		memory_free(m);
	}
}

/* All that reads a manifest has it in memory. So a larger one is not put, and its flush ends before all is read. */
static void a_manifest_that_is_too_large_is_not_put(void **state _unused_)
{
	struct tier_writer_conf conf = conf_of();
	struct memory *m = memory_new();
	struct checkpoint a, b;
	struct tier_flushed f;
	struct tier_writer *w;
	struct pool pool;
	size_t size, i;

	pool_init(&pool, 3, 60);
	checkpoint_init_attributes(&a, &pool, 10, 40, 1000);
	checkpoint_init(&b, &pool, 4, 11, 0, 60);
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
	assert_non_null(memory_find(m, tier_manifest_name(conf.store, 1).s, &size));
	for (i = 0; i < 3; i++) {
		const size_t max[] = { size, size - 1, 10000 };
		int result = i == 0 ? 0 : -EFBIG;

		memory_free(m);
		m = memory_new();
		conf.manifest_max = max[i];
		logged[0] = '\0';
		assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
		assert_int_equal(tier_flush(w, &a.c, &f), result);
		assert_int_equal(has_manifest(m, 1), i == 0);
		if (i > 0)
			assert_non_null(strstr(logged, "run1/step.0200: its manifest in the tier would exceed"));
		tier_writer_close(w);
	}
	assert_in_range(a.sent, 10000, 10000 + 1100 + 3000); /* a record and a portion */
	assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &b, &f), 0); /* the others go on */
	assert_int_equal(f.number, 1);
	assert_int_equal(check(m, &a, &b), 1);
	checkpoint_release(&a);
	checkpoint_release(&b);
	pool_release(&pool);
	memory_free(m);
}

/* The answer to the put of a manifest was lost, and a repetition finds the name taken. It is compared in pieces. */
static void a_large_manifest_is_compared_with_its_lost_put(void **state _unused_)
{
	for (unsigned i = 0; i < 3; i++) {
		struct tier_object_name name = tier_manifest_name(checkpoint_writer.store, 1);
		struct memory *m = memory_new();
		struct tier_flushed f;
		struct checkpoint a;
		struct pool pool;
		uint64_t put;
		uint8_t *copy;
		size_t len;

		pool_init(&pool, 3, 60);
		checkpoint_init_attributes(&a, &pool, 10, 150, 60000);
		assert_int_equal(flush(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
		put = memory_nr_requests(m) - 1; /* then the log is read */
		assert_non_null(memory_find(m, name.s, &len));
		assert_true(len > MiB(8));
		copy = malloc(len);
		assert_non_null(copy);
		memcpy(copy, memory_find(m, name.s, &len), len);
		memory_free(m);
		m = memory_new();
		if (i == 0) { /* as it is */
			assert_int_equal(flush(memory_open(m, &(struct memory_faults){ .fail_at = put,
										       .fail_with = -EEXIST,
										       .fail_after = true }),
					       &a, &f),
					 0);
			assert_int_equal(check(m, &a, &a), 1);
		} else { /* with another last byte; one byte shorter */
			struct tier_writer_conf conf = conf_of();
			struct tier_writer *w;

			assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
			copy[len - 1] ^= 1;
			replace_object(m, name.s, copy, i == 1 ? len : len - 1);
			memory_open(m, &(struct memory_faults){ 0 });
			assert_int_equal(tier_flush(w, &a.c, &f), -ENOTUNIQ);
			tier_writer_close(w);
		}
		free(copy);
		checkpoint_release(&a);
		pool_release(&pool);
		memory_free(m);
	}
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
		cmocka_unit_test(chunks_beyond_the_memory_are_known),
		cmocka_unit_test(an_abandoned_flush_leaves_no_places_in_the_index),
		cmocka_unit_test(chunks_of_others_beyond_the_memory_are_known),
		cmocka_unit_test(the_size_of_a_checkpoint_loads_a_bounded_number_of_chunks),
		cmocka_unit_test(a_reconnection_reads_no_tables),
		cmocka_unit_test(a_killed_writer_leaves_an_index_that_is_right),
		cmocka_unit_test(an_index_that_cannot_be_used_is_made_again),
		cmocka_unit_test(a_writer_that_is_killed_leaves_all_or_nothing),
		cmocka_unit_test(a_failed_request_leaves_all_or_nothing),
		cmocka_unit_test(a_second_machine_with_the_same_store_stops),
		cmocka_unit_test(a_writer_says_which_seals_are_there),
		cmocka_unit_test(a_source_that_fails_commits_nothing),
		cmocka_unit_test(a_writer_goes_on_after_a_source_that_failed),
		cmocka_unit_test(a_source_that_reads_late_is_awaited),
		cmocka_unit_test(neighbouring_records_share_chunks),
		cmocka_unit_test(nothing_reads_into_memory_that_was_freed),
		cmocka_unit_test(neighbours_are_read_together),
		cmocka_unit_test(damage_is_never_returned_as_data),
		cmocka_unit_test(a_damaged_manifest_does_not_stop_the_next),
		cmocka_unit_test(what_is_damaged_in_the_tier_is_put_again),
		cmocka_unit_test(what_was_deleted_from_the_tier_is_missed),
		cmocka_unit_test(manifests_of_others_that_cannot_be_read_stop_nothing),
		cmocka_unit_test(a_late_list_does_not_stop_a_writer),
		cmocka_unit_test(large_objects_that_are_no_manifests_are_not_read),
		cmocka_unit_test(packs_that_others_have_lost_are_not_all_looked_for),
		cmocka_unit_test(a_manifest_that_is_cut_off_does_not_count),
		cmocka_unit_test(a_manifest_that_is_too_large_is_not_put),
		cmocka_unit_test(a_large_manifest_is_compared_with_its_lost_put),
	};

	log_to_function(note, NULL);
	return cmocka_run_group_tests_name("tier_flush", tests, NULL, NULL);
}
