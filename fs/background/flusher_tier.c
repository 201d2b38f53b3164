/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The connection of the flusher to the tier. At each connection it compares the last manifest of this store with the
 * note (flush_note.h). If another machine put it, which has a copy of the store or replaces this machine, flushing
 * stops.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/background/flush_note.h"
#include "fs/background/flusher_state.h"
#include "store/tier/tier_open.h"
#include "store/tier/tier_worker.h"

#define FIRST_DELAY_NS NS_PER_S /* doubled after each failure in a row */
#define LAST_DELAY_NS (60 * NS_PER_S)
#define PATIENCE_NS (3 * NS_PER_S) /* for requests in flight at an unmount */

void flusher_disconnect(struct flusher *f)
{
	struct tier_worker *w;
	bool has_ended;

	mutex_lock(&f->lock);
	w = f->worker; /* f->worker stays set, so that a request to stop cancels it */
	mutex_unlock(&f->lock);
	if (!w)
		return;
	has_ended = tier_worker_end(w, PATIENCE_NS);
	mutex_lock(&f->lock);
	f->worker = NULL;
	f->left_behind |= !has_ended;
	flusher_mark_uncompared(f);
	mutex_unlock(&f->lock);
	tier_worker_free(w);
}

void flusher_retry(struct flusher *f, int error, const char *what, const char *path, const char *reason)
{
	uint64_t random = 0, delay;
	char text[FLUSHER_REASON_MAX];
	uint64_t until;

	flusher_disconnect(f);
	if (!flusher_is_running(f))
		return;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		random = monotonic_ns();
	f->delay_ns = f->delay_ns == 0 ? FIRST_DELAY_NS : MIN(2 * f->delay_ns, LAST_DELAY_NS);
	delay = f->delay_ns / 2 + random % (f->delay_ns / 2); /* random, so that nodes do not retry at the same time */
	snprintf(text, sizeof(text), "%s: %s", what, reason);
	log_warning("tier %s: %s: %s; retrying in %.1f s", f->url, path ? path : what, reason, (double)delay / 1e9);
	mutex_lock(&f->lock);
	f->status.nr_failures++;
	mutex_unlock(&f->lock);
	flusher_set_state(f, FLUSHER_RETRYING, error, text);
	until = monotonic_ns() + delay;
	while (flusher_is_running(f) && monotonic_ns() < until) {
		flusher_wait_until(f, until);
		if (flusher_update_own_seals(f) < 0) /* for the statistics */
			sleep(1);
	}
}

void flusher_stop_flushing(struct flusher *f, int error, const char *reason)
{
	flusher_disconnect(f);
	log_error("tier %s: flushing has stopped: %s", f->url, reason);
	flusher_set_state(f, FLUSHER_STOPPED, error, reason);
	while (flusher_is_running(f)) {
		flusher_wait_until(f, UINT64_MAX);
		if (flusher_update_own_seals(f) < 0) /* for the statistics */
			sleep(1);
	}
}

const char flusher_another_machine[] =
	"another machine has flushed to it as this store: it has a copy of the store, or replaces this machine. Unmount one "
	"of them; to continue here, mount once with tier_takeover";

/* Did this machine put the last manifest of this store? 0; -ENOTUNIQ: no. */
static int compare_with_note(struct flusher *f, const struct tier_written *last)
{
	int r = flush_note_compare(f->has_note ? &f->note : NULL, f->url, last);

	if (r == -ENOENT)
		r = last->ino != 0 && flusher_has_seal(f, last->ino, last->sealed_ns) ? 0 : -ENOTUNIQ;
	return r;
}

static int start_worker(struct flusher *f)
{
	struct tier_worker *w;
	int r = tier_worker_new(&(struct tier_worker_conf){ .url = f->url,
							    .config_file = f->config_file,
							    .nr_in_flight = f->conf.parallel,
							    .writer = f->writer },
				&w);

	if (r < 0)
		return r;
	f->repeated_bytes = 0;
	mutex_lock(&f->lock);
	f->worker = w;
	if (f->stop)
		tier_worker_cancel(w);
	mutex_unlock(&f->lock);
	return 0;
}

int flusher_connect(struct flusher *f)
{
	char reason[TIER_PROBE_REASON_MAX] = "";
	struct tier_written last;
	int r = start_worker(f);

	if (r < 0) {
		flusher_retry(f, r, "cannot start a thread", NULL, strerror(-r));
		return 0;
	}
	r = tier_worker_open(f->worker, !f->is_probed, reason);
	if (r == -ECANCELED)
		return 0;
	if (r == -EOPNOTSUPP && !f->is_probed) {
		flusher_stop_flushing(f, r, reason);
		return 0;
	}
	if (r < 0) {
		flusher_retry(f, r, "not usable", NULL, reason);
		return 0;
	}
	f->is_probed = true;
	r = flusher_update_own_seals(f);
	if (r < 0) {
		flusher_retry(f, r, "cannot list the sealed directories", NULL, strerror(-r));
		return 0;
	}
	f->checked_ns = monotonic_ns();
	tier_worker_last(f->worker, &last);
	f->number = last.number;
	r = f->conf.takes_over ? 0 : compare_with_note(f, &last);
	if (r < 0) {
		flusher_stop_flushing(f, r, flusher_another_machine);
		return 0;
	}
	return 1;
}

void flusher_check_tier(struct flusher *f)
{
	uint64_t check;
	int r;

	mutex_lock(&f->lock);
	check = ++f->check_begun;
	mutex_unlock(&f->lock);
	r = tier_worker_follow(f->worker);
	if (r == -ECANCELED)
		return;
	f->checked_ns = monotonic_ns();
	if (tier_worker_has_failed(f->worker)) {
		flusher_disconnect(f); /* the next connection compares everything */
		return;
	}
	if (flusher_update_own_seals(f) < 0)
		return;
	mutex_lock(&f->lock);
	f->check_done = check;
	mutex_unlock(&f->lock);
}
