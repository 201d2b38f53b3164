/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mutex.h"
#include "base/util.h"

#define NR_THREADS 4
#define NR_ROUNDS 5000
#define MS UINT64_C(1000000)

static struct mutex lock = MUTEX_INIT;
static uint64_t counter GUARDED_BY(lock);

static void *held_by_me(void *arg)
{
	*(bool *)arg = mutex_held(&lock);
	return NULL;
}

static bool held_by_another_thread(void)
{
	bool held = true;
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, held_by_me, &held), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	return held;
}

static void a_mutex_is_held_by_the_thread_that_locked_it(void **state _unused_)
{
	assert_false(mutex_held(&lock));
	mutex_lock(&lock);
	assert_true(mutex_held(&lock));
	assert_false(held_by_another_thread());
	mutex_unlock(&lock);
	assert_false(mutex_held(&lock));
}

static void *try_lock(void *arg)
{
	bool *ret = arg;

	if (mutex_trylock(&lock)) {
		*ret = mutex_held(&lock);
		mutex_unlock(&lock);
	} else {
		*ret = false;
	}
	return NULL;
}

static bool another_thread_can_lock(void)
{
	bool locked = false;
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, try_lock, &locked), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	return locked;
}

static void trylock_does_not_wait(void **state _unused_)
{
	assert_true(another_thread_can_lock());
	mutex_lock(&lock);
	assert_false(another_thread_can_lock());
	mutex_unlock(&lock);
	assert_true(another_thread_can_lock());
}

static void *count(void *arg _unused_)
{
	for (int i = 0; i < NR_ROUNDS; i++) {
		mutex_lock(&lock);
		counter++;
		mutex_unlock(&lock);
	}
	return NULL;
}

static void a_mutex_excludes(void **state _unused_)
{
	pthread_t t[NR_THREADS];

	counter = 0;
	for (size_t i = 0; i < NR_THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, count, NULL), 0);
	for (size_t i = 0; i < NR_THREADS; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	assert_int_equal(counter, NR_THREADS * NR_ROUNDS);
}

struct turn {
	struct mutex lock;
	struct cond changed;
	int turn GUARDED_BY(lock);
};

static void *take_turns(void *arg)
{
	struct turn *t = arg;

	for (int i = 0; i < 100; i++) {
		mutex_lock(&t->lock);
		while (t->turn != 1)
			cond_wait(&t->changed, &t->lock);
		t->turn = 0;
		cond_signal(&t->changed);
		mutex_unlock(&t->lock);
	}
	return NULL;
}

static void waiting_gives_the_mutex_away_and_takes_it_back(void **state _unused_)
{
	struct turn t = { .turn = 0 };
	pthread_t other;

	mutex_init(&t.lock);
	cond_init(&t.changed);
	assert_int_equal(pthread_create(&other, NULL, take_turns, &t), 0);
	for (int i = 0; i < 100; i++) {
		mutex_lock(&t.lock);
		t.turn = 1;
		cond_broadcast(&t.changed);
		while (t.turn != 0)
			assert_true(cond_wait_for(&t.changed, &t.lock, 30000 * MS));
		assert_true(mutex_held(&t.lock));
		mutex_unlock(&t.lock);
	}
	assert_int_equal(pthread_join(other, NULL), 0);
	cond_release(&t.changed);
	mutex_release(&t.lock);
}

static void waiting_ends_after_the_timeout(void **state _unused_)
{
	struct cond never;
	uint64_t begin = monotonic_ns();

	cond_init(&never);
	mutex_lock(&lock);
	while (cond_wait_for(&never, &lock, 20 * MS))
		; /* spurious */
	assert_true(mutex_held(&lock));
	mutex_unlock(&lock);
	assert_true(monotonic_ns() - begin >= 20 * MS);
	cond_release(&never);
}

struct queue {
	struct rwlock lock;
	atomic_int order; /* counts those that got in */
	int writer, reader;
};

static void *write_in_turn(void *arg)
{
	struct queue *q = arg;

	rwlock_lock(&q->lock);
	q->writer = ++q->order;
	rwlock_unlock(&q->lock);
	return NULL;
}

static void *read_in_turn(void *arg)
{
	struct queue *q = arg;

	rwlock_lock_shared(&q->lock);
	q->reader = ++q->order;
	rwlock_unlock_shared(&q->lock);
	return NULL;
}

static void a_waiting_writer_goes_before_new_readers(void **state _unused_)
{
	struct queue q = { .order = 0 };
	pthread_t writer, reader;

	rwlock_init(&q.lock);
	rwlock_lock_shared(&q.lock);
	assert_int_equal(pthread_create(&writer, NULL, write_in_turn, &q), 0);
	while (pthread_rwlock_tryrdlock(&q.lock.l) == 0) { /* until it waits */
		pthread_rwlock_unlock(&q.lock.l);
		usleep(1000);
	}
	assert_int_equal(pthread_create(&reader, NULL, read_in_turn, &q), 0);
	usleep(100000);
	assert_int_equal(q.order, 0); /* the reader stands behind the writer */
	rwlock_unlock_shared(&q.lock);
	assert_int_equal(pthread_join(writer, NULL), 0);
	assert_int_equal(pthread_join(reader, NULL), 0);
	assert_int_equal(q.writer, 1);
	assert_int_equal(q.reader, 2);
	rwlock_release(&q.lock);
}

static void readers_share(void **state _unused_)
{
	struct queue q = { .order = 0 };
	pthread_t reader;

	rwlock_init(&q.lock);
	rwlock_lock_shared(&q.lock);
	assert_int_equal(pthread_create(&reader, NULL, read_in_turn, &q), 0);
	assert_int_equal(pthread_join(reader, NULL), 0);
	assert_int_equal(q.reader, 1);
	rwlock_unlock_shared(&q.lock);
	rwlock_release(&q.lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mutex_is_held_by_the_thread_that_locked_it),
		cmocka_unit_test(trylock_does_not_wait),
		cmocka_unit_test(a_mutex_excludes),
		cmocka_unit_test(waiting_gives_the_mutex_away_and_takes_it_back),
		cmocka_unit_test(waiting_ends_after_the_timeout),
		cmocka_unit_test(a_waiting_writer_goes_before_new_readers),
		cmocka_unit_test(readers_share),
	};

	return cmocka_run_group_tests_name("mutex", tests, NULL, NULL);
}
