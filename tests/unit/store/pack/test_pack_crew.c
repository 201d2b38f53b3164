/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Work that several threads do at once. */
#include "tests/unit/store/pack/pack_rig.h"

#include <stdatomic.h>
#include <unistd.h>

#include "store/pack/pack_crew.h"

#define PIECES 1000u

/* One thread takes each piece; `done` belongs to the caller alone again when all have returned. */
struct work {
	atomic_uint next, nr_in, most_in;
	unsigned done[PIECES];
	unsigned wait_for; /* so many are in at once before any goes on */
};

static void take_pieces(void *userdata)
{
	struct work *w = userdata;
	unsigned in = 1 + atomic_fetch_add(&w->nr_in, 1), most = atomic_load(&w->most_in), i;

	while (in > most && !atomic_compare_exchange_weak(&w->most_in, &most, in))
		;
	while (atomic_load(&w->most_in) < w->wait_for)
		;
	while ((i = atomic_fetch_add(&w->next, 1)) < PIECES)
		w->done[i]++;
	atomic_fetch_sub(&w->nr_in, 1);
}

static void assert_done_once(const struct work *w)
{
	for (unsigned i = 0; i < PIECES; i++)
		assert_int_equal(w->done[i], 1);
	assert_int_equal(w->nr_in, 0);
}

static void others_come_to_help(void **state)
{
	bool is_alone = sysconf(_SC_NPROCESSORS_ONLN) < 2;
	struct pack_crew c;

	(void)state;
	pack_crew_init(&c);
	for (unsigned round = 0; round < 100; round++) {
		struct work w = { .wait_for = is_alone ? 1 : 2 };

		pack_crew_run(&c, 1, take_pieces, &w);
		assert_done_once(&w);
		assert_int_equal(w.most_in, is_alone ? 1 : 2);
	}
	pack_crew_release(&c);
}

static void without_others_it_is_done_as_well(void **state)
{
	struct work w = { .wait_for = 1 };
	struct pack_crew c;

	(void)state;
	pack_crew_init(&c);
	pack_crew_run(&c, 0, take_pieces, &w);
	assert_done_once(&w);
	assert_int_equal(w.most_in, 1);
	pack_crew_release(&c);
}

static void *ask_often(void *userdata)
{
	for (unsigned round = 0; round < 200; round++) {
		struct work w = { .wait_for = 1 };

		pack_crew_run(userdata, 1 + round % 5, take_pieces, &w);
		assert_done_once(&w);
	}
	return NULL;
}

static void many_may_ask_at_once(void **state)
{
	pthread_t thread[6];
	struct pack_crew c;

	(void)state;
	pack_crew_init(&c);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, ask_often, &c), 0);
	for (size_t i = 0; i < 6; i++)
		pthread_join(thread[i], NULL);
	pack_crew_release(&c);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(others_come_to_help),
		cmocka_unit_test(without_others_it_is_done_as_well),
		cmocka_unit_test(many_may_ask_at_once),
	};

	return cmocka_run_group_tests_name("pack_crew", tests, NULL, NULL);
}
