/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The end of an HTTP request.
 *
 * Retries. A request is repeated when the connection fails, when the response is truncated, and when the store is
 * overloaded or reports an internal error. The delay is random within a limit that doubles with each try. Get, list and
 * delete are idempotent. So is put, which replaces the object by the same bytes.
 *
 * Put new is not: if the response of a successful attempt is lost, the next attempt finds the object of the first. Each
 * put new therefore stores a random mark in the metadata of its object. If the name is taken after an attempt whose
 * outcome is unknown, the mark of the object is read. It shows whether this request or another one created the object.
 * (Comparing bytes would not do: racing writers may put the same ones.) After the last try the request fails, with an
 * error as defined by tier.h.
 *
 * Status 200 of a put or get counts only with an ETag, which all object stores send: a proxy may return status 200 with
 * a page of its own.
 */
#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/s3/s3_conf.h"
#include "store/tier/s3/s3_failure.h"
#include "store/tier/s3/s3_response.h"
#include "store/tier/s3/s3_state.h"
#include "store/tier/tier.h"

#define BACKOFF_MAX_NS UINT64_C(10000000000)

static const char *action_of(const struct job *j)
{
	switch (j->q->op) {
	case TIER_PUT_NEW:
	case TIER_PUT:
		return "write";
	case TIER_GET:
		return "read";
	case TIER_LIST:
		return "list";
	case TIER_DELETE:
		return "delete";
	}
	return "use";
}

static void job_complete(struct job *j, int result)
{
	struct tier_request *q = j->q;

	s3_job_free(j);
	tier_done(q, result);
}

void s3_job_fail(struct tier_s3 *s, struct job *j, int result, const char *why)
{
	char tries[40] = "";

	if (j->nr_tries > 1)
		snprintf(tries, sizeof(tries), " (tried %u times)", j->nr_tries);
	log_limited(&s->limit, LOG_LEVEL_ERROR, "tier %s: object %s: cannot %s: %s%s", s->tier.where, j->q->name,
		    action_of(j), why, tries);
	job_complete(j, result);
}

/* Between half of `ns` and all of it, so that clients that were refused at the same time do not retry at the same time. */
static uint64_t random_delay(uint64_t ns)
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return ns;
	return ns / 2 + random % (ns / 2 + 1);
}

bool s3_is_put(const struct job *j)
{
	return j->step == STEP_REQUEST && (j->q->op == TIER_PUT_NEW || j->q->op == TIER_PUT);
}

/* Queues another try, or fails after the last one. `wait_s`: delay requested by the store. */
static void job_retry(struct tier_s3 *s, struct job *j, int result, const char *why, curl_off_t wait_s)
{
	uint64_t wait = s->backoff_ns;

	if (j->nr_tries >= s->nr_tries) {
		s3_job_fail(s, j, result, why);
		return;
	}
	for (unsigned i = 1; i < j->nr_tries && wait < BACKOFF_MAX_NS; i++)
		wait *= 2;
	if (wait_s > 0)
		wait = MAX(wait, wait_s < 10 ? (uint64_t)wait_s * UINT64_C(1000000000) : BACKOFF_MAX_NS);
	wait = MIN(wait, BACKOFF_MAX_NS);
	log_debug("tier %s: object %s: cannot %s yet: %s", s->tier.where, j->q->name, action_of(j), why);
	j->not_before_ns = monotonic_ns() + random_delay(wait);
	if (s3_is_put(j))
		s->tier.repeated_bytes += j->sent;
	s3_jobs_add(&s->ready, j);
}

/* Queues another HTTP request of the job, with tries of its own. */
static void job_queue_step(struct tier_s3 *s, struct job *j, enum step step)
{
	j->step = step;
	j->nr_tries = 0;
	j->not_before_ns = 0;
	s3_jobs_add(&s->ready, j);
}

/* --- responses --- */

/* Does the text contain a secret, or a signature that the store quotes? */
static bool has_secret(const struct tier_s3 *s, const char *text)
{
	return strstr(text, s->conf.secret_key) || (s->conf.session_token && strstr(text, s->conf.session_token)) ||
	       strstr(text, "Signature=");
}

static void describe_error(const struct tier_s3 *s, const struct job *j, const struct s3_error *e, long status,
			   const struct s3_failure *m, char *ret, size_t size)
{
	const char *region = j->region[0] ? j->region : e->region;
	long long ahead = (long long)(time(NULL) - j->store_time);

	if (strcmp(e->code, "RequestTimeTooSkewed") == 0 && j->store_time > 0)
		snprintf(ret, size, "the clock of this machine is %lld s %s the store's: set it",
			 ahead < 0 ? -ahead : ahead, ahead < 0 ? "behind" : "ahead of");
	else if ((status == 301 || status == 307 || status == 400) && *region && strcmp(region, s->conf.region) != 0 &&
		 !has_secret(s, region))
		snprintf(ret, size, "the bucket is in another region: set AWS_REGION to %s", region);
	else if (m->why)
		snprintf(ret, size, "%s", m->why);
	else if (e->code[0] && !has_secret(s, e->code) && !has_secret(s, e->message))
		snprintf(ret, size, "the store reports %s: %s", e->code, e->message);
	else
		snprintf(ret, size, "the store returned HTTP status %ld", status);
}

