/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One thread runs all requests through libcurl's multi interface. The thread belongs to this file. tier_backend.drive
 * would not do: requests must make progress while a caller compresses the next pack, and several queues share the
 * connections. The caller computes the digest of a body that it puts, to keep this work out of the thread.
 *
 * Retries. A request is repeated when the connection fails, when the response is truncated, and when the store is
 * overloaded or reports an internal error. The delay is random within a limit that doubles with each try. Get, list and
 * delete are idempotent. So is put, which replaces the object by the same bytes.
 *
 * Put new is not: if the response of a successful attempt is lost, the next attempt finds the object of the first. Each
 * put new therefore stores a random mark in the metadata of its object. If the name is taken after an attempt whose
 * outcome is unknown, the mark of the object is read. It shows whether this request or another one created the object.
 * (Comparing bytes would not do: racing writers may put the same ones.) After the last try the request fails, with an
 * error as defined by tier.h. libcurl repeats a request by itself if a reused connection turns out to be closed. It
 * rewinds the body to do so, which seek_body() detects. An empty body is not rewound, so its mark is always read.
 *
 * Bodies are signed with their digest, which the store checks: it refuses a body that was damaged on the way. The range
 * and the length of each response are compared with the request. Status 200 of a put or get counts only with an
 * ETag, which all object stores send: a proxy may return status 200 with a page of its own.
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
#include <sys/socket.h>
#include <time.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "base/util.h"
#include "store/tier/s3/s3_conf.h"
#include "store/tier/s3/s3_failure.h"
#include "store/tier/s3/s3_response.h"
#include "store/tier/s3/s3_sign.h"
#include "store/tier/tier.h"

#define CONNECTIONS 16u
#define TRIES 6u
#define BACKOFF_NS UINT64_C(100000000)
#define BACKOFF_MAX_NS UINT64_C(10000000000)
#define STALL_S 60u
#define CONNECT_S 10L
#define PAGE 1000u
#define ERROR_MAX ((size_t)64 << 10) /* of an error response; the rest is not received */
#define HEADER_BYTES_MAX ((size_t)256 << 10) /* with those of interim responses */
#define LIST_MAX ((size_t)8 << 20) /* 1000 encoded keys of 3 KiB, with their attributes */
#define MARK "x-amz-meta-ckptfs-put"
#define MARK_LEN 32u
#define HEADERS_MAX 8u
#define DIGEST_OF_NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

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
	char mark[MARK_LEN + 1];
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
	char seen_mark[MARK_LEN + 1], region[64];
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

static void jobs_init(struct jobs *l)
{
	l->first = NULL;
	l->end = &l->first;
}

static void jobs_add(struct jobs *l, struct job *j)
{
	j->next = NULL;
	*l->end = j;
	l->end = &j->next;
}

static void headers_release(struct curl_slist **l)
{
	for (struct curl_slist *h = *l; h; h = h->next)
		explicit_bzero(h->data, strlen(h->data)); /* a session token is among them */
	curl_slist_free_all(*l);
	*l = NULL;
}

static void job_free(struct job *j)
{
	if (!j)
		return;
	headers_release(&j->headers);
	buf_release(&j->body);
	free(j->after);
	free(j);
}

static void job_freep(struct job **j)
{
	job_free(*j);
}

/* --- completing --- */

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

	job_free(j);
	tier_done(q, result);
}

static void job_fail(struct tier_s3 *s, struct job *j, int result, const char *why)
{
	char tries[40] = "";

	if (j->nr_tries > 1)
		snprintf(tries, sizeof(tries), " (tried %u times)", j->nr_tries);
	log_limited(&s->limit, LOG_LEVEL_ERROR, "tier %s: object %s: cannot %s: %s%s", s->tier.where, j->q->name,
		    action_of(j), why, tries);
	job_complete(j, result);
}

/* Between half of `ns` and all of it, so that clients that were refused at the same time do not retry at the same time. */
static uint64_t jitter(uint64_t ns)
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return ns;
	return ns / 2 + random % (ns / 2 + 1);
}

static bool is_put(const struct job *j)
{
	return j->step == STEP_REQUEST && (j->q->op == TIER_PUT_NEW || j->q->op == TIER_PUT);
}

