/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One thread runs all requests through libcurl's multi interface. The thread belongs to this file. tier_backend.drive
 * would not do: requests must make progress while a caller compresses the next pack, and several queues share the
 * connections. The caller computes the digest of a body that it puts, to keep this work out of the thread.
 *
 * Secrets are stored in struct s3_conf and in the headers of requests in flight, and nowhere else. A message quotes the
 * store only if the text contains no part of a secret.
 */
#include "store/tier/s3/tier_s3.h"

#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "base/util.h"
#include "store/tier/s3/s3_state.h"
#include "store/tier/tier.h"

#define CONNECTIONS 16u
#define TRIES 6u
#define BACKOFF_NS UINT64_C(100000000)
#define STALL_S 60u
#define PAGE 1000u

static void jobs_init(struct jobs *l)
{
	l->first = NULL;
	l->end = &l->first;
}

void s3_jobs_add(struct jobs *l, struct job *j)
{
	j->next = NULL;
	*l->end = j;
	l->end = &j->next;
}

void s3_headers_release(struct curl_slist **l)
{
	for (struct curl_slist *h = *l; h; h = h->next)
		explicit_bzero(h->data, strlen(h->data)); /* a session token is among them */
	curl_slist_free_all(*l);
	*l = NULL;
}

void s3_job_free(struct job *j)
{
	if (!j)
		return;
	s3_headers_release(&j->headers);
	buf_release(&j->body);
	free(j->after);
	free(j);
}

static void job_freep(struct job **j)
{
	s3_job_free(*j);
}

/* --- the thread --- */

/* Begins the jobs that are due. Returns the time until the next one is due, in ms. */
static int begin_due_jobs(struct tier_s3 *s)
{
	struct jobs later;
	uint64_t now = monotonic_ns(), next = UINT64_C(60000000000);

	jobs_init(&later);
	while (s->ready.first) {
		struct job *j = s->ready.first;

		if (s->nr_running == s->nr_connections) { /* the end of a request wakes the thread */
			*later.end = j;
			later.end = s->ready.end;
			break;
		}
		s->ready.first = j->next;
		if (!s->ready.first)
			s->ready.end = &s->ready.first;
		if (j->not_before_ns > now) {
			next = MIN(next, j->not_before_ns - now);
			s3_jobs_add(&later, j);
		} else {
			s3_job_begin(s, j);
		}
	}
	s->ready.first = later.first;
	s->ready.end = later.first ? later.end : &s->ready.first;
	return (int)(next / 1000000) + 1;
}

static void *work(void *userdata)
{
	struct tier_s3 *s = userdata;

	mutex_lock(&s->lock);
	while (!s->stop) {
		int running, nr_left, wait;
		CURLMsg *m;

		while (s->posted.first) {
			struct job *j = s->posted.first;

			s->posted.first = j->next;
			s3_jobs_add(&s->ready, j);
		}
		s->posted.end = &s->posted.first;
		mutex_unlock(&s->lock);
		wait = begin_due_jobs(s);
		curl_multi_perform(s->multi, &running);
		while ((m = curl_multi_info_read(s->multi, &nr_left)))
			if (m->msg == CURLMSG_DONE) {
				s3_job_finish(s, m->easy_handle, m->data.result);
				wait = 0; /* a connection is free */
			}
		curl_multi_poll(s->multi, NULL, 0, wait, NULL);
		mutex_lock(&s->lock);
	}
	mutex_unlock(&s->lock);
	return NULL;
}

