/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Free space for figures: as of the last second, and never by a call that a hung disk delays. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/unit/store/rig.h"

#define BLOCK 4096u

static atomic_uint nr_blocks = 1000; /* free, of the disk below */
static atomic_bool hangs, fails;
static atomic_uint nr_hanging;

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* The disk's. */
int fstatvfs(int fd _unused_, struct statvfs *ret)
{
	nr_hanging++;
	while (hangs)
		nap();
	nr_hanging--;
	if (fails) {
		errno = EIO;
		return -1;
	}
	*ret = (struct statvfs){ .f_frsize = BLOCK, .f_blocks = 1000000, .f_bfree = nr_blocks, .f_bavail = nr_blocks };
	return 0;
}

static void await_free(struct engine *e, uint64_t bytes)
{
	struct engine_space sp;

	do {
		engine_space_seen(e, &sp);
		nap();
	} while (sp.free != bytes);
	assert_int_equal(sp.total, 1000000 * (uint64_t)BLOCK);
	assert_true(sp.avail < sp.free);
}

static void it_is_known_at_once_and_follows_the_disk(void **state)
{
	struct rig *rig = *state;
	struct engine_space sp;

	nr_blocks = 1000000;
	rig_reopen(rig);
	engine_space_seen(rig->e, &sp);
	assert_int_equal(sp.free, 1000000 * (uint64_t)BLOCK);
	nr_blocks = 700000;
	await_free(rig->e, 700000 * (uint64_t)BLOCK);
}

/* Nothing here returns while the disk hangs, if it asks the disk. */
static void a_disk_that_hangs_delays_nothing_and_shows(void **state)
{
	struct rig *rig = *state;
	struct engine_space sp;
	uint64_t age, older;

	nr_blocks = 600000;
	await_free(rig->e, 600000 * (uint64_t)BLOCK);
	hangs = true;
	while (nr_hanging == 0)
		nap();
	nr_blocks = 500000;
	age = engine_space_seen(rig->e, &sp);
	assert_int_equal(sp.free, 600000 * (uint64_t)BLOCK);
	nap();
	older = engine_space_seen(rig->e, &sp);
	assert_true(older > age);
	assert_int_equal(sp.free, 600000 * (uint64_t)BLOCK);
	hangs = false;
	await_free(rig->e, 500000 * (uint64_t)BLOCK);
}

static void a_disk_that_fails_shows_by_its_age(void **state)
{
	struct rig *rig = *state;
	struct engine_space sp;

	nr_blocks = 400000;
	await_free(rig->e, 400000 * (uint64_t)BLOCK);
	nr_blocks = 300000;
	fails = true;
	while (engine_space_seen(rig->e, &sp) < UINT64_C(1500000000))
		nap();
	assert_int_equal(sp.free, 400000 * (uint64_t)BLOCK);
	fails = false;
	await_free(rig->e, 300000 * (uint64_t)BLOCK);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(it_is_known_at_once_and_follows_the_disk),
		rig_test(a_disk_that_hangs_delays_nothing_and_shows),
		rig_test(a_disk_that_fails_shows_by_its_age),
	};

	return cmocka_run_group_tests_name("space_seen", tests, NULL, NULL);
}