/* true: the job can be signed with other credentials than before. */
static bool reload_credentials(struct tier_s3 *s, struct job *j)
{
	struct s3_conf now;
	bool is_new;

	if (j->generation != s->generation)
		return true;
	if (j->has_reloaded || s3_conf_load(s->config_file, &now) < 0)
		return false;
	j->has_reloaded = true;
	is_new = strcmp(now.access_key, s->conf.access_key) != 0 || strcmp(now.secret_key, s->conf.secret_key) != 0 ||
		 !now.session_token != !s->conf.session_token ||
		 (now.session_token && strcmp(now.session_token, s->conf.session_token) != 0);
	if (is_new) {
		s3_conf_release(&s->conf);
		s->conf = now;
		s->generation++;
		log_notice("tier %s: credentials reloaded", s->tier.where);
	} else {
		s3_conf_release(&now);
	}
	return is_new;
}

static void handle_error(struct tier_s3 *s, struct job *j, long status, curl_off_t wait_s)
{
	struct s3_error e = { .code = "" };
	struct s3_failure m;
	char why[500];

	s3_error_parse(j->body.data, j->body.len, &e);
	m = s3_failure_of(e.code, status);
	describe_error(s, j, &e, status, &m, why, sizeof(why));
	if (m.remedy == S3_RELOAD && reload_credentials(s, j)) {
		j->nr_tries--;
		j->not_before_ns = 0;
		s3_jobs_add(&s->ready, j);
	} else if (m.remedy == S3_REPEAT) {
		j->may_have_created |= status >= 500;
		job_retry(s, j, m.result, why, wait_s);
	} else {
		s3_job_fail(s, j, m.result, why);
	}
}

static bool has_code(const struct job *j, const char *code)
{
	struct s3_error e;

	return s3_error_parse(j->body.data, j->body.len, &e) == 0 && strcmp(e.code, code) == 0;
}

static void handle_put_response(struct tier_s3 *s, struct job *j, long status, curl_off_t wait_s)
{
	if (status == 200 && j->has_etag) {
		job_complete(j, 0);
	} else if (status == 200) { /* as from a proxy that refuses the object */
		j->may_have_created = true;
		job_retry(s, j, -EIO, "the response has no ETag, so it is not that of an object store", wait_s);
	} else if (status == 412 && j->q->op == TIER_PUT_NEW) {
		if (j->may_have_created || j->q->len == 0)
			job_queue_step(s, j, STEP_MARK);
		else
			job_complete(j, -EEXIST);
	} else {
		handle_error(s, j, status, wait_s);
	}
}

static void handle_mark_response(struct tier_s3 *s, struct job *j, long status, curl_off_t wait_s)
{
	if (status == 200)
		job_complete(j, strcmp(j->seen_mark, j->mark) == 0 ? 0 : -EEXIST);
	else if (status == 404)
		s3_job_fail(s, j, -EIO, "the object was deleted during the request");
	else
		handle_error(s, j, status, wait_s);
}

static void handle_get_response(struct tier_s3 *s, struct job *j, long status, curl_off_t wait_s)
{
	size_t expected = j->expected;

	if (status == 200 || status == 206) {
		if (j->received == 0 && !s3_is_right_range(j, status, &expected))
			job_retry(s, j, -EBADMSG, "the store returned another range than requested", 0);
		else if (j->received < expected)
			job_retry(s, j, -EIO, "the response of the store is truncated", 0);
		else {
			j->q->got = j->step == STEP_SIZE ? 0 : j->received;
			job_complete(j, 0);
		}
	} else if (status == 404 && has_code(j, "NoSuchKey")) {
		job_complete(j, -ENOENT);
	} else if (status == 416 && (j->step == STEP_SIZE || j->q->off == 0)) {
		j->q->size = 0; /* not even the first byte is there */
		job_complete(j, 0);
	} else if (status == 416) {
		job_queue_step(s, j, STEP_SIZE);
	} else {
		handle_error(s, j, status, wait_s);
	}
}

/* The name of a key in this tier; NULL: the key does not belong to the tier. */
static const char *name_of_key(const struct tier_s3 *s, const struct job *j, const char *key)
{
	size_t len = strlen(s->prefix);

	if (strncmp(key, s->prefix, len) != 0 || strncmp(key + len, j->q->name, strlen(j->q->name)) != 0 ||
	    !tier_name_is_valid(key + len))
		return NULL;
	return key + len;
}

