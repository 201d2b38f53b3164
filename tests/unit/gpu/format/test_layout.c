/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "gpu/format/delta_format.h"
#include "gpu/format/layout.h"
#include "tests/unit/gpu/format/rig.h"

#define NR 40

/* Arranges buffers given as name and pages, and compares offsets, in pages; -1: whatever they are. */
struct row {
	const char *name;
	uint64_t pages;
	int64_t off;
};

static void check(struct layout *l, const struct row *rows, size_t nr, uint64_t end_pages)
{
	struct layout_want wants[NR];
	uint64_t end;

	for (size_t i = 0; i < nr; i++)
		wants[i] = (struct layout_want){ .name = rows[i].name, .len = rows[i].pages * DELTA_PAGE };
	assert_int_equal(layout_arrange(l, wants, nr, &end), 0);
	for (size_t i = 0; i < nr; i++)
		if (rows[i].off >= 0)
			assert_int_equal(wants[i].off, rows[i].off * DELTA_PAGE);
	assert_int_equal(end, end_pages * DELTA_PAGE);
}
#define CHECK(l, end, ...) check(l, (const struct row[]){ __VA_ARGS__ }, \
				 sizeof((const struct row[]){ __VA_ARGS__ }) / sizeof(struct row), end)

static void what_is_not_changed_stays_where_it_is(void **state _unused_)
{
	_cleanup_(layout_release) struct layout l = LAYOUT_EMPTY;

	CHECK(&l, 6, { "a", 1, 0 }, { "b", 2, 1 }, { "c", 3, 3 });
	CHECK(&l, 6, { "c", 3, 3 }, { "a", 1, 0 }, { "b", 2, 1 }); /* in another order */
	CHECK(&l, 6, { "a", 1, 0 }, { "c", 3, 3 }); /* b is gone */
	CHECK(&l, 6, { "a", 2, 0 }, { "c", 3, 3 }); /* a grows into the gap */
	CHECK(&l, 6, { "a", 2, 0 }, { "d", 1, 2 }, { "c", 3, 3 }); /* d fills the rest of it */
	CHECK(&l, 9, { "a", 3, 6 }, { "d", 1, 2 }, { "c", 3, 3 }); /* a has to move */
	CHECK(&l, 9, { "a", 3, 6 }, { "d", 1, 2 }, { "c", 1, 3 }, { "e", 2, 0 }, { "f", 2, 4 });
	/* the last is gone: the file is shorter */
	CHECK(&l, 6, { "d", 1, 2 }, { "c", 1, 3 }, { "e", 2, 0 }, { "f", 2, 4 });
}

static void empty_buffers_take_no_place(void **state _unused_)
{
	_cleanup_(layout_release) struct layout l = LAYOUT_EMPTY;
	uint64_t end = 1;

	assert_int_equal(layout_arrange(&l, NULL, 0, &end), 0);
	assert_int_equal(end, 0);
	CHECK(&l, 1, { "a", 0, 0 }, { "b", 1, 0 }, { "c", 0, 0 });
	CHECK(&l, 2, { "a", 1, 1 }, { "b", 1, 0 }, { "c", 0, 0 });
	CHECK(&l, 2, { "a", 1, 1 }, { "b", 0, 0 });
}

static void odd_lengths_are_whole_pages_apart(void **state _unused_)
{
	_cleanup_(layout_release) struct layout l = LAYOUT_EMPTY;
	struct layout_want wants[] = { { .name = "a", .len = 1 },
				       { .name = "b", .len = DELTA_PAGE + 1 },
				       { .name = "c", .len = 5 } };
	uint64_t end;

	assert_int_equal(layout_arrange(&l, wants, 3, &end), 0);
	assert_int_equal(wants[0].off, 0);
	assert_int_equal(wants[1].off, DELTA_PAGE);
	assert_int_equal(wants[2].off, 3 * DELTA_PAGE);
	assert_int_equal(end, 4 * DELTA_PAGE);
}

