/* SPDX-License-Identifier: GPL-3.0-or-later */
/* fallocate: space is reserved for every range that was allocated, and once. The last test is made for TSan. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/file/allocated.h"
#include "store/engine_state.h"
#include "store/space_state.h"
#include "tests/unit/store/rig.h"

#define INO 100
#define NR_THREADS 4u
#define NR_RANGES 40u

static uint64_t reserved(struct rig *rig)
{
	return atomic_load(&rig->e->space->promised.bytes);
}

/* Bytes with what tables take; all lengths here are multiples of 16. */
static uint64_t space_for(uint64_t len)
{
	return len + len / 16;
}

static void ranges_far_apart_are_all_reserved(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, INO);

	assert_int_equal(content_allocate(c, 0, MiB(1), false), 0);
	assert_int_equal(content_allocate(c, MiB(32), MiB(1), false), 0);
	assert_int_equal(reserved(rig), space_for(MiB(2)));
	assert_int_equal(content_allocate(c, MiB(16), MiB(1), false), 0); /* between them */
	assert_int_equal(reserved(rig), space_for(MiB(3)));
	assert_int_equal(content_allocate(c, 0, MiB(2), false), 0); /* half of it for the second time */
	assert_int_equal(reserved(rig), space_for(MiB(4)));
	assert_int_equal(content_allocate(c, 0, MiB(32) + MiB(1), false), 0);
	assert_int_equal(reserved(rig), space_for(MiB(32) + MiB(1)));
	content_allocate_end(c);
	assert_int_equal(reserved(rig), 0);
	content_close(c);
}

static void what_cannot_be_reserved_is_not_kept(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, INO);

	assert_int_equal(content_allocate(c, 0, MiB(1), false), 0);
	assert_int_equal(content_allocate(c, 0, UINT64_C(1) << 50, false), -ENOSPC);
	assert_int_equal(reserved(rig), space_for(MiB(1)));
	assert_int_equal(content_allocate(c, MiB(1), MiB(1), false), 0); /* which was part of that */
	assert_int_equal(reserved(rig), space_for(MiB(2)));
	content_allocate_end(c);
	assert_int_equal(reserved(rig), 0);
	content_close(c);
}

static void truncating_ends_all_reservations(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, INO);

	assert_int_equal(content_allocate(c, 0, MiB(1), true), 0);
	assert_int_equal(content_truncate(c, 0), 0);
	assert_int_equal(reserved(rig), 0);
	assert_int_equal(content_allocate(c, 0, MiB(1), true), 0);
	assert_int_equal(reserved(rig), space_for(MiB(1)));
	content_close(c);
}

/* Every check of free space fails meanwhile. */
static void claim_disk(struct rig *rig, bool claim)
{
	if (claim)
		atomic_fetch_add(&rig->e->space->promised.bytes, UINT64_C(1) << 50);
	else
		atomic_fetch_sub(&rig->e->space->promised.bytes, UINT64_C(1) << 50);
	atomic_store(&rig->e->space->checked_ns, 0);
}

static void full_disk_refuses_only_writes_outside_reserved_ranges(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, INO);
	_cleanup_(freep) uint8_t *p = rig_bytes(MiB(1), 1);

	assert_int_equal(content_allocate(c, 0, KiB(512), false), 0);
	claim_disk(rig, true);
	assert_int_equal(content_write(c, p, KiB(64), MiB(1)), -ENOSPC);
	assert_int_equal(content_write(c, p, MiB(1), 0), -ENOSPC); /* half of it is reserved */
	for (size_t at = 0; at < KiB(512); at += KiB(64))
		assert_int_equal(content_write(c, p + at, KiB(64), at), 0);
	assert_int_equal(content_write(c, p, KiB(64), 0), -ENOSPC); /* for the second time */
	assert_int_equal(content_flush(c), 0);
	claim_disk(rig, false);
	assert_int_equal(reserved(rig), 0);
	rig_check_bytes(rig, INO, p, KiB(512));
	content_close(c);
}

static void overwriting_leaves_the_space_of_other_ranges(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, INO);
	_cleanup_(freep) uint8_t *p = rig_bytes(MiB(1), 1);

	assert_int_equal(content_allocate(c, 0, MiB(1), false), 0);
	for (unsigned i = 0; i < 16; i++) {
		assert_int_equal(content_write(c, p, KiB(64), 0), 0);
		assert_int_equal(content_flush(c), 0);
		assert_int_equal(reserved(rig), space_for(MiB(1) - KiB(64)));
	}
	claim_disk(rig, true);
	assert_int_equal(content_write(c, p, KiB(64), 0), -ENOSPC);
	for (size_t at = KiB(64); at < MiB(1); at += KiB(64))
		assert_int_equal(content_write(c, p + at, KiB(64), at), 0);
	assert_int_equal(content_flush(c), 0);
	claim_disk(rig, false);
	assert_int_equal(reserved(rig), 0);
	rig_check_bytes(rig, INO, p, MiB(1));
	content_close(c);
}

