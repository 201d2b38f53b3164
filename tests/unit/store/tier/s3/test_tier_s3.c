/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Each fault of an S3 store or of the way to it is survived, or reported in plain words and without secrets. */
#include "store/tier/s3/tier_s3.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_open.h"
#include "store/tier/tier_probe.h"
#include "tests/unit/place.h"
#include "tests/unit/store/tier/s3_fake.h"

#define SCRIPT TESTS_DIR "/tier/fake_s3.py"
#define LARGE ((size_t)3 << 20) /* libcurl asks before it sends so much */

static struct s3_fake *fake;
static struct tier *t;
static char dir[64], logged[20000];
static struct mutex lock = MUTEX_INIT; /* of what was logged: the thread of the tier logs, too */
static bool has_shown_secret;

static void keep(void *userdata _unused_, enum log_level level _unused_, const char *line)
{
	mutex_lock(&lock);
	if (strlen(logged) + strlen(line) + 2 > sizeof(logged))
		logged[0] = '\0';
	strcat(strcat(logged, line), "\n");
	if (strstr(line, S3_FAKE_SECRET) || strstr(line, S3_FAKE_TOKEN) || strstr(line, "Signature="))
		has_shown_secret = true;
	mutex_unlock(&lock);
}

static bool says(const char *text)
{
	bool r;

	mutex_lock(&lock);
	r = strstr(logged, text) != NULL;
	mutex_unlock(&lock);
	return r;
}

static void clear_log(void)
{
	mutex_lock(&lock);
	logged[0] = '\0';
	mutex_unlock(&lock);
}

static int begin(void **state _unused_)
{
	static unsigned nr;
	char place[40];

	fake = s3_fake_start(SCRIPT, NULL);
	snprintf(place, sizeof(place), "bucket/p/%u", ++nr);
	t = s3_fake_open(place);
	clear_log();
	return 0;
}

static int end(void **state _unused_)
{
	tier_close(t);
	s3_fake_stop(fake);
	t = NULL;
	return has_shown_secret ? -1 : 0;
}

static int put_new(const char *name, const char *s)
{
	return tier_put_new(t, name, s, strlen(s));
}

static int call(enum tier_op op, const char *name)
{
	return tier_call(t,
			 &(struct tier_request){ .op = op, .name = name, .data = "abc", .len = op == TIER_GET ? 0 : 3 });
}

static void expect(const char *name, const char *s)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	assert_int_equal(tier_get_all(t, name, 1000, &b), 0);
	assert_int_equal(b.len, strlen(s));
	assert_memory_equal(b.data, s, b.len);
}

/* --- requests that are repeated --- */

/* Once each, for each verb: the request succeeds and takes effect once. */
static void faults_that_pass_are_survived(void **state _unused_)
{
	static const char *const faults[] = { "status 503 SlowDown",
					      "status 503 ServiceUnavailable",
					      "status 500 InternalError",
					      "status 400 RequestTimeout",
					      "status 429 TooManyRequests",
					      "status 502 x",
					      "html 504",
					      "html 503",
					      "status-after 500 InternalError",
					      "status-after 503 SlowDown",
					      "reset",
					      "reset-after",
					      "status 409 OperationAborted",
					      "status 409 ConditionalRequestConflict",
					      "status 400 XAmzContentSHA256Mismatch" };
	char name[30];

	for (unsigned i = 0; i < ARRAY_SIZE(faults); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		char back[4];

		snprintf(name, sizeof(name), "o/%u", i);
		s3_fake_tell(fake, "clear");
		for (unsigned n = 0; n < 4; n++)
			s3_fake_tell(fake, "rule %s %s 0 1 %s", (const char *[]){ "PUT", "GET", "DELETE", "HEAD" }[n],
				     n == 3 ? "none" : "o", faults[i]);
		assert_int_equal(put_new(name, "abc"), 0);
		assert_int_equal(tier_get(t, name, 0, back, 3), 0);
		assert_memory_equal(back, "abc", 3);
		assert_int_equal(call(TIER_DELETE, name), 0);
		s3_fake_tell(fake, "rule GET prefix 0 1 %s", faults[i]);
		assert_int_equal(tier_list_all(t, "o/", &b), 0);
		assert_int_equal(b.len, 0);
		s3_fake_tell(fake, "rule PUT o 0 1 %s", faults[i]);
		assert_int_equal(call(TIER_PUT, name), 0);
		expect(name, "abc");
		assert_int_equal(call(TIER_DELETE, name), 0);
		assert_int_equal(s3_fake_ask(fake, "left"), 1); /* that of HEAD */
	}
	assert_false(says("tried"));
}

