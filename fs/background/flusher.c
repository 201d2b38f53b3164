/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The thread of the flusher, and the interface for other threads. */
#include "fs/background/flusher.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/background/flush_note.h"
#include "fs/background/flush_queue.h"
#include "fs/background/flusher_state.h"
#include "fs/fs.h"
#include "index/namespace_table.h"
#include "store/engine.h"
#include "store/tier/tier_worker.h"

#define CHECK_NS (60 * NS_PER_S) /* between reads of the log of an idle tier */
#define CHECK_AGAIN_NS NS_PER_S /* if users request them */
#define HUNG_NS (30 * NS_PER_S) /* without an answer, until this is reported */
/* Memory per known chunk (tier_flush.h): 110 in the table, 16 of filters, and 16 while half of them become a run. */
#define SLOT_BYTES_MAX 142u

bool flusher_is_running(void *userdata)
{
	struct flusher *f = userdata;
	bool stop;

	mutex_lock(&f->lock);
	stop = f->stop;
	mutex_unlock(&f->lock);
	return !stop;
}

void flusher_set_state(struct flusher *f, enum flusher_state state, int error, const char *reason)
{
	mutex_lock(&f->lock);
	f->status.state = state;
	f->status.error = error;
	snprintf(f->status.reason, sizeof(f->status.reason), "%s", reason);
	mutex_unlock(&f->lock);
}

void flusher_wait_until(struct flusher *f, uint64_t until)
{
	uint64_t now = monotonic_ns();

	mutex_lock(&f->lock);
	while (!f->stop && now < until && f->nr_seen == f->nr_changes &&
	       (!f->worker || f->check_seen == f->check_wanted)) {
		cond_wait_for(&f->changed, &f->lock, until - now);
		now = monotonic_ns();
	}
	mutex_unlock(&f->lock);
}

/* --- the thread --- */

/* false: none is due before *ret_due. */
static bool take_next(struct flusher *f, struct flush_seal *ret, uint64_t *ret_due)
{
	bool any;

	mutex_lock(&f->lock);
	any = flush_queue_take(&f->queue, monotonic_ns(), ret, ret_due);
	mutex_unlock(&f->lock);
	return any;
}

/* When the log of the tier is to be read next. */
static uint64_t next_check_ns(struct flusher *f)
{
	bool is_wanted;

	mutex_lock(&f->lock);
	f->check_seen = f->check_wanted;
	is_wanted = f->check_wanted > f->check_done;
	mutex_unlock(&f->lock);
	return f->checked_ns + (is_wanted ? CHECK_AGAIN_NS : CHECK_NS);
}

static void *work(void *userdata)
{
	struct flusher *f = userdata;
	struct flush_seal next;
	uint64_t due, check;

	pthread_setname_np(pthread_self(), "ckptfs-flush");
	while (flusher_is_running(f)) {
		int r = flusher_update_own_seals(f);

		if (r == 0 && !f->worker && flusher_connect(f) == 0)
			continue;
		if (r < 0) {
			flusher_retry(f, r, "cannot list the sealed directories", NULL, strerror(-r));
		} else if (take_next(f, &next, &due)) {
			flusher_flush_seal(f, &next);
		} else {
			f->delay_ns = 0;
			flusher_set_state(f, FLUSHER_IDLE, 0, "");
			check = next_check_ns(f);
			if (check <= monotonic_ns())
				flusher_check_tier(f);
			else
				flusher_wait_until(f, MIN(due, check));
		}
	}
	flusher_disconnect(f);
	return NULL;
}

/* --- interface --- */

int flusher_new(struct fs *fs, const struct flusher_conf *conf, struct flusher **ret)
{
	struct flusher *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	mutex_init(&f->lock);
	cond_init(&f->changed);
	f->fs = fs;
	f->conf = *conf;
	f->url = strdup(conf->url);
	f->conf.url = f->url;
	f->config_file = conf->config_file ? strdup(conf->config_file) : NULL;
	r = f->url && !f->config_file == !conf->config_file ? 0 : -ENOMEM;
	tier_key_init(&f->writer.key, fs->key->kind, engine_secret(fs->engine));
	memcpy(f->writer.store, engine_store_id(fs->engine), sizeof(f->writer.store));
	f->writer.known_max = conf->memory / SLOT_BYTES_MAX;
	f->writer.packs_in_flight = conf->parallel;
	f->writer.has_store = true;
	f->writer.store_dirfd = engine_root(fs->engine);
	if (r == 0 && conf->rate > 0)
		r = io_rate_new(conf->rate, &f->rate);
	if (r == 0) {
		r = flush_note_load(fs->engine, &f->note);
		f->has_note = r > 0;
		r = MIN(r, 0);
	}
	if (r < 0) {
		flusher_free(f);
		return r;
	}
	*ret = f;
	return 0;
}

int flusher_start(struct flusher *f)
{
	int r;

	if (!f)
		return 0;
	r = -pthread_create(&f->thread, NULL, work, f);
	f->has_thread = r == 0;
	return r;
}

/* Reports the checkpoints that are not in the tier. The next mount flushes them. */
static void report_unflushed(struct flusher *f)
{
	struct flusher_status s;

	flusher_status(f, &s);
	if (s.nr_sealed > s.nr_in_tier)
		log_notice("tier %s: not%s flushed: %" PRIu64 " of %s%s%s", f->url, s.is_known ? "" : " known to be",
			   s.nr_sealed - s.nr_in_tier, human_nr(s.nr_sealed, "sealed checkpoint").s,
			   s.reason[0] ? ": " : "", s.reason);
}