/* Queues another try, or fails after the last one. `wait_s`: delay requested by the store. */
static void job_retry(struct tier_s3 *s, struct job *j, int result, const char *why, curl_off_t wait_s)
{
	uint64_t wait = s->backoff_ns;

	if (j->nr_tries >= s->nr_tries) {
		job_fail(s, j, result, why);
		return;
	}
	for (unsigned i = 1; i < j->nr_tries && wait < BACKOFF_MAX_NS; i++)
		wait *= 2;
	if (wait_s > 0)
		wait = MAX(wait, wait_s < 10 ? (uint64_t)wait_s * UINT64_C(1000000000) : BACKOFF_MAX_NS);
	wait = MIN(wait, BACKOFF_MAX_NS);
	log_debug("tier %s: object %s: cannot %s yet: %s", s->tier.where, j->q->name, action_of(j), why);
	j->not_before_ns = monotonic_ns() + jitter(wait);
	if (is_put(j))
		s->tier.repeated_bytes += j->sent;
	jobs_add(&s->ready, j);
}

/* Queues another HTTP request of the job, with tries of its own. */
static void job_queue_step(struct tier_s3 *s, struct job *j, enum step step)
{
	j->step = step;
	j->nr_tries = 0;
	j->not_before_ns = 0;
	jobs_add(&s->ready, j);
}

/* --- HTTP --- */

static long status_of(const struct job *j)
{
	long status = 0;

	curl_easy_getinfo(j->easy, CURLINFO_RESPONSE_CODE, &status);
	return status;
}

static size_t read_body(char *p, size_t size, size_t nr, void *userdata)
{
	struct job *j = userdata;
	size_t len = MIN(size * nr, j->q->len - j->sent);

	if (len > 0)
		memcpy(p, (const char *)j->q->data + j->sent, len);
	j->sent += len;
	return len;
}

/* libcurl is about to send the body again. */
static int seek_body(void *userdata, curl_off_t off, int origin)
{
	struct job *j = userdata;

	if (origin != SEEK_SET || off < 0 || (uint64_t)off > j->q->len)
		return CURL_SEEKFUNC_FAIL;
	j->may_have_created = true;
	j->sent = (size_t)off;
	return CURL_SEEKFUNC_OK;
}

static bool is_header(const char *p, size_t len, const char *name, const char **ret, size_t *ret_len)
{
	size_t n = strlen(name);

	if (len <= n || p[n] != ':' || strncasecmp(p, name, n) != 0)
		return false;
	for (p += n + 1, len -= n + 1; len > 0 && (*p == ' ' || *p == '\t'); p++)
		len--;
	while (len > 0 && (p[len - 1] == '\r' || p[len - 1] == '\n' || p[len - 1] == ' '))
		len--;
	*ret = p;
	*ret_len = len;
	return true;
}

static void copy_text(char *to, size_t size, const char *p, size_t len)
{
	len = MIN(len, size - 1);
	memcpy(to, p, len);
	to[len] = '\0';
}

static size_t read_header(char *p, size_t size, size_t nr, void *userdata)
{
	struct job *j = userdata;
	size_t len = size * nr, value_len;
	const char *value;

	j->header_bytes += len;
	if (j->header_bytes > HEADER_BYTES_MAX)
		return 0;
	if (len > 5 && memcmp(p, "HTTP/", 5) == 0) { /* after an interim response, discard its headers */
		j->has_range = j->has_etag = false;
		j->seen_mark[0] = j->region[0] = '\0';
	}
	if (is_header(p, len, "content-range", &value, &value_len))
		j->has_range = s3_range_parse(value, value_len, &j->range) == 0;
	else if (is_header(p, len, "etag", &value, &value_len))
		j->has_etag = value_len > 0;
	else if (is_header(p, len, MARK, &value, &value_len))
		copy_text(j->seen_mark, sizeof(j->seen_mark), value, value_len);
	else if (is_header(p, len, "x-amz-bucket-region", &value, &value_len))
		copy_text(j->region, sizeof(j->region), value, value_len);
	else if (is_header(p, len, "date", &value, &value_len)) {
		char date[64];

		copy_text(date, sizeof(date), value, value_len);
		j->store_time = curl_getdate(date, NULL);
		j->store_time = j->store_time < 0 ? 0 : j->store_time;
	}
	return len;
}