/* For a limit on what is sent. */
static void bytes_that_are_sent_again_are_counted(void **state _unused_)
{
	struct tier *again = s3_fake_open("bucket/again");
	char bytes[1000] = "abc", back[10];
	struct tier_request q = { .op = TIER_PUT, .name = "o/1", .data = bytes, .len = sizeof(bytes) };

	assert_int_equal(tier_call(again, &q), 0);
	assert_int_equal(tier_repeated_bytes(again), 0);
	s3_fake_tell(fake, "rule PUT o 0 2 status-after 503 SlowDown");
	assert_int_equal(tier_call(again, &q), 0);
	assert_int_equal(tier_repeated_bytes(again), 2000);
	s3_fake_tell(fake, "rule GET o 0 1 status-after 503 SlowDown");
	assert_int_equal(tier_get(again, "o/1", 0, back, sizeof(back)), 0);
	assert_int_equal(tier_repeated_bytes(again), 2000);
	tier_close(again);
}

/* Each fault as often as the request is tried: it fails, and says why. */
static void faults_that_stay_are_reported(void **state _unused_)
{
	static const struct {
		const char *method, *fault;
		int result;
		const char *why;
	} cases[] = {
		{ "PUT", "status 503 SlowDown", -EAGAIN, "cannot write: the store is overloaded (tried 3 times)" },
		{ "GET", "status 503 SlowDown", -EAGAIN, "cannot read: the store is overloaded (tried 3 times)" },
		{ "GET", "status 429 x", -EAGAIN, "the store is overloaded" },
		{ "PUT", "html 503", -EAGAIN, "the store is overloaded" },
		{ "PUT", "status 409 ConditionalRequestConflict", -EAGAIN,
		  "another request for this object is in progress" },
		{ "PUT", "status 500 InternalError", -EIO, "the store has an internal error" },
		{ "GET", "html 502", -EIO, "a proxy cannot reach the store" },
		{ "PUT", "status 400 RequestTimeout", -ETIMEDOUT, "did not receive the request in time" },
		{ "PUT", "status 400 XAmzContentSHA256Mismatch", -EIO, "the store received other bytes than were sent" },
		{ "GET", "cut 1", -EIO, "cannot read: " },
		{ "GET", "cut-close 1", -EIO, "the response of the store is truncated" },
		{ "GET", "reset", -EIO, "cannot read: " },
		{ "PUT", "reset", -EIO, "cannot write: " },
		{ "GET", "ignore-range", -EBADMSG, "the store returned other bytes than requested" },
		{ "GET", "shift-range", -EBADMSG, "the store returned other bytes than requested" },
		{ "GET", "late-range", -EBADMSG, "the store returned other bytes than requested" },
		{ "GET", "no-range", -EBADMSG, "the store returned other bytes than requested" },
		{ "PUT", "status 404 NoSuchBucket", -ENXIO, "the bucket does not exist" },
		{ "GET", "status 404 NoSuchBucket", -ENXIO, "the bucket does not exist" },
		{ "DELETE", "status 404 NoSuchBucket", -ENXIO, "cannot delete: the bucket does not exist" },
		{ "GET", "html 404", -EIO, "the store returned HTTP status 404" },
		{ "DELETE", "html 404", -EIO, "the store returned HTTP status 404" },
		{ "PUT", "status 403 AccessDenied", -EACCES, "access denied: the credentials lack a permission" },
		{ "PUT", "html 403", -EACCES, "the store returned HTTP status 403" },
		{ "GET", "status 403 SignatureDoesNotMatch", -EACCES, "the secret key is wrong" },
		{ "GET", "status 403 InvalidAccessKeyId", -EACCES, "the store has no such access key" },
		{ "GET", "status 400 ExpiredToken", -EACCES, "the credentials have expired: renew them" },
		{ "PUT", "status 403 QuotaExceeded", -EDQUOT, "the quota of the bucket or user is exceeded" },
		{ "PUT", "status 507 InsufficientStorage", -ENOSPC, "the store is full" },
		{ "PUT", "status 501 NotImplemented", -EOPNOTSUPP, "the store does not implement this request" },
		{ "PUT", "status 400 EntityTooLarge", -EFBIG, "the store does not accept objects of this size" },
		{ "PUT", "status 418 Teapot short and stout", -EIO, "the store reports Teapot: short and stout" },
		{ "PUT", "html 200", -EIO, "cannot write: the response has no ETag" },
	};

	assert_int_equal(put_new("o", "0123456789"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char back[5], name[20] = "o";
		int r;

		clear_log();
		s3_fake_tell(fake, "clear");
		s3_fake_tell(fake, "rule %s o 0 9 %s", cases[i].method, cases[i].fault);
		if (strcmp(cases[i].method, "GET") != 0)
			snprintf(name, sizeof(name), "o%zu", i);
		r = cases[i].method[0] == 'G' ? tier_get(t, name, 3, back, 4) :
		    cases[i].method[0] == 'D' ? call(TIER_DELETE, name) :
						put_new(name, "abc");
		assert_int_equal(r, cases[i].result);
		assert_true(says(cases[i].why));
		/* the next one is served */
		s3_fake_tell(fake, "clear");
		assert_int_equal(tier_get(t, "o", 3, back, 4), 0);
		assert_memory_equal(back, "3456", 4);
	}
}

/* A response with an endless body counts by its status. One with endless headers is a failure. */
static void answers_without_end_are_ended(void **state _unused_)
{
	static const struct {
		const char *method, *fault;
		int result;
		const char *why;
	} cases[] = {
		{ "GET", "endless 503 body", -EAGAIN, "the store is overloaded (tried 3 times)" },
		{ "PUT", "endless 503 body", -EAGAIN, "the store is overloaded (tried 3 times)" },
		{ "GET", "endless 403 body", -EACCES, "the store returned HTTP status 403" },
		{ "GET", "endless 200 body", -EBADMSG, "the store returned other bytes than requested" },
		{ "PUT", "endless 200 body", -EIO, "the response has no ETag" },
		{ "GET", "endless 200 headers", -EIO, "the headers of the response do not end" },
		{ "PUT", "endless 200 headers", -EIO, "the headers of the response do not end" },
		{ "GET", "endless 100 interim", -EIO, "the headers of the response do not end" },
	};

	assert_int_equal(put_new("e", "0123456789"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char back[5], name[20];
		int r;

		clear_log();
		s3_fake_tell(fake, "clear");
		s3_fake_tell(fake, "rule %s e 0 9 %s", cases[i].method, cases[i].fault);
		snprintf(name, sizeof(name), "e%zu", i);
		r = cases[i].method[0] == 'G' ? tier_get(t, "e", 3, back, 4) : put_new(name, "abc");
		assert_int_equal(r, cases[i].result);
		assert_true(says(cases[i].why));
		s3_fake_tell(fake, "clear");
		assert_int_equal(tier_get(t, "e", 3, back, 4), 0);
	}
}

/* Status 200 for a range of a whole object is right, but not if a proxy sends a page of its own. */
static void pages_of_proxies_are_no_objects(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	assert_int_equal(put_new("page", "0123456789"), 0);
	s3_fake_tell(fake, "rule GET page 0 1 html 200");
	assert_int_equal(tier_get_all(t, "page", 1000, &b), 0);
	assert_int_equal(b.len, 10);
	assert_int_equal(s3_fake_ask(fake, "left"), 0);
	clear_log();
	s3_fake_tell(fake, "rule GET page 0 9 html 200");
	assert_int_equal(tier_get_all(t, "page", 1000, &b), -EBADMSG);
	assert_true(says("the store returned other bytes than requested"));
	s3_fake_tell(fake, "clear");
	s3_fake_tell(fake, "rule GET page 0 1 ignore-range");
	assert_int_equal(tier_get_all(t, "page", 1000, &b), 0);
	assert_int_equal(b.len, 20);
}

static void lists_that_make_no_sense_are_refused(void **state _unused_)
{
	static const char *const faults[] = { "garbage", "unsorted", "html 200" };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		clear_log();
		s3_fake_tell(fake, "clear");
		s3_fake_tell(fake, "rule GET prefix 0 9 %s", faults[i]);
		assert_int_equal(tier_list_all(t, "a/", &b), -EBADMSG);
		assert_int_equal(b.len, 0);
		assert_true(says("cannot list: the store returned no ordered list of keys"));
	}
}

static void a_hung_store_is_given_up(void **state _unused_)
{
	struct tier_s3_conf conf = s3_fake_conf;
	struct tier *hung;

	conf.stall_s = 1;
	conf.nr_tries = 2;
	assert_int_equal(tier_s3_open("bucket/hung", &conf, &hung), 0);
	s3_fake_tell(fake, "rule * hung/a 0 99 hang");
	assert_int_equal(tier_put_new(hung, "a", "abc", 3), -ETIMEDOUT);
	assert_true(says("cannot write: ") && says("(tried 2 times)"));
	tier_close(hung);
}

static void an_unreachable_store_is_named(void **state _unused_)
{
	struct tier *none;

	setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1", 1); /* where nothing listens */
	none = s3_fake_open("bucket");
	assert_int_equal(tier_put_new(none, "a", "abc", 3), -EHOSTUNREACH);
	assert_true(says("127.0.0.1 port 1"));
	tier_close(none);
}

/* --- which request created the object --- */

static void a_lost_answer_does_not_hide_the_creator_of_an_object(void **state _unused_)
{
	static const char *const lost[] = { "reset-after", "status-after 500 InternalError",
					    "status-after 503 SlowDown", "html 504" };
	static const char *const bodies[] = { "abc", "" };
	char name[20];

	for (unsigned i = 0; i < 2 * ARRAY_SIZE(lost); i++) {
		const char *body = bodies[i % 2];

		s3_fake_tell(fake, "clear");
		if (i > 0) /* on a connection that has been used, libcurl sends it again by itself */
			assert_int_equal(call(TIER_DELETE, "none"), 0);
		s3_fake_tell(fake, "rule PUT o/ 0 1 %s", lost[i / 2]);
		snprintf(name, sizeof(name), "o/%u", i);
		assert_int_equal(put_new(name, body), 0); /* it was this one */
		expect(name, body);
		assert_int_equal(s3_fake_ask(fake, "seen PUT o/"), 2);
		s3_fake_tell(fake, "clear");
		s3_fake_tell(fake, "rule PUT o/ 0 1 %s", lost[i / 2]);
		assert_int_equal(put_new(name, body), -EEXIST); /* it was the one before, with the same bytes */
		s3_fake_tell(fake, "clear");
		s3_fake_tell(fake, "rule PUT o/ 0 9 %s", lost[i / 2]);
		assert_int_not_equal(put_new(name, body), 0);
	}
	/* the answer about the mark may be lost as well */
	s3_fake_tell(fake, "clear");
	s3_fake_tell(fake, "rule PUT last 0 1 reset-after");
	s3_fake_tell(fake, "rule HEAD last 0 1 status 503 SlowDown");
	s3_fake_tell(fake, "rule HEAD last 0 1 reset");
	assert_int_equal(put_new("last", "abc"), 0);
	assert_int_equal(s3_fake_ask(fake, "seen HEAD last"), 3);
}

/* A store closes connections when it likes; libcurl then sends the request again. */
static void a_connection_that_was_closed_is_no_failure(void **state _unused_)
{
	char name[20];

	s3_fake_tell(fake, "rule * * 0 1000 close-after");
	for (unsigned i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "o/%u", i);
		assert_int_equal(put_new(name, i % 2 ? "abc" : ""), 0);
		assert_int_equal(put_new(name, i % 2 ? "abc" : ""), -EEXIST);
	}
}

