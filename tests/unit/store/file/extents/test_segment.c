/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A segment against the plainest model there is: an address per byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/file/extents/segment.h"
#include "store/pack/pack.h"

#define SPAN 4096u /* the model looks at this much of the segment */

static uint64_t model[SPAN]; /* pack << 32 | offset of each byte, 0: hole */

static void check(const struct segment *s)
{
	uint32_t at = 0;
	uint64_t mapped = 0;

	for (uint32_t i = 0; i < s->nr; i++) {
		assert_true(s->x[i].len > 0);
		assert_true(s->x[i].off >= at);
		for (; at < s->x[i].off; at++)
			assert_int_equal(model[at], 0);
		for (uint32_t k = 0; k < s->x[i].len; k++, at++)
			assert_int_equal(model[at], (uint64_t)s->x[i].addr.pack << 32 | (s->x[i].addr.off + k));
		mapped += s->x[i].len;
	}
	for (; at < SPAN; at++)
		assert_int_equal(model[at], 0);
	assert_int_equal(segment_mapped(s), mapped);
	for (uint32_t off = 0; off < SPAN; off += 37) {
		size_t i = segment_find(s, off);

		assert_true(i == s->nr || s->x[i].off + s->x[i].len > off);
		assert_true(i == 0 || s->x[i - 1].off + s->x[i - 1].len <= off);
	}
}

static void a_segment_is_what_the_last_writes_say(void **state)
{
	struct segment s = { 0 };
	int64_t sum = 0, grown;

	(void)state;
	srandom(4711);
	for (int round = 0; round < 3000; round++) {
		uint32_t off = (uint32_t)random() % SPAN, len = 1 + (uint32_t)random() % (SPAN - off);
		struct extent x[2];
		size_t nr = (size_t)random() % 3;
		uint32_t at = 0;

		for (size_t i = 0; i < nr; i++) {
			uint32_t room = len - at;

			if (room == 0) {
				nr = i;
				break;
			}
			x[i].off = at + (uint32_t)random() % room;
			x[i].len = 1 + (uint32_t)random() % (len - x[i].off);
			x[i].addr = (struct addr){ .pack = 1 + (uint32_t)random() % 3,
						   .off = 8192 + (uint32_t)random() % 9000 };
			at = x[i].off + x[i].len;
		}
		assert_int_equal(segment_replace(&s, off, len, x, nr, &grown), 0);
		sum += grown;
		memset(model + off, 0, len * sizeof(model[0]));
		for (size_t i = 0; i < nr; i++)
			for (uint32_t k = 0; k < x[i].len; k++)
				model[off + x[i].off + k] = (uint64_t)x[i].addr.pack << 32 | (x[i].addr.off + k);
		check(&s);
		assert_int_equal(sum, segment_mapped(&s));
	}
	free(s.x);
}

/* Some lie side by side, some cover whole old ones, some are in the middle of one. */
static void a_patch_leaves_what_lies_between(void **state)
{
	struct segment s = { 0 };
	int64_t sum = 0, grown;

	(void)state;
	srandom(4712);
	memset(model, 0, sizeof(model));
	for (int round = 0; round < 3000; round++) {
		uint32_t off = (uint32_t)random() % (SPAN / 2), at = 0, most = 1 + (uint32_t)random() % 300;
		struct extent x[8];
		size_t nr = 0;

		for (; nr < 1 + (size_t)random() % ARRAY_SIZE(x); nr++) {
			uint32_t len = 1 + (uint32_t)random() % most;
			struct addr a = { .pack = 1 + (uint32_t)random() % 3,
					  .off = PACK_BLOCK * 2 + (uint32_t)random() % 100000 };

			if (off + at + len > SPAN)
				break;
			x[nr] = (struct extent){ at, len, a };
			for (uint32_t k = 0; k < len; k++)
				model[off + at + k] = (uint64_t)a.pack << 32 | (a.off + k);
			at += len + (random() % 3 ? (uint32_t)random() % most : 0);
		}
		assert_true(nr > 0);
		assert_int_equal(segment_patch(&s, off, x, nr, &grown), 0);
		sum += grown;
		assert_int_equal(sum, segment_mapped(&s));
		assert_true(s.dirty);
		check(&s);
		if (round % 100 == 99) { /* fewer pieces again */
			assert_int_equal(segment_replace(&s, 0, SPAN, NULL, 0, &grown), 0);
			sum += grown;
			memset(model, 0, sizeof(model));
		}
	}
	free(s.x);
}

/* Segments of some files that are cloned, patched and changed, each against its own model. */
#define NR_SHARING 6
static uint64_t models[NR_SHARING][SPAN];

static void check_as(struct segment *s, const uint64_t m[SPAN])
{
	memcpy(model, m, sizeof(model));
	assert_int_equal(segment_settle(s), 0);
	check(s);
}

static struct addr some_addr(void)
{
	return (struct addr){ .pack = 1 + (uint32_t)random() % 3, .off = PACK_BLOCK * 2 + (uint32_t)random() % 100000 };
}

static void set_model(uint64_t m[SPAN], uint32_t off, const struct extent *x)
{
	for (uint32_t k = 0; k < x->len; k++)
		m[off + x->off + k] = (uint64_t)x->addr.pack << 32 | (x->addr.off + k);
}

