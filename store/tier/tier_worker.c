/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Messages between the two threads:
 *
 *	JOB_OPEN, JOB_FOLLOW, JOB_FLUSH ──▶
 *	                    ◀── WANTS_CATALOG   the caller runs catalog() of the checkpoint, for each record:
 *	RECORD              ──▶
 *	                    ◀── WANTS_CHUNKS    any number of times; the caller runs read() into memory of the worker
 *	CHUNKS              ──▶
 *	                    ◀── WANTS_RECORD    with the result of the record before
 *	CATALOG_END         ──▶
 *	                    ◀── DONE
 *
 * In each direction at most one message is unreceived. The worker does not wait for CHUNKS before it appends the chunks
 * of the record before and sends WANTS_RECORD, so both threads work at the same time. CHUNKS arrives before the next
 * RECORD or CATALOG_END.
 *
 * A cancelled caller sets `is_left` and sends no more messages. From then on the worker does not wait for the caller,
 * and its requests return -ECANCELED. The caller sets `is_left` only while it waits, so never while it reads into
 * memory of the worker. Records are copied, since the memory of the caller is valid only during its call.
 */
#include "store/tier/tier_worker.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_open.h"

enum message {
	NONE,
	JOB_OPEN,
	JOB_FOLLOW,
	JOB_FLUSH,
	RECORD,
	CHUNKS,
	CATALOG_END,
	WANTS_CATALOG,
	WANTS_CHUNKS,
	WANTS_RECORD,
	DONE
};

struct tier_worker {
	struct tier_worker_conf conf; /* constant, as the URL */
	char *url, *config_file;
	pthread_t thread;

	/* Of the worker's thread; the caller may read them after it has received a message. */
	struct tier *tier;
	struct tier_writer *writer;
	struct tier_checkpoint checkpoint; /* its functions exchange messages with the caller */
	char *path; /* of it */
	struct tier_flushed flushed;
	const struct tier_want *wants; /* of WANTS_CHUNKS, constant until CHUNKS */
	size_t nr_wants;
	bool is_reading; /* CHUNKS was not received yet */
	int read_result; /* of CHUNKS */

	struct mutex lock; /* leaf */
	struct cond changed;
	enum message to_worker GUARDED_BY(lock), to_caller GUARDED_BY(lock); /* NONE: not sent, or received */
	int result_to_worker GUARDED_BY(lock), result_to_caller GUARDED_BY(lock); /* of the last message */
	struct buf record GUARDED_BY(lock); /* RECORD */
	bool probe GUARDED_BY(lock); /* JOB_OPEN */
	char reason[TIER_PROBE_REASON_MAX] GUARDED_BY(lock);
	uint64_t cancelled_ns GUARDED_BY(lock); /* monotonic; 0: not cancelled */
	bool is_left GUARDED_BY(lock); /* the caller sends no more messages */
	bool has_ended GUARDED_BY(lock);
	bool is_abandoned GUARDED_BY(lock); /* the thread frees the worker */
	uint64_t waits_since_ns GUARDED_BY(lock); /* monotonic; 0: the caller does not wait */
};

/* --- messages --- */

/* For the worker's thread. NONE: the caller has left. */
static enum message receive_message(struct tier_worker *w, int *ret_result)
{
	enum message m;

	mutex_lock(&w->lock);
	while (w->to_worker == NONE && !w->is_left)
		cond_wait(&w->changed, &w->lock);
	m = w->is_left ? NONE : w->to_worker;
	w->to_worker = NONE;
	*ret_result = w->result_to_worker;
	cond_broadcast(&w->changed);
	mutex_unlock(&w->lock);
	return m;
}

static void send_to_caller(struct tier_worker *w, enum message m, int result)
{
	mutex_lock(&w->lock);
	while (w->to_caller != NONE && !w->is_left)
		cond_wait(&w->changed, &w->lock);
	w->to_caller = m;
	w->result_to_caller = result;
	cond_broadcast(&w->changed);
	mutex_unlock(&w->lock);
}