/* A large body waits for the store to ask for it. */
static void an_early_refusal_ends_a_large_put(void **state _unused_)
{
	uint8_t *p = calloc(1, LARGE), *back = malloc(LARGE);

	assert_true(p && back);
	memset(p + LARGE / 2, 7, LARGE / 2);
	s3_fake_tell(fake, "rule PUT large 0 1 early-status 503 SlowDown");
	assert_int_equal(tier_put_new(t, "large", p, LARGE), 0);
	assert_int_equal(tier_get(t, "large", 0, back, LARGE), 0);
	assert_memory_equal(p, back, LARGE);
	s3_fake_tell(fake, "rule PUT large 0 1 early-status 412 PreconditionFailed");
	assert_int_equal(tier_put_new(t, "large", p, LARGE), -EEXIST);
	/* the connection breaks in the middle of the body */
	for (unsigned at = 0; at < 2; at++) {
		s3_fake_tell(fake, "rule GET large 0 1 %s 1500000", at ? "cut" : "cut-close");
		memset(back, 0, LARGE);
		assert_int_equal(tier_get(t, "large", 0, back, LARGE), 0);
		assert_memory_equal(p, back, LARGE);
	}
	free(p);
	free(back);
}

/* --- the probe --- */

static void a_store_that_keeps_no_conditions_is_refused(void **state _unused_)
{
	static const struct {
		const char *fault, *reason;
	} cases[] = {
		{ "rule PUT probe 0 9999 unconditional", "its conditional puts are not atomic" },
		{ "rule PUT probe 0 9999 status 501 NotImplemented", "it does not implement conditional puts" },
		{ "rule GET probe 20 9999 ignore-range", "returned others" },
		{ "rule GET probe 20 9999 shift-range", "returned others" },
	};
	char reason[TIER_PROBE_REASON_MAX];

	assert_int_equal(tier_probe(t, reason), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		s3_fake_tell(fake, "clear");
		s3_fake_tell(fake, "%s", cases[i].fault);
		assert_int_equal(tier_probe(t, reason), -EOPNOTSUPP);
		assert_non_null(strstr(reason, cases[i].reason));
	}
}

