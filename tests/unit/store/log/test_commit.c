/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Threads that wait for a commit: each receives its result once, whichever thread makes it. Run under TSan as well. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/journal/journal.h"
#include "store/log/commit.h"
#include "tests/unit/store/rig.h"

#define NR_THREADS 4
#define NR_SYNCS 100
#define PAGE 4096

static void short_sleep(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

struct caller {
	struct engine_waiter w;
	atomic_uint nr_reported;
	int r;
};

static void notified(struct engine_waiter *w, int r)
{
	struct caller *c = container_of(w, struct caller, w);

	c->r = r;
	c->nr_reported++;
}

struct thread {
	pthread_t id;
	struct rig *rig;
	unsigned nr;
	struct caller callers[NR_SYNCS];
};

static void *append_and_go_on(void *arg)
{
	struct thread *t = arg;
	struct content *c = rig_content(t->rig, 200 + t->nr);
	uint8_t page[PAGE];

	for (unsigned i = 0; i < NR_SYNCS; i++) {
		memset(page, (int)(1 + t->nr * NR_SYNCS + i), sizeof(page));
		assert_int_equal(content_write(c, page, sizeof(page), CONTENT_APPEND), 0);
		t->callers[i].w.done = notified;
		content_sync_then(c, NULL, &t->callers[i].w);
	}
	content_close(c);
	return NULL;
}

static void all_requests_are_answered_once_and_their_data_survives(void **state)
{
	struct rig *rig = *state;
	struct thread *t = calloc(NR_THREADS, sizeof(*t));
	uint8_t page[PAGE];

	for (unsigned n = 0; n < NR_THREADS; n++) {
		t[n].rig = rig;
		t[n].nr = n;
		assert_int_equal(pthread_create(&t[n].id, NULL, append_and_go_on, &t[n]), 0);
	}
	for (unsigned n = 0; n < NR_THREADS; n++)
		pthread_join(t[n].id, NULL);
	for (unsigned n = 0; n < NR_THREADS; n++)
		for (unsigned i = 0; i < NR_SYNCS; i++) {
			while (t[n].callers[i].nr_reported == 0)
				short_sleep();
			assert_int_equal(t[n].callers[i].r, 0);
		}
	rig_crash(rig);
	for (unsigned n = 0; n < NR_THREADS; n++) {
		struct content *c = rig_content(rig, 200 + n);

		for (unsigned i = 0; i < NR_SYNCS; i++) {
			assert_int_equal(t[n].callers[i].nr_reported, 1);
			assert_int_equal(content_read(c, page, sizeof(page), i * sizeof(page)), sizeof(page));
			assert_int_equal(page[7], (uint8_t)(1 + n * NR_SYNCS + i));
		}
		content_close(c);
	}
	free(t);
}

/* The first write of a commit fails once another thread waits too; not one of the background. */
struct trouble {
	struct rig *rig;
	atomic_bool armed;
	pthread_t committer, id;
	struct caller other;
};

static void *sync_too(void *arg)
{
	struct trouble *t = arg;

	t->other.w.done = notified;
	engine_sync_then(t->rig->e, &t->other.w);
	return NULL;
}

static int fail_one_write(void *userdata, const struct io_event *ev)
{
	struct trouble *t = userdata;
	struct engine_stats s;

	if (ev->op != IO_WRITE || !pthread_equal(pthread_self(), t->committer) || !atomic_exchange(&t->armed, false))
		return 0;
	engine_stats(t->rig->e, &s);
	assert_int_equal(pthread_create(&t->id, NULL, sync_too, t), 0);
	for (uint64_t before = s.nr_commit_waiters; s.nr_commit_waiters == before; engine_stats(t->rig->e, &s))
		short_sleep();
	for (unsigned i = 0; i < 10; i++)
		short_sleep(); /* it is counted just before it is in the list */
	return -EIO;
}

static void a_failed_commit_is_reported_to_one_and_made_again_for_the_others(void **state)
{
	struct rig *rig = *state;
	struct trouble t = { .rig = rig, .committer = pthread_self() };
	const struct io_hook hook = { .before = fail_one_write, .userdata = &t };

	rig_close(rig);
	io_set_hook(&hook);
	rig_open(rig);
	rig_name(rig, "name", 77);
	t.armed = true;
	assert_int_equal(engine_sync(rig->e), -EIO);
	pthread_join(t.id, NULL);
	while (t.other.nr_reported == 0)
		short_sleep();
	assert_int_equal(t.other.r, 0);
	rig_crash(rig);
	assert_int_equal(rig_find(rig, "name"), 77);
	assert_int_equal(t.other.nr_reported, 1);
	rig_close(rig);
	io_set_hook(NULL);
	rig_open(rig);
}

static void *begin_and_commit(void *arg)
{
	struct thread *t = arg;
	struct content *c = rig_content(t->rig, 300 + t->nr);
	uint8_t page[PAGE];

	for (unsigned i = 0; i < NR_SYNCS; i++) {
		memset(page, (int)(1 + t->nr * NR_SYNCS + i), sizeof(page));
		assert_int_equal(content_write(c, page, sizeof(page), CONTENT_APPEND), 0);
		assert_int_equal(content_flush(c), 0);
		engine_sync_ahead(t->rig->e);
		if (i % 3)
			assert_int_equal(engine_sync(t->rig->e), 0);
	}
	content_close(c);
	return NULL;
}

static void commits_that_are_begun_ahead_and_those_that_are_not_get_along(void **state)
{
	struct rig *rig = *state;
	struct thread *t = calloc(NR_THREADS, sizeof(*t));

	assert_non_null(t);
	for (unsigned i = 0; i < NR_THREADS; i++) {
		t[i].rig = rig;
		t[i].nr = i;
		assert_int_equal(pthread_create(&t[i].id, NULL, begin_and_commit, &t[i]), 0);
	}
	for (unsigned i = 0; i < NR_THREADS; i++)
		pthread_join(t[i].id, NULL);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_crash(rig);
	for (unsigned i = 0; i < NR_THREADS; i++) {
		struct content *c = rig_content(rig, 300 + i);
		uint8_t last;

		assert_int_equal(content_read(c, &last, 1, NR_SYNCS * PAGE - 1), 1);
		assert_int_equal(last, (uint8_t)((i + 1) * NR_SYNCS));
		content_close(c);
	}
	free(t);
}

/* What a commit of many names adds to the journal. */
static uint64_t journal_grows(struct rig *rig, const char *prefix, int (*sync)(struct engine *e))
{
	uint64_t before = journal_bytes_since_snapshot(rig->e->journal);
	char name[32];

	for (unsigned i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "%s.%u", prefix, i);
		rig_name(rig, name, 1000 + i);
	}
	assert_int_equal(sync(rig->e), 0);
	return journal_bytes_since_snapshot(rig->e->journal) - before;
}

static void what_no_thread_waits_for_is_compressed(void **state)
{
	struct rig *rig = *state;
	uint64_t patient = journal_grows(rig, "patient", engine_sync_patiently);
	uint64_t urgent = journal_grows(rig, "urgent", engine_sync);

	assert_true(2 * patient < urgent);
	rig_crash(rig);
	assert_int_equal(rig_find(rig, "patient.999"), 1999);
	assert_int_equal(rig_find(rig, "urgent.999"), 1999);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_requests_are_answered_once_and_their_data_survives, rig_setup,
						rig_teardown),
		cmocka_unit_test_setup_teardown(a_failed_commit_is_reported_to_one_and_made_again_for_the_others,
						rig_setup, rig_teardown),
		rig_test(commits_that_are_begun_ahead_and_those_that_are_not_get_along),
		rig_test(what_no_thread_waits_for_is_compressed),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
