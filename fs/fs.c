/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/fs.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "fs/away/dropped.h"
#include "fs/background/autocompact.h"
#include "fs/posix/attr.h"
#include "fs/posix/attr_cache.h"
#include "fs/seal/autoseal.h"
#include "fs/seal/dir_names.h"
#include "fs/background/collect.h"
#include "fs/background/compactor.h"
#include "fs/background/flusher.h"
#include "fs/cluster_hooks.h"
#include "fs/control/control.h"
#include "fs/control/delta.h"
#include "fs/seal/freeze.h"
#include "fs/posix/inode.h"
#include "fs/control/inquiry.h"
#include "fs/posix/namespace.h"
#include "fs/mount_options.h"
#include "fs/seal/reaper.h"
#include "fs/background/scrubber.h"
#include "fs/seal/seal.h"
#include "fs/posix/series.h"
#include "store/tier/tier_open.h"

static void fs_free(struct fs *fs)
{
	if (!fs)
		return;
	reaper_free(fs->reaper);
	flusher_free(fs->flusher);
	away_free(fs->away);
	aggregator_free(fs->aggregator);
	if (fs->hooks)
		fs->hooks->close(fs);
	inodes_free(fs->inodes);
	attr_cache_free(fs->attrs);
	dir_names_free(fs->dir_names);
	freezes_free(fs->freezes);
	collect_free(fs->collect);
	scrubber_free(fs->scrubber);
	compactor_free(fs->compactor);
	inquiries_free(fs->inquiries);
	series_free(fs->series);
	control_free(fs->control);
	if (fs->hooks)
		fs->hooks->free_view(fs);
	mutex_release(&fs->handles_lock);
	mutex_release(&fs->open_files_lock);
	cond_release(&fs->delta_tables_freed);
	mutex_release(&fs->delta_tables_lock);
	mutex_release(&fs->remount_lock);
	mutex_release(&fs->seal_steps);
	rwlock_release(&fs->names);
	free(fs);
}

static void fs_freep(struct fs **fs)
{
	fs_free(*fs);
}

static int open_flusher(struct fs *fs, const struct options *o)
{
	const struct flusher_conf conf = {
		.url = o->tier,
		.config_file = o->tier_config,
		.rate = o->tier_rate,
		.parallel = (unsigned)o->tier_parallel,
		.memory = o->tier_cache,
		.takes_over = o->tier_takeover,
	};
	int r;

	if (!o->tier)
		return 0;
	if (fs->read_only)
		return log_errno(
			-EINVAL,
			"option tier: not supported for a read-only mount, since flushing writes a note to the store");
	r = tier_conf_check(o->tier, &(struct tier_conf){ .config_file = o->tier_config });
	if (r == 0)
		r = away_new(fs, o, &fs->away);
	return r < 0 ? r : flusher_new(fs, &conf, &fs->flusher);
}

int fs_open(struct engine *e, const struct options *o, struct cluster *cluster, struct fs **ret)
{
	_cleanup_(fs_freep) struct fs *fs = calloc(1, sizeof(*fs));
	int r;

	if (!fs)
		return -ENOMEM;
	rwlock_init(&fs->names);
	mutex_init(&fs->handles_lock);
	mutex_init(&fs->open_files_lock);
	mutex_init(&fs->delta_tables_lock);
	cond_init(&fs->delta_tables_freed);
	fs->delta_tables_max = MIN(o->engine.dirty / 2, DELTA_TABLES_MAX);
	mutex_init(&fs->remount_lock);
	mutex_init(&fs->seal_steps);
	fs->engine = e;
	fs->db = engine_db(e);
	fs->key = engine_key(e);
	fs->hooks = engine_is_in_cluster(e) ? cluster_hooks() : NULL;
	fs->cluster = cluster;
	fs->opened_read_only = o->engine.read_only;
	fs->read_only = o->engine.read_only;
	fs->noatime = o->noatime;
	fs->nodiratime = o->nodiratime;
	fs->sync = o->sync;
	fs->writeback = o->writeback && !fs->read_only;
	r = inodes_new(e, &fs->inodes);
	if (r == 0)
		r = freezes_new(&fs->freezes);
	if (r == 0)
		r = attr_cache_new(&fs->attrs);
	if (r == 0)
		r = dir_names_new(&fs->dir_names);
	if (r == 0)
		r = series_new(&fs->series);
	if (r == 0)
		r = control_new(o, &fs->control);
	if (r == 0)
		r = collect_new(fs, &fs->collect);
	if (r == 0)
		r = scrubber_new(e, &fs->scrubber);
	if (r == 0)
		r = compactor_new(e, &fs->compactor);
	if (r == 0 && !fs->read_only && o->compact == AGGREGATOR_AUTO)
		r = aggregator_new(fs, o->compact_budget, o->compact_names, &fs->aggregator);
	if (r == 0)
		r = inquiries_new(e, &fs->inquiries);
	if (r == 0)
		r = names_open_root(fs);
	if (r == 0 && !fs->read_only)
		r = names_clear_orphans(fs);
	if (r == 0)
		r = seal_take_back_all(fs);
	if (r == 0 && !fs->read_only)
		away_finish_all(fs);
	if (r == 0 && fs->hooks)
		r = fs->hooks->open(fs, o);
	if (r == 0 && !fs->read_only && o->autoseal)
		r = autoseal_new(fs, o->autoseal, &fs->autoseal);
	if (r == 0 && !fs->read_only)
		r = reaper_new(fs, &fs->reaper);
	if (r == 0)
		r = open_flusher(fs, o);
	if (r < 0)
		return r;
	*ret = TAKE(fs);
	return 0;
}