/* For the caller's thread: sends a message and waits for the next one. NONE: cancelled. */
static enum message exchange_messages(struct tier_worker *w, enum message m, int result, int *ret_result)
{
	enum message answer;

	mutex_lock(&w->lock);
	w->waits_since_ns = monotonic_ns();
	while (w->to_worker != NONE && w->cancelled_ns == 0)
		cond_wait(&w->changed, &w->lock);
	w->to_worker = m;
	w->result_to_worker = result;
	cond_broadcast(&w->changed);
	while (w->to_caller == NONE && w->cancelled_ns == 0)
		cond_wait(&w->changed, &w->lock);
	answer = w->cancelled_ns > 0 ? NONE : w->to_caller;
	w->to_caller = NONE;
	w->is_left |= w->cancelled_ns > 0;
	w->waits_since_ns = 0;
	*ret_result = answer == NONE ? -ECANCELED : w->result_to_caller;
	cond_broadcast(&w->changed);
	mutex_unlock(&w->lock);
	return answer;
}

/* --- the worker's thread --- */

/* Like receive_message(), but stores the result of CHUNKS, and returns the message that follows. */
static enum message receive_next(struct tier_worker *w, int *ret_result)
{
	enum message m = receive_message(w, ret_result);

	if (m != CHUNKS)
		return m;
	w->read_result = *ret_result;
	w->is_reading = false;
	return receive_message(w, ret_result);
}

/* catalog() of the checkpoint, in the worker's thread. */
static int receive_catalog(void *userdata, const struct tier_sink *to)
{
	_cleanup_(buf_release) struct buf record = BUF_EMPTY;
	struct tier_worker *w = userdata;
	enum message m;
	int r = 0, result;

	send_to_caller(w, WANTS_CATALOG, 0);
	while ((m = receive_next(w, &result)) == RECORD) {
		mutex_lock(&w->lock);
		buf_move(&record, &w->record);
		mutex_unlock(&w->lock);
		if (r == 0)
			r = to->put(to->userdata, record.data, record.len);
		buf_release(&record);
		send_to_caller(w, WANTS_RECORD, r);
	}
	return r < 0 ? r : m == CATALOG_END ? result : -ECANCELED;
}

/* read() and await() of the checkpoint, in the worker's thread. */
static int request_chunks(void *userdata, const struct tier_want *wants, size_t nr)
{
	struct tier_worker *w = userdata;

	w->wants = wants;
	w->nr_wants = nr;
	w->is_reading = true;
	send_to_caller(w, WANTS_CHUNKS, 0);
	return 0;
}

static int await_chunks(void *userdata)
{
	struct tier_worker *w = userdata;
	int result;

	if (!w->is_reading)
		return w->read_result;
	w->is_reading = false;
	return receive_message(w, &result) == CHUNKS ? result : -ECANCELED;
}

static int open_tier(struct tier_worker *w, bool probe, char reason[TIER_PROBE_REASON_MAX])
{
	const struct tier_conf conf = { .nr_in_flight = w->conf.nr_in_flight, .config_file = w->config_file };
	const char *what = "cannot open";
	int r = w->conf.open ? w->conf.open(w->url, &w->tier) : tier_open(w->url, &conf, &w->tier);

	reason[0] = '\0';
	if (r == 0 && probe) {
		what = "cannot probe";
		r = tier_probe(w->tier, reason);
	}
	if (r == 0) {
		what = "cannot list manifests";
		r = tier_writer_open(w->tier, &w->conf.writer, &w->writer);
	}
	if (r < 0 && reason[0] == '\0')
		snprintf(reason, TIER_PROBE_REASON_MAX, "%s: %s", what, strerror(-r));
	return r;
}

static void run_open(struct tier_worker *w)
{
	char reason[TIER_PROBE_REASON_MAX];
	bool probe;
	int r;

	mutex_lock(&w->lock);
	probe = w->probe;
	mutex_unlock(&w->lock);
	r = open_tier(w, probe, reason);
	mutex_lock(&w->lock);
	memcpy(w->reason, reason, sizeof(w->reason));
	mutex_unlock(&w->lock);
	send_to_caller(w, DONE, r);
}

