/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Jobs run once, in order; those that are withdrawn do not, and those that wait for a time occupy no thread. */
#include "store/tier/reading/tier_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mutex.h"
#include "base/util.h"

#define HOUR_MS 3600000u

struct rig {
	struct tier_pool *pool; /* of one thread */
	struct mutex lock;
	struct cond changed;
	char ran[16]; /* names of jobs */
	bool is_blocked; /* jobs wait */
};

struct job {
	struct tier_job job;
	struct rig *rig;
	char name;
};

static void run(struct tier_job *tj)
{
	struct job *j = container_of(tj, struct job, job);
	struct rig *rig = j->rig;

	mutex_lock(&rig->lock);
	rig->ran[strlen(rig->ran)] = j->name;
	cond_broadcast(&rig->changed);
	while (rig->is_blocked)
		cond_wait(&rig->changed, &rig->lock);
	mutex_unlock(&rig->lock);
}

static struct job job_of(struct rig *rig, char name)
{
	return (struct job){ .job.run = run, .rig = rig, .name = name };
}

static void await_ran(struct rig *rig, const char *names)
{
	mutex_lock(&rig->lock);
	while (strcmp(rig->ran, names) != 0)
		cond_wait(&rig->changed, &rig->lock);
	mutex_unlock(&rig->lock);
}

static void set_blocked(struct rig *rig, bool is_blocked)
{
	mutex_lock(&rig->lock);
	rig->is_blocked = is_blocked;
	cond_broadcast(&rig->changed);
	mutex_unlock(&rig->lock);
}

static int setup(void **state)
{
	static struct rig rig;

	rig = (struct rig){ 0 };
	mutex_init(&rig.lock);
	cond_init(&rig.changed);
	assert_int_equal(tier_pool_new(1, &rig.pool), 0);
	*state = &rig;
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	assert_true(tier_pool_stop(rig->pool));
	tier_pool_free(rig->pool);
	mutex_release(&rig->lock);
	cond_release(&rig->changed);
	return 0;
}

static void urgent_jobs_run_first(void **state)
{
	struct rig *rig = *state;
	struct job a = job_of(rig, 'a'), b = job_of(rig, 'b'), c = job_of(rig, 'c'), d = job_of(rig, 'd');
	struct job e = job_of(rig, 'e');

	set_blocked(rig, true);
	tier_pool_submit(rig->pool, &a.job, TIER_URGENT);
	await_ran(rig, "a");
	tier_pool_submit(rig->pool, &b.job, TIER_AHEAD);
	tier_pool_submit(rig->pool, &c.job, TIER_URGENT);
	tier_pool_submit(rig->pool, &d.job, TIER_URGENT);
	tier_pool_submit(rig->pool, &e.job, TIER_FIRST);
	set_blocked(rig, false);
	await_ran(rig, "aecdb");
}

static void a_job_is_withdrawn_until_it_runs(void **state)
{
	struct rig *rig = *state;
	struct job a = job_of(rig, 'a'), b = job_of(rig, 'b'), c = job_of(rig, 'c'), d = job_of(rig, 'd');

	set_blocked(rig, true);
	tier_pool_submit(rig->pool, &a.job, TIER_URGENT);
	await_ran(rig, "a");
	tier_pool_submit(rig->pool, &b.job, TIER_URGENT);
	tier_pool_submit(rig->pool, &c.job, TIER_AHEAD);
	tier_pool_submit(rig->pool, &d.job, TIER_URGENT);
	assert_false(tier_pool_withdraw(rig->pool, &a.job));
	assert_true(tier_pool_withdraw(rig->pool, &b.job));
	assert_true(tier_pool_withdraw(rig->pool, &c.job));
	assert_false(tier_pool_withdraw(rig->pool, &c.job));
	set_blocked(rig, false);
	await_ran(rig, "ad");
	tier_pool_submit(rig->pool, &c.job, TIER_URGENT); /* again */
	await_ran(rig, "adc");
}

static void a_job_that_waits_for_its_time_occupies_no_thread(void **state)
{
	struct rig *rig = *state;
	struct job a = job_of(rig, 'a'), b = job_of(rig, 'b'), c = job_of(rig, 'c'), d = job_of(rig, 'd');

	tier_pool_submit_later(rig->pool, &a.job, HOUR_MS);
	tier_pool_submit(rig->pool, &b.job, TIER_AHEAD);
	await_ran(rig, "b");
	tier_pool_submit_later(rig->pool, &c.job, 1);
	await_ran(rig, "bc");
	tier_pool_submit_later(rig->pool, &d.job, 2 * HOUR_MS);
	assert_true(tier_pool_withdraw(rig->pool, &d.job));
	assert_true(tier_pool_withdraw(rig->pool, &a.job));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(urgent_jobs_run_first, setup, teardown),
		cmocka_unit_test_setup_teardown(a_job_is_withdrawn_until_it_runs, setup, teardown),
		cmocka_unit_test_setup_teardown(a_job_that_waits_for_its_time_occupies_no_thread, setup, teardown),
	};

	return cmocka_run_group_tests_name("tier_pool", tests, NULL, NULL);
}
