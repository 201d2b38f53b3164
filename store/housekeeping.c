/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The background thread: timed commits, writing the view out, absorbing fingerprints into RocksDB, repair, trimming
 * memory, and looking at the free space of the disk for figures. */
#include "store/housekeeping.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/check/repair.h"
#include "store/dedup/absorb.h"
#include "store/dedup/filter.h"
#include "store/file/file_table.h"
#include "store/file/stage.h"
#include "store/journal/journal.h"
#include "store/log/commit.h"
#include "store/log/view.h"
#include "store/space.h"

#define TICK_NS (100 * 1000 * 1000ull)
#define RETRY_NS (5 * 1000 * 1000 * 1000ull) /* after a failure: the disk may be full, do not spin */

struct housekeeper {
	struct mutex lock; /* leaf */
	struct cond cond;
	bool stop GUARDED_BY(lock);
	pthread_t thread;
};

static void commit_by_timer(struct engine *e, uint64_t *last_ns)
{
	uint64_t now = monotonic_ns();

	if (e->conf.commit_s == 0 || now - *last_ns < e->conf.commit_s * 1000 * 1000 * 1000 / 2)
		return;
	*last_ns = now;
	stages_flush_all(e);
	engine_sync_patiently(e); /* logs its failure; retried next time */
	commit_confirm(e);
}

static int tend(struct engine *e)
{
	int r = 0;

	if (e->dirs.frozen) {
		contents_trim(e, files_limit(e));
		return 0;
	}
	if (reserve_is_whole(e)) /* on an almost full disk the reserve has priority over the spare journal segment */
		journal_prepare(e->journal); /* otherwise the commit that fills a file does this and reports failures */
	if (absorb_wanted(e))
		r = absorb(e);
	if (r == 0)
		r = filter_tend(e);
	if (r == 0)
		r = repair_tend(e);
	if (r == 0 && (view_wants_flush(e) || view_wants_snapshot(e)))
		r = view_flush(e, view_wants_snapshot(e));
	absorb_share_memory(e);
	contents_trim(e, files_limit(e));
	space_look_again(e);
	reserve_make(e);
	return r;
}

static void *housekeeper(void *arg)
{
	struct engine *e = arg;
	uint64_t last_commit_ns = monotonic_ns(), not_before_ns = 0;
	bool stop = false;

	pthread_setname_np(pthread_self(), "ckptfs-house");
	while (!stop) {
		space_look(e);
		if (!e->dirs.frozen)
			commit_by_timer(e, &last_commit_ns);
		if (monotonic_ns() >= not_before_ns && tend(e) < 0)
			not_before_ns = monotonic_ns() + RETRY_NS;
		mutex_lock(&e->housekeeper->lock);
		if (!e->housekeeper->stop)
			cond_wait_for(&e->housekeeper->cond, &e->housekeeper->lock, TICK_NS);
		stop = e->housekeeper->stop;
		mutex_unlock(&e->housekeeper->lock);
	}
	return NULL;
}

static void housekeeper_free(struct housekeeper *k)
{
	cond_release(&k->cond);
	mutex_release(&k->lock);
	free(k);
}

int housekeeping_start(struct engine *e)
{
	struct housekeeper *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return -ENOMEM;
	mutex_init(&k->lock);
	cond_init(&k->cond);
	e->housekeeper = k;
	r = pthread_create(&k->thread, NULL, housekeeper, e);
	if (r == 0)
		return 0;
	housekeeper_free(TAKE(e->housekeeper));
	return -r;
}

void housekeeping_stop(struct engine *e)
{
	if (!e->housekeeper)
		return;
	mutex_lock(&e->housekeeper->lock);
	e->housekeeper->stop = true;
	cond_signal(&e->housekeeper->cond);
	mutex_unlock(&e->housekeeper->lock);
	pthread_join(e->housekeeper->thread, NULL);
	housekeeper_free(TAKE(e->housekeeper));
}