static void written_ranges_are_reserved_again(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, INO);
	_cleanup_(freep) uint8_t *p = rig_bytes(MiB(1), 1);

	assert_int_equal(content_allocate(c, 0, MiB(1), false), 0);
	assert_int_equal(content_punch(c, 0, MiB(1)), 0); /* of bytes not written yet: still reserved */
	assert_int_equal(reserved(rig), space_for(MiB(1)));
	assert_int_equal(content_write(c, p, MiB(1), 0), 0);
	assert_int_equal(content_punch(c, 0, MiB(1)), 0);
	assert_int_equal(reserved(rig), 0);
	assert_int_equal(content_allocate(c, 0, MiB(1), false), 0);
	assert_int_equal(reserved(rig), space_for(MiB(1)));
	assert_int_equal(content_write(c, p, MiB(1), 0), 0);
	assert_int_equal(content_flush(c), 0);
	assert_int_equal(content_allocate(c, KiB(512), MiB(1), false), 0); /* to write half of it again */
	assert_int_equal(reserved(rig), space_for(MiB(1)));
	content_close(c);
}

static void pieces_of_any_length_use_all_reserved_space(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, INO);
	_cleanup_(freep) uint8_t *p = rig_bytes(KiB(64), 1);

	assert_int_equal(content_allocate(c, 0, KiB(64), false), 0);
	for (size_t at = 0; at < KiB(64); at += 15)
		assert_int_equal(content_write(c, p + at, MIN(KiB(64) - at, (size_t)15), at), 0);
	assert_int_equal(content_flush(c), 0);
	assert_int_equal(reserved(rig), 0);
	content_close(c);
}

/* The file `promised` of the store. */
static int64_t size_held(struct rig *rig)
{
	struct engine_space sp;
	struct stat st;

	assert_int_equal(engine_space(rig->e, &sp), 0); /* returns what is no longer reserved */
	return fstatat(rig->e->dirs.root, "promised", &st, 0) == 0 ? st.st_size : -1;
}

static void reserved_space_is_allocated_on_the_disk(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, INO);
	_cleanup_(freep) uint8_t *p = rig_bytes(MiB(4), 1);

	assert_int_equal(size_held(rig), -1);
	assert_int_equal(content_allocate(c, 0, MiB(8), false), 0);
	assert_in_range(size_held(rig), MiB(8), space_for(MiB(8)));
	assert_int_equal(content_write(c, p, MiB(4), 0), 0);
	assert_int_equal(content_flush(c), 0);
	assert_in_range(size_held(rig), MiB(4), space_for(MiB(4)));
	content_allocate_end(c);
	assert_int_equal(size_held(rig), 0);
	assert_int_equal(content_allocate(c, MiB(32), MiB(8), false), 0);
	assert_in_range(size_held(rig), MiB(8), space_for(MiB(8)));
	rig_copy_as_it_is(rig); /* with the file */
	content_close(c);
	rig_close_to_copy(rig);
	rig_open(rig);
	assert_int_equal(size_held(rig), -1);
}

static void read_only_store_reserves_nothing(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, INO);

	engine_set_read_only(rig->e, true);
	assert_int_equal(content_allocate(c, 0, MiB(1), false), -EROFS);
	assert_int_equal(reserved(rig), 0);
	content_close(c);
	engine_set_read_only(rig->e, false);
}

static void more_ranges_than_are_remembered_are_reserved(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, INO);

	for (uint64_t i = 0; i < 2 * ALLOCATED_MAX; i++)
		assert_int_equal(content_allocate(c, i * MiB(1), KiB(64), false), 0);
	assert_int_equal(reserved(rig), space_for(2 * ALLOCATED_MAX * KiB(64)));
	content_close(c);
}

static void ranges_join_where_they_touch(void **state)
{
	struct allocated a = { 0 };

	(void)state;
	assert_int_equal(allocated_missing(NULL, 5, 25), 20);
	allocated_add(&a, 10, 20);
	allocated_add(&a, 30, 40);
	assert_int_equal(a.nr, 2);
	assert_int_equal(allocated_missing(&a, 0, 100), 80);
	assert_int_equal(allocated_missing(&a, 15, 35), 10);
	assert_int_equal(allocated_part(&a, 15, 35), 10);
	assert_int_equal(allocated_part(&a, 20, 30), 0);
	assert_int_equal(allocated_part(NULL, 20, 30), 0);
	allocated_add(&a, 20, 25);
	assert_int_equal(a.nr, 2);
	allocated_add(&a, 25, 30);
	assert_int_equal(a.nr, 1);
	assert_int_equal(allocated_missing(&a, 10, 40), 0);
	allocated_add(&a, 0, 5);
	allocated_add(&a, 50, 60);
	allocated_add(&a, 0, 60);
	assert_int_equal(a.nr, 1);
	assert_int_equal(allocated_missing(&a, 0, 61), 1);
}

