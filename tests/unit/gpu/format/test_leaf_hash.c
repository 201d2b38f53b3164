/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define XXH_INLINE_ALL /* shows the default secret, which the published answers are for */
#include <xxhash.h>

#include "base/le.h"
#include "base/util.h"
#include "gpu/format/leaf_hash.h"
#include "tests/unit/gpu/format/rig.h"

#define XXH3_BLOCK_STRIPES 16

static uint8_t bytes[KiB(4)];
static uint64_t words[sizeof(bytes) / 8];

static struct digest xxhash(const uint8_t secret[XXH3_SECRET_LEN], const void *p, size_t len)
{
	XXH128_hash_t h = XXH3_128bits_withSecret(p, len, secret, XXH3_SECRET_LEN);

	return (struct digest){ h.low64, h.high64 };
}

/*
 * XXH3-128 of multiples of 64 bytes from 256 on. Devices compute only two of these lengths, with the same key, start, fold
 * and avalanche. Where no scramble lies between them (1 KiB), the stripes of a long input only add to the accumulators:
 * lanes of a warp may each add theirs, in any order.
 */

static void xxh3_add_stripe(uint64_t acc[XXH3_STRIPE], const uint64_t *in, const uint64_t *key)
{
	for (int i = 0; i < XXH3_STRIPE; i++) {
		uint64_t mixed = in[i] ^ key[i];

		acc[i ^ 1] += in[i];
		acc[i] += (mixed & UINT32_MAX) * (mixed >> 32);
	}
}

static void xxh3_scramble(uint64_t acc[XXH3_STRIPE], const struct xxh3_key *k)
{
	for (int i = 0; i < XXH3_STRIPE; i++)
		acc[i] = (acc[i] ^ acc[i] >> 47 ^ k->word[XXH3_BLOCK_STRIPES + i]) * XXH3_P32_1;
}

static uint64_t xxh3_merge(const uint64_t acc[XXH3_STRIPE], const uint64_t *key, uint64_t start)
{
	for (int i = 0; i < XXH3_STRIPE; i += 2)
		start += xxh3_fold(acc[i] ^ key[i], acc[i + 1] ^ key[i + 1]);
	return xxh3_avalanche(start);
}

static struct digest xxh3_finish(const struct xxh3_key *k, const uint64_t acc[XXH3_STRIPE], uint64_t len)
{
	struct digest d;

	d.lo = xxh3_merge(acc, k->lo, len * XXH3_P64_1);
	d.hi = xxh3_merge(acc, k->hi, ~(len * XXH3_P64_2));
	return d;
}

/* 256 bytes and more. The last stripe has a key of its own, and no scramble comes behind it. */
static struct digest xxh3_long(const struct xxh3_key *k, const uint64_t *in, uint32_t len)
{
	uint32_t nr = len / (8 * XXH3_STRIPE);
	uint64_t acc[XXH3_STRIPE];

	xxh3_start(acc);
	for (uint32_t i = 0; i < nr - 1; i++) {
		xxh3_add_stripe(acc, in + i * XXH3_STRIPE, k->word + i % XXH3_BLOCK_STRIPES);
		if (i % XXH3_BLOCK_STRIPES == XXH3_BLOCK_STRIPES - 1)
			xxh3_scramble(acc, k);
	}
	xxh3_add_stripe(acc, in + (nr - 1) * XXH3_STRIPE, k->last);
	return xxh3_finish(k, acc, len);
}

/* What the plain rendition makes of some bytes. */
static struct digest rendition(const uint8_t secret[XXH3_SECRET_LEN], const uint8_t *p, uint32_t len)
{
	struct xxh3_key k;

	for (size_t i = 0; i < len / 8; i++)
		words[i] = xxh3_read64(p + 8 * i);
	xxh3_key_init(&k, secret);
	return len <= 128 ? xxh3_short(&k, words, len) : xxh3_long(&k, words, len);
}

