/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Which sealed directory is flushed next. */
#include "fs/background/flush_queue.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

#define FIRST 100u
#define LAST 60000u

static struct flush_seal seal_of(uint32_t user, uint64_t ino, int64_t sealed_ns)
{
	return (struct flush_seal){ .ino = ino, .sealed_ns = sealed_ns, .bytes = 10, .user = user };
}

/* As after a seal or an unseal. */
static void list(struct flush_queue *q, const struct flush_seal *v, size_t nr)
{
	struct flush_seal *copy = calloc(nr + 1, sizeof(*copy));

	assert_non_null(copy);
	memcpy(copy, v, nr * sizeof(*v));
	flush_queue_replace(q, copy, nr);
}

/* The inode; 0: none. */
static uint64_t take(struct flush_queue *q, uint64_t now)
{
	struct flush_seal s;
	uint64_t due;

	return flush_queue_take(q, now, &s, &due) ? s.ino : 0;
}

static uint64_t flush(struct flush_queue *q, uint64_t now)
{
	struct flush_seal s;
	uint64_t due;

	if (!flush_queue_take(q, now, &s, &due))
		return 0;
	flush_queue_done(q, &s);
	return s.ino;
}

static void users_take_turns_newest_first(void **state _unused_)
{
	const struct flush_seal v[] = { seal_of(1, 10, 1), seal_of(1, 11, 2), seal_of(1, 12, 9),
					seal_of(2, 13, 3), seal_of(2, 14, 8), seal_of(3, 15, 4) };
	static const uint64_t order[] = { 12, 14, 15, 11, 13, 10, 0 };
	struct flush_queue q = { 0 };

	list(&q, v, ARRAY_SIZE(v));
	for (unsigned i = 0; i < ARRAY_SIZE(order); i++)
		assert_int_equal(flush(&q, 0), order[i]);
	flush_queue_release(&q);
}

/* User 1 seals another one before each flush. */
static void a_user_that_seals_often_delays_others_by_one_flush_each(void **state _unused_)
{
	struct flush_seal v[20] = { seal_of(2, 1, 1), seal_of(2, 2, 2) };
	struct flush_queue q = { 0 };

	for (unsigned i = 2; i < ARRAY_SIZE(v); i++) {
		v[i] = seal_of(1, 1 + i, 10 + i);
		list(&q, v, i + 1);
		assert_int_equal(flush(&q, 0), i == 3 ? 2 : i == 5 ? 1 : v[i].ino);
	}
	flush_queue_release(&q);
}

/* User 1 unseals what is being flushed and seals it again. In between there is no seal of this user. */
static void a_user_that_unseals_delays_others_by_one_flush_each(void **state _unused_)
{
	for (unsigned gap = 0; gap < 2; gap++) {
		struct flush_seal v[] = { seal_of(2, 1, 1), seal_of(2, 2, 2), seal_of(3, 3, 3), seal_of(1, 4, 100) };
		struct flush_queue q = { 0 };
		unsigned nr_flushed = 0, nr_turns = 0;

		list(&q, v, 4);
		while (nr_flushed < 3) {
			uint64_t ino = take(&q, 0);

			assert_true(++nr_turns <= 6);
			if (ino == 4 && gap)
				list(&q, v, 3);
			if (ino == 4) {
				v[3].sealed_ns++;
				list(&q, v, 4);
				continue;
			}
			flush_queue_done(&q, flush_queue_find(&q, ino));
			nr_flushed++;
		}
		flush_queue_release(&q);
	}
}

static void a_delay_survives_a_new_seal(void **state _unused_)
{
	struct flush_seal v[] = { seal_of(1, 1, 1), seal_of(1, 2, 100) };
	struct flush_queue q = { 0 };
	struct flush_seal s;
	uint64_t due, delay = FIRST, now = 1000;

	list(&q, v, 2);
	for (unsigned i = 0; i < 15; i++) {
		assert_int_equal(take(&q, now), 2);
		assert_int_equal(flush_queue_delay(&q, 2, now, FIRST, LAST), 0);
		list(&q, v, 1); /* unsealed */
		v[1].sealed_ns++;
		list(&q, v, 2);
		assert_int_equal(take(&q, now + delay - 1), 1); /* an older one of this user is not delayed */
		flush_queue_done(&q, &v[0]);
		assert_false(flush_queue_take(&q, now + delay - 1, &s, &due));
		assert_int_equal(due, now + delay);
		flush_queue_find(&q, 1)->is_in_tier = false;
		now += delay;
		delay = MIN(2 * delay, (uint64_t)LAST);
	}
	assert_int_equal(flush(&q, now), 2);
	assert_int_equal(flush_queue_delay(&q, 2, now, FIRST, LAST), 0); /* a flush has ended the delays before it */
	v[1].sealed_ns++;
	list(&q, v, 2);
	assert_int_equal(take(&q, now + FIRST), 2);
	now += 2 * FIRST;
	assert_int_equal(flush_queue_delay(&q, 2, now, FIRST, LAST), 0); /* as has time */
	assert_int_equal(take(&q, now + FIRST), 2);
	flush_queue_release(&q);
}

