/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/control/inquiry.h"
#include "fs/fs.h"
#include "index/namespace_table.h"
#include "tests/unit/fs/fake_kernel.h"

/* Questions that `uid` can begin until it is refused. */
static unsigned begin_all(struct inquiries *q, uint32_t uid, uint64_t *last)
{
	unsigned nr = 0;
	int r;

	while ((r = inquiry_begin(q, uid, uid == 0, last)) == 0)
		nr++;
	assert_int_equal(r, -EBUSY);
	return nr;
}

static void a_user_leaves_places_to_others_and_to_root(void **state _unused_)
{
	struct inquiries *q;
	unsigned nr = 0, nr_of_one = 0;
	uint64_t last;

	assert_int_equal(inquiries_new(NULL, &q), 0);
	assert_int_equal(begin_all(q, 1000, &last), 4);
	assert_int_equal(begin_all(q, 1001, &last), 4);
	assert_int_equal(inquiry_end(q, last), 0);
	assert_int_equal(begin_all(q, 1001, &last), 1);
	assert_int_equal(begin_all(q, 1002, &last), 4);
	for (uint32_t uid = 1003; uid < 1100; uid++) { /* whatever three of them do */
		unsigned nr_own = begin_all(q, uid, &last);

		nr += nr_own;
		nr_of_one = MAX(nr_of_one, nr_own);
	}
	assert_int_equal(nr, 10);
	assert_int_equal(nr_of_one, 1);
	assert_int_equal(begin_all(q, 0, &last), 4);
	inquiries_free(q);
}

/* Names that a query of `uid` gets until it is refused. */
static unsigned add_all(struct inquiries *q, uint32_t uid)
{
	uint64_t number;
	unsigned nr = 0;
	int r = inquiry_begin(q, uid, uid == 0, &number);

	while (r == 0 && (r = inquiry_add(q, number, (struct exclusive_name){ 1, 0 })) == 0)
		nr++;
	assert_int_equal(r, -E2BIG);
	return nr;
}

static void names_of_all_queries_are_bounded(void **state _unused_)
{
	struct inquiries *q;
	uint64_t left;

	assert_int_equal(inquiries_new(NULL, &q), 0);
	assert_int_equal(inquiry_begin(q, 1000, false, &left), 0);
	assert_int_equal(inquiry_add(q, left, (struct exclusive_name){ 1, 0 }), 0);
	assert_int_equal(add_all(q, 1000), 258048); /* and 4096 that the other one takes */
	assert_int_equal(add_all(q, 1000), 0);
	assert_int_equal(add_all(q, 1001), 131072);
	assert_int_equal(add_all(q, 1002), 4096); /* a user that has none gets a block */
	assert_int_equal(add_all(q, 0), 131072 + 9 * 4096);
	assert_int_equal(inquiry_end(q, left), 0);
	assert_int_equal(add_all(q, 1003), 0); /* ordinary users have none of what root's takes */
	assert_int_equal(add_all(q, 0), 4096);
	inquiries_free(q);
}

/* Stops each query where it begins to list its names. */
static struct gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned nr_inside;
	bool is_open;
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static int pass_gate(struct inquiry_reader *r _unused_, uint64_t ino _unused_)
{
	pthread_mutex_lock(&gate.lock);
	gate.nr_inside++;
	pthread_cond_broadcast(&gate.changed);
	while (!gate.is_open)
		pthread_cond_wait(&gate.changed, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
	return 0;
}

static void keep(struct inquiry_reader *r _unused_)
{
}

static uint64_t start(struct inquiries *q, uint32_t uid)
{
	static struct inquiry_reader reader = { pass_gate, keep };
	uint64_t number;

	assert_int_equal(inquiry_begin(q, uid, uid == 0, &number), 0);
	assert_int_equal(inquiry_add(q, number, (struct exclusive_name){ NS_ROOT_INO, 0 }), 0);
	assert_int_equal(inquiry_start(q, number, &reader), 0);
	return number;
}

static void wait_inside(unsigned nr)
{
	pthread_mutex_lock(&gate.lock);
	while (gate.nr_inside < nr)
		pthread_cond_wait(&gate.changed, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
}

static int result(struct inquiries *q, uint64_t number)
{
	struct inquiry_status s;

	do {
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		assert_int_equal(inquiry_status(q, number, &s), 0);
	} while (s.running);
	return s.error;
}

static void few_are_computed_at_a_time(void **state _unused_)
{
	struct fake_kernel *k = fake_kernel_new();
	uint64_t v[6], last;
	struct inquiries *q;

	assert_int_equal(inquiries_new(fake_kernel_fs(k)->engine, &q), 0);
	v[0] = start(q, 1000);
	wait_inside(1);
	v[1] = start(q, 1000);
	v[2] = start(q, 1001);
	wait_inside(2);
	v[3] = start(q, 1002);
	v[4] = start(q, 0);
	wait_inside(3);
	v[5] = start(q, 0);
	last = start(q, 1003);
	assert_int_equal(inquiry_end(q, last), 0); /* while it waits: this does not wait for it */
	nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL); /* a wrong one would get there */
	pthread_mutex_lock(&gate.lock);
	assert_int_equal(gate.nr_inside, 3);
	gate.is_open = true;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.lock);
	for (size_t i = 0; i < ARRAY_SIZE(v); i++)
		assert_int_equal(result(q, v[i]), 0);
	assert_int_equal(gate.nr_inside, ARRAY_SIZE(v));
	inquiries_free(q);
	fake_kernel_free(k);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_user_leaves_places_to_others_and_to_root),
		cmocka_unit_test(names_of_all_queries_are_bounded),
		cmocka_unit_test(few_are_computed_at_a_time),
	};

	return cmocka_run_group_tests_name("inquiry", tests, NULL, NULL);
}
