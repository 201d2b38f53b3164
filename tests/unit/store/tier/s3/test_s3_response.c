/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Answers of S3 stores are read as they are meant, and anything else is refused. */
#include "store/tier/s3/s3_response.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"

/* Keys with a `|` behind each, and `+` if there are more. In memory of its exact length, so that reads behind the end
 * are found. */
static int list(const char *xml, char *ret, size_t size)
{
	_cleanup_(buf_release) struct buf keys = BUF_EMPTY;
	size_t len = strlen(xml);
	char *copy = malloc(len);
	bool more = false;
	int r;

	assert_non_null(copy);
	memcpy(copy, xml, len);
	buf_add(&keys, "head", 5);
	r = s3_list_parse(copy, len, &keys, &more);
	ret[0] = '\0';
	if (r < 0)
		assert_int_equal(keys.len, 5);
	for (size_t at = 5; at < keys.len; at += strlen((char *)keys.data + at) + 1)
		snprintf(ret + strlen(ret), size - strlen(ret), "%s|", (char *)keys.data + at);
	if (more)
		strcat(ret, "+");
	free(copy);
	return r;
}

#define LIST(s) "<ListBucketResult>" s "</ListBucketResult>"
#define KEY(s) "<Contents><Key>" s "</Key><Size>1</Size></Contents>"
#define URL "<EncodingType>url</EncodingType>"

static void lists_are_read(void **state _unused_)
{
	static const struct {
		const char *xml, *keys;
	} cases[] = {
		{ LIST(""), "" },
		{ "<ListBucketResult/>", "" },
		{ LIST(KEY("a") KEY("b/c")), "a|b/c|" },
		{ LIST("<IsTruncated>true</IsTruncated>" KEY("a")), "a|+" },
		{ LIST(KEY("a") "<IsTruncated>true</IsTruncated>"), "a|+" },
		{ LIST("<IsTruncated>false</IsTruncated>" KEY("a")), "a|" },
		/* of other elements */
		{ LIST("<Key>x</Key><CommonPrefixes><Key>y</Key></CommonPrefixes>" KEY("a")), "a|" },
		{ LIST("<Contents><Owner><Key>x</Key></Owner><Key>a</Key></Contents>"), "a|" },
		/* encoded, also before it is said */
		{ LIST(KEY("a%2Fb+c%25") URL), "a/b c%|" },
		{ LIST(URL KEY("a%2Fb")), "a/b|" },
		{ LIST(KEY("a%2Fb")), "a%2Fb|" },
		{ LIST(KEY("&lt;&amp;&gt;&quot;&apos;&#65;&#xe4;&#x20ac;&#x1F600;")),
		  "<&>\"'A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80|" },
		{ "<?xml version=\"1.0\"?>\n<!-- > -->\n<s3:ListBucketResult xmlns:s3='a>b'>\n  "
		  "<s3:Contents a=\"/\">\n<s3:Key >a</s3:Key\n></s3:Contents>\n</s3:ListBucketResult>\n",
		  "a|" },
		{ LIST("<Contents><Key>a<!-- -->b</Key></Contents>"), "ab|" },
	};
	char keys[200];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(list(cases[i].xml, keys, sizeof(keys)), 0);
		assert_string_equal(keys, cases[i].keys);
	}
}

static void malformed_lists_are_refused(void **state _unused_)
{
	static const char *const bad[] = {
		"",
		" ",
		"text",
		"<",
		"<>",
		"</ListBucketResult>",
		"<ListBucketResult>",
		"<ListBucketResult></Other>",
		"<ListBucketResult></ListBucketResult",
		"<ListBucketResult a='></ListBucketResult>",
		"<ListBucketResult><a <b/></ListBucketResult>",
		LIST("") LIST(""),
		LIST("") "x",
		"<Error><Code>a</Code></Error>",
		"<!DOCTYPE a [<!ENTITY b 'c'>]>" LIST(""),
		"<!-- ",
		"<?xml ",
		LIST("<![CDATA[x]]>"),
		LIST(KEY("")),
		LIST(KEY("&unknown;")),
		LIST(KEY("&amp")),
		LIST(KEY("&#0;")),
		LIST(KEY("&#xd800;")),
		LIST(KEY("&#x110000;")),
		LIST(KEY("&#99999999999999999999;")),
		LIST(KEY("&#xg;")),
		LIST(KEY("a%") URL),
		LIST(KEY("a%4") URL),
		LIST(KEY("a%zz") URL),
		LIST(KEY("a%00b") URL),
		LIST(KEY("b") KEY("a")),
		LIST(KEY("a") KEY("a")),
		LIST(KEY("b") KEY("%61") URL),
		("<ListBucketResult><1><2><3><4><5><6><7><8><9><10><11><12><13><14><15><16>"
		 "</16></15></14></13></12></11></10></9></8></7></6></5></4></3></2></1></ListBucketResult>"),
	};
	char keys[200], whole[] = "<ListBucketResult><Contents><Key>a&amp;b</Key></Contents></ListBucketResult>";
	char longest[S3_KEY_MAX + 100];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(list(bad[i], keys, sizeof(keys)), -EBADMSG);
	assert_int_equal(list(whole, keys, sizeof(keys)), 0);
	for (size_t len = strlen(whole) - 1; len > 0; len--) { /* ends anywhere */
		whole[len] = '\0';
		assert_int_equal(list(whole, keys, sizeof(keys)), -EBADMSG);
	}
	snprintf(longest, sizeof(longest), "<ListBucketResult><Contents><Key>%0*d</Key></Contents></ListBucketResult>",
		 (int)S3_KEY_MAX + 1, 0);
	assert_int_equal(list(longest, keys, sizeof(keys)), -EBADMSG);
}

