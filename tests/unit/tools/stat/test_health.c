/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What the report says of damaged checkpoints and late replicas, which a test on a mount cannot have at will. */
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
#include "client/ioctl.h"
#include "tools/stat/report.h"
#include "tools/stat/report_parts.h"

#define NOW_S 1700000000
#define NS_PER_S INT64_C(1000000000)
#define PLAIN "{\"paths\":{\"pack_direct_io\":true}}"
#define CLUSTER                                                                                                    \
	"{\"mountpoint\":\"/mnt\",\"cluster\":{\"member\":true,\"agent\":true,\"agent_answers\":true,\"nodes\":2," \
	"\"protects\":true}}"

static char *printed(void (*part)(FILE *to, const struct report *r), const char *figures, struct sealed *sealed,
		     size_t nr, enum seal_state state)
{
	struct record_reading reading = { .time_s = NOW_S };
	struct record record = { .reading = &reading, .nr = 1 };
	struct report_seal rows[2] = { { .seal = &sealed[0], .state = state, .why = (char *)"<b>" },
				       { .seal = &sealed[1], .state = SEAL_AS_SEALED } };
	struct report_seals seals = { .all = { .v = sealed, .nr = nr }, .v = rows, .nr = nr };
	struct json_flat j = { 0 };
	char *text = NULL;
	size_t len;
	FILE *to = open_memstream(&text, &len);

	assert_non_null(to);
	assert_int_equal(json_flat_parse(figures, strlen(figures), &j), 0);
	part(to, &(struct report){ .mount = &j, .record = &record, .seals = &seals });
	fclose(to);
	json_flat_release(&j);
	return text;
}

static bool has(const char *text, const char *part)
{
	return strstr(text, part) != NULL;
}

static void a_damaged_checkpoint_is_critical(void **state)
{
	struct sealed sealed[2] = { { .path = (char *)"a" }, { .path = (char *)"b" } };
	_cleanup_(freep) char *bad = printed(parts_health, PLAIN, sealed, 2, SEAL_DAMAGED);
	_cleanup_(freep) char *good = printed(parts_health, PLAIN, sealed, 2, SEAL_AS_SEALED);
	_cleanup_(freep) char *unknown = printed(parts_health, PLAIN, sealed, 2, SEAL_UNKNOWN);
	_cleanup_(freep) char *list = printed(parts_seals, PLAIN, sealed, 2, SEAL_DAMAGED);

	(void)state;
	assert_true(has(bad, "1 critical") && has(bad, "1 of 2 sealed checkpoints: not as sealed"));
	assert_true(has(good, "All is well") && !has(good, "not as sealed"));
	assert_true(!has(unknown, "All is well") && has(unknown, "1 of 2 sealed checkpoints: could not be verified"));
	assert_true(has(list, "<span class=\"badge critical\">damaged</span><p class=\"soft\"><bdi>&lt;b&gt;</bdi>"));
	assert_true(has(list, "as sealed"));
}

static void the_oldest_checkpoint_without_a_replica_is_the_lag(void **state)
{
	struct sealed sealed[2] = {
		{ .path = (char *)"<old>", .sealed_ns = (NOW_S - 3 * 3600) * NS_PER_S, .facts = CKPTFS_SEAL_PROTECTED },
		{ .path = (char *)"<new>", .sealed_ns = (NOW_S - 600) * NS_PER_S },
	};
	_cleanup_(freep) char *new = printed(parts_health, CLUSTER, sealed, 2, SEAL_AS_SEALED);
	_cleanup_(freep) char *old = NULL, *none = NULL, *alone = NULL;

	(void)state;
	assert_true(has(new, "&lt;new&gt; was sealed 10 minutes ago and has no replica"));
	sealed[0].facts = 0;
	old = printed(parts_health, CLUSTER, sealed, 2, SEAL_AS_SEALED);
	assert_true(has(old, "&lt;old&gt; was sealed 3.0 hours ago and has no replica") && !has(old, "&lt;new&gt;"));
	sealed[0].facts = sealed[1].facts = CKPTFS_SEAL_PROTECTED;
	none = printed(parts_health, CLUSTER, sealed, 2, SEAL_AS_SEALED);
	assert_true(has(none, "replica lag</th><td><p><bdi>none") && !has(none, "has no replica"));
	alone = printed(parts_health, PLAIN, sealed, 2, SEAL_AS_SEALED);
	assert_false(has(alone, "replica lag"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_damaged_checkpoint_is_critical),
		cmocka_unit_test(the_oldest_checkpoint_without_a_replica_is_the_lag),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