static void patch_some(struct segment *s, uint64_t m[SPAN], int64_t *mapped)
{
	uint32_t off = (uint32_t)random() % (SPAN / 2), at = 0, most = 1 + (uint32_t)random() % 60;
	struct extent x[20];
	int64_t grown;
	size_t nr = 0;

	for (; nr < 1 + (size_t)random() % ARRAY_SIZE(x) && off + at + most <= SPAN; nr++) {
		x[nr] = (struct extent){ at, 1 + (uint32_t)random() % most, some_addr() };
		set_model(m, off, &x[nr]);
		at += x[nr].len + (uint32_t)random() % 3 * most;
	}
	if (nr == 0)
		return;
	assert_int_equal(segment_patch(s, off, x, nr, &grown), 0);
	*mapped += grown;
}

static void replace_some(struct segment *s, uint64_t m[SPAN], int64_t *mapped)
{
	uint32_t off = (uint32_t)random() % SPAN, len = 1 + (uint32_t)random() % (SPAN - off);
	struct extent x = { 0, 1 + (uint32_t)random() % len, some_addr() };
	int64_t grown;

	assert_int_equal(segment_settle(s), 0);
	assert_int_equal(segment_replace(s, off, len, &x, 1, &grown), 0);
	memset(m + off, 0, len * sizeof(*m));
	set_model(m, off, &x);
	*mapped += grown;
}

static void segments_that_share_change_for_themselves(void **state)
{
	struct extent whole = { 0, SPAN, { .pack = 1, .off = 2 * PACK_BLOCK } };
	struct segment s[NR_SHARING] = { 0 };
	_Atomic uint64_t memory = 0;
	int64_t mapped[NR_SHARING] = { 0 };
	unsigned deepest = 0;

	(void)state;
	srandom(4713);
	memset(models, 0, sizeof(models));
	for (unsigned i = 0; i < NR_SHARING; i++)
		s[i].memory = &memory;
	for (int round = 0; round < 20000; round++) {
		unsigned i = (unsigned)random() % NR_SHARING, k = (unsigned)random() % NR_SHARING;

		if (segment_is_empty(&s[i])) {
			assert_int_equal(segment_replace(&s[i], 0, SPAN, &whole, 1, &mapped[i]), 0);
			set_model(models[i], 0, &whole);
		} else if (random() % 50 == 0) {
			replace_some(&s[i], models[i], &mapped[i]);
		} else if (random() % 3 && i != k) {
			segment_release(&s[k]);
			assert_int_equal(segment_share(&s[i], &s[k]), 0);
			assert_true(s[k].dirty);
			memcpy(models[k], models[i], sizeof(models[k]));
			mapped[k] = mapped[i];
			assert_int_equal(s[k].layers->mapped, mapped[k]);
		}
		patch_some(&s[i], models[i], &mapped[i]);
		deepest = MAX(deepest, s[i].layers ? s[i].layers->depth : 0);
		if (random() % 100 == 0) {
			check_as(&s[i], models[i]);
			assert_int_equal(mapped[i], segment_mapped(&s[i]));
		}
	}
	assert_in_range(deepest, 4, 20); /* those that are small are taken in */
	for (unsigned i = 0; i < NR_SHARING; i++) {
		check_as(&s[i], models[i]);
		segment_release(&s[i]);
	}
	assert_int_equal(memory, 0);
}

static void neighbours_in_one_frame_are_one_extent(void **state)
{
	struct extent_list l = { 0 };
	uint32_t first = 2 * PACK_BLOCK, last = (PACK_FRAME_STRIDE)*PACK_BLOCK; /* first and last block of frame 0 */

	(void)state;
	assert_int_equal(extent_list_add(&l, 0, 4096, (struct addr){ .pack = 1, .off = first }), 0);
	assert_int_equal(extent_list_add(&l, 4096, 4096, (struct addr){ .pack = 1, .off = first + 4096 }), 0);
	assert_int_equal(l.nr, 1);
	assert_int_equal(l.x[0].len, 8192);
	assert_int_equal(extent_list_add(&l, 8192, 4096, (struct addr){ .pack = 2, .off = first + 8192 }), 0);
	assert_int_equal(l.nr, 2); /* another pack */
	assert_int_equal(extent_list_add(&l, 12288, 4096, (struct addr){ .pack = 2, .off = last }), 0);
	assert_int_equal(extent_list_add(&l, 16384, 4096, (struct addr){ .pack = 2, .off = last + 4096 }), 0);
	assert_int_equal(l.nr, 4); /* the next block is the table of the next frame */
	extent_list_release(&l);
}

static void a_tree_gives_segments_in_order(void **state)
{
	enum { NUMBERS = 512 };
	static struct segment all[NUMBERS];
	bool there[NUMBERS] = { false };
	struct segment_tree t = { 0 };

	(void)state;
	srandom(4712);
	for (int round = 0; round < 4000; round++) {
		size_t n = (size_t)random() % NUMBERS, next = NUMBERS;

		all[n].number = n * 3;
		if (there[n])
			segment_tree_remove(&t, &all[n]);
		else
			segment_tree_add(&t, &all[n]);
		there[n] = !there[n];
		assert_ptr_equal(segment_tree_find(&t, n * 3), there[n] ? &all[n] : NULL);
		assert_null(segment_tree_find(&t, n * 3 + 1));
		for (size_t i = NUMBERS; round % 16 == 0 && i-- > 0;) {
			assert_ptr_equal(segment_tree_from(&t, i * 3 + 1), next < NUMBERS ? &all[next] : NULL);
			next = there[i] ? i : next;
			assert_ptr_equal(segment_tree_from(&t, i * 3), next < NUMBERS ? &all[next] : NULL);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_segment_is_what_the_last_writes_say),
		cmocka_unit_test(a_patch_leaves_what_lies_between),
		cmocka_unit_test(segments_that_share_change_for_themselves),
		cmocka_unit_test(neighbours_in_one_frame_are_one_extent),
		cmocka_unit_test(a_tree_gives_segments_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