/*
 * Does the response to a get have the requested range? With status 200 the store ignored the range: right only if the
 * whole object was requested, and the response has an ETag, as objects have. *ret_len: bytes that follow.
 */
static bool is_right_range(struct job *j, long status, size_t *ret_len)
{
	uint64_t off = j->step == STEP_SIZE ? 0 : j->q->off, size;
	size_t len = j->step == STEP_SIZE ? 1 : j->q->len;

	if (status == 206) {
		if (!j->has_range || j->range.is_empty || j->range.first != off ||
		    j->range.last != MIN(off + len, j->range.size) - 1)
			return false;
		size = j->range.size;
	} else {
		curl_off_t content = -1;

		curl_easy_getinfo(j->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &content);
		if (!j->has_etag || off > 0 || content < 0 || (uint64_t)content > len)
			return false;
		size = (uint64_t)content;
	}
	j->q->size = size;
	*ret_len = (size_t)MIN((uint64_t)len, size - off);
	return true;
}

static size_t write_body(char *p, size_t size, size_t nr, void *userdata)
{
	struct job *j = userdata;
	size_t len = size * nr, max;
	long status = status_of(j);

	if (j->q->op == TIER_GET && (status == 200 || status == 206)) {
		if (j->received == 0 && !is_right_range(j, status, &j->expected))
			j->is_wrong = true;
		else if (len > j->expected - j->received)
			j->is_wrong = true;
		if (j->is_wrong)
			return 0;
		if (j->step == STEP_REQUEST)
			memcpy((char *)j->q->buf + j->received, p, len);
		j->received += len;
		return len;
	}
	max = j->q->op == TIER_LIST && status == 200 ? LIST_MAX : ERROR_MAX;
	if (j->body.len + len > max) {
		j->is_wrong = max == LIST_MAX;
		j->is_cut = max == ERROR_MAX;
		return 0;
	}
	buf_add(&j->body, p, len);
	return len;
}

/* --- building a request --- */

struct http {
	const char *method;
	struct buf path, query; /* encoded, with zero bytes */
	char time[20], range[64];
	struct s3_header headers[HEADERS_MAX]; /* signed */
	size_t nr_headers;
};

static void http_release(struct http *h)
{
	buf_release(&h->path);
	buf_release(&h->query);
}

