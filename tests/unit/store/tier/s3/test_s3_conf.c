/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Credentials and endpoint come from where the documentation says, and no message has a secret. */
#include "store/tier/s3/s3_conf.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/unit/place.h"

static char logged[4000], dir[64];

static void keep(void *userdata _unused_, enum log_level level _unused_, const char *line)
{
	snprintf(logged + strlen(logged), sizeof(logged) - strlen(logged), "%s\n", line);
	assert_null(strstr(line, "secret-"));
	assert_null(strstr(line, "token-"));
}

static const char *path_of(const char *name)
{
	static char path[2][100];
	static unsigned nr;

	nr = !nr;
	snprintf(path[nr], sizeof(path[nr]), "%s/%s", dir, name);
	return path[nr];
}

static void write_file(const char *name, const char *text, mode_t mode)
{
	FILE *f = fopen(path_of(name), "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(path_of(name), mode), 0);
}

static const char *const variables[] = {
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",  "AWS_DEFAULT_REGION",
	"AWS_ENDPOINT_URL",  "AWS_ENDPOINT_URL_S3",   "AWS_CA_BUNDLE",	   "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE",
	"AWS_CONFIG_FILE"
};

static int begin(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	snprintf(dir, sizeof(dir), "%s/ckptfs-test-s3-XXXXXX", test_place());
	if (!mkdtemp(dir))
		return -1;
	logged[0] = '\0';
	return setenv("HOME", dir, 1);
}

static int end(void **state _unused_)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

static void expect(const struct s3_conf *c, const char *const values[7])
{
	const char *const seen[] = { c->access_key, c->secret_key, c->session_token,   c->region,
				     c->endpoint,   c->ca_bundle,  c->addressing_style };

	for (size_t i = 0; i < ARRAY_SIZE(seen); i++) {
		assert_true(!seen[i] == !values[i]);
		if (seen[i])
			assert_string_equal(seen[i], values[i]);
	}
}

#define KEYS "aws_access_key_id = id-1\naws_secret_access_key = secret-1\n"

static void files_are_parsed(void **state _unused_)
{
	static const struct {
		enum s3_conf_kind kind;
		const char *profile, *text;
		int result;
		const char *values[7];
	} cases[] = {
		{ S3_CONF_OWN, "", "", 1, { NULL } },
		{ S3_CONF_OWN, "", KEYS, 1, { "id-1", "secret-1" } },
		{ S3_CONF_OWN,
		  "",
		  "# comment\n; comment\n\n\taws_access_key_id=id\r\naws_secret_access_key=a=b/c+d==\naws_session_token = t\n"
		  "region = default\nendpoint_url = http://10.0.0.1:7480\nca_bundle = /etc/a b.pem\naddressing_style = path",
		  1,
		  { "id", "a=b/c+d==", "t", "default", "http://10.0.0.1:7480", "/etc/a b.pem", "path" } },
		{ S3_CONF_CREDENTIALS, "default", "[default]\n" KEYS, 1, { "id-1", "secret-1" } },
		{ S3_CONF_CREDENTIALS, "other", "[default]\n" KEYS, 0, { NULL } },
		{ S3_CONF_CREDENTIALS,
		  "b",
		  "[a]\naws_access_key_id = x\naws_secret_access_key = y\n[ b ] # two\n" KEYS
		  "sso_session = z\nodd line\n[c]\naws_access_key_id = x\n",
		  1,
		  { "id-1", "secret-1" } },
		{ S3_CONF_CREDENTIALS, "b", "[profile b]\n" KEYS, 0, { NULL } },
		{ S3_CONF_CONFIG, "b", "[b]\n" KEYS, 0, { NULL } },
		{ S3_CONF_CONFIG,
		  "b",
		  "[profile b]\nregion = eu-west-1 # far\ns3 =\n  addressing_style = virtual\n  region = no\nother =\n"
		  "  addressing_style = path\n[default]\nregion=x\n",
		  1,
		  { NULL, NULL, NULL, "eu-west-1", NULL, NULL, "virtual" } },
		{ S3_CONF_CONFIG, "default", "[default]\nregion = a\nregion = b\nregion =\n", 1, { NULL } },
	};
	struct s3_conf_error e;
	struct s3_conf c;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(s3_conf_parse(cases[i].text, strlen(cases[i].text), cases[i].kind, cases[i].profile,
					       &c, &e),
				 cases[i].result);
		expect(&c, cases[i].values);
		s3_conf_release(&c);
		assert_null(c.secret_key);
	}
}

