/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/control/metrics_address.h"

static void means(const char *s, const char *host, const char *port)
{
	struct metrics_address a;

	assert_int_equal(metrics_address_parse(s, &a), 0);
	assert_string_equal(a.host, host);
	assert_string_equal(a.port, port);
}

static void a_port_alone_is_on_loopback(void **state)
{
	(void)state;
	means("9710", "127.0.0.1", "9710");
	means("1", "127.0.0.1", "1");
	means("65535", "127.0.0.1", "65535");
	means("00080", "127.0.0.1", "80");
}

static void hosts_and_bracketed_addresses_are_taken(void **state)
{
	(void)state;
	means("0.0.0.0:9710", "0.0.0.0", "9710");
	means("localhost:80", "localhost", "80");
	means("[::1]:9710", "::1", "9710");
	means("[::]:9710", "::", "9710");
	means("[fe80::1%eth0]:9710", "fe80::1%eth0", "9710");
}

static void anything_else_is_refused_and_changes_nothing(void **state)
{
	static const char *const wrong[] = {
		"",	 ":",	  ":9710", "0",	      "65536",	 "99999",      "123456",      "-1",
		"+80",	 "80 ",	  "port",  "host:",   "host:0",	 "host:65536", "host:x",      "::1:9710",
		"[::1]", "[]:80", "[:80",  "[::1:80", "[::1]80", "[::1]:",     "http://x:80", "a:b:80",
	};
	struct metrics_address a = { .host = "before", .port = "7" };
	char longest[400];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		if (metrics_address_parse(wrong[i], &a) != -EINVAL)
			fail_msg("%s is taken", wrong[i]);
	}
	memset(longest, 'a', sizeof(longest));
	strcpy(longest + 300, ":80");
	assert_int_equal(metrics_address_parse(longest, &a), -EINVAL);
	assert_string_equal(a.host, "before");
	assert_string_equal(a.port, "7");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_port_alone_is_on_loopback),
		cmocka_unit_test(hosts_and_bracketed_addresses_are_taken),
		cmocka_unit_test(anything_else_is_refused_and_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
