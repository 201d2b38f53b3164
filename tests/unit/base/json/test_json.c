/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json/json_flat.h"
#include "base/json/json_pull.h"
#include "base/json/json_write.h"
#include "base/util.h"

static void strings_are_always_json(void **state _unused_)
{
	static const struct {
		const char *s, *json;
	} t[] = {
		{ "", "\"\"" },
		{ "run7/ckpt", "\"run7/ckpt\"" },
		{ "a\"b\\c", "\"a\\\"b\\\\c\"" },
		{ "new\nline\x1b", "\"new\\u000aline\\u001b\"" },
		{ "\x7f", "\"\\u007f\"" },
		{ "\xc3\xa4\xf0\x9f\x98\x80", "\"\xc3\xa4\xf0\x9f\x98\x80\"" },
		{ "\xff\xc3", "\"\\u00ff\\u00c3\"" },
		{ "a\xe2\x80\xaetxt.c", "\"a\\u202etxt.c\"" },
		{ "\xf3\xa0\x81\x81\xef\xbb\xbf", "\"\\udb40\\udc41\\ufeff\"" }, /* a tag, and a byte-order mark */
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		_cleanup_(freep) char *text = NULL;
		size_t len;
		FILE *to = open_memstream(&text, &len);
		struct json j = json_to(&b), k = json_to_file(to);
		struct json_pull read;
		char back[64];

		json_string(&j, NULL, t[i].s);
		json_string(&k, NULL, t[i].s);
		fclose(to);
		assert_string_equal(text, t[i].json);
		assert_int_equal(b.len, len);
		assert_memory_equal(b.data, text, len);
		read = (struct json_pull){ .p = text, .end = text + len };
		assert_int_equal(json_pull(&read), JSON_STRING);
		assert_int_equal(json_decode(&read, back, sizeof(back)), 0);
		assert_string_equal(back, t[i].s);
		assert_int_equal(json_pull(&read), JSON_END);
	}
}

static void a_document_has_commas_where_they_belong(void **state _unused_)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	FILE *to = open_memstream(&text, &len);
	struct json j = json_to_file(to);

	json_open(&j, NULL);
	json_u64(&j, "max", UINT64_MAX);
	json_i64(&j, "min", INT64_MIN);
	json_members(&j, "{\"a\":1,\"b\":2}");
	json_members(&j, "{}");
	json_members(&j, "{\"\xe2\x80\xae\": \"\\n\x7f\xff\xc3\xa4\"}");
	json_open_array(&j, "rows");
	for (unsigned i = 0; i < 2; i++) {
		json_line(&j);
		json_open(&j, NULL);
		json_real(&j, "ratio", 1.25, 3);
		json_string(&j, "none", NULL);
		json_close(&j);
	}
	json_close_array(&j);
	json_open_array(&j, "empty");
	json_close_array(&j);
	json_open(&j, "o");
	json_close(&j);
	json_bool(&j, "yes", true);
	json_null(&j, "nothing");
	json_end(&j);
	fclose(to);
	assert_string_equal(text, "{\"max\":18446744073709551615,\"min\":-9223372036854775808,\"a\":1,\"b\":2,"
				  "\"\\u202e\": \"\\n\\u007f\\u00ff\xc3\xa4\","
				  "\"rows\":[\n{\"ratio\":1.250,\"none\":null},\n{\"ratio\":1.250,\"none\":null}],"
				  "\"empty\":[],\"o\":{},\"yes\":true,\"nothing\":null}\n");
}

static enum json_token first_token(const char *text)
{
	struct json_pull j = { .p = text, .end = text + strlen(text) };

	return json_pull(&j);
}

static void tokens_are_checked(void **state _unused_)
{
	static const char *const numbers[] = { "0", "-0", "12", "-1.5", "1e9", "2E-3", "0.5e+1" };
	static const char *const malformed[] = { "-",	 "+1",	"01",  "1.",   ".5",	 "1e",	 "1e+", "nan",
						 "True", "tru", "\"a", "\"\\", "\"\n\"", "\x01", "'a'", "-a" };

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		assert_int_equal(first_token(numbers[i]), JSON_NUMBER);
	for (size_t i = 0; i < ARRAY_SIZE(malformed); i++)
		assert_int_equal(first_token(malformed[i]), JSON_BAD);
	assert_int_equal(first_token("null"), JSON_WORD);
	assert_int_equal(first_token(" \t\r\n"), JSON_END);
}