static void mistakes_name_the_line(void **state _unused_)
{
	static const struct {
		enum s3_conf_kind kind;
		const char *text;
		unsigned line;
		const char *what;
	} cases[] = {
		{ S3_CONF_OWN, "secret-1\n", 1, "the line has no `=`" },
		{ S3_CONF_OWN, KEYS "secret_key = secret-1\n", 3, "unknown setting" },
		{ S3_CONF_OWN, "[default]\n" KEYS, 1, "sections are not allowed in this file" },
		{ S3_CONF_OWN, KEYS "aws_access_key_id = b\n", 3, "a setting is given twice" },
		{ S3_CONF_OWN, "aws_secret_access_key = secret-1\n", 1,
		  "aws_access_key_id and aws_secret_access_key must be set together" },
		{ S3_CONF_OWN, "\nregion = a/b\n", 2,
		  "the region has characters other than letters, digits, `-` and `_`" },
		{ S3_CONF_OWN, "endpoint_url = store\n", 1, "the endpoint is not of the form https://HOST[:PORT]" },
		{ S3_CONF_OWN, "addressing_style = both\n", 1, "the addressing style is not `path`, `virtual` or `auto`" },
		{ S3_CONF_OWN, "aws_session_token = token-\x01\n", 1, "the value has characters that are not allowed" },
		{ S3_CONF_OWN, "aws_session_token = token-\xc3\xa4\n", 1,
		  "the value has characters that are not allowed" },
		{ S3_CONF_OWN, "aws_session_token = token- 1\n", 1, "the value has characters that are not allowed" },
		{ S3_CONF_CREDENTIALS, "\n[default\n", 2, "a section has no closing bracket" },
	};
	struct s3_conf_error e;
	struct s3_conf c;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(s3_conf_parse(cases[i].text, strlen(cases[i].text), cases[i].kind, "default", &c, &e),
				 -EINVAL);
		assert_int_equal(e.line, cases[i].line);
		assert_string_equal(e.what, cases[i].what);
		s3_conf_release(&c);
	}
	assert_int_equal(s3_conf_parse("region = a\0b\n", 13, S3_CONF_OWN, "", &c, &e), -EINVAL);
	s3_conf_release(&c);
}

static void load(const char *file, const char *const values[7])
{
	struct s3_conf c;

	assert_int_equal(s3_conf_load(file, &c), 0);
	expect(&c, values);
	s3_conf_release(&c);
}

