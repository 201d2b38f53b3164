/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A store reads its checkpoints back: exactly what it has put, or an error, and within a limited time. */
#include "store/tier/recall/tier_recall.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "store/tier/reading/tier_tree.h"
#include "store/tier/tier.h"
#include "store/tier/tier_dir.h"
#include "tests/unit/place.h"
#include "tests/unit/store/tier/checkpoints.h"

#define CHUNKS 40u
#define LONG_NS (UINT64_C(600) * 1000000000) /* a limit that no test waits for */

static char dir[64];
static struct pool pool;
static uint8_t *content[2];
static size_t content_len[2];

static void ignore(void *userdata _unused_, enum log_level level _unused_, const char *line _unused_)
{
}

/* Two checkpoints of one file each, that share half of their chunks. */
static void put_checkpoints(void)
{
	static const uint8_t secret[FP_KEY_LEN] = "a secret of thirty-two bytes...";
	struct tier_writer_conf conf = checkpoint_writer;
	struct tier_flushed sums;
	struct checkpoint c;
	struct tier_writer *w;
	struct tier *t;

	tier_key_init(&conf.key, FP_CLMUL, secret);
	assert_int_equal(tier_dir_open(dir, &(struct tier_dir_conf){ 0 }, &t), 0);
	assert_int_equal(tier_writer_open(t, &conf, &w), 0);
	for (unsigned i = 0; i < 2; i++) {
		unsigned chunks[CHUNKS];

		content_len[i] = 0;
		for (unsigned k = 0; k < CHUNKS; k++) {
			chunks[k] = k % 2 == 0 ? k : k + CHUNKS * i;
			content_len[i] += pool.v[chunks[k]].len;
		}
		content[i] = malloc(content_len[i]);
		assert_non_null(content[i]);
		for (size_t k = 0, at = 0; k < CHUNKS; at += pool.v[chunks[k++]].len)
			memcpy(content[i] + at, pool.v[chunks[k]].bytes, pool.v[chunks[k]].len);
		checkpoint_init_file(&c, &pool, 100 + i, chunks, CHUNKS);
		c.c.sealed_ns = 1000 + i;
		assert_int_equal(tier_flush(w, &c.c, &sums), 0);
		assert_int_equal(sums.number, 1 + i);
		checkpoint_release(&c);
	}
	tier_writer_close(w);
	tier_close(t);
}

static int begin(void **state _unused_)
{
	log_to_function(ignore, NULL); /* failures are asked for here */
	snprintf(dir, sizeof(dir), "%s/ckptfs-test-recall-XXXXXX", test_place());
	if (!mkdtemp(dir))
		return -1;
	pool_init(&pool, 1, 2 * CHUNKS + 1);
	put_checkpoints();
	return 0;
}

