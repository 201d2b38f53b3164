/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A writer with an index in the store: it knows more chunks than there is memory for. */
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

#include "base/util.h"
#include "store/tier/index/tier_index.h"
#include "store/tier/tier.h"
#include "tests/unit/place.h"
#include "tests/unit/store/tier/checkpoints.h"
#include "tests/unit/store/tier/flush/flush_rig.h"
#include "tests/unit/store/tier/memory.h"

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
	struct tier_writer_conf conf = flush_conf();
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

static bool has_index(const struct store_dir *d)
{
	return faccessat(d->fd, TIER_INDEX_FOLDER "/list", F_OK, 0) == 0;
}

/* A flush does not wait for it, and the next one, which fails, adds nothing to it. */
static void the_index_is_written_after_the_flush(void **state _unused_)
{
	struct memory *m = memory_new();
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
	struct tier_writer_conf conf = flush_conf();
	struct tier_writer *w = NULL;
	struct checkpoint a, b;
	struct tier_flushed f;
	struct store_dir d;
	struct pool pool;

	store_dir_init(&d);
	pool_init_pages(&pool, 1, STATE + 3);
	state_init(&a, &pool, 10, 0, 3);
	state_init(&b, &pool, 11, 1, 3);
	conf.has_store = true;
	conf.store_dirfd = d.fd;
	assert_int_equal(tier_writer_open(t, &conf, &w), 0);
	assert_int_equal(tier_flush(w, &a.c, &f), 0);
	assert_false(has_index(&d));
	pool.read_fails = -EIO;
	assert_int_equal(tier_flush(w, &b.c, &f), -EIO);
	assert_true(has_index(&d));
	tier_writer_close(w);
	pool.read_fails = 0;
	assert_int_equal(flush_with_index(t, &d, STATE, &b, &f), 0);
	assert_int_equal(f.chunks, 3);
	assert_int_equal(checkpoints_check(t, (const struct checkpoint *[]){ &a, &b }, 2), 2);
	checkpoint_release(&a);
	checkpoint_release(&b);
	pool_release(&pool);
	store_dir_release(&d);
	tier_close(t);
	memory_free(m);
}

/* A state with twice as many chunks as there is memory for, flushed in order: each chunk is sent once. */
static void chunks_beyond_the_memory_are_known(void **state _unused_)
{
	for (unsigned reopens = 0; reopens < 2; reopens++) {
		struct memory *m = memory_new();
		struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
		struct tier_writer_conf conf = flush_conf();
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
	struct tier_writer_conf conf = flush_conf();
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
	before = flush_nr_packs(m);
	b.catalog_fails = -ESTALE;
	assert_int_equal(tier_flush(w, &b.c, &f), -ESTALE);
	assert_true(flush_nr_packs(m) > before);
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
		struct tier_writer_conf conf = flush_conf();

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
	struct tier_writer_conf conf = flush_conf();
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
	memory_delete_all(m, "packs/");
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
		flush_logged[0] = '\0';
		r = flush_with_index(t, &d, 100, &b, &f);
		assert_int_equal(r, i == 1 ? -EIO : 0); /* of a block of entries that is noticed during the flush */
		if (i < 4)
			assert_non_null(strstr(flush_logged, "made again"));
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
		assert_non_null(strstr(flush_logged, "cannot open the index"));
		checkpoint_release(&a);
		checkpoint_release(&b);
		checkpoint_release(&c);
		pool_release(&pool);
		store_dir_release(&d);
		memory_free(m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_index_is_written_after_the_flush),
		cmocka_unit_test(chunks_beyond_the_memory_are_known),
		cmocka_unit_test(an_abandoned_flush_leaves_no_places_in_the_index),
		cmocka_unit_test(chunks_of_others_beyond_the_memory_are_known),
		cmocka_unit_test(the_size_of_a_checkpoint_loads_a_bounded_number_of_chunks),
		cmocka_unit_test(a_reconnection_reads_no_tables),
		cmocka_unit_test(a_killed_writer_leaves_an_index_that_is_right),
		cmocka_unit_test(an_index_that_cannot_be_used_is_made_again),
	};

	flush_rig_log();
	return cmocka_run_group_tests_name("flush_index", tests, NULL, NULL);
}
