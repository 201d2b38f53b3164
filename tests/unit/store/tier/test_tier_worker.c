/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A writer in a thread of its own: it flushes as one without, and a caller ends in time wherever the back end hangs. */
#include "store/tier/tier_worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_dir.h"
#include "tests/unit/place.h"
#include "tests/unit/store/tier/checkpoints.h"

#define SOON_NS 1000000

static char dir[64], url[80];

static void ignore(void *userdata _unused_, enum log_level level _unused_, const char *line _unused_)
{
}

static int begin(void **state _unused_)
{
	log_to_function(ignore, NULL); /* failures are asked for here */
	snprintf(dir, sizeof(dir), "%s/ckptfs-test-worker-XXXXXX", test_place());
	if (!mkdtemp(dir))
		return -1;
	snprintf(url, sizeof(url), "dir:%s", dir);
	return 0;
}

static int end(void **state _unused_)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

static struct tier_worker *new_worker(void)
{
	static const uint8_t secret[FP_KEY_LEN] = "a secret of thirty-two bytes...";
	struct tier_worker_conf conf = { .url = url, .writer = checkpoint_writer };
	struct tier_worker *w;

	tier_key_init(&conf.writer.key, FP_CLMUL, secret);
	assert_int_equal(tier_worker_new(&conf, &w), 0);
	return w;
}

static unsigned check(const struct checkpoint *a, const struct checkpoint *b)
{
	const struct checkpoint *v[] = { a, b };
	struct tier *t;
	unsigned nr;

	assert_int_equal(tier_dir_open(dir, &(struct tier_dir_conf){ 0 }, &t), 0);
	nr = checkpoints_check(t, v, 2);
	tier_close(t);
	return nr;
}

static void a_worker_flushes_as_a_writer_does(void **state _unused_)
{
	char reason[TIER_PROBE_REASON_MAX];
	struct checkpoint a, b;
	struct tier_written last;
	struct tier_flushed f;
	struct tier_worker *w;
	struct pool pool;

	pool_init(&pool, 1, 300);
	checkpoint_init(&a, &pool, 1, 10, 0, 200);
	checkpoint_init(&b, &pool, 2, 11, 100, 300);
	w = new_worker();
	assert_int_equal(tier_worker_open(w, true, reason), 0);
	assert_int_equal(tier_worker_flush(w, &a.c, &f), 0);
	assert_int_equal(f.number, 1);
	assert_true(f.packs > 1);
	assert_int_equal(check(&a, &b), 1);
	assert_int_equal(tier_worker_flush(w, &b.c, &f), 0);
	assert_int_equal(f.number, 2);
	assert_int_equal(tier_worker_flush(w, &a.c, &f), 0);
	assert_true(f.was_there);
	assert_true(tier_worker_has(w, 11, b.c.sealed_ns));
	tier_worker_last(w, &last);
	assert_int_equal(last.number, 2);
	assert_int_equal(tier_worker_waits_ns(w), 0);
	assert_true(tier_worker_end(w, 0));
	tier_worker_free(w);
	assert_int_equal(check(&a, &b), 2);
	checkpoint_release(&a);
	checkpoint_release(&b);
	pool_release(&pool);
}

static void a_source_that_fails_ends_the_flush(void **state _unused_)
{
	static const int errors[] = { -ENOTCONN, -ESTALE, -EBADMSG };
	char reason[TIER_PROBE_REASON_MAX];
	struct checkpoint a;
	struct tier_flushed f;
	struct tier_worker *w;
	struct pool pool;

	pool_init(&pool, 1, 100);
	checkpoint_init(&a, &pool, 1, 10, 0, 100);
	for (unsigned i = 0; i < ARRAY_SIZE(errors); i++) {
		pool.read_fails = i == 0 ? errors[i] : 0;
		a.catalog_fails = i == 1 ? errors[i] : 0;
		pool.returns_others = i == 2; /* found while the next chunks are being read */
		w = new_worker();
		assert_int_equal(tier_worker_open(w, false, reason), 0);
		assert_int_equal(tier_worker_flush(w, &a.c, &f), errors[i]);
		assert_false(tier_worker_has_failed(w)); /* the tier has not */
		assert_int_equal(tier_worker_flush(w, &a.c, &f), errors[i]);
		assert_int_equal(check(&a, &a), 0);
		assert_true(tier_worker_end(w, 0));
		tier_worker_free(w);
	}
	checkpoint_release(&a);
	pool_release(&pool);
}