static void places_are_read_in_their_order(void **state _unused_)
{
	assert_int_equal(mkdir(path_of(".aws"), 0700), 0);
	write_file(".aws/credentials",
		   "[default]\naws_access_key_id = id-default\naws_secret_access_key = secret-default\n"
		   "aws_session_token = token-default\n[two]\naws_access_key_id = id-two\naws_secret_access_key = secret-two\n",
		   0600);
	write_file(".aws/config",
		   "[default]\nregion = r-default\n[profile two]\nregion = r-two\nendpoint_url = http://two\n", 0644);
	load(NULL, (const char *[7]){ "id-default", "secret-default", "token-default", "r-default" });
	setenv("AWS_PROFILE", "two", 1);
	load(NULL, (const char *[7]){ "id-two", "secret-two", NULL, "r-two", "http://two" });

	/* the environment is before the profile; its credentials are without the token of another place */
	setenv("AWS_ACCESS_KEY_ID", "id-env", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "secret-env", 1);
	unsetenv("AWS_PROFILE");
	load(NULL, (const char *[7]){ "id-env", "secret-env", NULL, "r-default" });
	setenv("AWS_SESSION_TOKEN", "token-env", 1);
	setenv("AWS_DEFAULT_REGION", "r-less", 1);
	setenv("AWS_ENDPOINT_URL", "http://less", 1);
	load(NULL, (const char *[7]){ "id-env", "secret-env", "token-env", "r-less", "http://less" });
	setenv("AWS_REGION", "r-env", 1);
	setenv("AWS_ENDPOINT_URL_S3", "https://env:1", 1);
	setenv("AWS_CA_BUNDLE", "/ca", 1);
	load(NULL, (const char *[7]){ "id-env", "secret-env", "token-env", "r-env", "https://env:1", "/ca" });

	/* the file of the option is before all, and its credentials are whole, too */
	write_file("own",
		   "aws_access_key_id = id-own\naws_secret_access_key = secret-own\naddressing_style = virtual\n", 0600);
	load(path_of("own"),
	     (const char *[7]){ "id-own", "secret-own", NULL, "r-env", "https://env:1", "/ca", "virtual" });
	assert_string_equal(logged, "");

	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	setenv("AWS_SHARED_CREDENTIALS_FILE", path_of("own2"), 1);
	setenv("AWS_CONFIG_FILE", path_of("none"), 1);
	write_file("own2", "[default]\naws_access_key_id = a\naws_secret_access_key = secret-b\n", 0600);
	load(NULL, (const char *[7]){ "a", "secret-b", NULL, "us-east-1" });
}