static int end(void **state _unused_)
{
	char command[100];

	for (unsigned i = 0; i < 2; i++)
		free(content[i]);
	pool_release(&pool);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

/* Opening the tier fails with this, or does not end while `hangs` is set. */
static atomic_int open_fails;
static atomic_bool hangs, has_hung;

static int open_dir(const char *url, struct tier **ret)
{
	int r = atomic_load(&open_fails);

	while (atomic_load(&hangs)) {
		atomic_store(&has_hung, true);
		usleep(1000);
	}
	return r < 0 ? r : tier_dir_open(url + strlen("dir:"), &(struct tier_dir_conf){ 0 }, ret);
}

static struct tier_recall *new_recall(uint64_t timeout_ns, uint64_t trees)
{
	char url[80];
	struct tier_recall_conf conf = {
		.url = url, .open = open_dir, .cache = MiB(1), .trees = trees, .timeout_ns = timeout_ns
	};
	struct tier_recall *r;

	snprintf(url, sizeof(url), "dir:%s", dir);
	memcpy(conf.store, checkpoint_writer.store, sizeof(conf.store));
	assert_int_equal(tier_recall_new(&conf, &r), 0);
	return r;
}

static void end_recall(struct tier_recall *r)
{
	assert_true(tier_recall_stop(r));
	tier_recall_free(r);
}

static struct tier_place_of_file place_of(struct tier_recall *r, unsigned i)
{
	struct tier_place_of_file at = { .index = 1 };
	struct tier_recalled *e;

	assert_int_equal(tier_recall_find(r, 100 + i, 1000 + i, NULL, &at.number), 1);
	assert_int_equal(at.number, 1 + i);
	assert_int_equal(tier_recall_enter(r, at.number, NULL, NULL, &e, NULL), 0);
	memcpy(at.check, e->m->check, sizeof(at.check));
	assert_true(S_ISREG(e->tree->inodes[1].mode));
	assert_int_equal(e->tree->inodes[1].size, content_len[i]);
	tier_recall_leave(r, e);
	return at;
}

static void expect_content(struct tier_recall *r, const struct tier_place_of_file *at, unsigned i, size_t step)
{
	uint8_t *p = malloc(content_len[i] + step);
	struct tier_ahead ahead = { 0 };
	struct tier_fault fault;
	size_t off = 0;
	ssize_t n;

	assert_non_null(p);
	while ((n = tier_recall_read(r, at, p + off, step, off, &ahead, NULL, &fault)) > 0)
		off += (size_t)n;
	assert_int_equal(n, 0);
	assert_int_equal(off, content_len[i]);
	assert_memory_equal(p, content[i], off);
	free(p);
}

static ssize_t read_one(struct tier_recall *r, const struct tier_place_of_file *at, const struct tier_waiter *w,
			struct tier_fault *fault)
{
	uint8_t byte;

	return tier_recall_read(r, at, &byte, 1, 0, NULL, w, fault);
}

static void files_are_read_back(void **state _unused_)
{
	static const uint64_t trees[] = { MiB(1), 0 }; /* 0: the manifests displace each other */
	uint64_t number;

	for (size_t k = 0; k < ARRAY_SIZE(trees); k++) {
		struct tier_recall *r = new_recall(LONG_NS, trees[k]);
		struct tier_place_of_file at[2] = { place_of(r, 0), place_of(r, 1) };

		for (unsigned i = 0; i < 4; i++)
			expect_content(r, &at[i % 2], i % 2, i < 2 ? 4096 : 100001);
		assert_int_equal(tier_recall_find(r, 100, 1001, NULL, &number), 0);
		assert_int_equal(tier_recall_find(r, 102, 1000, NULL, &number), 0);
		end_recall(r);
	}
	end_recall(new_recall(LONG_NS, 0)); /* one that was never used */
}

static void another_manifest_or_file_is_refused(void **state _unused_)
{
	struct tier_recall *r = new_recall(LONG_NS, MiB(1));
	struct tier_place_of_file at = place_of(r, 0), other = place_of(r, 1);
	struct tier_fault fault;

	memcpy(at.check, other.check, sizeof(at.check));
	assert_int_equal(read_one(r, &at, NULL, &fault), -ESTALE);
	assert_string_equal(fault.what, "is not the one that was put");
	at = other;
	at.index = 0; /* the directory */
	assert_int_equal(read_one(r, &at, NULL, &fault), -ESTALE);
	at.index = 1000;
	assert_int_equal(read_one(r, &at, NULL, &fault), -ESTALE);
	at.number = 77;
	assert_int_equal(read_one(r, &at, NULL, &fault), -ENOENT);
	assert_string_equal(fault.what, "is missing");
	end_recall(r);
}

static void path_of(const char *prefix, const char *part, char ret[200])
{
	char command[300];
	FILE *f;

	snprintf(command, sizeof(command), "find '%s/%s' -type f -path '*%s' | sort | head -1", dir, prefix, part);
	f = popen(command, "re");
	assert_non_null(f);
	assert_non_null(fgets(ret, 200, f));
	ret[strcspn(ret, "\n")] = '\0';
	pclose(f);
}

static void flip(const char *path, off_t at)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t b;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &b, 1, at), 1);
	b ^= 4;
	assert_int_equal(pwrite(fd, &b, 1, at), 1);
	close(fd);
}

/* Also after a restart, and for the intact rest. */
static void damage_is_an_error_and_ends_with_it(void **state _unused_)
{
	struct tier_recall *r = new_recall(LONG_NS, MiB(1));
	struct tier_place_of_file at = place_of(r, 0), other = place_of(r, 1);
	struct tier_fault fault;
	char manifest[200], packs[80], away[90];

	end_recall(r);
	path_of("sealed", "0001", manifest);
	flip(manifest, 500);
	r = new_recall(LONG_NS, MiB(1));
	assert_int_equal(read_one(r, &at, NULL, &fault), -EBADMSG);
	assert_string_equal(fault.what, "is damaged");
	expect_content(r, &other, 1, 65536);
	flip(manifest, 500);
	expect_content(r, &at, 0, 65536);
	end_recall(r);
	snprintf(packs, sizeof(packs), "%s/packs", dir);
	snprintf(away, sizeof(away), "%s.away", packs);
	assert_int_equal(rename(packs, away), 0);
	r = new_recall(LONG_NS, MiB(1));
	assert_int_equal(read_one(r, &at, NULL, &fault), -EBADMSG);
	assert_string_equal(fault.what, "is missing");
	assert_int_equal(rename(away, packs), 0);
	expect_content(r, &at, 0, 65536);
	expect_content(r, &other, 1, 65536);
	end_recall(r);
}

static bool interrupted(void *userdata)
{
	return atomic_load((atomic_bool *)userdata);
}