static void add_text(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

static void add_header(struct http *h, const char *name, const char *value)
{
	assert(h->nr_headers < HEADERS_MAX &&
	       (h->nr_headers == 0 || strcmp(h->headers[h->nr_headers - 1].name, name) < 0));
	h->headers[h->nr_headers++] = (struct s3_header){ name, value };
}

/* Parameters sorted by name, as the signature requires. */
static void add_list_query(struct tier_s3 *s, const struct job *j, struct buf *q)
{
	char max[60];

	add_text(q, "encoding-type=url&list-type=2");
	snprintf(max, sizeof(max), "&max-keys=%zu&prefix=", s->page);
	add_text(q, max);
	s3_encode(q, s->prefix, false);
	s3_encode(q, j->q->name, false);
	if (j->after || j->q->after)
		add_text(q, "&start-after=");
	if (j->after) {
		s3_encode(q, j->after, false);
	} else if (j->q->after) {
		s3_encode(q, s->prefix, false);
		s3_encode(q, j->q->after, false);
	}
}

static const char *method_of(const struct job *j)
{
	if (j->step == STEP_MARK)
		return "HEAD";
	return is_put(j) ? "PUT" : j->q->op == TIER_DELETE ? "DELETE" : "GET";
}

static int build_request(struct tier_s3 *s, const struct job *j, struct http *h)
{
	time_t now = time(NULL);
	struct tm tm;

	h->method = method_of(j);
	add_text(&h->path, s->path);
	if (j->q->op == TIER_LIST) {
		add_list_query(s, j, &h->query);
	} else {
		s3_encode(&h->path, s->prefix, true);
		s3_encode(&h->path, j->q->name, true);
	}
	buf_add(&h->path, "", 1);
	buf_add(&h->query, "", 1);
	if (!gmtime_r(&now, &tm) || strftime(h->time, sizeof(h->time), "%Y%m%dT%H%M%SZ", &tm) == 0)
		return -EINVAL;
	add_header(h, "host", s->host);
	if (is_put(j) && j->q->op == TIER_PUT_NEW)
		add_header(h, "if-none-match", "*");
	if (j->q->op == TIER_GET) {
		if (j->step == STEP_SIZE)
			snprintf(h->range, sizeof(h->range), "bytes=0-0");
		else
			snprintf(h->range, sizeof(h->range), "bytes=%" PRIu64 "-%" PRIu64, j->q->off,
				 j->q->off + j->q->len - 1);
		add_header(h, "range", h->range);
	}
	add_header(h, "x-amz-content-sha256", is_put(j) ? j->digest : DIGEST_OF_NOTHING);
	add_header(h, "x-amz-date", h->time);
	if (is_put(j) && j->q->op == TIER_PUT_NEW)
		add_header(h, MARK, j->mark);
	if (s->conf.session_token)
		add_header(h, "x-amz-security-token", s->conf.session_token);
	return buf_error(&h->path) < 0 ? -ENOMEM : buf_error(&h->query);
}

static int append_header(struct curl_slist **l, const char *name, const char *value)
{
	_cleanup_(buf_release) struct buf line = BUF_EMPTY;
	struct curl_slist *longer;

	if (buf_reserve(&line, strlen(name) + strlen(value) + 3) < 0)
		return -ENOMEM;
	add_text(&line, name);
	add_text(&line, *value ? ": " : ":"); /* without a value, libcurl omits its own header of this name */
	add_text(&line, value);
	buf_add(&line, "", 1);
	longer = curl_slist_append(*l, (char *)line.data);
	explicit_bzero(line.data, line.len);
	if (!longer)
		return -ENOMEM;
	*l = longer;
	return 0;
}

static int sign_request(struct tier_s3 *s, struct job *j, const struct http *h)
{
	_cleanup_(buf_release) struct buf signature = BUF_EMPTY;
	const struct s3_to_sign to_sign = {
		.method = h->method,
		.path = (char *)h->path.data,
		.query = (char *)h->query.data,
		.headers = h->headers,
		.nr_headers = h->nr_headers,
		.payload = is_put(j) ? j->digest : DIGEST_OF_NOTHING,
		.time = h->time,
		.region = s->conf.region,
		.access_key = s->conf.access_key,
		.secret_key = s->conf.secret_key,
	};
	int r = s3_sign(&to_sign, &signature);

	headers_release(&j->headers);
	for (size_t i = 0; i < h->nr_headers && r == 0; i++)
		r = append_header(&j->headers, h->headers[i].name, h->headers[i].value);
	if (r == 0)
		r = append_header(&j->headers, "Authorization", (char *)signature.data);
	if (r == 0)
		r = append_header(&j->headers, "Accept", "");
	if (r == 0 && is_put(j))
		r = append_header(&j->headers, "Content-Type", "application/octet-stream");
	j->generation = s->generation;
	return r;
}

/* Close-on-exec: programs that the daemon starts do not inherit the socket. */
static curl_socket_t open_socket(void *userdata _unused_, curlsocktype purpose _unused_, struct curl_sockaddr *a)
{
	return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static void set_options(struct tier_s3 *s, struct job *j, const char *url, const char *method)
{
	CURL *e = j->easy;

	curl_easy_setopt(e, CURLOPT_PRIVATE, j);
	curl_easy_setopt(e, CURLOPT_URL, url);
	curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, j->headers);
	curl_easy_setopt(e, CURLOPT_USERAGENT, "ckptfs/" CKPTFS_VERSION);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L); /* the thread blocks all signals */
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, j->error);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1024L);
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)s->stall_s);
	curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 512L << 10);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, read_header);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, j);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, write_body);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, j);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
	if (s->ca_bundle)
		curl_easy_setopt(e, CURLOPT_CAINFO, s->ca_bundle);
	if (is_put(j)) {
		curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
		curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)j->q->len);
		curl_easy_setopt(e, CURLOPT_READFUNCTION, read_body);
		curl_easy_setopt(e, CURLOPT_READDATA, j);
		curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, seek_body);
		curl_easy_setopt(e, CURLOPT_SEEKDATA, j);
	} else if (j->step == STEP_MARK) {
		curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
	} else {
		curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
	}
}

