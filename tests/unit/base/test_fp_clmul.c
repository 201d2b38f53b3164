/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fp_clmul.h"
#include "base/le.h"
#include "base/util.h"

static uint8_t bytes[3 * CLMUL_BLOCK];
static struct fp_clmul_key key;

static uint64_t random_next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33 ^ *seed << 17;
}

static void noise(uint64_t seed, uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(random_next(&seed) >> 20);
}

/* The key 00 01 ... 1f and the bytes of test_fp.c, continued. */
static int set_up(void **state _unused_)
{
	uint8_t secret[FP_KEY_LEN];

	for (size_t i = 0; i < sizeof(secret); i++)
		secret[i] = (uint8_t)i;
	fp_clmul_key_init(&key, secret);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + (i >> 8));
	return 0;
}

/*
 * From the words of docs/format.md in Python, with whole numbers for polynomials and hashlib's SHA-256. They pin the
 * derivation of the key, too: if one changes, every existing store stops finding its chunks.
 */
static void known_answers(void **state _unused_)
{
	static const struct {
		size_t len;
		const char *fp;
	} t[] = {
		{ 0, "dfb761e4aebc507e24d731514e7d18" },     { 1, "ee9432fd767768cd78a9d40b668a81" },
		{ 31, "59bb6535f82023fb5921b1edd6baad" },    { 32, "e657aced7d6a1411cc02c520874f7a" },
		{ 33, "938a73bb5a34a69adaee289d29fabc" },    { 100, "e2c34523468912982849f9404f8158" },
		{ 200, "2d690041f69afec08c58708e4f55ce" },   { 1000, "8ad07fe84c46ba80631c408685c6f7" },
		{ 4096, "15ef459a8e23c1819f7ec9c5bc947f" },  { 4097, "654f94a06344f44114f0089286e20d" },
		{ 10000, "28a45b4f8bda75cdafd9f799a25623" }, { 12288, "0224562b770b654dfcaa8d67b5e869" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		assert_string_equal(fp_hex(fp_clmul_plain(&key, bytes, t[i].len)).s, t[i].fp);
		assert_string_equal(fp_hex(fp_clmul_best()(&key, bytes, t[i].len)).s, t[i].fp);
	}
}

static void the_twins_agree_at_every_length_and_address(void **state _unused_)
{
	fp_clmul_fn *best = fp_clmul_best();

	if (best == fp_clmul_plain)
		skip();
	noise(1, bytes, sizeof(bytes));
	for (size_t len = 0; len <= 2 * CLMUL_BLOCK + 100; len += len < 200 || len % CLMUL_BLOCK > 4000 ? 1 : 97) {
		_cleanup_(freep) uint8_t *p = malloc(len + !len); /* so that a sanitizer sees a read past the end */

		memcpy(p, bytes + len % 31, len);
		assert_true(fp_equal(best(&key, p, len), fp_clmul_plain(&key, p, len)));
		assert_true(fp_equal(best(&key, bytes + len % 31, len), best(&key, p, len)));
	}
}

/* Of noise, so that nothing is hidden by products with zero. */
static void every_bit_and_the_length_count(void **state _unused_)
{
	fp_clmul_fn *hash = fp_clmul_best();
	size_t len = CLMUL_BLOCK + 45;
	struct fp f;

	noise(2, bytes, sizeof(bytes));
	f = hash(&key, bytes, len);
	for (size_t bit = 0; bit < 8 * len; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_false(fp_equal(hash(&key, bytes, len), f));
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	memset(bytes, 0, sizeof(bytes));
	for (len = 1; len <= 2 * CLMUL_BLOCK; len++)
		assert_false(fp_equal(hash(&key, bytes, len), hash(&key, bytes, len - 1)));
}

/*
 * If a word's partner is just its key their product is zero, whatever the word: one of the two sums no longer tells it.
 * The other does, as it multiplies the word with something else.
 */
static void a_word_that_one_sum_cannot_see_is_seen_by_the_other(void **state _unused_)
{
	for (size_t unit = 0; unit < 4; unit++) {
		for (int blind_odd = 0; blind_odd < 2; blind_odd++) {
			/* x(unit + 1) meets y(unit + 1) in the even sum and y(unit + 2) in the odd one. */
			size_t partner = (unit + (size_t)blind_odd) * CLMUL_UNIT + 16;
			struct fp before;

			noise(unit, bytes, sizeof(bytes));
			memcpy(bytes + partner, key.units + partner, 16);
			before = fp_clmul_best()(&key, bytes, CLMUL_BLOCK);
			bytes[unit * CLMUL_UNIT] ^= 1;
			assert_false(fp_equal(fp_clmul_best()(&key, bytes, CLMUL_BLOCK), before));
			/* Blind in both: this needs the key. */
			memcpy(bytes + unit * CLMUL_UNIT + 16, key.units + unit * CLMUL_UNIT + 16, 16);
			memcpy(bytes + (unit + 1) * CLMUL_UNIT + 16, key.units + (unit + 1) * CLMUL_UNIT + 16, 16);
			before = fp_clmul_best()(&key, bytes, CLMUL_BLOCK);
			bytes[unit * CLMUL_UNIT] ^= 1;
			assert_true(fp_equal(fp_clmul_best()(&key, bytes, CLMUL_BLOCK), before));
		}
	}
}

/*
 * Pages for which XXH3 is weak (docs/decisions/fingerprints.md, "Hash with a proven collision bound"): of two words 64
 * bytes apart one takes from the other, and what stands beside them is such that the products of XXH3 cancel as well.
 */
static void words_that_give_and_take_do_not_collide(void **state _unused_)
{
	unsigned nr_xxh3 = 0;

	for (uint64_t round = 0; round < 200; round++) {
		struct fp_key xxh3, clmul;
		uint8_t secret[FP_KEY_LEN];
		struct fp old[2], new[2];
		uint64_t a, b, s[2];

		noise(2 * round, secret, sizeof(secret));
		noise(2 * round + 1, bytes, sizeof(bytes));
		fp_key_init(&xxh3, FP_XXH3, secret);
		fp_key_init(&clmul, FP_CLMUL, secret);
		memcpy(s, xxh3.secret, sizeof(s));
		memcpy(&b, bytes + 64, sizeof(b));
		b |= 1;
		a = (b ^ s[0] ^ s[1]) >> 32 << 32 | 2;
		for (int i = 0; i < 2; i++, a++, b--) {
			memcpy(bytes, &a, sizeof(a));
			memcpy(bytes + 64, &b, sizeof(b));
			old[i] = fp_of(&xxh3, bytes, CLMUL_BLOCK);
			new[i] = fp_of(&clmul, bytes, CLMUL_BLOCK);
		}
		nr_xxh3 += fp_equal(old[0], old[1]);
		assert_false(fp_equal(new[0], new[1]));
	}
	assert_true(nr_xxh3 > 50); /* else this tests nothing */
}

/* Buckets and filters take some bits of a fingerprint: pages that hardly differ must not crowd in them. */
static void pages_that_hardly_differ_spread_evenly(void **state _unused_)
{
	enum { NR = 1 << 14, NR_BUCKETS = 1 << 10 };
	static unsigned in_bucket[4][NR_BUCKETS];
	uint64_t square[4] = { 0 };

	memset(bytes, 0, sizeof(bytes));
	for (uint32_t i = 0; i < NR; i++) {
		struct le32 n = le32_put(i);
		struct fp f;

		memcpy(bytes + 1000, &n, sizeof(n));
		f = fp_clmul_best()(&key, bytes, CLMUL_BLOCK);
		in_bucket[0][f.lo % NR_BUCKETS]++;
		in_bucket[1][f.lo >> 54]++;
		in_bucket[2][f.hi % NR_BUCKETS]++;
		in_bucket[3][f.hi >> 46]++;
	}
	for (size_t k = 0; k < ARRAY_SIZE(in_bucket); k++) {
		for (size_t i = 0; i < NR_BUCKETS; i++)
			square[k] += (uint64_t)in_bucket[k][i] * in_bucket[k][i];
		/* Evenly: 16 * 16 * 1024; as by chance: 17 * 16 * 1024; twice that would be every other bucket
		 * empty. */
		assert_true(square[k] < 2 * 17 * 16 * NR_BUCKETS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_answers),
		cmocka_unit_test(the_twins_agree_at_every_length_and_address),
		cmocka_unit_test(every_bit_and_the_length_count),
		cmocka_unit_test(a_word_that_one_sum_cannot_see_is_seen_by_the_other),
		cmocka_unit_test(words_that_give_and_take_do_not_collide),
		cmocka_unit_test(pages_that_hardly_differ_spread_evenly),
	};

	return cmocka_run_group_tests_name("fp_clmul", tests, set_up, NULL);
}
