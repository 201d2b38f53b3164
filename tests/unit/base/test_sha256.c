/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"
#include "base/util.h"

static void the_vectors_of_fips_180_hold(void **state _unused_)
{
	static const struct {
		const char *s, *hex;
	} t[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct sha256_digest d;
		struct sha256 h;

		sha256_init(&h);
		for (const char *s = t[i].s; *s; s++)
			sha256_add(&h, s, 1);
		d = sha256_finish(&h);
		assert_string_equal(sha256_hex(d.b).s, t[i].hex);
	}
}

static void numbers_are_little_endian(void **state _unused_)
{
	struct sha256_digest a, b;
	struct sha256 h;

	sha256_init(&h);
	sha256_add_le32(&h, 0x04030201);
	sha256_add_le64(&h, 0x0c0b0a0908070605);
	a = sha256_finish(&h);
	sha256_init(&h);
	sha256_add(&h, "\1\2\3\4\5\6\7\10\11\12\13\14", 12);
	b = sha256_finish(&h);
	assert_memory_equal(a.b, b.b, sizeof(a.b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_vectors_of_fips_180_hold),
		cmocka_unit_test(numbers_are_little_endian),
	};

	return cmocka_run_group_tests_name("sha256", tests, NULL, NULL);
}
