/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json/json_flat.h"
#include "base/util.h"
#include "client/figures.h"

static void labels_are_escaped_as_in_text(void **state _unused_)
{
	static const char json[] = "{\"mountpoint\":\"/\xc3\xa4 \\\"\\\\\\n\\u001b\\u009b\\u202e\",\"commits\":1,"
				   "\"requests\":{\"re\\u001b\\\"ad\":{\"count\":3}}}";
	_cleanup_(json_flat_release) struct json_flat j = { 0 };
	_cleanup_(freep) char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);

	assert_int_equal(json_flat_parse(json, strlen(json), &j), 0);
	figures_print_metrics(to, &j, 1);
	fclose(to);
	assert_non_null(strstr(text, "\nckptfs_logical_bytes{mountpoint=\"/\xc3\xa4 \\\"\\\\134\\\\012\\\\033\\\\233"
				     "\\\\342\\\\200\\\\256\"} 0\n"));
	assert_non_null(strstr(text, ",request=\"re\\\\033\\\"ad\"} 3\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(labels_are_escaped_as_in_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