static void malformed_input_stays_malformed(void **state _unused_)
{
	static const char text[] = "x{}";
	struct json_pull j = { .p = text, .end = text + strlen(text) };

	assert_int_equal(json_pull(&j), JSON_BAD);
	assert_int_equal(json_pull(&j), JSON_BAD);
	assert_int_equal(json_skip(&j, json_pull(&j)), -EBADMSG);
}

static int decode(const char *text, char *ret, size_t size)
{
	struct json_pull j = { .text = text, .len = strlen(text) };

	return json_decode(&j, ret, size);
}

static void escapes_are_decoded(void **state _unused_)
{
	static const char *const malformed[] = { "\\",	    "\\x",     "\\u",	     "\\u12",	       "\\u12g4",
						 "\\u0000", "\\ud800", "\\ud800\\n", "\\ud800\\u0041", "\\udc00" };
	char got[16];

	assert_int_equal(decode("\\\"\\\\\\/\\b\\f\\n\\r\\t", got, sizeof(got)), 0);
	assert_string_equal(got, "\"\\/\b\f\n\r\t");
	assert_int_equal(decode("\\u0041\\u00fF\\u0100\\u200B\\ud83D\\ude00", got, sizeof(got)), 0);
	assert_string_equal(got, "A\xff\xc4\x80\xe2\x80\x8b\xf0\x9f\x98\x80");
	for (size_t i = 0; i < ARRAY_SIZE(malformed); i++)
		assert_int_equal(decode(malformed[i], got, sizeof(got)), -EBADMSG);
	assert_int_equal(decode("123456789012345", got, sizeof(got)), 0);
	assert_int_equal(decode("1234567890123456", got, sizeof(got)), -EBADMSG);
	assert_int_equal(decode("1234567890123\\u200b", got, sizeof(got)), -EBADMSG);
}

static void an_object_becomes_a_list(void **state _unused_)
{
	static const char text[] = "{\"a\": 1, \"b\":{\"c\":true,\"d\":{}} ,\"e\":\"x\\u200by\"}\n";
	struct json_flat j;

	assert_int_equal(json_flat_parse(text, strlen(text), &j), 0);
	assert_int_equal(j.nr, 3);
	assert_int_equal(json_flat_u64(&j, "a"), 1);
	assert_string_equal(json_flat_get(&j, "b.c"), "true");
	assert_string_equal(json_flat_get(&j, "e"), "x\xe2\x80\x8by");
	assert_string_equal(json_flat_get(&j, "f"), "");
	json_flat_release(&j);
}

static void other_documents_are_refused(void **state _unused_)
{
	static const char *const t[] = {
		"",
		"[]",
		"{",
		"{}x",
		"{} {}",
		"{\"a\"}",
		"{\"a\":}",
		"{\"a\":1,}",
		"{,}",
		"{a:1}",
		"{\"a\":[1]}",
		"{\"a\":1 \"b\":2}",
		"{\"a\":x}",
		"{\"a\":1",
		"{\"a\":\"\n\"}",
		"{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{}}}}}}}}}}}"
	};
	struct json_flat j;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_int_equal(json_flat_parse(t[i], strlen(t[i]), &j), -EBADMSG);
}

static void a_cell_has_its_width_and_no_commands(void **state _unused_)
{
	static const struct {
		const char *s, *cell;
	} t[] = {
		{ "", "        |" },
		{ "ab", "ab      |" },
		{ "density_F64", "density_|" },
		{ "a\nb", "a\\u000ab|" }, /* 8 bytes by chance */
		{ "abcdefg\n", "abcdefg\\u000a|" }, /* characters stay whole */
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char text[64] = { 0 };
		FILE *to = fmemopen(text, sizeof(text) - 1, "w");

		assert_non_null(to);
		json_print_cell(to, t[i].s, 8);
		fputc('|', to);
		fclose(to);
		assert_string_equal(text, t[i].cell);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(strings_are_always_json),
		cmocka_unit_test(a_document_has_commas_where_they_belong),
		cmocka_unit_test(tokens_are_checked),
		cmocka_unit_test(malformed_input_stays_malformed),
		cmocka_unit_test(escapes_are_decoded),
		cmocka_unit_test(an_object_becomes_a_list),
		cmocka_unit_test(other_documents_are_refused),
		cmocka_unit_test(a_cell_has_its_width_and_no_commands),
	};

	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
