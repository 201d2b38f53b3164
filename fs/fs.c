#include "fs/fs.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "fs/aggregator.h"
#include "fs/attr.h"
#include "fs/attr_cache.h"
#include "fs/autoseal.h"
#include "fs/collect.h"
#include "fs/compactor.h"
#include "fs/control.h"
#include "fs/inode.h"
#include "fs/inquiry.h"
#include "fs/namespace.h"
#include "fs/nodes.h"
#include "fs/options.h"
#include "fs/protect.h"
#include "fs/scrubber.h"
#include "fs/seal.h"
#include "fs/series.h"
#include "fs/stripes.h"
#include "fs/view.h"

static void fs_free(struct fs *fs)
{
	if (!fs)
		return;
	aggregator_free(fs->aggregator);
	protect_free(fs->protect);
	stripes_free(fs->stripes);
	inodes_free(fs->inodes);
	attr_cache_free(fs->attrs);
	collect_free(fs->collect);
	scrubber_free(fs->scrubber);
	compactor_free(fs->compactor);
	inquiries_free(fs->inquiries);
	series_free(fs->series);
	control_free(fs->control);
	view_free(fs->view);
	mutex_release(&fs->handles_lock);
	rwlock_release(&fs->names);
	free(fs);
}

static void fs_freep(struct fs **fs)
{
	fs_free(*fs);
}

int fs_open(struct engine *e, const struct options *o, struct cluster *cluster, struct fs **ret)
{
	_cleanup_(fs_freep) struct fs *fs = calloc(1, sizeof(*fs));
	int r;

	if (!fs)
		return -ENOMEM;
	rwlock_init(&fs->names);
	mutex_init(&fs->handles_lock);
	fs->engine = e;
	fs->db = engine_db(e);
	fs->key = engine_key(e);
	fs->cluster = cluster;
	fs->read_only = o->engine.read_only;
	fs->noatime = o->noatime;
	fs->sync = o->sync;
	r = inodes_new(e, &fs->inodes);
	if (r == 0)
		r = attr_cache_new(&fs->attrs);
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
		r = protect_new(fs, o, &fs->protect);
	if (r == 0)
		r = stripes_new(fs, &fs->stripes);
	if (r == 0)
		r = names_open_root(fs);
	if (r == 0 && !fs->read_only)
		r = names_clear_orphans(fs);
	if (r == 0 && !fs->read_only)
		r = seal_take_back_all(fs);
	if (r == 0 && !fs->read_only)
		r = nodes_clear(fs);
	if (r == 0 && !fs->read_only && o->autoseal)
		r = autoseal_new(fs, o->autoseal, &fs->autoseal);
	if (r == 0)
		r = view_new(fs, &fs->view);
	if (r < 0)
		return r;
	*ret = TAKE(fs);
	return 0;
}

void fs_let_go(struct fs *fs, uint64_t holder)
{
	collect_let_go(fs->collect, holder);
	scrubber_let_go(fs->scrubber, holder);
	compactor_let_go(fs->compactor, holder);
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
	aggregator_free(TAKE(fs->aggregator));
	protect_free(TAKE(fs->protect));
	stripes_free(TAKE(fs->stripes));
	collect_free(TAKE(fs->collect)); /* first: a scrub may wait for it, and for the next */
	compactor_free(TAKE(fs->compactor));
	scrubber_free(TAKE(fs->scrubber));
	inquiries_free(TAKE(fs->inquiries));
	r = names_finish_all(fs);
	if (r < 0)
		log_errno(r, "store: read times and files without a name could not be written off");
	last = engine_close(fs->engine);
	fs_free(fs);
	return last < 0 ? last : r;
}
