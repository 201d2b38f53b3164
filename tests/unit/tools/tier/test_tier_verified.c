/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Only chunks that were verified, in this pack and with this key, are known; memory is bounded. */
#include "tools/tier/tier_verified.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

static struct tier_verified v;

static int set_up(void **state _unused_)
{
	tier_verified_init(&v);
	return 0;
}

static int tear_down(void **state _unused_)
{
	tier_verified_release(&v);
	return 0;
}

static struct tier_footer pack(uint32_t n)
{
	struct tier_footer f = { .data_len = MiB(3), .nr_frames = 3 };

	memcpy(f.id, &n, sizeof(n));
	return f;
}

static bool has(const struct tier_footer *f, uint32_t first, uint32_t nr)
{
	return tier_verified_has(&v, f, &(struct tier_run){ .pack = 1, .first = first, .nr = nr });
}

static void add(const struct tier_footer *f, uint32_t first, uint32_t nr)
{
	tier_verified_add(&v, f, &(struct tier_run){ .pack = 1, .first = first, .nr = nr });
}

static void what_was_verified_is_known(void **state _unused_)
{
	struct tier_footer f = pack(1), other = pack(2);

	assert_false(has(&f, 0, 1));
	add(&f, 7, 10);
	assert_true(has(&f, 7, 10));
	assert_true(has(&f, 8, 3));
	assert_false(has(&f, 6, 2));
	assert_false(has(&f, 16, 2));
	assert_false(has(&other, 7, 1));
	add(&f, 20, 0); /* part of a chunk, which was verified as a whole */
	assert_true(has(&f, 20, 0));
	assert_true(has(&f, 20, 1));
	assert_false(has(&f, 21, 0));
	add(&f, 17, 3);
	assert_true(has(&f, 7, 14));
}

/* A manifest of another user may name the same pack with another key or length. */
static void another_key_or_length_is_another_pack(void **state _unused_)
{
	struct tier_footer f = pack(1), other = f;

	add(&f, 0, 100);
	other.key_id[15] ^= 1;
	assert_false(has(&other, 0, 1));
	other = f;
	other.data_len++;
	assert_false(has(&other, 0, 1));
	other = f;
	other.nr_frames++;
	assert_false(has(&other, 0, 1));
	assert_true(has(&f, 0, 100));
}

static void chunks_that_a_pack_cannot_have_are_not_known(void **state _unused_)
{
	struct tier_footer f = pack(1);

	add(&f, 0, 3 * PACK_FRAME_BLOCKS);
	assert_true(has(&f, 3 * PACK_FRAME_BLOCKS - 1, 1));
	add(&f, 3 * PACK_FRAME_BLOCKS - 1, 2);
	assert_false(has(&f, 3 * PACK_FRAME_BLOCKS - 1, 2));
	add(&f, UINT32_MAX, 1);
	assert_false(has(&f, UINT32_MAX, 1));
	add(&f, 0, UINT32_MAX);
	assert_false(has(&f, 0, UINT32_MAX));
}

static void memory_is_bounded(void **state _unused_)
{
	struct tier_footer f;

	for (uint32_t i = 0; i < TIER_VERIFIED_PACKS_MAX; i++) {
		f = pack(i);
		add(&f, 0, 1);
	}
	f = pack(0);
	assert_true(has(&f, 0, 1));
	f = pack(TIER_VERIFIED_PACKS_MAX);
	add(&f, 0, 1);
	assert_true(has(&f, 0, 1));
	assert_int_equal(v.nr, 1);
	f = pack(0);
	assert_false(has(&f, 0, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_was_verified_is_known, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_key_or_length_is_another_pack, set_up, tear_down),
		cmocka_unit_test_setup_teardown(chunks_that_a_pack_cannot_have_are_not_known, set_up, tear_down),
		cmocka_unit_test_setup_teardown(memory_is_bounded, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
