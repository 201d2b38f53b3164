/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The URL of a tier names its back end, and an error names what is wrong with it. */
#include "store/tier/tier_open.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "tests/unit/place.h"

static char logged[1000];

static void keep(void *userdata _unused_, enum log_level level _unused_, const char *line)
{
	snprintf(logged, sizeof(logged), "%s", line);
}

static void a_directory_is_opened(void **state _unused_)
{
	_cleanup_(tier_closep) struct tier *t = NULL;
	char dir[64], url[80], back[4];

	snprintf(dir, sizeof(dir), "%s/ckptfs-test-open-XXXXXX", test_place());
	assert_non_null(mkdtemp(dir));
	snprintf(url, sizeof(url), "dir:%s", dir);
	assert_int_equal(tier_open(url, &(struct tier_conf){ .nr_in_flight = 2 }, &t), 0);
	assert_string_equal(tier_where(t), url);
	assert_int_equal(tier_put_new(t, "name", "abc", 4), 0);
	assert_int_equal(tier_get(t, "name", 0, back, 4), 0);
	assert_string_equal(back, "abc");
	strcat(dir, "/name");
	assert_int_equal(unlink(dir), 0);
	*strrchr(dir, '/') = '\0';
	assert_int_equal(rmdir(dir), 0);
}

static void errors_name_the_cause(void **state _unused_)
{
	static const struct {
		const char *url;
		int error;
		const char *says;
	} cases[] = {
		{ "dir:/there is none", -ENOENT, "dir:/there is none: cannot open the directory: No such file" },
		{ "dir:relative", -EINVAL, "begins with a slash" },
		{ "dir:", -EINVAL, "begins with a slash" },
		{ "ftp://host/path", -EPROTONOSUPPORT, "ftp://host/path: unknown scheme" },
		{ "director:/path", -EPROTONOSUPPORT, "director:/path: unknown scheme" },
		{ "/path", -EINVAL, "not the address of a tier" },
		{ "", -EINVAL, "not the address of a tier" },
		{ "/a:b", -EINVAL, "not the address of a tier" },
		{ "s3:bucket", -EINVAL, "s3:bucket: needs a bucket, as in s3://bucket/prefix" },
	};
	struct tier *t;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(tier_open(cases[i].url, &(struct tier_conf){ 0 }, &t), cases[i].error);
		assert_non_null(strstr(logged, cases[i].says));
	}
}

static void paths_of_stores_are_no_urls(void **state _unused_)
{
	static const char *const paths[] = { "", "/a", "a", "./dir:/a", "c:/a", "Dir:/a", "run/dir:a", ":a" };

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		assert_false(tier_url_is(paths[i]));
	assert_true(tier_url_is("dir:/a"));
	assert_true(tier_url_is("s3://bucket/prefix"));
}

/* Before a back end is asked, which may hang. */
static void what_this_machine_lacks_is_named(void **state _unused_)
{
	const struct tier_conf none = { 0 }, file = { .config_file = "/there is none" };

	assert_int_equal(tier_conf_check("dir:/there is none", &none), 0);
	assert_int_equal(tier_conf_check("dir:/tmp", &file), -EINVAL);
	assert_non_null(strstr(logged, "tier_config is only for object stores"));
	assert_int_equal(tier_conf_check("dir:relative", &none), -EINVAL);
	if (tier_url_refusal("s3://bucket")) {
		assert_non_null(strstr(tier_url_refusal("s3://bucket"), "built without S3"));
		return;
	}
	assert_non_null(tier_url_refusal("s3://b"));
	assert_int_equal(tier_conf_check("s3://bucket", &file), -ENOENT);
	assert_non_null(strstr(logged, "tier s3://bucket: cannot load credentials"));
	setenv("AWS_ACCESS_KEY_ID", "id", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
	assert_int_equal(tier_conf_check("s3://bucket", &none), 0);
}

static int begin(void **state _unused_)
{
	log_to_function(keep, NULL);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_directory_is_opened),
		cmocka_unit_test(errors_name_the_cause),
		cmocka_unit_test(what_this_machine_lacks_is_named),
		cmocka_unit_test(paths_of_stores_are_no_urls),
	};

	return cmocka_run_group_tests_name("tier_open", tests, begin, NULL);
}
