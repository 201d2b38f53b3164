/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/conf.h"
#include "base/util.h"

static void sizes_are_parsed(void **state _unused_)
{
	static const struct {
		const char *s;
		uint64_t bytes;
	} t[] = {
		{ "0", 0 },
		{ "4096", 4096 },
		{ "100B", 100 },
		{ "1K", 1024 },
		{ "1k", 1024 },
		{ "1Ki", 1024 },
		{ "1KiB", 1024 },
		{ "1KB", 1024 },
		{ "64K", 65536 },
		{ "256M", MiB(256) },
		{ "1.5G", MiB(1536) },
		{ "1.50G", MiB(1536) },
		{ "0.001K", 1 },
		{ "2T", UINT64_C(2) << 40 },
		{ "1P", UINT64_C(1) << 50 },
		{ "15E", UINT64_C(15) << 60 },
		{ "18446744073709551615", UINT64_MAX },
		{ "15.99999999999999999999999999E", UINT64_MAX - 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		uint64_t bytes = 0;

		assert_int_equal(parse_size(t[i].s, &bytes), 0);
		assert_true(bytes == t[i].bytes);
	}
}

static void what_is_no_size_is_refused(void **state _unused_)
{
	static const struct {
		const char *s;
		int r;
	} t[] = {
		{ "", -EINVAL },
		{ "K", -EINVAL },
		{ "-1", -EINVAL },
		{ "+1", -EINVAL },
		{ " 1", -EINVAL },
		{ "1 K", -EINVAL },
		{ "1.5", -EINVAL },
		{ "1.5B", -EINVAL },
		{ "1.K", -EINVAL },
		{ ".5K", -EINVAL },
		{ "1Kx", -EINVAL },
		{ "1Bi", -EINVAL },
		{ "0x10", -EINVAL },
		{ "1e3", -EINVAL },
		{ "1KiBB", -EINVAL },
		{ "1X", -EINVAL },
		{ "16E", -ERANGE },
		{ "18446744073709551616", -ERANGE },
		{ "18014398509481984K", -ERANGE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		uint64_t bytes = 42;

		assert_int_equal(parse_size(t[i].s, &bytes), t[i].r);
		assert_int_equal(bytes, 42);
	}
}

static void sizes_are_shown_with_three_digits(void **state _unused_)
{
	static const struct {
		uint64_t bytes;
		const char *s;
	} t[] = {
		{ 0, "0 B" },
		{ 1, "1 B" },
		{ 10, "10 B" },
		{ 100, "100 B" },
		{ 999, "999 B" },
		{ 1000, "0.98 KiB" },
		{ 1023, "1 KiB" },
		{ 1024, "1 KiB" },
		{ 1536, "1.5 KiB" },
		{ 10 * 1024, "10 KiB" },
		{ 10 * 1024 + 512, "10.5 KiB" },
		{ 100 * 1024 + 512, "100 KiB" },
		{ 1023 * 1024, "1 MiB" },
		{ MiB(1536), "1.5 GiB" },
		{ MiB(1500), "1.46 GiB" },
		{ GiB(3), "3 GiB" },
		{ UINT64_MAX, "16 EiB" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_string_equal(human_size(t[i].bytes).s, t[i].s);
}

static void counts_are_shown_with_their_plural(void **state _unused_)
{
	assert_string_equal(human_nr(0, "file").s, "0 files");
	assert_string_equal(human_nr(1, "file").s, "1 file");
	assert_string_equal(human_nr(2, "sealed checkpoint").s, "2 sealed checkpoints");
	assert_string_equal(human_nr(1, "directory").s, "1 directory");
	assert_string_equal(human_nr(UINT64_MAX, "directory").s, "18446744073709551615 directories");
}

struct example {
	uint64_t cache, seconds, hidden;
	bool verify, atime, nothing;
	char *log, *agent;
	int chunking;
};

static const struct conf_key keys[] = {
	{ "cache", CONF_SIZE, offsetof(struct example, cache), .fallback = "256M", .help = "memory for look-ups" },
	{ "commit", CONF_NUMBER, offsetof(struct example, seconds), .fallback = "5", .help = "seconds between commits" },
	{ "hidden", CONF_NUMBER, offsetof(struct example, hidden), .fallback = "7" },
	{ "verify", CONF_FLAG, offsetof(struct example, verify), .help = "compare bytes" },
	{ "atime", CONF_FLAG, offsetof(struct example, atime), .fallback = "yes", .help = "keep access times" },
	{ "nothing", CONF_FLAG, offsetof(struct example, nothing), .help = NULL },
	{ "log", CONF_STRING, offsetof(struct example, log), .help = "log file" },
	{ "agent", CONF_STRING, offsetof(struct example, agent), .fallback = "/run/x", .help = "socket" },
	{ "chunking", CONF_CHOICE, offsetof(struct example, chunking), .fallback = "cdc",
	  .choices = "page|cdc|auto", .help = "how to cut" },
	{ 0 },
};

static void defaults_come_from_the_table(void **state _unused_)
{
	struct example c;

	memset(&c, 0xff, sizeof(c));
	assert_int_equal(conf_set_defaults(keys, &c), 0);
	assert_int_equal(c.cache, MiB(256));
	assert_int_equal(c.seconds, 5);
	assert_int_equal(c.hidden, 7);
	assert_false(c.verify);
	assert_true(c.atime);
	assert_null(c.log);
	assert_string_equal(c.agent, "/run/x");
	assert_int_equal(c.chunking, 1);
	conf_release(keys, &c);
	assert_null(c.agent);
}

static void a_bad_default_is_an_error(void **state _unused_)
{
	static const struct conf_key bad[][2] = {
		{ { "a", CONF_SIZE, 0, .fallback = "much" } },
		{ { "a", CONF_FLAG, 0, .fallback = "maybe" } },
		{ { "a", CONF_CHOICE, 0, .fallback = "c", .choices = "a|b" } },
	};
	struct example c;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(conf_set_defaults(bad[i], &c), -EINVAL);
}

static void values_are_set(void **state _unused_)
{
	const char *why = NULL;
	struct example c;

	assert_int_equal(conf_set_defaults(keys, &c), 0);
	assert_int_equal(conf_set(keys, &c, "cache", "1.5G", &why), 1);
	assert_int_equal(conf_set(keys, &c, "commit", "60", &why), 1);
	assert_int_equal(conf_set(keys, &c, "verify", NULL, &why), 1);
	assert_int_equal(conf_set(keys, &c, "noatime", NULL, &why), 1);
	assert_int_equal(conf_set(keys, &c, "log", "first", &why), 1);
	assert_int_equal(conf_set(keys, &c, "log", "second", &why), 1);
	assert_int_equal(conf_set(keys, &c, "chunking", "auto", &why), 1);
	assert_null(why);
	assert_int_equal(c.cache, MiB(1536));
	assert_int_equal(c.seconds, 60);
	assert_true(c.verify);
	assert_false(c.atime);
	assert_string_equal(c.log, "second");
	assert_int_equal(c.chunking, 2);

	assert_int_equal(conf_set(keys, &c, "noverify", NULL, &why), 1);
	assert_false(c.verify);
	conf_release(keys, &c);
}

static void a_flag_whose_name_begins_with_no(void **state _unused_)
{
	const char *why = NULL;
	struct example c;

	assert_int_equal(conf_set_defaults(keys, &c), 0);
	assert_int_equal(conf_set(keys, &c, "nothing", NULL, &why), 1);
	assert_true(c.nothing);
	assert_int_equal(conf_set(keys, &c, "nonothing", NULL, &why), 1);
	assert_false(c.nothing);
	conf_release(keys, &c);
}

static void unknown_names_are_not_taken(void **state _unused_)
{
	static const char *const names[] = { "", "no", "cach", "caches", "nocache", "nolog", "nonverify", "nonoverify" };
	const char *why = NULL;
	struct example c;

	assert_int_equal(conf_set_defaults(keys, &c), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_int_equal(conf_set(keys, &c, names[i], "1", &why), 0);
	assert_null(why);
	conf_release(keys, &c);
}

static void bad_values_are_refused_with_a_reason(void **state _unused_)
{
	static const struct {
		const char *name, *value, *why;
	} t[] = {
		{ "cache", NULL, "needs a value" },
		{ "cache", "", "needs a value" },
		{ "cache", "much", "not a size such as 4096, 64K or 1.5G" },
		{ "cache", "16E", "too large" },
		{ "commit", "1K", "not a whole number" },
		{ "commit", "-1", "must not be negative" },
		{ "commit", "-18446744073709551616", "must not be negative" },
		{ "commit", "-1K", "not a whole number" },
		{ "commit", "-", "not a whole number" },
		{ "commit", "18446744073709551616", "too large" },
		{ "verify", "yes", "takes no value" },
		{ "noverify", "1", "takes no value" },
		{ "log", NULL, "needs a value" },
		{ "chunking", "pag", "must be one of page|cdc|auto" },
		{ "chunking", "page|cdc", "must be one of page|cdc|auto" },
	};
	struct example c, before;

	assert_int_equal(conf_set_defaults(keys, &c), 0);
	before = c;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		const char *why = NULL;

		assert_int_equal(conf_set(keys, &c, t[i].name, t[i].value, &why), -EINVAL);
		assert_string_equal(why, t[i].why);
	}
	assert_int_equal(c.cache, before.cache);
	assert_int_equal(c.seconds, before.seconds);
	assert_int_equal(c.verify, before.verify);
	assert_int_equal(c.chunking, before.chunking);
	conf_release(keys, &c);
}

static void help_lists_what_is_not_hidden(void **state _unused_)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	conf_help(keys, f);
	fclose(f);
	assert_string_equal(text, "  cache=SIZE              memory for look-ups (default 256M)\n"
				  "  commit=N                seconds between commits (default 5)\n"
				  "  verify                  compare bytes\n"
				  "  atime                   keep access times (default yes)\n"
				  "  log=STRING              log file\n"
				  "  agent=STRING            socket (default /run/x)\n"
				  "  chunking=page|cdc|auto  how to cut (default cdc)\n");
}

static int parse_even(const struct conf_key *k _unused_, void *conf, const char *value, const char **ret_why)
{
	struct example *c = conf;

	if ((value[strlen(value) - 1] - '0') % 2 == 0) {
		c->hidden = strtoull(value, NULL, 10);
		return 0;
	}
	*ret_why = "must be even";
	return -EINVAL;
}

static const struct conf_key limited[] = {
	{ "cache", CONF_SIZE, offsetof(struct example, cache), .group = "Memory", .fallback = "64K", .min = KiB(4),
	  .max = MiB(1), .must = "must be 4K to 1M", .help = "memory" },
	{ "commit", CONF_NUMBER, offsetof(struct example, seconds), .group = "Durability", .min = 2, .value = "SECONDS",
	  .help = "a text that is long enough to be continued on a second line, where it begins below the first one" },
	{ "hidden", CONF_PARSED, .parse = parse_even, .value = "EVEN", .help = "even numbers, with a long name" },
	{ "log", CONF_STRING, offsetof(struct example, log), .parse = parse_even, .value = "A-RATHER-LONG-FILE-NAME",
	  .help = "a file" },
	{ "time", CONF_TIME, offsetof(struct example, seconds), .help = NULL },
	{ .name = NULL },
};

static void values_beyond_a_limit_are_refused(void **state _unused_)
{
	static const struct {
		const char *name, *value, *why; /* why NULL: taken */
	} t[] = {
		{ "cache", "4K", NULL },	   { "cache", "1M", NULL },	     { "cache", "4095", "must be 4K to 1M" },
		{ "cache", "1025K", "must be 4K to 1M" }, { "commit", "1", "out of range" }, { "commit", "2", NULL },
		{ "hidden", "3", "must be even" }, { "hidden", "4", NULL },	     { "log", "11", "must be even" },
		{ "log", "12", NULL },		   { "time", "1.5m", NULL },
		{ "time", "0", "not a time such as 90s, 10m, 2h or 7d" },
	};
	struct example c = { .hidden = 42 };

	assert_int_equal(conf_set_defaults(limited, &c), 0);
	assert_int_equal(c.cache, KiB(64));
	assert_int_equal(c.hidden, 42); /* has no default */
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		const char *why = NULL;

		assert_int_equal(conf_set(limited, &c, t[i].name, t[i].value, &why), t[i].why ? -EINVAL : 1);
		if (t[i].why)
			assert_string_equal(why, t[i].why);
	}
	assert_int_equal(c.cache, MiB(1));
	assert_int_equal(c.hidden, 12); /* set while "log" was checked */
	assert_string_equal(c.log, "12");
	assert_int_equal(c.seconds, UINT64_C(90000000000));
	conf_release(limited, &c);
}

static void help_has_groups_and_wraps(void **state _unused_)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	conf_help(limited, f);
	fclose(f);
	assert_string_equal(text, "Memory:\n"
				  "  cache=SIZE              memory (default 64K)\n"
				  "\n"
				  "Durability:\n"
				  "  commit=SECONDS          a text that is long enough to be continued on a second line, where it\n"
				  "                          begins below the first one\n"
				  "  hidden=EVEN             even numbers, with a long name\n"
				  "  log=A-RATHER-LONG-FILE-NAME\n"
				  "                          a file\n");
}

static void times_are_parsed(void **state)
{
	static const struct {
		const char *s;
		int r;
		uint64_t ns;
	} t[] = {
		{ "90", 0, 90000000000 },	  { "90s", 0, 90000000000 },	  { "1.5m", 0, 90000000000 },
		{ "2h", 0, 7200000000000 },	  { "1d", 0, 86400000000000 },	  { "0.000001s", 0, 1000 },
		{ "", -EINVAL, 0 },		  { "0", -EINVAL, 0 },		  { "-1s", -EINVAL, 0 },
		{ "soon", -EINVAL, 0 },		  { "5 m", -EINVAL, 0 },	  { "1w", -EINVAL, 0 },
		{ "nan", -EINVAL, 0 },		  { "1e9d", -EINVAL, 0 },	  { "1e-64h", -EINVAL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		uint64_t ns = 0;

		assert_int_equal(parse_time(t[i].s, &ns), t[i].r);
		assert_int_equal(ns, t[i].ns);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(times_are_parsed),
		cmocka_unit_test(sizes_are_parsed),
		cmocka_unit_test(what_is_no_size_is_refused),
		cmocka_unit_test(sizes_are_shown_with_three_digits),
		cmocka_unit_test(counts_are_shown_with_their_plural),
		cmocka_unit_test(defaults_come_from_the_table),
		cmocka_unit_test(a_bad_default_is_an_error),
		cmocka_unit_test(values_are_set),
		cmocka_unit_test(a_flag_whose_name_begins_with_no),
		cmocka_unit_test(unknown_names_are_not_taken),
		cmocka_unit_test(bad_values_are_refused_with_a_reason),
		cmocka_unit_test(help_lists_what_is_not_hidden),
		cmocka_unit_test(values_beyond_a_limit_are_refused),
		cmocka_unit_test(help_has_groups_and_wraps),
	};

	return cmocka_run_group_tests_name("conf", tests, NULL, NULL);
}
