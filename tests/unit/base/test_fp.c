/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "base/fp.h"
#include "base/util.h"

/*
 * Known answers for the key 00 01 ... 1f: XXH3 from libxxhash 0.8.1 called from Python, SHA-256
 * from Python's hashlib over the first 32 bytes of the derived secret followed by the data. They
 * pin the derivation too: if one changes, every existing store stops finding its chunks.
 */
static const struct {
	size_t len; /* of the page's beginning */
	const char *xxh3, *sha256;
	uint64_t hash64;
} answers[] = {
	{ 0, "eb876275b25bdb43f5b54b427e86ff", "13cdff6f56007fb24cdb68684bf7a0", 0x3d409cc2d6c933b7 },
	{ 100, "fde3ec46dcbf8c463bc43da7653f77", "96fef9312cbaf8d259bf27ad9475de", 0xe21289686daec375 },
	{ 200, "d6999991ce02a8bfe8c6d14bdbd4d0", "2fe4cda9d59285ca16243745d76227", 0x593965f391715d5f },
	{ 1000, "8172601b82302e85c23f1af741c324", "329e52882b9c2a3704f97232f0f832", 0x852e30821b607281 },
	{ 4096, "d8cfdf61876daa42ca929c8d317327", "ac051101269e20f6e20c334a319d67", 0x42aa6d8761dfcfd8 },
};

static uint8_t page[4096];
static uint8_t secret[FP_KEY_LEN];

static int set_up(void **state _unused_)
{
	for (size_t i = 0; i < sizeof(page); i++)
		page[i] = (uint8_t)(i * 7 + (i >> 8));
	for (size_t i = 0; i < sizeof(secret); i++)
		secret[i] = (uint8_t)i;
	return 0;
}

static void known_answers(void **state _unused_)
{
	struct fp_key xxh3, sha256;

	fp_key_init(&xxh3, FP_XXH3, secret);
	fp_key_init(&sha256, FP_SHA256, secret);
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		assert_string_equal(fp_hex(fp_of(&xxh3, page, answers[i].len)).s, answers[i].xxh3);
		assert_string_equal(fp_hex(fp_of(&sha256, page, answers[i].len)).s, answers[i].sha256);
		assert_true(fp_hash64(&xxh3, page, answers[i].len) == answers[i].hash64);
		assert_true(fp_hash64(&sha256, page, answers[i].len) == answers[i].hash64);
	}
}

static void xxh3_is_what_the_shared_library_computes_at_every_length(void **state _unused_)
{
	uint8_t derived[192];
	struct fp_key k;

	fp_key_init(&k, FP_XXH3, secret);
	assert_int_equal(XXH3_generateSecret(derived, sizeof(derived), secret, sizeof(secret)), XXH_OK);
	assert_memory_equal(k.secret, derived, sizeof(derived));
	for (size_t len = 0; len <= sizeof(page); len++) {
		XXH128_hash_t h = XXH3_128bits_withSecret(page, len, derived, sizeof(derived));
		struct fp f = fp_of(&k, page, len);

		assert_true(f.lo == h.low64);
		assert_true(f.hi == (h.high64 & UINT64_C(0x00ffffffffffffff)));
	}
}

/* What it tells about its key must not be the secret of the fingerprints. */
static void hashes_of_names_have_a_key_of_their_own(void **state _unused_)
{
	struct fp_key xxh3, clmul;

	fp_key_init(&xxh3, FP_XXH3, secret);
	fp_key_init(&clmul, FP_CLMUL, secret);
	assert_memory_not_equal(xxh3.secret, clmul.secret, sizeof(clmul.secret));
	assert_true(fp_hash64(&clmul, page, 100) == UINT64_C(0x4ae199d7ccaf91ce));
}

static void other_secrets_give_other_fingerprints(void **state _unused_)
{
	uint8_t other[FP_KEY_LEN];
	struct fp_key a, b;

	for (size_t i = 0; i < FP_KEY_LEN; i++) {
		memcpy(other, secret, sizeof(other));
		other[i] ^= 1;
		for (enum fp_kind kind = FP_XXH3; kind < NR_FP_KINDS; kind++) {
			fp_key_init(&a, kind, secret);
			fp_key_init(&b, kind, other);
			assert_false(fp_equal(fp_of(&a, page, sizeof(page)), fp_of(&b, page, sizeof(page))));
		}
	}
}

static void neighbouring_pieces_are_fingerprinted_one_by_one(void **state _unused_)
{
	struct fp f[8];
	struct fp_key k;

	for (enum fp_kind kind = FP_XXH3; kind < NR_FP_KINDS; kind++) {
		fp_key_init(&k, kind, secret);
		fp_of_each(&k, page, 512, 8, f);
		for (size_t i = 0; i < 8; i++)
			assert_true(fp_equal(f[i], fp_of(&k, page + i * 512, 512)));
		assert_false(fp_equal(f[0], f[1]));
	}
}

static void fifteen_bytes_hold_all_of_a_fingerprint(void **state _unused_)
{
	static const uint8_t bytes[FP_LEN] = { 8, 7, 6, 5, 4, 3, 2, 1, 0xf, 0xe, 0xd, 0xc, 0xb, 0xa, 9 };
	struct fp f = { .lo = UINT64_C(0x0102030405060708), .hi = UINT64_C(0x00090a0b0c0d0e0f) };
	uint8_t encoded[FP_LEN + 1] = { [FP_LEN] = 0x55 };

	fp_encode(f, encoded);
	assert_memory_equal(encoded, bytes, FP_LEN);
	assert_int_equal(encoded[FP_LEN], 0x55);
	assert_true(fp_equal(fp_decode(bytes), f));
	assert_string_equal(fp_hex(f).s, "08070605040302010f0e0d0c0b0a09");
}