static void many_are_delayed(void **state _unused_)
{
	struct flush_seal v[200];
	struct flush_queue q = { 0 };

	for (unsigned i = 0; i < ARRAY_SIZE(v); i++)
		v[i] = seal_of(1, 10 + i, i);
	list(&q, v, ARRAY_SIZE(v));
	for (unsigned i = 0; i < ARRAY_SIZE(v); i++) {
		uint64_t ino = 10 + (i * 77) % ARRAY_SIZE(v);

		assert_int_equal(flush_queue_delay(&q, ino, 0, 1000 + ino, LAST), 0);
	}
	assert_int_equal(take(&q, 1009), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(v); i++)
		assert_int_equal(flush(&q, 1010 + i), 10 + i);
	flush_queue_release(&q);
}

/* The tier refuses one checkpoint, perhaps because of its size, and takes the others. */
static void one_that_the_tier_refuses_comes_last(void **state _unused_)
{
	const struct flush_seal v[] = { seal_of(1, 1, 1), seal_of(1, 2, 2), seal_of(1, 3, 9) };
	static const uint64_t order[] = { 3, 2, 1, 3, 3 };
	struct flush_queue q = { 0 };
	struct flush_seal s;
	uint64_t due;

	list(&q, v, ARRAY_SIZE(v));
	for (unsigned i = 0; i < ARRAY_SIZE(order); i++) {
		assert_true(flush_queue_take(&q, 0, &s, &due));
		assert_int_equal(s.ino, order[i]);
		if (s.ino == 3)
			flush_queue_failed(&q, &s);
		else
			flush_queue_done(&q, &s);
	}
	flush_queue_release(&q);
}

static void removed_ones_and_those_that_changed_meanwhile_are_skipped(void **state _unused_)
{
	struct flush_seal v[] = { seal_of(1, 1, 1), seal_of(1, 2, 2) };
	struct flush_queue q = { 0 };

	list(&q, v, 2);
	flush_queue_find(&q, 2)->is_removed = true;
	assert_int_equal(take(&q, 0), 1);
	v[0].sealed_ns = 5;
	list(&q, v, 2);
	flush_queue_done(&q, &(struct flush_seal){ .ino = 1, .sealed_ns = 1 });
	assert_int_equal(take(&q, 0), 1);
	assert_null(flush_queue_find(&q, 3));
	assert_true(flush_queue_find(&q, 2)->is_removed);
	flush_queue_release(&q);
}

static void estimates_follow_the_turns(void **state _unused_)
{
	struct flush_seal v[] = { seal_of(1, 1, 1), seal_of(1, 2, 2), seal_of(1, 3, 3),
				  seal_of(2, 4, 4), seal_of(2, 5, 5), seal_of(3, 6, 6) };
	struct flush_queue q = { 0 };

	v[4].bytes = 1000;
	v[2].bytes = 100;
	list(&q, v, ARRAY_SIZE(v));
	assert_int_equal(flush_queue_bytes_until(&q, &q.v[2]), 100 + 1000 + 10);
	assert_int_equal(flush_queue_bytes_until(&q, &q.v[1]), 110 + 1010 + 10);
	assert_int_equal(flush_queue_bytes_until(&q, &q.v[5]), 10 + 100 + 1000);
	q.current = 5;
	q.current_bytes = 400;
	assert_int_equal(flush_queue_bytes_left(&q, &q.v[4]), 600);
	assert_int_equal(flush_queue_bytes_until(&q, &q.v[5]), 10 + 100 + 600 + 10);
	flush_queue_find(&q, 5)->is_in_tier = true;
	assert_int_equal(flush_queue_bytes_until(&q, &q.v[4]), 0);
	flush_queue_release(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(users_take_turns_newest_first),
		cmocka_unit_test(a_user_that_seals_often_delays_others_by_one_flush_each),
		cmocka_unit_test(a_user_that_unseals_delays_others_by_one_flush_each),
		cmocka_unit_test(a_delay_survives_a_new_seal),
		cmocka_unit_test(many_are_delayed),
		cmocka_unit_test(one_that_the_tier_refuses_comes_last),
		cmocka_unit_test(removed_ones_and_those_that_changed_meanwhile_are_skipped),
		cmocka_unit_test(estimates_follow_the_turns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