bool flusher_stop(struct flusher *f)
{
	if (!f || !f->has_thread)
		return !f || !f->left_behind;
	report_unflushed(f);
	mutex_lock(&f->lock);
	f->stop = true;
	if (f->worker)
		tier_worker_cancel(f->worker);
	cond_broadcast(&f->changed);
	mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	f->has_thread = false;
	if (f->left_behind)
		log_warning("tier %s: does not answer; requests in flight are repeated after the next mount", f->url);
	return !f->left_behind;
}

void flusher_free(struct flusher *f)
{
	if (!f)
		return;
	flusher_stop(f);
	io_rate_free(f->rate);
	cond_release(&f->changed);
	mutex_release(&f->lock);
	flush_queue_release(&f->queue);
	free(f->url);
	free(f->config_file);
	free(f);
}

void flusher_wake(struct flusher *f)
{
	if (!f)
		return;
	mutex_lock(&f->lock);
	f->nr_changes++;
	cond_broadcast(&f->changed);
	mutex_unlock(&f->lock);
}

const char *flusher_where(const struct flusher *f)
{
	return f->url;
}

const char *flusher_state_name(enum flusher_state state)
{
	static const char *const names[] = {
		[FLUSHER_CONNECTING] = "connecting", [FLUSHER_IDLE] = "idle",	    [FLUSHER_FLUSHING] = "flushing",
		[FLUSHER_RETRYING] = "retrying",     [FLUSHER_STOPPED] = "stopped",
	};

	return names[state];
}

/* At the mean rate since the mount; 0: unknown. */
static uint64_t estimate_ns(const struct flusher *f, uint64_t bytes) REQUIRES(f->lock)
{
	uint64_t done = f->done_bytes + (f->queue.current > 0 ? f->queue.current_bytes : 0);
	uint64_t ns = f->done_ns + (f->queue.current > 0 ? monotonic_ns() - f->begun_ns : 0);

	return done > 0 ? (uint64_t)((double)bytes * (double)ns / (double)done) : 0;
}

void flusher_status(struct flusher *f, struct flusher_status *ret)
{
	uint64_t waits = 0;
	bool is_current;

	*ret = (struct flusher_status){ 0 };
	if (!f)
		return;
	mutex_lock(&f->lock);
	is_current = f->nr_listed == f->nr_changes;
	mutex_unlock(&f->lock);
	if (!is_current)
		(void)flusher_update_seals(
			f, NULL); /* the thread does not do this during a flush; on failure the previous list is reported */
	mutex_lock(&f->lock);
	*ret = f->status;
	ret->nr_sealed = f->queue.nr;
	for (size_t i = 0; i < f->queue.nr; i++) {
		const struct flush_seal *s = &f->queue.v[i];
		uint64_t since = (uint64_t)MAX(s->sealed_ns, INT64_C(1));

		ret->nr_dropped += s->is_away;
		if (s->is_removed) {
			ret->nr_sealed--;
			continue;
		}
		ret->nr_in_tier += s->is_in_tier;
		ret->waiting_bytes += flush_queue_bytes_left(&f->queue, s);
		if (!s->is_in_tier)
			ret->waiting_since_ns =
				MIN(ret->waiting_since_ns > 0 ? ret->waiting_since_ns : UINT64_MAX, since);
		if (s->error < 0 && ret->error == 0) {
			ret->error = s->error;
			snprintf(ret->reason, sizeof(ret->reason), "directory %" PRIu64 ": cannot flush: %s", s->ino,
				 strerror(-s->error));
		}
	}
	ret->left_ns = estimate_ns(f, ret->waiting_bytes);
	if (f->worker)
		waits = tier_worker_waits_ns(f->worker);
	mutex_unlock(&f->lock);
	if (waits >= HUNG_NS)
		snprintf(ret->reason, sizeof(ret->reason), "the tier has not answered for %" PRIu64 " s",
			 waits / NS_PER_S);
}

bool flusher_check(struct flusher *f, uint64_t *check)
{
	bool is_awaited;

	mutex_lock(&f->lock);
	*check = MIN(*check, f->check_begun + 1); /* one that begins after this request */
	is_awaited = *check > f->check_done && f->status.state == FLUSHER_IDLE;
	if (is_awaited && *check > f->check_wanted) {
		f->check_wanted = *check;
		cond_broadcast(&f->changed);
	}
	mutex_unlock(&f->lock);
	return is_awaited;
}

int flusher_find(struct flusher *f, uint64_t ino, struct flusher_checkpoint *ret)
{
	struct flusher_checkpoint c = { 0 };
	struct ns_seal seal;
	const struct flush_seal *s;
	int r = ns_get_seal(f->fs->db, ino, &seal);

	if (r <= 0 || !seal.is_complete)
		return r < 0 ? r : -ENODATA;
	c.bytes = seal.bytes;
	mutex_lock(&f->lock);
	s = flush_queue_find(&f->queue, ino);
	if (s && s->sealed_ns == seal.sealed_ns) { /* else not listed yet */
		c.is_in_tier = s->is_in_tier;
		c.is_removed = s->is_removed;
		c.error = s->error;
		c.flushed_bytes = s->bytes - flush_queue_bytes_left(&f->queue, s);
		c.left_ns = estimate_ns(f, flush_queue_bytes_until(&f->queue, s));
	}
	mutex_unlock(&f->lock);
	*ret = c;
	return 0;
}