/* From the sanity checks of xxHash itself, seed 0: those of its lengths that are ours, or nearly. */
static void the_rendition_gives_the_published_answers(void **state _unused_)
{
	static const struct {
		uint32_t len;
		struct digest digest;
	} t[] = {
		{ 48, { 0xf942219aed80f67b, 0xa002ac4e5478227e } },
		{ 512, { 0x617e49599013cb6b, 0x18d2d110dcc9bca1 } },
		{ 2048, { 0xdd59e2c3a5f038e0, 0xf736557fd47073a5 } },
		{ 2240, { 0x6e73a90539cf2948, 0xccb134fbfa7ce49d } },
	};
	uint64_t gen = 2654435761u;

	for (size_t i = 0; i < sizeof(bytes); i++, gen *= 11400714785074694797u)
		bytes[i] = (uint8_t)(gen >> 56);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_digest_equal(rendition(XXH3_kSecret, bytes, t[i].len), t[i].digest);
}

static void the_rendition_is_xxh3_for_all_lengths_and_secrets(void **state _unused_)
{
	uint8_t secret[XXH3_SECRET_LEN];
	uint64_t seed = 1;

	for (int round = 0; round < 200; round++) {
		rig_noise(&seed, bytes, sizeof(bytes));
		rig_noise(&seed, secret, sizeof(secret));
		for (uint32_t len = 32; len <= sizeof(bytes); len += len < 128 ? 16 : len < 256 ? 128 : 64)
			assert_digest_equal(rendition(secret, bytes, len), xxhash(secret, bytes, len));
	}
}

static void leaves_and_signatures_are_what_the_rendition_makes(void **state _unused_)
{
	uint8_t slices[CHUNK_LEN_MAX / LEAF_SLICE * DIGEST_LEN];
	struct digest leaves[LEAF_GROUP], want;
	struct leaf_key k;
	uint64_t seed = 2;

	leaf_key_init(&k, rig_key);
	for (uint32_t chunk_len = CHUNK_LEN_MIN; chunk_len <= CHUNK_LEN_MAX; chunk_len *= 2) {
		rig_noise(&seed, bytes, sizeof(bytes));
		for (uint32_t i = 0; i < chunk_len / LEAF_SLICE; i++)
			digest_encode(rendition(k.leaf, bytes + i * LEAF_SLICE, LEAF_SLICE), slices + i * DIGEST_LEN);
		want = chunk_len <= LEAF_SLICE ? rendition(k.leaf, bytes, chunk_len) :
						 rendition(k.group, slices, chunk_len / LEAF_SLICE * DIGEST_LEN);
		assert_digest_equal(leaf_hash(&k, bytes, chunk_len, chunk_len), want);
	}
	for (size_t nr = 1; nr <= LEAF_GROUP; nr++) {
		memset(bytes, 0, sizeof(bytes));
		for (size_t i = 0; i < nr; i++) {
			leaves[i] = (struct digest){ rig_random(&seed), rig_random(&seed) };
			digest_encode(leaves[i], bytes + i * DIGEST_LEN);
		}
		want = rendition(k.group, bytes, LEAF_GROUP * DIGEST_LEN);
		assert_digest_equal(leaf_hash_group(&k, leaves, nr), want);
	}
}

/*
 * Long inputs of XXH3: of two words 64 bytes apart one takes from the other, and what stands beside them is such that
 * the products cancel as well. Without the secret one in 2^33 of such changes hits that, which is too often.
 */
static void words_that_give_and_take_do_not_collide(void **state _unused_)
{
	unsigned nr_plain = 0;
	uint64_t seed = 6;

	for (unsigned round = 0; round < 200; round++) {
		struct digest plain[2], leaf[2];
		uint8_t key[LEAF_KEY_LEN];
		struct leaf_key k;
		uint64_t a, b;

		rig_noise(&seed, key, sizeof(key));
		rig_noise(&seed, bytes, sizeof(bytes));
		leaf_key_init(&k, key);
		b = xxh3_read64(bytes + 64) | 1;
		a = (b ^ xxh3_read64(k.leaf) ^ xxh3_read64(k.leaf + 8)) >> 32 << 32 | 2;
		for (int i = 0; i < 2; i++, a++, b--) {
			struct le64 le_a = le64_put(a), le_b = le64_put(b);

			memcpy(bytes, &le_a, sizeof(le_a));
			memcpy(bytes + 64, &le_b, sizeof(le_b));
			plain[i] = xxhash(k.leaf, bytes, 512);
			leaf[i] = leaf_hash(&k, bytes, 512, 512);
		}
		nr_plain += digest_equal(plain[0], plain[1]);
		assert_false(digest_equal(leaf[0], leaf[1]));
	}
	assert_true(nr_plain > 50); /* else this tests nothing */
}