static int send_request(struct tier_s3 *s, struct job *j)
{
	_cleanup_(buf_release) struct buf url = BUF_EMPTY;
	_cleanup_(http_release) struct http h = { 0 };
	int r = build_request(s, j, &h);

	if (r == 0)
		r = sign_request(s, j, &h);
	if (r < 0)
		return r;
	add_text(&url, s->url);
	add_text(&url, (char *)h.path.data);
	add_text(&url, h.query.len > 1 ? "?" : "");
	buf_add(&url, h.query.data, h.query.len);
	if (buf_error(&url) < 0)
		return -ENOMEM;
	j->sent = j->received = j->expected = 0;
	j->header_bytes = 0;
	j->has_range = j->has_etag = j->is_wrong = j->is_cut = false;
	j->store_time = 0;
	j->seen_mark[0] = j->region[0] = j->error[0] = '\0';
	buf_clear(&j->body);
	j->easy = s->nr_idle > 0 ? s->idle[--s->nr_idle] : curl_easy_init();
	if (!j->easy)
		return -ENOMEM;
	set_options(s, j, (char *)url.data, h.method);
	if (curl_multi_add_handle(s->multi, j->easy) != CURLM_OK) {
		curl_easy_cleanup(TAKE(j->easy));
		return -ENOMEM;
	}
	s->nr_running++;
	return 0;
}

static void job_begin(struct tier_s3 *s, struct job *j)
{
	int r;

	if (j->q->op == TIER_GET && j->step == STEP_REQUEST && j->q->len == 0)
		j->step = STEP_SIZE; /* HTTP has no empty range */
	j->nr_tries++;
	r = send_request(s, j);
	if (r < 0)
		job_fail(s, j, r, "out of memory");
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
		jobs_add(&s->ready, j);
	} else if (m.remedy == S3_REPEAT) {
		j->may_have_created |= status >= 500;
		job_retry(s, j, m.result, why, wait_s);
	} else {
		job_fail(s, j, m.result, why);
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
		job_fail(s, j, -EIO, "the object was deleted during the request");
	else
		handle_error(s, j, status, wait_s);
}

static void handle_get_response(struct tier_s3 *s, struct job *j, long status, curl_off_t wait_s)
{
	size_t expected = j->expected;

	if (status == 200 || status == 206) {
		if (j->received == 0 && !is_right_range(j, status, &expected))
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
			job_fail(s, j, r, strerror(-r));
	}
}

static void handle_response(struct tier_s3 *s, struct job *j, long status, curl_off_t wait_s)
{
	if (j->step == STEP_MARK)
		handle_mark_response(s, j, status, wait_s);
	else if (is_put(j))
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
		 j->header_bytes > HEADER_BYTES_MAX ? "the headers of the response do not end" :
		 j->error[0]			    ? j->error :
						      curl_easy_strerror(code));
	switch (code) {
	case CURLE_OUT_OF_MEMORY:
		job_fail(s, j, -ENOMEM, "out of memory");
		break;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
		job_fail(s, j, -EACCES, why); /* the peer is not the store: send nothing */
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

static void job_finish(struct tier_s3 *s, CURL *easy, CURLcode code)
{
	curl_off_t wait_s = 0;
	struct job *j = NULL;
	long status;

	curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&j);
	curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &wait_s);
	status = status_of(j);
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
			jobs_add(&later, j);
		} else {
			job_begin(s, j);
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
			jobs_add(&s->ready, j);
		}
		s->posted.end = &s->posted.first;
		mutex_unlock(&s->lock);
		wait = begin_due_jobs(s);
		curl_multi_perform(s->multi, &running);
		while ((m = curl_multi_info_read(s->multi, &nr_left)))
			if (m->msg == CURLMSG_DONE) {
				job_finish(s, m->easy_handle, m->data.result);
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
			jobs_add(&s->posted, TAKE(j));
			curl_multi_wakeup(s->multi);
		}
		mutex_unlock(&s->lock);
	}
	if (r == 0)
		return;
	job_free(j);
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