/* --- requests --- */

static void connections_are_kept(void **state _unused_)
{
	char name[20], c;

	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "o/%u", i);
		assert_int_equal(put_new(name, "abc"), 0);
		assert_int_equal(tier_get(t, name, 1, &c, 1), 0);
	}
	assert_int_equal(s3_fake_ask(fake, "connections"), 1);
	assert_int_equal(s3_fake_ask(fake, "seen * *"), 40); /* none is sent twice, or in vain */
}

#define MANY 200u

static void many_requests_share_few_connections(void **state _unused_)
{
	struct tier_s3_conf conf = s3_fake_conf;
	struct tier_request q[MANY];
	char names[MANY][20];
	struct tier_queue *u;
	struct tier *few;

	conf.nr_connections = 4;
	conf.nr_tries = 8;
	assert_int_equal(tier_s3_open("bucket/few", &conf, &few), 0);
	s3_fake_tell(fake, "rule PUT few 30 20 status 503 SlowDown");
	assert_int_equal(tier_queue_new(few, &u), 0);
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(names[i], sizeof(names[i]), "o/%u", i);
		q[i] = (struct tier_request){ .op = TIER_PUT_NEW, .name = names[i], .data = names[i], .len = 3 };
		tier_start(u, &q[i]);
	}
	tier_queue_free(u);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(q[i].result, 0);
	tier_close(few);
	assert_true(s3_fake_ask(fake, "connections") <= 4);
	assert_int_equal(s3_fake_ask(fake, "seen PUT few"), MANY + 20);
}

