/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mutex.h"
#include "base/util.h"
#include "fs/ops/name_drops.h"

#define LOCKED 1000u /* directories from here on are locked until open_all() */
#define NR_LOCKED 200u

/* A kernel with locked directories. */
struct rig {
	struct name_drops *drops;
	struct mutex lock;
	struct cond changed;
	bool open GUARDED_BY(lock);
	unsigned nr_waiting, nr_done GUARDED_BY(lock);
	unsigned nr_in[LOCKED + NR_LOCKED] GUARDED_BY(lock); /* threads per directory */
};

static void drop(void *userdata, uint64_t dir, const char *name)
{
	struct rig *rig = userdata;

	assert_string_equal(name, "name");
	mutex_lock(&rig->lock);
	assert_int_equal(rig->nr_in[dir]++, 0);
	rig->nr_waiting++;
	cond_broadcast(&rig->changed);
	while (dir >= LOCKED && !rig->open)
		cond_wait(&rig->changed, &rig->lock);
	rig->nr_waiting--;
	rig->nr_in[dir]--;
	mutex_unlock(&rig->lock);
}

static void done(void *arg)
{
	struct rig *rig = arg;

	mutex_lock(&rig->lock);
	rig->nr_done++;
	cond_broadcast(&rig->changed);
	mutex_unlock(&rig->lock);
}

static int setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	mutex_init(&rig->lock);
	cond_init(&rig->changed);
	assert_int_equal(name_drops_new(drop, rig, &rig->drops), 0);
	*state = rig;
	return 0;
}

static void open_all(struct rig *rig)
{
	mutex_lock(&rig->lock);
	rig->open = true;
	cond_broadcast(&rig->changed);
	mutex_unlock(&rig->lock);
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	open_all(rig);
	assert_true(name_drops_stop(rig->drops, UINT64_MAX));
	name_drops_free(rig->drops);
	cond_release(&rig->changed);
	mutex_release(&rig->lock);
	free(rig);
	return 0;
}

static void add(struct rig *rig, uint32_t uid, uint64_t dir)
{
	assert_int_equal(name_drops_add(rig->drops, uid, uid == 0, dir, "name", done, rig), 0);
}

/* Returns when so many drops are done, and so many wait for a locked directory. */
static void await(struct rig *rig, unsigned nr_done, unsigned nr_waiting)
{
	mutex_lock(&rig->lock);
	while (rig->nr_done < nr_done || rig->nr_waiting < nr_waiting)
		cond_wait(&rig->changed, &rig->lock);
	assert_int_equal(rig->nr_done, nr_done);
	assert_int_equal(rig->nr_waiting, nr_waiting);
	mutex_unlock(&rig->lock);
}

static void a_locked_directory_delays_its_own_drops_only(void **state)
{
	struct rig *rig = *state;

	for (unsigned i = 0; i < 100; i++)
		add(rig, 70000, LOCKED);
	for (unsigned i = 0; i < 100; i++) {
		add(rig, 70000, i % 7);
		await(rig, i + 1, 1);
	}
	open_all(rig);
	await(rig, 200, 0);
}

static void a_user_with_locked_directories_leaves_threads_to_others(void **state)
{
	struct rig *rig = *state;

	for (unsigned i = 0; i < NR_LOCKED; i++)
		add(rig, 70000, LOCKED + i);
	add(rig, 70001, 1);
	await(rig, 1, 4);
	for (unsigned i = 0; i < NR_LOCKED; i++) /* all that ordinary users get */
		add(rig, 70001 + i, LOCKED + i);
	await(rig, 1, 60);
	add(rig, 0, 2); /* root has a place */
	await(rig, 2, 60);
	open_all(rig);
	await(rig, 2 + 2 * NR_LOCKED, 0);
}

static void an_end_completes_what_can_be_dropped(void **state)
{
	struct rig *rig = *state;

	for (unsigned i = 0; i < 100; i++)
		add(rig, 70000, i % 3);
	assert_true(name_drops_stop(rig->drops, UINT64_MAX));
	await(rig, 100, 0);
	add(rig, 70000, LOCKED); /* not dropped, but answered */
	await(rig, 101, 0);
}

#define rig_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(a_locked_directory_delays_its_own_drops_only),
		rig_test(a_user_with_locked_directories_leaves_threads_to_others),
		rig_test(an_end_completes_what_can_be_dropped),
	};

	return cmocka_run_group_tests_name("name_drops", tests, NULL, NULL);
}
