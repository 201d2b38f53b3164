/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Signatures are those of the examples in the documentation of Amazon S3, "Signature calculations". */
#include "store/tier/s3/s3_sign.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define HELLO "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072" /* "Welcome to Amazon S3." */

static void published_examples_have_their_signatures(void **state _unused_)
{
	static const struct {
		const char *method, *path, *query;
		struct s3_header headers[5];
		const char *payload, *names, *signature;
	} cases[] = {
		{ "GET",
		  "/test.txt",
		  "",
		  { { "host", "examplebucket.s3.amazonaws.com" },
		    { "range", "bytes=0-9" },
		    { "x-amz-content-sha256", EMPTY },
		    { "x-amz-date", "20130524T000000Z" } },
		  EMPTY,
		  "host;range;x-amz-content-sha256;x-amz-date",
		  "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41" },
		{ "PUT",
		  "/test%24file.text",
		  "",
		  { { "date", "Fri, 24 May 2013 00:00:00 GMT" },
		    { "host", "examplebucket.s3.amazonaws.com" },
		    { "x-amz-content-sha256", HELLO },
		    { "x-amz-date", "20130524T000000Z" },
		    { "x-amz-storage-class", "REDUCED_REDUNDANCY" } },
		  HELLO,
		  "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
		  "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd" },
		{ "GET",
		  "/",
		  "lifecycle=",
		  { { "host", "examplebucket.s3.amazonaws.com" },
		    { "x-amz-content-sha256", EMPTY },
		    { "x-amz-date", "20130524T000000Z" } },
		  EMPTY,
		  "host;x-amz-content-sha256;x-amz-date",
		  "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543" },
		{ "GET",
		  "/",
		  "max-keys=2&prefix=J",
		  { { "host", "examplebucket.s3.amazonaws.com" },
		    { "x-amz-content-sha256", EMPTY },
		    { "x-amz-date", "20130524T000000Z" } },
		  EMPTY,
		  "host;x-amz-content-sha256;x-amz-date",
		  "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct s3_to_sign s = {
			.method = cases[i].method,
			.path = cases[i].path,
			.query = cases[i].query,
			.headers = cases[i].headers,
			.payload = cases[i].payload,
			.time = "20130524T000000Z",
			.region = "us-east-1",
			.access_key = "AKIAIOSFODNN7EXAMPLE",
			.secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		};
		char expected[500];

		while (s.nr_headers < ARRAY_SIZE(cases[i].headers) && cases[i].headers[s.nr_headers].name)
			s.nr_headers++;
		snprintf(expected, sizeof(expected),
			 "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
			 "SignedHeaders=%s,Signature=%s",
			 cases[i].names, cases[i].signature);
		assert_int_equal(s3_sign(&s, &b), 0);
		assert_int_equal(b.len, strlen(expected) + 1);
		assert_string_equal((char *)b.data, expected);
		s.time = "20130524";
		assert_int_equal(s3_sign(&s, &b), -EINVAL);
	}
}

static void reserved_bytes_are_encoded(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	s3_encode(&b, "aZ09-_.~/ +%=&\xc3\xa4\n", false);
	buf_add(&b, "", 1);
	assert_string_equal((char *)b.data, "aZ09-_.~%2F%20%2B%25%3D%26%C3%A4%0A");
	buf_clear(&b);
	s3_encode(&b, "a/b c", true);
	buf_add(&b, "", 1);
	assert_string_equal((char *)b.data, "a/b%20c");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_examples_have_their_signatures),
		cmocka_unit_test(reserved_bytes_are_encoded),
	};

	return cmocka_run_group_tests_name("s3_sign", tests, NULL, NULL);
}
