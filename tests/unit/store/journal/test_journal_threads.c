/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Appending, snapshots and readers at the same time. Worth most under the thread sanitizer. */
#include "tests/unit/store/journal/rig.h"

#include <pthread.h>
#include <stdatomic.h>

#define GROUPS 4000

struct world {
	struct rig rig;
	atomic_bool done;
	unsigned nr_snapshots, nr_reads;
};

static void *append(void *userdata)
{
	struct world *w = userdata;

	rig_append(&w->rig, GROUPS);
	w->done = true;
	return NULL;
}

static void *snapshot(void *userdata)
{
	struct world *w = userdata;

	while (!w->done) {
		uint64_t last = journal_last(w->rig.j);

		if (last <= journal_snapshot_number(w->rig.j))
			continue;
		assert_int_equal(rig_try_snapshot(&w->rig, last, 30, RIG_SNAPSHOT_RECORD), 0);
		w->nr_snapshots++;
	}
	return NULL;
}

static void *prepare(void *userdata)
{
	struct world *w = userdata;

	while (!w->done)
		assert_int_equal(journal_prepare(w->rig.j), 0);
	return NULL;
}

static void *readers(void *userdata)
{
	struct world *w = userdata;

	while (!w->done) {
		uint64_t snapshot_number = journal_snapshot_number(w->rig.j), last = journal_last(w->rig.j);
		struct journal_stats st;
		struct rig_seen seen;
		int r;

		r = rig_read(&w->rig, w->nr_reads % 2 ? snapshot_number : 0, RIG_SNAPSHOT_RECORD, &seen);
		assert_true(r == 0 || r == -ENOENT);
		if (r == 0)
			assert_true(seen.last >= last);
		else
			assert_true(journal_snapshot_number(w->rig.j) > snapshot_number);
		journal_stats(w->rig.j, &st);
		w->nr_reads++;
	}
	return NULL;
}

static void appends_snapshots_and_readers_do_not_disturb_each_other(void **state _unused_)
{
	static void *(*const parts[])(void *) = { append, snapshot, prepare, readers };
	_cleanup_(freep) struct world *w = calloc(1, sizeof(*w));
	pthread_t threads[ARRAY_SIZE(parts)];

	assert_non_null(w);
	rig_init(&w->rig, KiB(8));
	w->rig.conf.spare_by_caller = true;
	rig_open(&w->rig);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, parts[i], w), 0);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_true(w->nr_snapshots > 0 && w->nr_reads > 0);
	rig_check(&w->rig, 0);
	rig_open(&w->rig);
	assert_int_equal(journal_last(w->rig.j), GROUPS);
	rig_check(&w->rig, 0);
	rig_release(&w->rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(appends_snapshots_and_readers_do_not_disturb_each_other),
	};

	return cmocka_run_group_tests_name("journal_threads", tests, NULL, NULL);
}