/* The caller does not wait for the index. */
static void run_flush(struct tier_worker *w)
{
	send_to_caller(w, DONE, tier_flush(w->writer, &w->checkpoint, &w->flushed));
	tier_writer_save(w->writer); /* changes nothing that the caller reads */
}

static void worker_release(struct tier_worker *w)
{
	tier_writer_close(w->writer);
	tier_close(w->tier);
	buf_release(&w->record);
	cond_release(&w->changed);
	mutex_release(&w->lock);
	free(w->path);
	free(w->url);
	free(w->config_file);
	closep(&w->conf.writer.store_dirfd);
	free(w);
}

static void *work(void *userdata)
{
	struct tier_worker *w = userdata;
	bool is_abandoned;
	enum message m;
	int result;

	pthread_setname_np(pthread_self(), "ckptfs-tier");
	while ((m = receive_message(w, &result)) != NONE) {
		if (m == JOB_OPEN)
			run_open(w);
		else if (m == JOB_FOLLOW)
			send_to_caller(w, DONE, tier_writer_follow(w->writer));
		else if (m == JOB_FLUSH)
			run_flush(w);
	}
	tier_writer_close(TAKE(w->writer)); /* waits for packs in flight */
	tier_close(TAKE(w->tier));
	mutex_lock(&w->lock);
	w->has_ended = true;
	is_abandoned = w->is_abandoned;
	cond_broadcast(&w->changed);
	mutex_unlock(&w->lock);
	if (is_abandoned)
		worker_release(w);
	return NULL;
}

/* --- the caller's thread --- */

int tier_worker_new(const struct tier_worker_conf *conf, struct tier_worker **ret)
{
	struct tier_worker *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->conf = *conf;
	w->conf.writer.store_dirfd = -1;
	w->url = strdup(conf->url);
	w->config_file = conf->config_file ? strdup(conf->config_file) : NULL;
	mutex_init(&w->lock);
	cond_init(&w->changed);
	if (conf->writer.has_store) { /* a worker that is left behind uses it after the store was closed */
		w->conf.writer.store_dirfd = fcntl(conf->writer.store_dirfd, F_DUPFD_CLOEXEC, 0);
		w->conf.writer.has_store = w->conf.writer.store_dirfd >= 0;
	}
	r = w->url && !w->config_file == !conf->config_file ? -pthread_create(&w->thread, NULL, work, w) : -ENOMEM;
	if (r < 0) {
		worker_release(w);
		return r;
	}
	w->conf.url = w->url;
	w->conf.config_file = w->config_file;
	*ret = w;
	return 0;
}

int tier_worker_open(struct tier_worker *w, bool probe, char reason[TIER_PROBE_REASON_MAX])
{
	int r;

	mutex_lock(&w->lock);
	w->probe = probe;
	mutex_unlock(&w->lock);
	if (exchange_messages(w, JOB_OPEN, 0, &r) == NONE) {
		reason[0] = '\0';
		return r;
	}
	mutex_lock(&w->lock);
	memcpy(reason, w->reason, TIER_PROBE_REASON_MAX);
	mutex_unlock(&w->lock);
	return r;
}

void tier_worker_last(const struct tier_worker *w, struct tier_written *ret)
{
	tier_writer_last(w->writer, ret);
}

bool tier_worker_has(const struct tier_worker *w, uint64_t ino, int64_t sealed_ns)
{
	return tier_writer_has(w->writer, ino, sealed_ns);
}

bool tier_worker_was_removed(const struct tier_worker *w, uint64_t ino, int64_t sealed_ns)
{
	return tier_writer_was_removed(w->writer, ino, sealed_ns);
}

int tier_worker_follow(struct tier_worker *w)
{
	int r;

	exchange_messages(w, JOB_FOLLOW, 0, &r);
	return r;
}

uint64_t tier_worker_generation(const struct tier_worker *w)
{
	return tier_writer_generation(w->writer);
}

uint64_t tier_worker_repeated_bytes(const struct tier_worker *w)
{
	return tier_repeated_bytes(w->tier);
}