/* 1: no key belongs to the tier, and more keys follow j->after. */
static int parse_names(struct tier_s3 *s, struct job *j)
{
	_cleanup_(buf_release) struct buf keys = BUF_EMPTY;
	const char *key = NULL, *begin = j->after;
	size_t nr = 0;
	bool more;
	int r = s3_list_parse(j->body.data, j->body.len, &keys, &more);

	if (r < 0)
		return r;
	for (size_t at = 0; at < keys.len; at += strlen(key) + 1) {
		const char *name;

		key = (char *)keys.data + at;
		name = name_of_key(s, j, key);
		if ((begin && strcmp(key, begin) <= 0) || (name && j->q->after && strcmp(name, j->q->after) <= 0))
			return -EBADMSG; /* otherwise the list might never end */
		if (!name)
			continue;
		buf_add(&j->q->names, name, strlen(name) + 1);
		nr++;
	}
	j->q->more = more && nr > 0;
	if (buf_error(&j->q->names) < 0)
		return -ENOMEM;
	if (nr > 0 || !more)
		return 0;
	if (!key)
		return -EBADMSG;
	key = strdup(key);
	if (!key)
		return -ENOMEM;
	free(j->after);
	j->after = (char *)key;
	return 1;
}

static void handle_list_response(struct tier_s3 *s, struct job *j, long status, curl_off_t wait_s)
{
	size_t from = j->q->names.len;
	int r;

	if (status != 200) {
		handle_error(s, j, status, wait_s);
		return;
	}
	r = parse_names(s, j);
	if (r == 1)
		job_queue_step(s, j, STEP_REQUEST);
	else if (r == 0)
		job_complete(j, 0);
	else {
		j->q->names.len = from;
		j->q->more = false;
		if (r == -EBADMSG)
			job_retry(s, j, r, "the store returned no ordered list of keys", 0);
		else
			s3_job_fail(s, j, r, strerror(-r));
	}
}

static void handle_response(struct tier_s3 *s, struct job *j, long status, curl_off_t wait_s)
{
	if (j->step == STEP_MARK)
		handle_mark_response(s, j, status, wait_s);
	else if (s3_is_put(j))
		handle_put_response(s, j, status, wait_s);
	else if (j->q->op == TIER_GET)
		handle_get_response(s, j, status, wait_s);
	else if (j->q->op == TIER_LIST)
		handle_list_response(s, j, status, wait_s);
	else if (status == 200 || status == 204 || (status == 404 && has_code(j, "NoSuchKey")))
		job_complete(j, 0);
	else
		handle_error(s, j, status, wait_s);
}

/* The response is missing or incomplete. */
static void handle_transport_error(struct tier_s3 *s, struct job *j, CURLcode code)
{
	char why[CURL_ERROR_SIZE + 40];

	if (code != CURLE_COULDNT_CONNECT && code != CURLE_COULDNT_RESOLVE_HOST)
		j->may_have_created = true;
	if (j->is_wrong) {
		job_retry(s, j, -EBADMSG, "the store returned other bytes than requested", 0);
		return;
	}
	snprintf(why, sizeof(why), "%s",
		 j->header_bytes > S3_HEADERS_MAX ? "the headers of the response do not end" :
		 j->error[0]			  ? j->error :
						    curl_easy_strerror(code));
	switch (code) {
	case CURLE_OUT_OF_MEMORY:
		s3_job_fail(s, j, -ENOMEM, "out of memory");
		break;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
		s3_job_fail(s, j, -EACCES, why); /* the peer is not the store: send nothing */
		break;
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
		job_retry(s, j, -EHOSTUNREACH, why, 0);
		break;
	case CURLE_OPERATION_TIMEDOUT:
		job_retry(s, j, -ETIMEDOUT, why, 0);
		break;
	case CURLE_PARTIAL_FILE:
		job_retry(s, j, -EIO, "the response of the store is truncated", 0);
		break;
	default:
		job_retry(s, j, -EIO, why, 0);
	}
}

void s3_job_finish(struct tier_s3 *s, CURL *easy, CURLcode code)
{
	curl_off_t wait_s = 0;
	struct job *j = NULL;
	long status;

	curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&j);
	curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &wait_s);
	status = s3_status(j);
	curl_multi_remove_handle(s->multi, easy);
	s->nr_running--;
	/* When the store refuses a put early, libcurl may report a send error. */
	if (code == CURLE_OK || (code == CURLE_SEND_ERROR && status >= 400) || j->is_cut)
		handle_response(s, j, status, wait_s);
	else
		handle_transport_error(s, j, code);
	curl_easy_reset(easy);
	s->idle[s->nr_idle++] = easy;
}
