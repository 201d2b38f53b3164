/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: gateway_check BUCKET FAKE_S3.PY
 * A tier in the S3 store that the environment names, in a bucket that exists: the contract of back ends, the probe,
 * checkpoints flushed and read; directly, and through a proxy that injects faults. Writers and collectors that end at
 * each request.
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
#include "store/tier/collect/tier_collect.h"
#include "store/tier/s3/tier_s3.h"
#include "tests/unit/store/tier/checkpoints.h"
#include "tests/unit/store/tier/contract.h"
#include "tests/unit/store/tier/mortal.h"
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

static unsigned nr_tiers;

static struct tier *open_number(unsigned nr)
{
	struct tier_s3_conf conf = { .nr_tries = 8, .backoff_ns = 10000000, .page = 3 };
	char place[100];
	struct tier *t = NULL;

	snprintf(place, sizeof(place), "%s/run/%u", bucket, nr);
	assert_int_equal(tier_s3_open(place, &conf, &t), 0);
	return t;
}

/* A tier of its own. */
static struct tier *open_tier(void)
{
	return open_number(++nr_tiers);
}

/* The same one, as another machine opens it. */
static struct tier *open_again(void)
{
	return open_number(nr_tiers);
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

/* --- wherever it ends --- */

#define KILL_STATES 200u

struct kill {
	struct pool pool;
	struct checkpoint a, b;
	unsigned nr_states;
};

/* Small ones, of a few packs: each put is synced to a disk, which others may use. */
static void kill_init(struct kill *k, uint64_t seed)
{
	unsigned chunks[24];

	for (unsigned i = 0; i < ARRAY_SIZE(chunks); i++)
		chunks[i] = i;
	pool_init(&k->pool, seed, ARRAY_SIZE(chunks));
	checkpoint_init_file(&k->a, &k->pool, 10, chunks, 12);
	checkpoint_init_file(&k->b, &k->pool, 11, chunks + 6, 18);
}

static void kill_release(struct kill *k)
{
	checkpoint_release(&k->a);
	checkpoint_release(&k->b);
	pool_release(&k->pool);
}

/* One writer's life. */
static int flush(struct tier *t, const struct checkpoint *c)
{
	static const uint8_t secret[FP_KEY_LEN] = "a secret of thirty-two bytes...";
	struct tier_writer_conf conf = checkpoint_writer;
	struct tier_writer *w = NULL;
	struct tier_flushed f;
	int r;

	tier_key_init(&conf.key, FP_CLMUL, secret);
	conf.pack_bytes = 32768;
	r = tier_writer_open(t, &conf, &w);
	if (r == 0)
		r = tier_flush(w, &c->c, &f);
	tier_writer_close(w);
	return r;
}

/* One collector's life: all but the newest checkpoint are removed. */
static int collect(struct tier *t)
{
	_cleanup_(tier_collector_closep) struct tier_collector *c = NULL;
	struct tier_sealed *v;
	size_t nr;
	int r = tier_collector_open(t, &(struct tier_collect_conf){ 0 }, &c);

	if (r < 0)
		return r;
	v = tier_collector_sealed(c, &nr);
	for (size_t i = 0; i + 1 < nr; i++)
		v[i].is_removed = true;
	r = tier_collector_mark(c);
	return r < 0 ? r : tier_collector_delete(c);
}

static unsigned check(const struct kill *k)
{
	_cleanup_(tier_closep) struct tier *t = open_again();
	const struct checkpoint *v[] = { &k->a, &k->b };

	return checkpoints_check(t, v, 2);
}

/* The writer of b ends at this request; another one goes on. Returns the number of requests. */
static uint64_t kill_writer(struct kill *k, uint64_t at, bool after)
{
	_cleanup_(tier_closep) struct tier *t = open_tier();
	struct mortal m;
	unsigned nr;

	assert_int_equal(flush(t, &k->a), 0);
	mortal_init(&m, t, at, after);
	assert_int_equal(flush(&m.tier, &k->b), at > 0 ? -ECANCELED : 0);
	mortal_release(&m);
	nr = check(k);
	assert_in_range(nr, at > 0 ? 1 : 2, 2);
	assert_int_equal(flush(t, &k->b), 0);
	assert_int_equal(check(k), 2);
	k->nr_states += at > 0;
	return m.nr_requests;
}

static bool has(struct tier *t, const char *name)
{
	uint8_t byte;

	return tier_get(t, name, 0, &byte, 1) == 0;
}

/* The collector that removes a ends at this request; others go on. b stays. */
static uint64_t kill_collector(struct kill *k, uint64_t at, bool after)
{
	_cleanup_(tier_closep) struct tier *t = open_tier();
	struct tier_object_name name[2];
	const struct checkpoint *v[] = { &k->b };
	struct mortal m;

	for (unsigned i = 0; i < 2; i++)
		name[i] = tier_manifest_name(checkpoint_writer.store, 1 + i);
	assert_int_equal(flush(t, &k->a), 0);
	assert_int_equal(flush(t, &k->b), 0);
	mortal_init(&m, t, at, after);
	assert_int_equal(collect(&m.tier), at > 0 ? -ECANCELED : 0);
	mortal_release(&m);
	checkpoint_check(t, name[1].s, v, 1);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(collect(t), 0);
	assert_false(has(t, name[0].s));
	checkpoint_check(t, name[1].s, v, 1);
	k->nr_states += at > 0;
	return m.nr_requests;
}

/* What is there is read on a machine that has nothing else, byte for byte. */
static void a_process_that_is_killed_leaves_all_or_nothing(void **state _unused_)
{
	static uint64_t (*const processes[])(struct kill *, uint64_t, bool) = { kill_writer, kill_collector };
	unsigned nr_states = 0;

	for (uint64_t seed = 1; nr_states < KILL_STATES; seed++)
		for (unsigned i = 0; i < ARRAY_SIZE(processes); i++) {
			struct kill k = { 0 };
			uint64_t nr;

			kill_init(&k, seed);
			nr = processes[i](&k, 0, false);
			for (uint64_t at = 1; at <= nr; at++) {
				processes[i](&k, at, false);
				processes[i](&k, at, true);
			}
			nr_states += k.nr_states;
			kill_release(&k);
		}
	print_message("processes have ended in %u states\n", nr_states);
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
	const struct CMUnitTest killed[] = {
		cmocka_unit_test(a_process_that_is_killed_leaves_all_or_nothing),
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
	nr_failed += cmocka_run_group_tests_name("S3 and processes that end", killed, NULL, NULL);
	start_proxy(NULL);
	nr_failed += contract_check(&proxied);
	nr_failed += cmocka_run_group_tests_name("S3 through faults", through_faults, NULL, NULL);
	s3_fake_stop(proxy);
	free((char *)upstream);
	free(secret_key);
	return nr_failed > 0;
}
