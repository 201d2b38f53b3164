/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What the cache knows of packs takes memory only while a checkpoint that has them is in use. */
#include "store/tier/reading/tier_cache.h"

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

#define PACKS 1000u

static struct tier_manifest manifest_of(uint32_t number, struct tier_pack_ref_disk refs[PACKS])
{
	memset(refs, 0, PACKS * sizeof(*refs));
	for (uint32_t i = 0; i < PACKS; i++) {
		memcpy(refs[i].id, &i, sizeof(i));
		memcpy(refs[i].id + sizeof(i), &number, sizeof(number));
		refs[i].data_len = le64_put(4096);
		refs[i].nr_frames = le32_put(1);
	}
	return (struct tier_manifest){ .packs = (const uint8_t *)refs, .nr_packs = PACKS };
}

static void use_packs(struct tier_cache *c, uint32_t number)
{
	static const struct tier_waiter impatient = { .must_not_wait = true };
	static struct tier_pack_ref_disk refs[PACKS];
	struct tier_manifest m = manifest_of(number, refs);
	const struct tier_tables *tables;
	const struct fp_key key = { 0 };
	struct tier_source *a, *b;

	assert_int_equal(tier_source_new(c, &m, &key, &a), 0);
	assert_int_equal(tier_source_new(c, &m, &key, &b), 0);
	for (uint32_t i = 0; i < PACKS; i++) {
		assert_int_equal(tier_source_tables(a, i, &impatient, &tables), -EINPROGRESS);
		assert_int_equal(tier_source_tables(b, i, &impatient, &tables), -EINPROGRESS);
	}
	tier_source_free(a);
	tier_source_free(b);
}

static void packs_of_unused_checkpoints_take_no_memory(void **state _unused_)
{
	const struct tier_cache_conf conf = { .bytes = MiB(16), .timeout_ns = 1 };
	struct tier_cache *c;
	size_t before;

	assert_int_equal(tier_cache_new(NULL, NULL, &conf, &c), 0);
	use_packs(c, 0);
	before = mallinfo2().uordblks;
	for (uint32_t i = 1; i <= 100; i++)
		use_packs(c, i);
	assert_in_range(mallinfo2().uordblks, 0, before + MiB(1));
	tier_cache_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packs_of_unused_checkpoints_take_no_memory),
	};

	return cmocka_run_group_tests_name("tier_cache", tests, NULL, NULL);
}