bool tier_worker_has_failed(const struct tier_worker *w)
{
	return tier_writer_has_failed(w->writer);
}

/* Sends a message, and reads chunks as long as the worker requests them. */
static enum message exchange_and_read(struct tier_worker *w, const struct tier_checkpoint *c, enum message m,
				      int result, int *ret_result)
{
	enum message answer = exchange_messages(w, m, result, ret_result);

	while (answer == WANTS_CHUNKS)
		answer = exchange_messages(w, CHUNKS, c->read(c->userdata, w->wants, w->nr_wants), ret_result);
	return answer;
}

struct record_sink {
	struct tier_worker *w;
	const struct tier_checkpoint *c;
};

/* Sink of the catalog, in the caller's thread. */
static int send_record(void *userdata, const void *p, size_t len)
{
	const struct record_sink *g = userdata;
	struct tier_worker *w = g->w;
	int r;

	mutex_lock(&w->lock);
	buf_clear(&w->record);
	buf_add(&w->record, p, len);
	r = buf_error(&w->record);
	mutex_unlock(&w->lock);
	if (r < 0)
		return r;
	exchange_and_read(w, g->c, RECORD, 0, &r);
	return r;
}

int tier_worker_flush(struct tier_worker *w, const struct tier_checkpoint *c, struct tier_flushed *ret)
{
	struct record_sink sink = { w, c };
	char *path = strdup(c->path);
	enum message m;
	int r;

	if (!path)
		return -ENOMEM;
	mutex_lock(&w->lock);
	r = w->is_left ? -ECANCELED : 0;
	mutex_unlock(&w->lock);
	if (r < 0) {
		free(path);
		return r;
	}
	assert(w->writer);
	free(w->path); /* the worker waits for a job */
	w->path = path;
	w->checkpoint = *c;
	w->checkpoint.path = path;
	w->checkpoint.catalog = receive_catalog;
	w->checkpoint.read = request_chunks;
	w->checkpoint.await = await_chunks;
	w->checkpoint.userdata = w;
	m = exchange_messages(w, JOB_FLUSH, 0, &r);
	if (m == WANTS_CATALOG)
		m = exchange_and_read(w, c, CATALOG_END,
				      c->catalog(c->userdata, &(struct tier_sink){ send_record, &sink }), &r);
	if (m == DONE && r == 0)
		*ret = w->flushed;
	return r;
}

void tier_worker_cancel(struct tier_worker *w)
{
	mutex_lock(&w->lock);
	w->cancelled_ns = monotonic_ns();
	cond_broadcast(&w->changed);
	mutex_unlock(&w->lock);
}

uint64_t tier_worker_waits_ns(struct tier_worker *w)
{
	uint64_t since;

	mutex_lock(&w->lock);
	since = w->waits_since_ns;
	mutex_unlock(&w->lock);
	return since > 0 ? monotonic_ns() - since : 0;
}

bool tier_worker_end(struct tier_worker *w, uint64_t patience_ns)
{
	bool has_ended;

	mutex_lock(&w->lock);
	w->is_left = true;
	w->waits_since_ns = monotonic_ns();
	cond_broadcast(&w->changed);
	while (!w->has_ended) {
		uint64_t now = monotonic_ns(), until = w->cancelled_ns + patience_ns;

		if (w->cancelled_ns == 0)
			cond_wait(&w->changed, &w->lock);
		else if (now < until)
			cond_wait_for(&w->changed, &w->lock, until - now);
		else
			break;
	}
	has_ended = w->has_ended;
	mutex_unlock(&w->lock);
	return has_ended;
}

void tier_worker_free(struct tier_worker *w)
{
	bool has_ended;

	if (!w)
		return;
	mutex_lock(&w->lock);
	has_ended = w->has_ended;
	w->is_abandoned = !has_ended;
	if (!has_ended)
		pthread_detach(w->thread); /* before the thread frees the worker */
	mutex_unlock(&w->lock);
	if (has_ended) {
		pthread_join(w->thread, NULL);
		worker_release(w);
	}
}
