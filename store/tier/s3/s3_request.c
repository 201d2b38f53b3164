/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A job as HTTP request. Bodies are signed with their digest, which the store checks: it refuses a body that was damaged
 * on the way. The range and the length of each response are compared with the request.
 *
 * libcurl repeats a request by itself if a reused connection turns out to be closed. It rewinds the body to do so, which
 * seek_body() detects. An empty body is not rewound, so its mark (s3_outcome.c) is always read.
 */
#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#include "base/buf.h"
#include "base/util.h"
#include "store/tier/s3/s3_response.h"
#include "store/tier/s3/s3_sign.h"
#include "store/tier/s3/s3_state.h"

#define CONNECT_S 10L
#define ERROR_MAX ((size_t)64 << 10) /* of an error response; the rest is not received */
#define LIST_MAX ((size_t)8 << 20) /* 1000 encoded keys of 3 KiB, with their attributes */
#define HEADERS_MAX 8u
#define DIGEST_OF_NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

long s3_status(const struct job *j)
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
	if (j->header_bytes > S3_HEADERS_MAX)
		return 0;
	if (len > 5 && memcmp(p, "HTTP/", 5) == 0) { /* after an interim response, discard its headers */
		j->has_range = j->has_etag = false;
		j->seen_mark[0] = j->region[0] = '\0';
	}
	if (is_header(p, len, "content-range", &value, &value_len))
		j->has_range = s3_range_parse(value, value_len, &j->range) == 0;
	else if (is_header(p, len, "etag", &value, &value_len))
		j->has_etag = value_len > 0;
	else if (is_header(p, len, S3_MARK, &value, &value_len))
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

bool s3_is_right_range(struct job *j, long status, size_t *ret_len)
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
	long status = s3_status(j);

	if (j->q->op == TIER_GET && (status == 200 || status == 206)) {
		if (j->received == 0 && !s3_is_right_range(j, status, &j->expected))
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
	return s3_is_put(j) ? "PUT" : j->q->op == TIER_DELETE ? "DELETE" : "GET";
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
	if (s3_is_put(j) && j->q->op == TIER_PUT_NEW)
		add_header(h, "if-none-match", "*");
	if (j->q->op == TIER_GET) {
		if (j->step == STEP_SIZE)
			snprintf(h->range, sizeof(h->range), "bytes=0-0");
		else
			snprintf(h->range, sizeof(h->range), "bytes=%" PRIu64 "-%" PRIu64, j->q->off,
				 j->q->off + j->q->len - 1);
		add_header(h, "range", h->range);
	}
	add_header(h, "x-amz-content-sha256", s3_is_put(j) ? j->digest : DIGEST_OF_NOTHING);
	add_header(h, "x-amz-date", h->time);
	if (s3_is_put(j) && j->q->op == TIER_PUT_NEW)
		add_header(h, S3_MARK, j->mark);
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
		.payload = s3_is_put(j) ? j->digest : DIGEST_OF_NOTHING,
		.time = h->time,
		.region = s->conf.region,
		.access_key = s->conf.access_key,
		.secret_key = s->conf.secret_key,
	};
	int r = s3_sign(&to_sign, &signature);

	s3_headers_release(&j->headers);
	for (size_t i = 0; i < h->nr_headers && r == 0; i++)
		r = append_header(&j->headers, h->headers[i].name, h->headers[i].value);
	if (r == 0)
		r = append_header(&j->headers, "Authorization", (char *)signature.data);
	if (r == 0)
		r = append_header(&j->headers, "Accept", "");
	if (r == 0 && s3_is_put(j))
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
	if (s3_is_put(j)) {
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

void s3_job_begin(struct tier_s3 *s, struct job *j)
{
	int r;

	if (j->q->op == TIER_GET && j->step == STEP_REQUEST && j->q->len == 0)
		j->step = STEP_SIZE; /* HTTP has no empty range */
	j->nr_tries++;
	r = send_request(s, j);
	if (r < 0)
		s3_job_fail(s, j, r, "out of memory");
}
