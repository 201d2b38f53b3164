/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: gateway_check BUCKET FAKE_S3.PY
 * A tier in the S3 store that the environment names, in a bucket that exists: the contract of back ends, the probe,
 * checkpoints flushed and read; directly, and through a proxy that injects faults.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_probe.h"
#include "store/tier/s3/tier_s3.h"
#include "tests/unit/store/tier/checkpoints.h"
#include "tests/unit/store/tier/contract.h"
#include "tests/unit/store/tier/s3_fake.h"

#define LARGE ((size_t)64 << 20)

static const char *bucket, *script, *upstream; /* the last one: HOST:PORT */
static char *secret_key; /* which the first tier clears in the environment */
static struct s3_fake *proxy;
static char logged[1000];

static void keep(void *userdata _unused_, enum log_level level _unused_, const char *line)
{
	snprintf(logged, sizeof(logged), "%s", line);
	fprintf(stderr, "%s\n", line);
}

/* A tier of its own. */
static struct tier *open_tier(void)
{
	static unsigned nr;
	struct tier_s3_conf conf = { .nr_tries = 8, .backoff_ns = 10000000, .page = 3 };
	char place[100];
	struct tier *t = NULL;

	snprintf(place, sizeof(place), "%s/run/%u", bucket, ++nr);
	assert_int_equal(tier_s3_open(place, &conf, &t), 0);
	return t;
}

static void flush_and_read(struct tier *t)
{
	static const uint8_t secret[FP_KEY_LEN] = "a secret of thirty-two bytes...";
	struct tier_writer_conf conf = checkpoint_writer;
	const struct checkpoint *v[2];
	struct checkpoint a, b;
	struct tier_flushed f;
	struct tier_writer *w;
	struct pool pool;

	tier_key_init(&conf.key, FP_CLMUL, secret);
	pool_init(&pool, 5, 300);
	checkpoint_init(&a, &pool, 5, 10, 0, 200);
	checkpoint_init(&b, &pool, 6, 11, 100, 300);
	assert_int_equal(tier_writer_open(t, &conf, &w), 0);
	assert_int_equal(tier_flush(w, &a.c, &f), 0);
	assert_int_equal(f.number, 1);
	assert_true(f.packs > 3);
	tier_writer_close(w);
	assert_int_equal(tier_writer_open(t, &conf, &w), 0); /* learns what is there */
	assert_int_equal(tier_flush(w, &b.c, &f), 0);
	assert_int_equal(f.number, 2);
	tier_writer_close(w);
	v[0] = &a;
	v[1] = &b;
	assert_int_equal(checkpoints_check(t, v, 2), 2);
	checkpoint_release(&a);
	checkpoint_release(&b);
	pool_release(&pool);
}

static void the_store_is_accepted_by_the_probe(void **state _unused_)
{
	_cleanup_(tier_closep) struct tier *t = open_tier();
	_cleanup_(buf_release) struct buf left = BUF_EMPTY;
	char reason[TIER_PROBE_REASON_MAX];

	assert_int_equal(tier_probe(t, reason), 0);
	assert_string_equal(reason, "");
	assert_int_equal(tier_list_all(t, "", &left), 0);
	assert_int_equal(left.len, 0);
}

static void checkpoints_are_flushed_and_read(void **state _unused_)
{
	_cleanup_(tier_closep) struct tier *t = open_tier();

	flush_and_read(t);
}

/* As large as packs are, and in the pieces in which they are read. */
static void packs_are_put_and_read_in_ranges(void **state _unused_)
{
	_cleanup_(tier_closep) struct tier *t = open_tier();
	struct tier_request q[16];
	uint8_t *p = malloc(LARGE), *back = calloc(1, LARGE);
	struct tier_queue *u;

	assert_true(p && back);
	for (size_t i = 0; i < LARGE; i++)
		p[i] = (uint8_t)(i * 2654435761u >> 13);
	assert_int_equal(tier_put_new(t, "packs/1", p, LARGE), 0);
	assert_int_equal(tier_put_new(t, "packs/1", p, LARGE), -EEXIST);
	assert_int_equal(tier_queue_new(t, &u), 0);
	for (size_t i = 0; i < ARRAY_SIZE(q); i++) {
		size_t len = LARGE / ARRAY_SIZE(q);

		q[i] = (struct tier_request){
			.op = TIER_GET, .name = "packs/1", .off = i * len, .len = len, .buf = back + i * len
		};
		tier_start(u, &q[i]);
	}
	tier_queue_free(u);
	for (size_t i = 0; i < ARRAY_SIZE(q); i++) {
		assert_int_equal(q[i].result, 0);
		assert_int_equal(q[i].size, LARGE);
	}
	assert_memory_equal(p, back, LARGE);
	free(p);
	free(back);
}

