/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The jobs of an S3 back end. For the files of store/tier/s3 alone:
 *   tier_s3.c       the back end, and the thread that runs all jobs
 *   s3_request.c    a job as HTTP request
 *   s3_outcome.c    the response to it: done, failed, or tried again
 */
#pragma once

#include <curl/curl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "store/tier/s3/s3_conf.h"
#include "store/tier/s3/s3_response.h"
#include "store/tier/tier.h"

#define S3_MARK "x-amz-meta-ckptfs-put"
#define S3_MARK_LEN 32u
#define S3_HEADERS_MAX ((size_t)256 << 10) /* bytes, with those of interim responses */

/* What the HTTP request of a job is for. */
enum step {
	STEP_REQUEST, /* the request of the caller */
	STEP_MARK, /* put new: which request created the object */
	STEP_SIZE, /* get: read the size of the object; the range is empty or past the end */
};

struct job {
	struct tier_request *q;
	struct job *next;
	enum step step;
	unsigned nr_tries;
	uint64_t not_before_ns; /* of the next try */
	unsigned generation; /* of the credentials that it was signed with */
	bool has_reloaded; /* the credentials, once, after the store refused them */
	bool may_have_created; /* put new: the outcome of an attempt is unknown */
	char digest[2 * SHA256_LEN + 1]; /* of the body */
	char mark[S3_MARK_LEN + 1];
	char *after; /* list: continue after this key, as a page had no name of a tier; owned */

	/* Of the HTTP request: */
	CURL *easy;
	struct curl_slist *headers;
	size_t sent;
	size_t expected; /* get: bytes of the response */
	size_t received;
	bool has_range;
	struct s3_range range;
	bool is_wrong; /* the response has other bytes than requested, or too many */
	bool is_cut; /* an error of more than ERROR_MAX */
	bool has_etag;
	size_t header_bytes;
	char seen_mark[S3_MARK_LEN + 1], region[64];
	time_t store_time; /* 0: the store sent none */
	struct buf body; /* of an error or list */
	char error[CURL_ERROR_SIZE];
};

struct jobs {
	struct job *first, **end;
};

struct tier_s3 {
	struct tier tier;
	/* Constant, like all up to the lock: */
	char *bucket, *prefix; /* with a slash at its end, or empty */
	char *url, *path, *host; /* without a key; of the header Host */
	char *ca_bundle;
	char *config_file;
	unsigned nr_connections, nr_tries, stall_s;
	uint64_t backoff_ns;
	size_t page;
	CURLM *multi;
	struct log_limit limit;

	struct mutex lock; /* leaf */
	struct jobs posted GUARDED_BY(lock);
	bool has_thread GUARDED_BY(lock), stop GUARDED_BY(lock);
	pthread_t thread;

	/* Of the thread: */
	struct s3_conf conf;
	unsigned generation; /* of its credentials */
	struct jobs ready; /* not begun; some are delayed */
	unsigned nr_running;
	CURL **idle; /* handles for further requests */
	size_t nr_idle;
};

/* tier_s3.c */
void s3_jobs_add(struct jobs *l, struct job *j);
void s3_job_free(struct job *j); /* NULL is fine */
void s3_headers_release(struct curl_slist **l); /* overwrites secrets */

/* s3_request.c: sends the next HTTP request of a job. If that fails, the job fails. */
void s3_job_begin(struct tier_s3 *s, struct job *j);
long s3_status(const struct job *j);
/*
 * Does the response to a get have the requested range? With status 200 the store ignored the range: right only if the
 * whole object was requested, and the response has an ETag, as objects have. *ret_len: bytes that follow.
 */
bool s3_is_right_range(struct job *j, long status, size_t *ret_len);

/* s3_outcome.c: completes the job of a request that has ended, or queues another request of it. */
void s3_job_finish(struct tier_s3 *s, CURL *easy, CURLcode code);
void s3_job_fail(struct tier_s3 *s, struct job *j, int result, const char *why); /* logs it, frees the job */
bool s3_is_put(const struct job *j);