static void the_top_byte_is_always_clear(void **state _unused_)
{
	struct fp_key k;

	for (enum fp_kind kind = FP_XXH3; kind < NR_FP_KINDS; kind++) {
		fp_key_init(&k, kind, secret);
		for (size_t len = 0; len < 300; len++)
			assert_int_equal(fp_of(&k, page, len).hi >> 56, 0);
	}
}

/* From Python's hashlib: nodes of different versions prove to each other that they have the same. */
static void derived_keys_are_pinned(void **state _unused_)
{
	static const char *const want = "827a6fc3a9511699ad7468a2300054356f33cdd7f7c29fe79e5332e75df2110b";
	uint8_t key[FP_KEY_LEN];
	char hex[2 * FP_KEY_LEN + 1];

	fp_derive("ckptfs cluster proof", secret, key);
	for (size_t i = 0; i < sizeof(key); i++)
		snprintf(hex + 2 * i, 3, "%02x", key[i]);
	assert_string_equal(hex, want);
}

/* Computed independently from format.md, with libxxhash called from Python. */
static void tweaks_are_pinned(void **state _unused_)
{
	static const struct {
		struct fp_domain d;
		const char *want;
	} table[] = {
		{ { FP_OF_ALL, 0 }, "000000000000000000000000000000" },
		{ { FP_OF_GROUP, 0 }, "00000000014ede64222c3b0b3eb281" },
		{ { FP_OF_USER, 0 }, "00000000020e15a904447a082c7636" },
		{ { FP_OF_USER, 1001 }, "e90300000216c6ba5e0b2b38c2769b" },
		{ { FP_OF_USER, UINT32_MAX }, "ffffffff029a28784196cf0ee8a5f8" },
	};
	struct fp_key k;

	fp_key_init(&k, FP_CLMUL, secret);
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		assert_string_equal(fp_hex(fp_tweak(&k, table[i].d)).s, table[i].want);
}

static void whose_bytes_they_are_shows_in_a_fingerprint(void **state _unused_)
{
	static const struct fp_domain domains[] = {
		{ FP_OF_ALL, 0 }, { FP_OF_GROUP, 0 }, { FP_OF_GROUP, 1001 }, { FP_OF_USER, 1001 }, { FP_OF_USER, 1002 },
	};
	struct fp_domain seen;
	struct fp_key k;

	fp_key_init(&k, FP_CLMUL, secret);
	for (size_t i = 0; i < ARRAY_SIZE(domains); i++) {
		struct fp bytes = fp_of(&k, page, 4096), f = fp_xor(bytes, fp_tweak(&k, domains[i]));

		assert_int_equal(f.hi >> 56, 0);
		assert_true(fp_domain_of(&k, f, bytes, &seen));
		assert_int_equal(seen.kind, domains[i].kind);
		assert_int_equal(seen.id, domains[i].id);
		assert_true(fp_is_of(&k, f, page, 4096));
		assert_false(fp_is_of(&k, f, page, 4095));
		for (size_t other = 0; other < i; other++)
			assert_false(fp_equal(f, fp_xor(bytes, fp_tweak(&k, domains[other]))));
	}
}

static void a_wrong_byte_is_reported_and_put_right(void **state _unused_)
{
	static const struct fp_domain domains[] = { { FP_OF_ALL, 0 }, { FP_OF_USER, 1001 } };
	struct fp_key k;

	fp_key_init(&k, FP_CLMUL, secret);
	for (size_t i = 0; i < 2 * 15; i++) {
		struct fp bytes = fp_of(&k, page, 4096), f = fp_xor(bytes, fp_tweak(&k, domains[i % 2])), wrong, right;
		uint8_t encoded[FP_LEN];

		fp_encode(f, encoded);
		encoded[i / 2] ^= 0x5a;
		wrong = fp_decode(encoded);
		assert_false(fp_is_of(&k, wrong, page, 4096));
		assert_true(fp_is_nearly_of(&k, wrong, bytes, &right));
		assert_true(fp_equal(right, f));
		encoded[(i / 2 + 7) % 15] ^= 0x5a;
		assert_false(fp_is_nearly_of(&k, fp_decode(encoded), bytes, &right));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_answers),
		cmocka_unit_test(derived_keys_are_pinned),
		cmocka_unit_test(xxh3_is_what_the_shared_library_computes_at_every_length),
		cmocka_unit_test(hashes_of_names_have_a_key_of_their_own),
		cmocka_unit_test(other_secrets_give_other_fingerprints),
		cmocka_unit_test(neighbouring_pieces_are_fingerprinted_one_by_one),
		cmocka_unit_test(fifteen_bytes_hold_all_of_a_fingerprint),
		cmocka_unit_test(the_top_byte_is_always_clear),
		cmocka_unit_test(tweaks_are_pinned),
		cmocka_unit_test(whose_bytes_they_are_shows_in_a_fingerprint),
		cmocka_unit_test(a_wrong_byte_is_reported_and_put_right),
	};

	return cmocka_run_group_tests_name("fp", tests, set_up, NULL);
}