static void what_cannot_be_arranged_changes_nothing(void **state _unused_)
{
	_cleanup_(layout_release) struct layout l = LAYOUT_EMPTY;
	struct layout_want twice[] = { { .name = "x", .len = 1 }, { .name = "y", .len = 1 }, { .name = "x", .len = 2 } };
	struct layout_want large[] = { { .name = "x", .len = UINT64_C(1) << 62 }, { .name = "y", .len = 1 } };
	struct layout_want larger[] = { { .name = "x", .len = UINT64_MAX } };
	uint64_t end;

	CHECK(&l, 3, { "a", 1, 0 }, { "b", 2, 1 });
	assert_int_equal(layout_arrange(&l, twice, 3, &end), -EINVAL);
	assert_int_equal(layout_arrange(&l, large, 2, &end), -EFBIG);
	assert_int_equal(layout_arrange(&l, larger, 1, &end), -EFBIG);
	CHECK(&l, 3, { "b", 2, 1 }, { "a", 1, 0 });
}

/* Buffers come, go and change; none ever overlap, and those that did not grow never move. */
static void random_changes_never_overlap(void **state _unused_)
{
	_cleanup_(layout_release) struct layout l = LAYOUT_EMPTY;
	struct {
		uint64_t len, off; /* before; len 0: was not there */
	} before[NR] = { 0 };
	char names[NR][16];
	uint64_t seed = 42;

	for (int i = 0; i < NR; i++)
		snprintf(names[i], sizeof(names[i]), "n%d", i);
	for (int round = 0; round < 500; round++) {
		struct layout_want wants[NR];
		int of[NR];
		size_t nr = 0;
		uint64_t end;

		for (int i = 0; i < NR; i++) {
			uint64_t chance = rig_random(&seed) % 10;
			uint64_t len = chance < 7 && before[i].len > 0 ? before[i].len : rig_random(&seed) % 40000;

			if (chance == 9 || len == 0)
				continue;
			of[nr] = i;
			wants[nr++] = (struct layout_want){ .name = names[i], .len = len };
		}
		assert_int_equal(layout_arrange(&l, wants, nr, &end), 0);
		assert_int_equal(l.nr, nr);
		for (size_t i = 1; i < l.nr; i++)
			assert_true(l.places[i - 1].off + l.places[i - 1].len <= l.places[i].off);
		for (int i = 0; i < NR; i++) {
			size_t k = 0;

			while (k < nr && of[k] != i)
				k++;
			if (k == nr) {
				before[i].len = 0;
				continue;
			}
			assert_int_equal(wants[k].off % DELTA_PAGE, 0);
			assert_true(wants[k].off + wants[k].len <= end);
			if (before[i].len >= wants[k].len)
				assert_int_equal(wants[k].off, before[i].off);
			before[i].len = wants[k].len;
			before[i].off = wants[k].off;
		}
	}
}

/* Every other one of many goes and another one comes: a second, not minutes. */
static void many_come_and_go(void **state _unused_)
{
	enum { MANY = 200000 };
	_cleanup_(layout_release) struct layout l = LAYOUT_EMPTY;
	struct layout_want *wants = calloc(MANY, sizeof(*wants));
	char(*names)[16] = calloc(2 * (size_t)MANY, sizeof(*names));
	uint64_t end;

	assert_non_null(wants);
	assert_non_null(names);
	for (size_t i = 0; i < 2 * (size_t)MANY; i++)
		snprintf(names[i], sizeof(names[i]), "n%zu", i);
	for (size_t i = 0; i < MANY; i++)
		wants[i] = (struct layout_want){ .name = names[i], .len = 100 };
	assert_int_equal(layout_arrange(&l, wants, MANY, &end), 0);
	for (size_t i = 0; i < MANY; i += 2)
		wants[i].name = names[MANY + i];
	assert_int_equal(layout_arrange(&l, wants, MANY, &end), 0);
	assert_int_equal(end, MANY * (uint64_t)DELTA_PAGE);
	for (size_t i = 0; i < MANY; i++)
		assert_int_equal(wants[i].off, i * DELTA_PAGE);
	for (size_t i = 0; i < MANY; i += 2)
		wants[i] = (struct layout_want){ .name = names[i], .len = DELTA_PAGE + 1 }; /* into no gap */
	assert_int_equal(layout_arrange(&l, wants, MANY, &end), 0);
	assert_int_equal(end, 2 * (uint64_t)MANY * DELTA_PAGE);
	free(wants);
	free(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_not_changed_stays_where_it_is),
		cmocka_unit_test(empty_buffers_take_no_place),
		cmocka_unit_test(odd_lengths_are_whole_pages_apart),
		cmocka_unit_test(what_cannot_be_arranged_changes_nothing),
		cmocka_unit_test(random_changes_never_overlap),
		cmocka_unit_test(many_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