/* A page of a list may have no name of a tier, and keys may have any bytes. */
static void keys_of_others_are_skipped(void **state _unused_)
{
	static const char *const others[] = { "a/",    "a/%20b", "a/.c", "a/%C3%A4", "a/d%2Bd", "a/e%26e", "a/f//g",
					      "a/%01", "a/h%25", "a/~",	 "a/%3C",    "a/%27",	"a/%3F" };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct tier *whole = s3_fake_open("bucket/whole");

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		s3_fake_tell(fake, "put whole/%s", others[i]);
	s3_fake_tell(fake, "put wholer/a/1");
	assert_int_equal(tier_list_all(whole, "", &b), 0);
	assert_int_equal(b.len, 0);
	assert_int_equal(tier_put_new(whole, "a/z", "", 0), 0);
	assert_int_equal(tier_put_new(whole, "a/g", "", 0), 0);
	assert_int_equal(tier_list_all(whole, "a/", &b), 0);
	assert_int_equal(b.len, 8);
	assert_memory_equal(b.data, "a/g\0a/z\0", 8);
	tier_close(whole);
}

static void an_object_may_be_at_the_root_of_a_bucket(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct tier *root = NULL;
	char c;

	assert_int_equal(tier_open("s3://bucket", &(struct tier_conf){ 0 }, &root), 0);
	assert_string_equal(tier_where(root), "s3://bucket");
	assert_int_equal(tier_put_new(root, "key/1", "x", 1), 0);
	assert_int_equal(tier_get(root, "key/1", 0, &c, 1), 0);
	assert_int_equal(tier_list_all(root, "key/", &b), 0);
	assert_int_equal(b.len, 6);
	assert_int_equal(s3_fake_ask(fake, "seen PUT /bucket/key/1"), 1);
	tier_close(root);
	assert_int_equal(tier_open("s3:bucket", &(struct tier_conf){ 0 }, &root), -EINVAL);
	assert_int_equal(tier_open("s3://", &(struct tier_conf){ 0 }, &root), -EINVAL);
	assert_int_equal(tier_open("s3://bucket/a b", &(struct tier_conf){ 0 }, &root), -EINVAL);
}