static void refusals_are_named(void **state _unused_)
{
	struct tier_s3_conf conf = { .nr_tries = 2 };
	struct tier *t;

	assert_int_equal(tier_s3_open("there-is-no-such-bucket/p", &conf, &t), 0);
	assert_int_equal(tier_put_new(t, "a", "x", 1), -ENXIO);
	assert_non_null(strstr(logged, "the bucket does not exist"));
	tier_close(t);
	setenv("AWS_SECRET_ACCESS_KEY", "another", 1);
	t = open_tier();
	assert_int_equal(tier_put_new(t, "a", "x", 1), -EACCES);
	assert_non_null(strstr(logged, "the secret key is wrong"));
	tier_close(t);
	setenv("AWS_SECRET_ACCESS_KEY", secret_key, 1);
}

/* One of several requests fails, again and again, in each way: nothing is missing or wrong in the end. */
static void checkpoints_pass_through_faults(void **state _unused_)
{
	static const struct {
		const char *method, *fault;
	} faults[] = {
		{ "*", "status 503 SlowDown" },
		{ "*", "status 503 ServiceUnavailable" },
		{ "*", "status 500 InternalError" },
		{ "*", "status-after 500 InternalError" },
		{ "*", "status-after 503 SlowDown" },
		{ "*", "html 502" },
		{ "*", "reset" },
		{ "*", "reset-after" },
		{ "*", "close-after" },
		{ "GET", "cut 100" },
		{ "GET", "cut-close 100" },
		{ "GET", "shift-range" },
		{ "GET", "no-range" },
		{ "PUT", "status 409 ConditionalRequestConflict" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		_cleanup_(tier_closep) struct tier *t = open_tier();

		s3_fake_tell(proxy, "clear");
		for (unsigned n = 0; n < 12; n++)
			s3_fake_tell(proxy, "rule %s %s %u 1 %s", faults[i].method, bucket, n * 4, faults[i].fault);
		flush_and_read(t);
		assert_int_not_equal(s3_fake_ask(proxy, "left"), 12);
		s3_fake_tell(proxy, "clear");
	}
}

static void faults_that_stay_are_named(void **state _unused_)
{
	static const struct {
		const char *fault;
		int result;
		const char *why;
	} cases[] = {
		{ "status 503 SlowDown", -EAGAIN, "the store is overloaded" },
		{ "reset", -EIO, "cannot write" },
		{ "status 400 ExpiredToken", -EACCES, "the credentials have expired" },
		{ "status 404 NoSuchBucket", -ENXIO, "the bucket does not exist" },
		{ "skew 7200", -EACCES, "the clock of this machine is" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(tier_closep) struct tier *t = open_tier();

		s3_fake_tell(proxy, "clear");
		s3_fake_tell(proxy, "rule PUT %s 0 9 %s", bucket, cases[i].fault);
		assert_int_equal(tier_put_new(t, "a", "x", 1), cases[i].result);
		assert_non_null(strstr(logged, cases[i].why));
		s3_fake_tell(proxy, "clear");
		assert_int_equal(tier_put_new(t, "a", "x", 1), 0);
	}
}

static int start_proxy(void **state _unused_)
{
	char arguments[200];

	snprintf(arguments, sizeof(arguments), "--upstream %s", upstream);
	proxy = s3_fake_start(script, arguments);
	return 0;
}

int main(int argc, char **argv)
{
	const struct contract_back_end direct = { "contract, S3", open_tier, tier_close };
	const struct contract_back_end proxied = { "contract, S3 through a proxy", open_tier, tier_close };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_store_is_accepted_by_the_probe),
		cmocka_unit_test(checkpoints_are_flushed_and_read),
		cmocka_unit_test(packs_are_put_and_read_in_ranges),
		cmocka_unit_test(refusals_are_named),
	};
	const struct CMUnitTest through_faults[] = {
		cmocka_unit_test(checkpoints_pass_through_faults),
		cmocka_unit_test(faults_that_stay_are_named),
	};
	const char *endpoint = getenv("AWS_ENDPOINT_URL");
	int nr_failed;

	if (argc != 3 || !endpoint || strncmp(endpoint, "http://", 7) != 0) {
		fputs("usage: AWS_ENDPOINT_URL=http://HOST:PORT ... gateway_check BUCKET FAKE_S3.PY\n", stderr);
		return 2;
	}
	bucket = argv[1];
	script = argv[2];
	upstream = strdup(endpoint + 7);
	secret_key = strdup(getenv("AWS_SECRET_ACCESS_KEY"));
	log_to_function(keep, NULL);
	nr_failed = contract_check(&direct);
	nr_failed += cmocka_run_group_tests_name("S3", tests, NULL, NULL);
	start_proxy(NULL);
	nr_failed += contract_check(&proxied);
	nr_failed += cmocka_run_group_tests_name("S3 through faults", through_faults, NULL, NULL);
	s3_fake_stop(proxy);
	free((char *)upstream);
	free(secret_key);
	return nr_failed > 0;
}