static void parts_are_removed_from_ranges(void **state)
{
	struct allocated a = { 0 };

	(void)state;
	allocated_remove(&a, 0, 100);
	allocated_add(&a, 10, 20);
	allocated_add(&a, 30, 40);
	allocated_add(&a, 50, 60);
	allocated_remove(&a, 0, 10);
	allocated_remove(&a, 20, 30);
	allocated_remove(&a, 60, 70);
	assert_int_equal(a.nr, 3);
	assert_int_equal(allocated_part(&a, 0, 100), 30);
	allocated_remove(&a, 15, 55); /* the end of one, all of one, the start of one */
	assert_int_equal(a.nr, 2);
	assert_int_equal(allocated_part(&a, 10, 15), 5);
	assert_int_equal(allocated_part(&a, 55, 60), 5);
	assert_int_equal(allocated_part(&a, 0, 100), 10);
	allocated_remove(&a, 12, 13); /* the middle of one */
	assert_int_equal(a.nr, 3);
	assert_int_equal(allocated_part(&a, 10, 15), 4);
	assert_int_equal(allocated_missing(&a, 12, 13), 1);
	allocated_remove(&a, 10, 12);
	allocated_remove(&a, 0, 100);
	assert_int_equal(a.nr, 0);
}

static void the_closest_join_where_removing_makes_too_many(void **state)
{
	struct allocated a = { 0 };

	(void)state;
	allocated_add(&a, 0, 1000 * (ALLOCATED_MAX + 1));
	for (uint64_t i = 1; i <= ALLOCATED_MAX; i++)
		allocated_remove(&a, i * 1000, i * 1000 + (i == 7 ? 1 : 10));
	assert_int_equal(a.nr, ALLOCATED_MAX);
	assert_int_equal(allocated_part(&a, 7000, 7001), 1); /* as if it had not been written */
	assert_int_equal(allocated_missing(&a, 0, 1000 * (ALLOCATED_MAX + 1)), 10 * (ALLOCATED_MAX - 1));
	assert_int_equal(allocated_part(&a, 1000 * (ALLOCATED_MAX + 1), 1000 * (ALLOCATED_MAX + 2)), 0);
}

static void the_shortest_is_dropped_where_there_are_too_many(void **state)
{
	struct allocated a = { 0 };

	(void)state;
	for (uint64_t i = 0; i <= ALLOCATED_MAX; i++)
		allocated_add(&a, i * 100, i * 100 + (i == 7 ? 1 : 10));
	assert_int_equal(a.nr, ALLOCATED_MAX);
	assert_int_equal(allocated_missing(&a, 700, 701), 1);
	assert_int_equal(allocated_part(&a, 700, 701), 1); /* it may be reserved */
	assert_int_equal(allocated_missing(&a, 0, (ALLOCATED_MAX + 1) * 100), ALLOCATED_MAX * 90 + 100);
}

struct thread {
	pthread_t id;
	struct content *c;
	unsigned nr;
	int r;
};

/* All of the same ranges, and one of its own. */
static void *allocate_ranges(void *arg)
{
	struct thread *t = arg;

	for (uint64_t i = 0; i < NR_RANGES && t->r == 0; i++)
		t->r = content_allocate(t->c, 2 * i * MiB(1), MiB(1), false);
	if (t->r == 0)
		t->r = content_allocate(t->c, GiB(1 + t->nr), MiB(1), false);
	return NULL;
}

static void concurrent_calls_reserve_each_range_once(void **state)
{
	struct rig *rig = *state;

	for (unsigned round = 0; round < 20; round++) {
		struct content *c = rig_content(rig, INO + round);
		struct thread t[NR_THREADS];

		for (unsigned i = 0; i < NR_THREADS; i++) {
			t[i] = (struct thread){ .c = c, .nr = i };
			assert_int_equal(pthread_create(&t[i].id, NULL, allocate_ranges, &t[i]), 0);
		}
		for (unsigned i = 0; i < NR_THREADS; i++)
			pthread_join(t[i].id, NULL);
		for (unsigned i = 0; i < NR_THREADS; i++)
			assert_int_equal(t[i].r, 0);
		assert_int_equal(reserved(rig), space_for((NR_RANGES + NR_THREADS) * MiB(1)));
		content_allocate_end(c);
		assert_int_equal(reserved(rig), 0);
		content_close(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(ranges_far_apart_are_all_reserved),
		rig_test(what_cannot_be_reserved_is_not_kept),
		rig_test(truncating_ends_all_reservations),
		rig_test(full_disk_refuses_only_writes_outside_reserved_ranges),
		rig_test(overwriting_leaves_the_space_of_other_ranges),
		rig_test(written_ranges_are_reserved_again),
		rig_test(pieces_of_any_length_use_all_reserved_space),
		rig_test(reserved_space_is_allocated_on_the_disk),
		rig_test(read_only_store_reserves_nothing),
		rig_test(more_ranges_than_are_remembered_are_reserved),
		cmocka_unit_test(ranges_join_where_they_touch),
		cmocka_unit_test(parts_are_removed_from_ranges),
		cmocka_unit_test(the_closest_join_where_removing_makes_too_many),
		cmocka_unit_test(the_shortest_is_dropped_where_there_are_too_many),
		rig_test(concurrent_calls_reserve_each_range_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