static void a_tier_that_fails_or_hangs_is_no_longer_waited_for(void **state _unused_)
{
	static struct tier_recall *hung, *r; /* left behind: what they use is not freed */
	const struct tier_waiter impatient = { .must_not_wait = true };
	const struct tier_waiter ctrl_c = { .is_interrupted = interrupted, .userdata = &has_hung };
	struct tier_place_of_file at;
	struct tier_fault fault;
	uint64_t number;

	r = new_recall(LONG_NS, MiB(1));
	hung = new_recall(1000000, MiB(1));
	at = place_of(r, 0);
	end_recall(r);
	r = new_recall(LONG_NS, MiB(1));
	atomic_store(&open_fails, -EACCES);
	assert_int_equal(read_one(r, &at, &impatient, &fault), -EINPROGRESS);
	assert_int_equal(read_one(r, &at, NULL, &fault), -EACCES);
	assert_int_equal(tier_recall_find(r, 100, 1000, NULL, &number), -EACCES);
	atomic_store(&open_fails, -ENOENT); /* of the tier: this does not tell that the manifest is missing */
	assert_int_equal(read_one(r, &at, NULL, &fault), -EIO);
	assert_int_equal(tier_recall_find(r, 100, 1000, NULL, &number), -EIO);
	atomic_store(&open_fails, 0); /* it is back */
	expect_content(r, &at, 0, 65536);
	assert_int_equal(read_one(r, &at, &impatient, &fault), 1); /* from memory */
	end_recall(r);

	atomic_store(&hangs, true);
	assert_int_equal(read_one(hung, &at, NULL, &fault), -ETIMEDOUT);
	assert_string_equal(fault.what, "cannot be read: no answer");
	assert_int_equal(tier_recall_find(hung, 100, 1000, NULL, &number), -ETIMEDOUT);
	r = new_recall(LONG_NS, MiB(1));
	atomic_store(&has_hung, false);
	assert_int_equal(read_one(r, &at, &ctrl_c, &fault), -EINTR);
	assert_false(tier_recall_stop(r));
	assert_false(tier_recall_stop(hung));
	atomic_store(&hangs, false);
}

/* A back end that counts requests for manifests in flight. The first waits for a second one, which must not come. */
static const struct tier_backend *real;
static struct tier_backend counting;
static atomic_uint nr_in_flight, in_flight_max;

static void start_counted(struct tier *t, struct tier_request *q)
{
	unsigned nr;

	if (q->op == TIER_GET && strncmp(q->name, "sealed/", strlen("sealed/")) == 0) {
		nr = atomic_fetch_add(&nr_in_flight, 1) + 1;
		if (nr > atomic_load(&in_flight_max))
			atomic_store(&in_flight_max, nr);
		for (unsigned i = 0; i < 100 && atomic_load(&in_flight_max) < 2; i++)
			usleep(1000);
		atomic_fetch_sub(&nr_in_flight, 1);
	}
	real->start(t, q);
}

static int open_counting(const char *url, struct tier **ret)
{
	int r = open_dir(url, ret);

	if (r == 0) {
		real = (*ret)->backend;
		counting = *real;
		counting.start = start_counted;
		(*ret)->backend = &counting;
	}
	return r;
}

struct reader {
	struct tier_recall *r;
	struct tier_place_of_file at;
};

static void *read_in_thread(void *userdata)
{
	struct reader *x = userdata;
	struct tier_fault fault;

	assert_int_equal(read_one(x->r, &x->at, NULL, &fault), 1);
	return NULL;
}

static void manifests_are_loaded_one_at_a_time(void **state _unused_)
{
	struct tier_recall *r = new_recall(LONG_NS, MiB(1));
	struct tier_recall_conf conf = { .open = open_counting, .cache = MiB(1), .trees = MiB(1), .timeout_ns = LONG_NS };
	struct reader v[2] = { { .at = place_of(r, 0) }, { .at = place_of(r, 1) } };
	pthread_t threads[2];
	char url[80];

	end_recall(r);
	snprintf(url, sizeof(url), "dir:%s", dir);
	conf.url = url;
	memcpy(conf.store, checkpoint_writer.store, sizeof(conf.store));
	assert_int_equal(tier_recall_new(&conf, &r), 0);
	for (unsigned i = 0; i < 2; i++) {
		v[i].r = r;
		assert_int_equal(pthread_create(&threads[i], NULL, read_in_thread, &v[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(atomic_load(&in_flight_max), 1);
	end_recall(r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(files_are_read_back, begin, end),
		cmocka_unit_test_setup_teardown(another_manifest_or_file_is_refused, begin, end),
		cmocka_unit_test_setup_teardown(damage_is_an_error_and_ends_with_it, begin, end),
		cmocka_unit_test_setup_teardown(manifests_are_loaded_one_at_a_time, begin, end),
		cmocka_unit_test_setup_teardown(a_tier_that_fails_or_hangs_is_no_longer_waited_for, begin, end),
	};

	return cmocka_run_group_tests_name("tier_recall", tests, NULL, NULL);
}