static bool is_rewriting(struct fs *fs)
{
	struct collect_status s;

	collect_status(fs->collect, &s);
	return s.task.running || compactor_is_running(fs->compactor);
}

static void become_writable(struct fs *fs)
{
	engine_set_read_only(fs->engine, false);
	fs->read_only = false;
	aggregator_go_on(fs->aggregator);
	reaper_wake(fs->reaper);
}

/* Refuse changes first, then make durable what was accepted before. Background recoding stops soon after
 * aggregator_step_aside(); until then this fails with -EBUSY. */
static int become_read_only(struct fs *fs)
{
	int r = 0;

	aggregator_step_aside(fs->aggregator);
	fs->read_only = true;
	if (is_rewriting(fs))
		r = -EBUSY;
	if (r == 0) {
		engine_set_read_only(fs->engine, true);
		r = engine_sync(fs->engine);
	}
	if (r < 0)
		become_writable(fs);
	return r;
}

int fs_set_flags(struct fs *fs, bool read_only, bool noatime)
{
	int r = 0;

	mutex_lock(&fs->remount_lock);
	if (fs->opened_read_only)
		r = read_only ? 0 : -EROFS;
	else if (read_only && !fs->read_only)
		r = become_read_only(fs);
	else if (!read_only && fs->read_only)
		become_writable(fs);
	if (r == 0)
		fs->noatime = noatime;
	mutex_unlock(&fs->remount_lock);
	return r;
}

void fs_release_holder(struct fs *fs, uint64_t holder)
{
	collect_release_holder(fs->collect, holder);
	scrubber_release_holder(fs->scrubber, holder);
	compactor_release_holder(fs->compactor, holder);
}

bool fs_is_in_view(struct fs *fs, uint64_t dir, const char *name)
{
	return fs->hooks && fs->hooks->has_name(fs, dir, name);
}

int fs_apply(struct fs *fs, struct engine_tx *tx)
{
	int r = engine_tx_apply(fs->engine, tx);

	if (r < 0)
		attr_cache_clear(fs->attrs);
	return r;
}

int fs_close(struct fs *fs)
{
	int r, last;

	if (!fs)
		return 0;
	autoseal_free(TAKE(fs->autoseal));
	flusher_free(TAKE(fs->flusher));
	away_free(TAKE(fs->away));
	aggregator_free(TAKE(fs->aggregator));
	if (fs->hooks)
		fs->hooks->close(fs);
	collect_free(TAKE(fs->collect)); /* before the scrubber, which may wait for this and the next */
	compactor_free(TAKE(fs->compactor));
	scrubber_free(TAKE(fs->scrubber));
	inquiries_free(TAKE(fs->inquiries));
	r = names_finish_all(fs);
	if (r < 0)
		log_errno(r, "store: cannot record access times and removals of unnamed files");
	reaper_free(TAKE(fs->reaper)); /* after that: large files that were open may be left to it */
	last = engine_close(fs->engine);
	fs_free(fs);
	return last < 0 ? last : r;
}