static int start_thread(struct tier_s3 *s) REQUIRES(s->lock)
{
	sigset_t all, before;
	int r;

	if (s->has_thread)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = -pthread_create(&s->thread, NULL, work, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	s->has_thread = r == 0;
	return r;
}

/* --- back end --- */

static int job_new(struct tier_request *q, struct job **ret)
{
	_cleanup_(job_freep) struct job *j = calloc(1, sizeof(*j));
	uint64_t random[2];

	if (!j)
		return -ENOMEM;
	j->q = q;
	if (q->op == TIER_PUT || q->op == TIER_PUT_NEW) {
		struct sha256_digest digest;
		struct sha256 h;

		sha256_init(&h);
		sha256_add(&h, q->data, q->len);
		digest = sha256_finish(&h);
		strcpy(j->digest, sha256_hex(digest.b).s);
		if (getrandom(random, sizeof(random), 0) != sizeof(random))
			return -EIO;
		snprintf(j->mark, sizeof(j->mark), "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
	}
	*ret = TAKE(j);
	return 0;
}

static void s3_start(struct tier *t, struct tier_request *q)
{
	struct tier_s3 *s = container_of(t, struct tier_s3, tier);
	struct job *j = NULL;
	int r = q->op == TIER_GET && q->off + q->len < q->off ? -EINVAL : job_new(q, &j);

	if (r == 0) {
		mutex_lock(&s->lock);
		r = start_thread(s);
		if (r == 0) {
			s3_jobs_add(&s->posted, TAKE(j));
			curl_multi_wakeup(s->multi);
		}
		mutex_unlock(&s->lock);
	}
	if (r == 0)
		return;
	s3_job_free(j);
	log_limited(&s->limit, LOG_LEVEL_ERROR, "tier %s: object %s: cannot start the request: %s", t->where, q->name,
		    strerror(-r));
	tier_done(q, r);
}

static void s3_close(struct tier *t)
{
	struct tier_s3 *s = container_of(t, struct tier_s3, tier);
	bool has_thread;

	mutex_lock(&s->lock);
	assert(!s->posted.first);
	s->stop = true;
	has_thread = s->has_thread;
	mutex_unlock(&s->lock);
	if (has_thread) {
		curl_multi_wakeup(s->multi);
		pthread_join(s->thread, NULL);
	}
	assert(s->nr_running == 0 && !s->ready.first);
	for (size_t i = 0; i < s->nr_idle; i++)
		curl_easy_cleanup(s->idle[i]);
	if (s->multi)
		curl_multi_cleanup(s->multi);
	mutex_release(&s->lock);
	s3_conf_release(&s->conf);
	free(s->idle);
	free(s->bucket);
	free(s->prefix);
	free(s->url);
	free(s->path);
	free(s->host);
	free(s->ca_bundle);
	free(s->config_file);
	free(s->tier.where);
	free(s);
}

static const struct tier_backend backend = { .start = s3_start, .close = s3_close };

/* --- opening --- */

static void init_curl(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static _printf_(2, 3) int format_string(char **to, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(to, fmt, ap);
	va_end(ap);
	if (n < 0)
		*to = NULL;
	return n < 0 ? -ENOMEM : 0;
}

/* AWS requires the bucket in the host name. A wildcard certificate covers one label, so a bucket with dots goes into the
 * path. So does any bucket of other stores, which rarely have a DNS name per bucket. */
static bool is_virtual(const struct s3_conf *c, const char *bucket)
{
	if (c->addressing_style && strcmp(c->addressing_style, "auto") != 0)
		return strcmp(c->addressing_style, "virtual") == 0;
	return !c->endpoint && strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(bucket) &&
	       strlen(bucket) <= 63;
}

static int set_address(struct tier_s3 *s)
{
	_cleanup_(freep) char *aws = NULL;
	struct s3_endpoint e;
	bool in_host = is_virtual(&s->conf, s->bucket);
	int r = 0;

	if (!s->conf.endpoint)
		r = format_string(&aws, "https://s3.%s.amazonaws.com%s", s->conf.region,
				  strncmp(s->conf.region, "cn-", 3) == 0 ? ".cn" : "");
	if (r < 0)
		return r;
	r = s3_endpoint_parse(aws ? aws : s->conf.endpoint, &e);
	if (r < 0)
		return log_cause(r, "tier %s: the region has no endpoint: set AWS_ENDPOINT_URL", s->tier.where);
	r = format_string(&s->host, "%s%s%s", in_host ? s->bucket : "", in_host ? "." : "", e.authority);
	if (r == 0)
		r = format_string(&s->url, "%s://%s", e.is_tls ? "https" : "http", s->host);
	if (r == 0)
		r = in_host ? format_string(&s->path, "/") : format_string(&s->path, "/%s/", s->bucket);
	return r;
}

const char *tier_s3_refusal(const char *place)
{
	struct s3_place p;

	return s3_place_parse(place, &p) == 0 ?
		       NULL :
		       "is not of the form s3://BUCKET/PREFIX, with letters, digits, `-`, `_` and "
		       "`.`, in a prefix also `/`";
}

int tier_s3_open(const char *place, const struct tier_s3_conf *conf, struct tier **ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	_cleanup_(tier_closep) struct tier *made = NULL;
	struct tier_s3 *s;
	struct s3_place p;
	int r;

	if (s3_place_parse(place, &p) < 0)
		return log_cause(-EINVAL, "tier s3://%s: %s", place, tier_s3_refusal(place));
	pthread_once(&once, init_curl);
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	made = &s->tier;
	s->tier.backend = &backend;
	mutex_init(&s->lock);
	jobs_init(&s->posted);
	jobs_init(&s->ready);
	s->nr_connections = conf->nr_connections > 0 ? conf->nr_connections : CONNECTIONS;
	s->nr_tries = conf->nr_tries > 0 ? conf->nr_tries : TRIES;
	s->backoff_ns = conf->backoff_ns > 0 ? conf->backoff_ns : BACKOFF_NS;
	s->stall_s = conf->stall_s > 0 ? conf->stall_s : STALL_S;
	s->page = conf->page > 0 ? conf->page : PAGE;
	r = format_string(&s->tier.where, "s3://%s%s%s", p.bucket, *p.prefix ? "/" : "", p.prefix);
	if (r == 0)
		r = format_string(&s->prefix, "%s%s", p.prefix, *p.prefix ? "/" : "");
	if (r == 0)
		r = format_string(&s->bucket, "%s", p.bucket);
	if (r == 0 && conf->config_file)
		r = format_string(&s->config_file, "%s", conf->config_file);
	if (r == 0)
		r = s3_conf_load(conf->config_file, &s->conf);
	if (r == 0 && s->conf.ca_bundle)
		r = format_string(&s->ca_bundle, "%s", s->conf.ca_bundle);
	if (r == 0)
		r = set_address(s);
	if (r < 0)
		return r;
	s->idle = calloc(s->nr_connections, sizeof(*s->idle));
	s->multi = curl_multi_init();
	if (!s->idle || !s->multi)
		return -ENOMEM;
	curl_multi_setopt(s->multi, CURLMOPT_MAXCONNECTS, (long)s->nr_connections);
	*ret = TAKE(made);
	return 0;
}