static void zeros_fill_up_a_short_chunk(void **state _unused_)
{
	struct leaf_key k;
	uint64_t seed = 3;

	leaf_key_init(&k, rig_key);
	for (size_t len = 0; len <= 256; len++) {
		_cleanup_(freep) uint8_t *p = malloc(len + !len); /* so that a sanitizer sees a read past the end */

		memset(bytes, 0, sizeof(bytes));
		rig_noise(&seed, bytes, len);
		memcpy(p, bytes, len);
		assert_digest_equal(leaf_hash(&k, p, len, 256), leaf_hash(&k, bytes, 256, 256));
	}
}

/*
 * What `tests/should-fail/delta/make-inputs fingerprints` prints, for the key 00 01 ... 1f and the bytes
 * 00 01 ... fe 00 01 ...: they pin how secrets are made and what a fingerprint is of.
 */
static void known_answers(void **state _unused_)
{
	static const struct {
		size_t len;
		uint32_t chunk_len;
		struct digest fingerprint;
	} t[] = {
		{ 0, 32, { 0x71cdd2942ccce837, 0xf21c28ab2665afd3 } },
		{ 1, 32, { 0x6e356d1b06ac8cde, 0x60dddc340a0783ac } },
		{ 32, 32, { 0xdd93a8a34e4e0df7, 0x5adf7b3238f12e83 } },
		{ 1000, 32, { 0x7ba7dfe5600ced40, 0x2778e962c3b61d27 } },
		{ 1024, 32, { 0xc4b709fed427ead4, 0x0e32f49792ec6989 } },
		{ 100000, 64, { 0x12764d2c756a9632, 0x571714966237ac12 } },
		{ 200000, 32, { 0x526717bccb012bb9, 0x557dd9c62f503c55 } },
		{ 131072, 128, { 0x5e57e60ecdd33e9f, 0x2438c4c25cb9a7a5 } },
		{ 131071, 256, { 0xa1a2c0b1bafa1300, 0x7c52db9de9ca41c6 } },
		{ 131071, 4096, { 0x657de69e27666701, 0xc19308bddcf7477d } },
	};
	static uint8_t content[KiB(200)];
	struct leaf_key k;

	for (size_t i = 0; i < sizeof(content); i++)
		content[i] = (uint8_t)(i % 255);
	leaf_key_init(&k, rig_key);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_digest_equal(rig_fingerprint(&k, content, t[i].len, t[i].chunk_len), t[i].fingerprint);
}

/* The fingerprint as leaf_hash.h tells it, level by level. */
static struct digest fingerprint_by_levels(const struct leaf_key *k, struct digest *d, size_t nr, uint64_t len)
{
	uint8_t last[2 * DIGEST_LEN] = { 0 };

	for (bool again = nr > 0; again; again = nr > 1) {
		for (size_t i = 0; i * LEAF_GROUP < nr; i++)
			d[i] = leaf_hash_group(k, d + i * LEAF_GROUP, MIN(nr - i * LEAF_GROUP, (size_t)LEAF_GROUP));
		nr = (nr + LEAF_GROUP - 1) / LEAF_GROUP;
	}
	if (nr > 0)
		digest_encode(d[0], last);
	digest_encode((struct digest){ len, 32 }, last + DIGEST_LEN);
	return xxhash(k->group, last, sizeof(last));
}

static void a_fingerprint_is_the_same_from_bytes_signatures_and_levels(void **state _unused_)
{
	static const size_t chunks[] = { 0, 1, 2, 31, 32, 33, 63, 64, 1023, 1024, 1025, 2048, 32767, 32768, 32769, 40000 };
	_cleanup_(freep) struct digest *d = calloc(40000, sizeof(*d));
	_cleanup_(freep) uint8_t *content = malloc(40000 * 32);
	uint64_t seed = 4;
	struct leaf_key k;

	leaf_key_init(&k, rig_key);
	rig_noise(&seed, content, 40000 * 32);
	for (size_t i = 0; i < ARRAY_SIZE(chunks); i++) {
		size_t nr = chunks[i], len = nr * 32 - (nr > 0) * (i % 3);
		struct digest want = rig_fingerprint(&k, content, len, 32);
		struct content_hash c;

		content_hash_init(&c, &k, 32);
		for (size_t n = 0; n < nr; n++)
			d[n] = leaf_hash(&k, content + n * 32, MIN(len - n * 32, (size_t)32), 32);
		for (size_t n = 0; n < nr; n += LEAF_GROUP)
			content_hash_add_signature(&c, leaf_hash_group(&k, d + n, MIN(nr - n, (size_t)LEAF_GROUP)));
		assert_digest_equal(content_hash_finish(&c, len), want);
		assert_digest_equal(fingerprint_by_levels(&k, d, nr, len), want);
	}
}

