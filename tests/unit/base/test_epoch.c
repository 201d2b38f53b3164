/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/epoch.h"
#include "base/util.h"

static void *leave_later(void *arg)
{
	struct epoch *e = arg;

	nanosleep(&(struct timespec){ .tv_nsec = 30 * 1000 * 1000 }, NULL);
	epoch_leave(e, 0);
	return NULL;
}

static void a_wait_lasts_until_those_inside_have_left(void **state)
{
	struct epoch e;
	pthread_t t;
	unsigned ticket;

	(void)state;
	epoch_init(&e);
	epoch_wait(&e); /* no user */
	epoch_wait(&e);
	ticket = epoch_enter(&e);
	assert_int_equal(ticket, 0);
	assert_int_equal(pthread_create(&t, NULL, leave_later, &e), 0);
	epoch_wait(&e);
	assert_int_equal(e.nr_inside[0], 0);
	assert_int_equal(e.nr_inside[1], 0);
	pthread_join(t, NULL);
	epoch_release(&e);
}

/* Users read what `current` points at; a thread that replaces it waits and then overwrites the old one. */
#define NR_USERS 4u
#define NR_CHANGES 400u

struct shared {
	struct epoch e;
	_Atomic(uint64_t *) current;
	_Atomic bool stop;
	_Atomic uint64_t nr_spoilt;
};

static void *use(void *arg)
{
	struct shared *s = arg;

	while (!s->stop) {
		unsigned ticket = epoch_enter(&s->e);
		const uint64_t *p = s->current;

		s->nr_spoilt += p[0] != p[1];
		epoch_leave(&s->e, ticket);
	}
	return NULL;
}

static void no_user_inside_sees_what_is_taken_away(void **state)
{
	static struct shared s;
	pthread_t users[NR_USERS];

	(void)state;
	epoch_init(&s.e);
	s.current = calloc(2, sizeof(uint64_t));
	for (unsigned i = 0; i < NR_USERS; i++)
		assert_int_equal(pthread_create(&users[i], NULL, use, &s), 0);
	for (uint64_t i = 1; i <= NR_CHANGES; i++) {
		uint64_t *next = malloc(2 * sizeof(*next)), *old = s.current;

		next[0] = next[1] = i;
		s.current = next;
		epoch_wait(&s.e);
		old[0]++;
		free(old);
	}
	s.stop = true;
	for (unsigned i = 0; i < NR_USERS; i++)
		pthread_join(users[i], NULL);
	assert_int_equal(s.nr_spoilt, 0);
	free(s.current);
	epoch_release(&s.e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wait_lasts_until_those_inside_have_left),
		cmocka_unit_test(no_user_inside_sees_what_is_taken_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
