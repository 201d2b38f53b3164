/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/tier/tier_access.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_open.h"
#include "tools/common/interrupt.h"

#define IN_FLIGHT 16u /* requests at the back end */
#define NR_THREADS 8u /* of tier_access_each() */
#define TIMEOUT_NS UINT64_C(60000000000) /* as the default of mount option tier_timeout */
#define STEP_NS UINT64_C(100000000)
#define LINGER_NS UINT64_C(3000000000) /* for a request in flight, after an interrupt */

/* --- output --- */

void tier_access_begin_output(struct tier_access *a)
{
	mutex_lock(&a->lock);
	progress_clear(&a->progress);
}

void tier_access_end_output(struct tier_access *a)
{
	mutex_unlock(&a->lock);
}

void tier_access_say(struct tier_access *a, const char *fmt, ...)
{
	va_list args;

	tier_access_begin_output(a);
	fprintf(stderr, "%s: ", a->conf.tool);
	va_start(args, fmt);
	text_vprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	tier_access_end_output(a);
}

static void on_log(void *userdata, enum log_level level, const char *line)
{
	struct tier_access *a = userdata;

	if (level > LOG_LEVEL_WARNING)
		return;
	tier_access_begin_output(a);
	fprintf(stderr, "%s: %s\n", a->conf.tool, line); /* log lines are escaped already */
	tier_access_end_output(a);
}

/* --- opening --- */

static void release(struct tier_access *a)
{
	tier_cache_free(TAKE(a->cache));
	tier_pool_free(TAKE(a->pool));
	tier_close(TAKE(a->tier));
	log_to_stderr();
	mutex_release(&a->lock);
	cond_release(&a->changed);
}

int tier_access_open(const struct tier_access_conf *conf, struct tier_access *ret)
{
	const struct tier_conf tier = { .nr_in_flight = IN_FLIGHT, .config_file = conf->config_file };
	int r;

	*ret = (struct tier_access){ .conf = *conf };
	mutex_init(&ret->lock);
	cond_init(&ret->changed);
	progress_init(&ret->progress);
	ret->progress.on &= !conf->quiet;
	log_to_function(on_log, ret);
	r = tier_conf_check(conf->url, &tier);
	if (r < 0)
		release(ret);
	return r;
}

/* In the thread of the work: a directory may hang when it is opened. */
static int open_tier(struct tier_access *a)
{
	const struct tier_conf tier = { .nr_in_flight = IN_FLIGHT, .config_file = a->conf.config_file };
	const struct tier_cache_conf cache = { .bytes = a->conf.cache, .timeout_ns = TIMEOUT_NS };
	int r;

	atomic_store(&a->waits, true);
	r = tier_open(a->conf.url, &tier, &a->tier);
	atomic_store(&a->waits, false);
	if (r == 0)
		r = tier_pool_new(IN_FLIGHT, &a->pool);
	if (r == 0)
		r = tier_cache_new(a->tier, a->pool, &cache, &a->cache);
	return r;
}

bool tier_access_close(struct tier_access *a)
{
	if (a->cache)
		tier_cache_stop(a->cache);
	if (a->pool && !tier_pool_stop(a->pool))
		return false;
	release(a);
	return true;
}

/* --- the first thread --- */

static void *run_work(void *userdata)
{
	struct tier_access *a = userdata;
	int r = open_tier(a);

	if (r == 0)
		r = atomic_load(&a->is_stopping) ? -EINTR : a->work(a->userdata);
	mutex_lock(&a->lock);
	a->result = r;
	a->has_ended = true;
	cond_broadcast(&a->changed);
	mutex_unlock(&a->lock);
	return NULL;
}

static void show_progress(struct tier_access *a) REQUIRES(a->lock)
{
	uint64_t all = atomic_load(&a->all);
	const char *what = atomic_load(&a->what);

	if (all > 0 && what)
		progress_show(&a->progress, what, atomic_load(&a->done), all, true);
}

/* false: it still waits for the tier. */
static bool await_end(struct tier_access *a)
{
	uint64_t until = 0;
	bool has_ended;

	mutex_lock(&a->lock);
	while (!a->has_ended) {
		if (interrupted() && until == 0) {
			until = monotonic_ns() + LINGER_NS;
			atomic_store(&a->is_stopping, true);
		}
		if (until > 0 && atomic_load(&a->waits) && monotonic_ns() > until)
			break;
		cond_wait_for(&a->changed, &a->lock, STEP_NS);
		show_progress(a);
	}
	has_ended = a->has_ended;
	progress_clear(&a->progress);
	mutex_unlock(&a->lock);
	return has_ended;
}

int tier_access_run(struct tier_access *a, int (*work)(void *userdata), void *userdata, bool *ret_hangs)
{
	pthread_t thread;
	int r;

	a->work = work;
	a->userdata = userdata;
	interrupt_catch();
	r = -pthread_create(&thread, NULL, run_work, a);
	if (r < 0)
		return log_errno(r, "cannot start a thread");
	*ret_hangs = !await_end(a);
	if (*ret_hangs)
		return -EINTR;
	pthread_join(thread, NULL);
	return atomic_load(&a->is_stopping) ? -EINTR : a->result;
}

/* --- several threads --- */

struct each {
	struct tier_access *a;
	int (*one)(void *userdata, size_t i);
	void *userdata;
	size_t nr;
	atomic_size_t next;
	atomic_int error; /* the first one */
};

static void *run_each(void *userdata)
{
	struct each *e = userdata;

	while (atomic_load(&e->error) == 0) {
		size_t i = atomic_fetch_add(&e->next, 1);
		int none = 0, r;

		if (i >= e->nr)
			break;
		r = atomic_load(&e->a->is_stopping) ? -EINTR : e->one(e->userdata, i);
		if (r < 0)
			atomic_compare_exchange_strong(&e->error, &none, r);
	}
	return NULL;
}

int tier_access_each(struct tier_access *a, size_t nr, int (*one)(void *userdata, size_t i), void *userdata)
{
	struct each e = { .a = a, .one = one, .userdata = userdata, .nr = nr };
	pthread_t threads[NR_THREADS];
	unsigned nr_threads = 0;

	while (nr_threads < MIN((size_t)NR_THREADS, nr) &&
	       pthread_create(&threads[nr_threads], NULL, run_each, &e) == 0)
		nr_threads++;
	if (nr_threads == 0)
		run_each(&e);
	while (nr_threads > 0)
		pthread_join(threads[--nr_threads], NULL);
	return atomic_load(&e.error);
}

static bool is_interrupted(void *userdata)
{
	struct tier_access *a = userdata;

	return atomic_load(&a->is_stopping);
}

struct tier_waiter tier_access_waiter(struct tier_access *a)
{
	return (struct tier_waiter){ .is_interrupted = is_interrupted, .userdata = a };
}