static void zeros_need_not_be_hashed_one_by_one(void **state _unused_)
{
	static const size_t runs[][3] = { /* chunks: bytes, zeros, bytes */
		{ 0, 1, 0 }, { 0, 32, 0 }, { 1, 31, 1 }, { 5, 1024, 3 }, { 32, 2048, 0 }, { 33, 33000, 7 }, { 1023, 1, 40 },
		{ 0, 32768, 1 }, { 31, 65537, 32 },
	};
	_cleanup_(freep) uint8_t *content = malloc(70000 * 32);
	uint64_t seed = 5;
	struct leaf_key k;

	leaf_key_init(&k, rig_key);
	for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
		size_t head = runs[i][0] * 32, zeros = runs[i][1] * 32, tail = runs[i][2] * 32;
		size_t cut = tail == 0 ? i % 3 : 0, len = head + zeros + tail - cut;
		struct content_hash c;

		rig_noise(&seed, content, len);
		memset(content + head, 0, zeros - cut);
		content_hash_init(&c, &k, 32);
		content_hash_add(&c, content, head);
		content_hash_add_zeros(&c, zeros - cut);
		content_hash_add(&c, content + head + zeros, tail);
		assert_digest_equal(content_hash_finish(&c, len), rig_fingerprint(&k, content, len, 32));
	}
}

static void every_byte_and_the_length_count(void **state _unused_)
{
	struct digest whole;
	struct leaf_key k;
	uint64_t seed = 5;

	leaf_key_init(&k, rig_key);
	memset(bytes, 0, sizeof(bytes));
	rig_noise(&seed, bytes, 2100);
	whole = rig_fingerprint(&k, bytes, 2100, 64);
	for (size_t i = 0; i < 2100; i++) {
		bytes[i] ^= 1;
		assert_false(digest_equal(rig_fingerprint(&k, bytes, 2100, 64), whole));
		bytes[i] ^= 1;
	}
	for (size_t len = 2101; len < 2200; len++) /* zeros more: the leaves are the same */
		assert_false(digest_equal(rig_fingerprint(&k, bytes, len, 64), whole));
	assert_false(digest_equal(rig_fingerprint(&k, bytes, 2100, 128), whole));
	assert_digest_equal(rig_fingerprint(&k, bytes, 2100, 64), whole);
}

static void every_bit_of_the_key_changes_both_secrets(void **state _unused_)
{
	uint8_t other[LEAF_KEY_LEN];
	struct leaf_key a, b;

	leaf_key_init(&a, rig_key);
	assert_memory_not_equal(a.leaf, a.group, sizeof(a.leaf));
	for (size_t bit = 0; bit < 8 * LEAF_KEY_LEN; bit++) {
		memcpy(other, rig_key, sizeof(other));
		other[bit / 8] ^= (uint8_t)(1 << bit % 8);
		leaf_key_init(&b, other);
		for (size_t i = 0; i < XXH3_SECRET_LEN; i += 16) { /* all of it, not only where the bit is */
			assert_memory_not_equal(a.leaf + i, b.leaf + i, 16);
			assert_memory_not_equal(a.group + i, b.group + i, 16);
		}
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_rendition_gives_the_published_answers),
		cmocka_unit_test(the_rendition_is_xxh3_for_all_lengths_and_secrets),
		cmocka_unit_test(leaves_and_signatures_are_what_the_rendition_makes),
		cmocka_unit_test(words_that_give_and_take_do_not_collide),
		cmocka_unit_test(zeros_fill_up_a_short_chunk),
		cmocka_unit_test(known_answers),
		cmocka_unit_test(a_fingerprint_is_the_same_from_bytes_signatures_and_levels),
		cmocka_unit_test(zeros_need_not_be_hashed_one_by_one),
		cmocka_unit_test(every_byte_and_the_length_count),
		cmocka_unit_test(every_bit_of_the_key_changes_both_secrets),
	};

	return cmocka_run_group_tests_name("leaf_hash", tests, NULL, NULL);
}