static void a_tier_that_cannot_be_opened_has_a_reason(void **state _unused_)
{
	char reason[TIER_PROBE_REASON_MAX];
	struct tier_worker *w;

	strcat(url, "-none");
	w = new_worker();
	assert_int_equal(tier_worker_open(w, true, reason), -ENOENT);
	assert_non_null(strstr(reason, "No such file"));
	assert_true(tier_worker_end(w, 0));
	tier_worker_free(w);
}

/* --- a filesystem that hangs --- */

static struct {
	struct mutex lock;
	struct cond changed;
	unsigned nr, hang_at; /* this event and all later ones wait until it is 0 */
	bool is_hanging;
} gate;

static int wait_at_gate(void *userdata _unused_, const struct io_event *ev _unused_)
{
	mutex_lock(&gate.lock);
	gate.nr++;
	while (gate.hang_at > 0 && gate.nr >= gate.hang_at) {
		gate.is_hanging = true;
		cond_broadcast(&gate.changed);
		cond_wait(&gate.changed, &gate.lock);
	}
	mutex_unlock(&gate.lock);
	return 0;
}

static void set_gate(unsigned hang_at)
{
	mutex_lock(&gate.lock);
	gate.nr = 0;
	gate.hang_at = hang_at;
	gate.is_hanging = false;
	cond_broadcast(&gate.changed);
	mutex_unlock(&gate.lock);
}

/* Cancels when something hangs. */
static void *cancel_then(void *worker)
{
	mutex_lock(&gate.lock);
	while (!gate.is_hanging)
		cond_wait(&gate.changed, &gate.lock);
	mutex_unlock(&gate.lock);
	tier_worker_cancel(worker);
	return NULL;
}

static unsigned nr_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned nr = 0;

	assert_non_null(d);
	while (readdir(d))
		nr++;
	closedir(d);
	return nr;
}

static void await_threads(unsigned nr)
{
	while (nr_threads() > nr)
		nanosleep(&(struct timespec){ .tv_nsec = SOON_NS }, NULL);
}

/* Hangs at event number `at`. Returns whether the flush got that far. */
static bool hang(const struct checkpoint *a, unsigned at)
{
	char reason[TIER_PROBE_REASON_MAX];
	unsigned before = nr_threads();
	struct tier_flushed f;
	struct tier_worker *w;
	pthread_t canceller;
	bool hung;
	int r;

	end(NULL);
	assert_int_equal(io_mkdir(AT_FDCWD, dir, 0700), 0);
	set_gate(at);
	w = new_worker();
	assert_int_equal(pthread_create(&canceller, NULL, cancel_then, w), 0);
	r = tier_worker_open(w, false, reason);
	if (r == 0)
		r = tier_worker_flush(w, &a->c, &f);
	hung = r == -ECANCELED;
	if (!hung) {
		assert_int_equal(r, 0);
		mutex_lock(&gate.lock); /* end the thread that waits for it */
		gate.is_hanging = true;
		cond_broadcast(&gate.changed);
		mutex_unlock(&gate.lock);
	}
	pthread_join(canceller, NULL);
	assert_int_equal(tier_worker_flush(w, &a->c, &f), -ECANCELED);
	assert_int_equal(tier_worker_end(w, hung ? SOON_NS : UINT64_MAX / 2), !hung);
	tier_worker_free(w);
	set_gate(0); /* the filesystem answers again: what was left behind ends */
	await_threads(before);
	return hung;
}

static void a_caller_ends_while_the_back_end_hangs(void **state _unused_)
{
	struct checkpoint a;
	struct pool pool;
	unsigned at = 1;

	pool_init(&pool, 3, 12);
	checkpoint_init(&a, &pool, 3, 10, 0, 12);
	while (hang(&a, at)) {
		assert_true(check(&a, &a) <= 1); /* complete or absent */
		at++;
	}
	assert_true(at > 10);
	assert_int_equal(check(&a, &a), 1);
	checkpoint_release(&a);
	pool_release(&pool);
}

int main(void)
{
	static const struct io_hook hook = { .before = wait_at_gate };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_worker_flushes_as_a_writer_does, begin, end),
		cmocka_unit_test_setup_teardown(a_source_that_fails_ends_the_flush, begin, end),
		cmocka_unit_test_setup_teardown(a_tier_that_cannot_be_opened_has_a_reason, begin, end),
		cmocka_unit_test_setup_teardown(a_caller_ends_while_the_back_end_hangs, begin, end),
	};

	mutex_init(&gate.lock);
	cond_init(&gate.changed);
	io_set_hook(&hook); /* before there are threads */
	return cmocka_run_group_tests_name("tier_worker", tests, NULL, NULL);
}