static void what_cannot_be_used_is_named(void **state _unused_)
{
	struct s3_conf c;

	assert_int_equal(s3_conf_load(NULL, &c), -EACCES);
	assert_non_null(strstr(logged, "no credentials for S3: set AWS_ACCESS_KEY_ID and"));
	assert_int_equal(s3_conf_load(path_of("none"), &c), -ENOENT);
	assert_non_null(strstr(logged, "none: cannot open: No such file"));

	write_file("own", KEYS, 0640);
	assert_int_equal(s3_conf_load(path_of("own"), &c), -EACCES);
	assert_non_null(strstr(logged, "own: must be a file of root or of the user"));
	write_file("own", KEYS, 0604);
	assert_int_equal(s3_conf_load(path_of("own"), &c), -EACCES);
	assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
	assert_int_equal(s3_conf_load(path_of("pipe"), &c), -EACCES);

	write_file("own", KEYS "token = token-1\n", 0600);
	assert_int_equal(s3_conf_load(path_of("own"), &c), -EINVAL);
	assert_non_null(strstr(logged, "own: line 3: unknown setting"));

	setenv("AWS_PROFILE", "none", 1);
	assert_int_equal(s3_conf_load(NULL, &c), -EINVAL);
	assert_non_null(strstr(logged, "AWS_PROFILE: not found in the shared files"));
	setenv("AWS_ACCESS_KEY_ID", "id", 1);
	assert_int_equal(s3_conf_load(NULL, &c), -EINVAL);
	assert_non_null(strstr(logged, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set together"));
	setenv("AWS_SECRET_ACCESS_KEY", "secret-\n", 1);
	assert_int_equal(s3_conf_load(NULL, &c), -EINVAL);
	assert_non_null(strstr(logged, "environment variable AWS_SECRET_ACCESS_KEY: the value has characters"));
}

/* In a process that was started with them, since only that environment is shown. */
static int look_at_environment(void)
{
	char seen[20000];
	struct s3_conf c, later;
	size_t n;
	FILE *f;

	if (s3_conf_load(NULL, &c) < 0 || s3_conf_load(NULL, &later) < 0)
		return 2;
	if (strcmp(c.secret_key, "secret-env") != 0 || strcmp(later.secret_key, "secret-env") != 0 ||
	    strcmp(later.session_token, "token-env") != 0)
		return 3;
	s3_conf_release(&c);
	s3_conf_release(&later);
	f = fopen("/proc/self/environ", "r");
	if (!f)
		return 4;
	n = fread(seen, 1, sizeof(seen), f);
	fclose(f);
	if (!memmem(seen, n, "AWS_SECRET_ACCESS_KEY=", 22))
		return 5;
	return memmem(seen, n, "secret-", 7) || memmem(seen, n, "token-", 6);
}

static void secrets_are_cleared_in_the_environment(void **state _unused_)
{
	char program[500], command[700];
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

	assert_true(n > 0);
	program[n] = '\0';
	snprintf(command, sizeof(command),
		 "exec env -i HOME=%s AWS_ACCESS_KEY_ID=id AWS_SECRET_ACCESS_KEY=secret-env AWS_SESSION_TOKEN=token-env "
		 "%s --environment",
		 dir, program);
	assert_int_equal(system(command), 0);

	/* one that is set again counts, and one that is unset is gone */
	setenv("AWS_ACCESS_KEY_ID", "id", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "secret-1", 1);
	setenv("AWS_SESSION_TOKEN", "token-1", 1);
	load(NULL, (const char *[7]){ "id", "secret-1", "token-1", "us-east-1" });
	assert_string_equal(getenv("AWS_SECRET_ACCESS_KEY"), "");
	load(NULL, (const char *[7]){ "id", "secret-1", "token-1", "us-east-1" });
	setenv("AWS_SECRET_ACCESS_KEY", "secret-2", 1);
	unsetenv("AWS_SESSION_TOKEN");
	load(NULL, (const char *[7]){ "id", "secret-2", NULL, "us-east-1" });
}

static void endpoints_are_parsed(void **state _unused_)
{
	static const struct {
		const char *url;
		bool is_tls;
		const char *host, *authority;
	} cases[] = {
		{ "http://a", false, "a", "a" },
		{ "https://s3.example.com/", true, "s3.example.com", "s3.example.com" },
		{ "http://a:80", false, "a", "a" },
		{ "https://a:443", true, "a", "a" },
		{ "https://a:80", true, "a", "a:80" },
		{ "http://[::1]:7480", false, "[::1]", "[::1]:7480" },
		{ "http://[fe80::1]", false, "[fe80::1]", "[fe80::1]" },
	};
	static const char *const bad[] = { "",		 "a",		"ftp://a",	  "http://",	 "http://a/b",
					   "http://a:",	 "http://a:0",	"http://a:65536", "http://a:1x", "http://u@a",
					   "http://a?b", "http://a b",	"http://[::1",	  "http://::1",	 "http://[]",
					   "http:///",	 "http://a:1:2" };
	struct s3_endpoint e;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(s3_endpoint_parse(cases[i].url, &e), 0);
		assert_int_equal(e.is_tls, cases[i].is_tls);
		assert_string_equal(e.host, cases[i].host);
		assert_string_equal(e.authority, cases[i].authority);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(s3_endpoint_parse(bad[i], &e), -EINVAL);
}

static void places_are_parsed(void **state _unused_)
{
	static const char *const bad[] = { "",		"ab",	     "bucket/a//b", "bucket/a/",
					   "bucket//a", "bucket/.a", "buck et",	    "bucket/a b",
					   "-bucket",	"buc%6bet",  "bucket?x" };
	struct s3_place p;

	assert_int_equal(s3_place_parse("abc", &p), 0);
	assert_string_equal(p.bucket, "abc");
	assert_string_equal(p.prefix, "");
	assert_int_equal(s3_place_parse("abc/", &p), 0);
	assert_string_equal(p.prefix, "");
	assert_int_equal(s3_place_parse("My.bucket_1/run/a-b.c", &p), 0);
	assert_string_equal(p.bucket, "My.bucket_1");
	assert_string_equal(p.prefix, "run/a-b.c");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(s3_place_parse(bad[i], &p), -EINVAL);
}

int main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(files_are_parsed),
		TEST(mistakes_name_the_line),
		TEST(places_are_read_in_their_order),
		TEST(what_cannot_be_used_is_named),
		TEST(secrets_are_cleared_in_the_environment),
		TEST(endpoints_are_parsed),
		TEST(places_are_parsed),
	};

	log_to_function(keep, NULL);
	if (argc > 1 && strcmp(argv[1], "--environment") == 0)
		return look_at_environment();
	return cmocka_run_group_tests_name("s3_conf", tests, NULL, NULL);
}