static void errors_are_read(void **state _unused_)
{
	static const struct {
		const char *xml, *code, *message, *region;
	} cases[] = {
		{ "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchKey</Code><Message>There is none.</Message>"
		  "<Key>a</Key></Error>",
		  "NoSuchKey", "There is none.", "" },
		{ "<Error><Code>SlowDown</Code></Error>", "SlowDown", "", "" },
		{ "<Error><Region>eu-west-1</Region><Code>PermanentRedirect</Code><Inner><Code>x</Code></Inner></Error>",
		  "PermanentRedirect", "", "eu-west-1" },
		/* nothing that a terminal or a log would act on */
		{ "<Error><Code>A</Code><Message>a\n\x1b[31m\xc3\xa4&#10;b</Message></Error>", "A", "a..[31m...b", "" },
	};
	static const char *const bad[] = { "",
					   "<html><Code>a</Code></html>",
					   "<Error></Error>",
					   "<Error><Code></Code></Error>",
					   "<Error><Code>a</Code>",
					   "Not found" };
	char longest[1000];
	struct s3_error e;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(s3_error_parse(cases[i].xml, strlen(cases[i].xml), &e), 0);
		assert_string_equal(e.code, cases[i].code);
		assert_string_equal(e.message, cases[i].message);
		assert_string_equal(e.region, cases[i].region);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(s3_error_parse(bad[i], strlen(bad[i]), &e), -EBADMSG);
	snprintf(longest, sizeof(longest), "<Error><Code>%0500d</Code><Message>%0400d</Message></Error>", 0, 0);
	assert_int_equal(s3_error_parse(longest, strlen(longest), &e), 0);
	assert_int_equal(strlen(e.code), sizeof(e.code) - 1);
	assert_int_equal(strlen(e.message), sizeof(e.message) - 1);
}

static void ranges_are_read(void **state _unused_)
{
	static const char *const bad[] = { "",
					   "bytes",
					   "bytes 1-2",
					   "bytes 1-2/",
					   "bytes 2-1/5",
					   "bytes 0-5/5",
					   "bytes 0-0/0",
					   "bytes -1/5",
					   "bytes 1-/5",
					   "bytes 1-2/*",
					   "bytes 1-2/5 x",
					   "items 1-2/5",
					   "bytes 1 - 2/5",
					   "bytes=1-2/5",
					   "bytes */",
					   "bytes 0-1/18446744073709551616",
					   "bytes 18446744073709551616-2/3" };
	struct s3_range g;

	assert_int_equal(s3_range_parse("bytes 5-9/100", 13, &g), 0);
	assert_true(!g.is_empty && g.first == 5 && g.last == 9 && g.size == 100);
	assert_int_equal(s3_range_parse(" Bytes 0-0/1 \r\n", 15, &g), 0);
	assert_true(!g.is_empty && g.first == 0 && g.last == 0 && g.size == 1);
	assert_int_equal(s3_range_parse("bytes */7", 9, &g), 0);
	assert_true(g.is_empty && g.size == 7);
	assert_int_equal(s3_range_parse("bytes 0-1/18446744073709551615", 30, &g), 0);
	assert_true(g.size == UINT64_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(s3_range_parse(bad[i], strlen(bad[i]), &g), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_are_read),
		cmocka_unit_test(malformed_lists_are_refused),
		cmocka_unit_test(errors_are_read),
		cmocka_unit_test(ranges_are_read),
	};

	return cmocka_run_group_tests_name("s3_response", tests, NULL, NULL);
}