/* --- credentials --- */

static void write_conf(const char *token)
{
	char path[80];
	FILE *f;

	snprintf(path, sizeof(path), "%s/conf", dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fchmod(fileno(f), 0600);
	fprintf(f, "aws_access_key_id = %s\naws_secret_access_key = %s\naws_session_token = %s\n", S3_FAKE_ACCESS,
		S3_FAKE_SECRET, token);
	fclose(f);
}

static void credentials_are_read_again_when_they_expire(void **state _unused_)
{
	char path[80], c;
	struct tier *own = NULL;

	snprintf(dir, sizeof(dir), "%s/ckptfs-test-s3-XXXXXX", test_place());
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/conf", dir);
	write_conf("old");
	s3_fake_tell(fake, "credentials %s %s old", S3_FAKE_ACCESS, S3_FAKE_SECRET);
	assert_int_equal(tier_open("s3://bucket/own", &(struct tier_conf){ .config_file = path }, &own), 0);
	assert_int_equal(tier_put_new(own, "a", "x", 1), 0);
	s3_fake_tell(fake, "credentials %s %s %s", S3_FAKE_ACCESS, S3_FAKE_SECRET, S3_FAKE_TOKEN);
	assert_int_equal(tier_get(own, "a", 0, &c, 1), -EACCES);
	assert_true(says("the credentials have expired: renew them"));
	write_conf(S3_FAKE_TOKEN);
	assert_int_equal(tier_get(own, "a", 0, &c, 1), 0);
	assert_true(says("credentials reloaded"));

	/* a store that quotes what it was sent */
	s3_fake_tell(fake, "rule GET own 0 1 quote x-amz-security-token");
	assert_int_equal(tier_get(own, "a", 0, &c, 1), -EIO);
	s3_fake_tell(fake, "rule GET own 0 1 quote authorization");
	assert_int_equal(tier_get(own, "a", 0, &c, 1), -EIO);
	assert_true(says("the store returned HTTP status 400"));
	tier_close(own);
	unlink(path);
	rmdir(dir);
}

static void wrong_credentials_are_named(void **state _unused_)
{
	struct tier *wrong;

	setenv("AWS_SECRET_ACCESS_KEY", "another", 1);
	wrong = s3_fake_open("bucket");
	assert_int_equal(tier_put_new(wrong, "a", "x", 1), -EACCES);
	assert_true(says("the secret key is wrong"));
	tier_close(wrong);
	setenv("AWS_ACCESS_KEY_ID", "another", 1);
	wrong = s3_fake_open("bucket");
	assert_int_equal(tier_put_new(wrong, "a", "x", 1), -EACCES);
	assert_true(says("the store has no such access key"));
	tier_close(wrong);
}

static void a_wrong_clock_is_named(void **state _unused_)
{
	s3_fake_tell(fake, "rule PUT o 0 1 skew -72000");
	assert_int_equal(put_new("o", "x"), -EACCES);
	assert_true(says("the clock of this machine is 720") && says(" s ahead of the store's: set it"));
	s3_fake_tell(fake, "rule PUT o 0 1 skew 72000");
	assert_int_equal(put_new("o", "x"), -EACCES);
	assert_true(says(" s behind the store's: set it"));
}

static void another_region_is_named(void **state _unused_)
{
	s3_fake_tell(fake, "rule PUT o 0 1 region eu-central-1");
	assert_int_equal(put_new("o", "x"), -EIO);
	assert_true(says("the bucket is in another region: set AWS_REGION to eu-central-1"));
}

static void programs_inherit_no_connection(void **state _unused_)
{
	unsigned nr = 0;

	assert_int_equal(put_new("o", "x"), 0);
	for (int fd = 0; fd < 1000; fd++) {
		struct sockaddr_storage a;
		socklen_t len = sizeof(a);

		if (getpeername(fd, (struct sockaddr *)&a, &len) < 0 || a.ss_family != AF_INET)
			continue;
		nr++;
		assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	}
	assert_int_equal(nr, 1);
}

/* None is in what others can read of this process. */
static void secrets_are_not_on_the_command_line(void **state _unused_)
{
	_cleanup_(closep) int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	char line[4096];
	ssize_t n = read(fd, line, sizeof(line));

	assert_true(n > 0);
	assert_null(memmem(line, (size_t)n, S3_FAKE_SECRET, strlen(S3_FAKE_SECRET)));
	assert_int_equal(put_new("o", "x"), 0);
	assert_null(strstr(tier_where(t), S3_FAKE_ACCESS));
}

/* --- addresses --- */

static void the_bucket_may_be_in_the_name_of_the_host(void **state _unused_)
{
	char path[80], endpoint[60];
	struct tier *virtual = NULL;
	FILE *f;

	snprintf(dir, sizeof(dir), "%s/ckptfs-test-s3-XXXXXX", test_place());
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/conf", dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fchmod(fileno(f), 0600);
	snprintf(endpoint, sizeof(endpoint), "http://localhost:%u", s3_fake_port(fake));
	fprintf(f, "addressing_style = virtual\nendpoint_url = %s\n", endpoint);
	fclose(f);
	assert_int_equal(tier_open("s3://bucket/v", &(struct tier_conf){ .config_file = path }, &virtual), 0);
	assert_int_equal(tier_put_new(virtual, "a", "x", 1), 0);
	assert_int_equal(s3_fake_ask(fake, "seen PUT /v/a"), 1);
	assert_int_equal(s3_fake_ask(fake, "seen PUT bucket"), 0);
	tier_close(virtual);
	unlink(path);
	rmdir(dir);
}

static void certificates_are_verified(void **state _unused_)
{
	char command[500], arguments[200], ca[80];
	struct tier *tls;

	snprintf(dir, sizeof(dir), "%s/ckptfs-test-s3-XXXXXX", test_place());
	assert_non_null(mkdtemp(dir));
	snprintf(command, sizeof(command),
		 "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test "
		 "-addext subjectAltName=IP:127.0.0.1 -keyout %s/key -out %s/cert 2>/dev/null",
		 dir, dir);
	assert_int_equal(system(command), 0);
	snprintf(arguments, sizeof(arguments), "--tls %s/cert %s/key", dir, dir);
	s3_fake_stop(fake);
	fake = s3_fake_start(SCRIPT, arguments);

	tls = s3_fake_open("bucket");
	assert_int_equal(tier_put_new(tls, "a", "x", 1), -EACCES);
	assert_true(says("certificate"));
	tier_close(tls);
	assert_int_equal(s3_fake_ask(fake, "seen * *"), 0); /* it got nothing */

	snprintf(ca, sizeof(ca), "%s/cert", dir);
	setenv("AWS_CA_BUNDLE", ca, 1);
	tls = s3_fake_open("bucket");
	assert_int_equal(tier_put_new(tls, "a", "x", 1), 0);
	tier_close(tls);

	/* a certificate of another name */
	snprintf(command, sizeof(command), "https://localhost:%u", s3_fake_port(fake));
	setenv("AWS_ENDPOINT_URL", command, 1);
	tls = s3_fake_open("bucket");
	assert_int_equal(tier_put_new(tls, "b", "x", 1), -EACCES);
	tier_close(tls);
	unsetenv("AWS_CA_BUNDLE");
	snprintf(command, sizeof(command), "rm -r '%s'", dir);
	assert_int_equal(system(command), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(faults_that_pass_are_survived),
		TEST(bytes_that_are_sent_again_are_counted),
		TEST(faults_that_stay_are_reported),
		TEST(answers_without_end_are_ended),
		TEST(pages_of_proxies_are_no_objects),
		TEST(lists_that_make_no_sense_are_refused),
		TEST(a_hung_store_is_given_up),
		TEST(an_unreachable_store_is_named),
		TEST(a_lost_answer_does_not_hide_the_creator_of_an_object),
		TEST(a_connection_that_was_closed_is_no_failure),
		TEST(an_early_refusal_ends_a_large_put),
		TEST(a_store_that_keeps_no_conditions_is_refused),
		TEST(connections_are_kept),
		TEST(many_requests_share_few_connections),
		TEST(keys_of_others_are_skipped),
		TEST(an_object_may_be_at_the_root_of_a_bucket),
		TEST(credentials_are_read_again_when_they_expire),
		TEST(wrong_credentials_are_named),
		TEST(a_wrong_clock_is_named),
		TEST(another_region_is_named),
		TEST(programs_inherit_no_connection),
		TEST(secrets_are_not_on_the_command_line),
		TEST(the_bucket_may_be_in_the_name_of_the_host),
		TEST(certificates_are_verified),
	};

	if (!s3_fake_is_possible()) {
		puts("skipped: built without S3");
		return 77;
	}
	log_set_level(LOG_LEVEL_DEBUG);
	log_to_function(keep, NULL);
	return cmocka_run_group_tests_name("tier_s3", tests, NULL, NULL);
}
