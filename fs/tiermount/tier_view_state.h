/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The view of a mounted tier. For its files alone:
 *   tier_view.c        the whole, and waiting for threads of the pool
 *   tier_view_names.c  the directories above checkpoints
 *   tier_view_list.c   listing the tier, on a thread of the pool
 *   tier_view_load.c   checkpoints: loading them, on a thread of the pool, and using them
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mutex.h"
#include "fs/tiermount/tier_view.h"
#include "store/tier/collect/tier_log.h"
#include "store/tier/tier.h"
#include "store/tier/tier_read.h"

#define VIEW_BUCKETS 1024u
#define VIEW_OWN ".ckptfs"

enum view_kind { BY_PATH, BY_STORE, BY_NUMBER, NR_KINDS };

struct checkpoint;

struct loaded {
	struct tier_entered e; /* the first member */
	struct tier_reader *reader;
	struct tier_tree *tree;
	struct checkpoint *of;
	uint64_t memory;
	struct loaded *older, *newer; /* by last use */
};

struct checkpoint {
	struct tier_job job; /* loads it */
	struct tier_view *view;
	struct tier_seal seal;
	bool is_gone; /* not in the last list; or its name is that of another one by now, and stays so */
	bool is_shown[NR_KINDS];
	bool is_loading;
	int error; /* of the last attempt to load it */
	unsigned nr_attempts; /* ended */
	struct loaded *loaded; /* NULL: not now */
	unsigned nr_users; /* requests that use it, or wait for it */
	bool has_top;
	struct tier_inode top; /* its directory; without entries */
};

struct dir {
	char *path; /* from the mountpoint; "": the root */
	struct dir *next; /* in its bucket */
	uint32_t number;
	uint64_t listed; /* number of the last list that contains it */
	int64_t newest_ns;
};

struct name {
	uint32_t dir;
	uint64_t node;
	char *name;
};

struct tier_view {
	struct tier *tier; /* constant, like the next three */
	struct tier_pool *pool;
	struct tier_cache *cache;
	struct tier_view_conf conf;
	struct tier_job list_job;
	/* Used by the job only. */
	struct tier_log log;
	bool has_log;
	struct tier_object_name *fences; /* of collections, in the last list; sorted */
	size_t nr_fences, fences_room;
	struct log_limit limit;
	struct mutex lock; /* a leaf */
	struct cond changed;
	bool stop GUARDED_BY(lock);
	struct checkpoint **checkpoints GUARDED_BY(lock); /* numbers are not reused */
	size_t nr_checkpoints GUARDED_BY(lock), checkpoints_room GUARDED_BY(lock);
	struct dir **dirs GUARDED_BY(lock); /* likewise */
	size_t nr_dirs GUARDED_BY(lock), dirs_room GUARDED_BY(lock);
	struct dir *buckets[VIEW_BUCKETS] GUARDED_BY(lock);
	struct name *names GUARDED_BY(lock); /* of the last list, sorted by directory and name */
	size_t nr_names GUARDED_BY(lock), names_room GUARDED_BY(lock);
	struct name **by_offset GUARDED_BY(lock); /* the same, sorted by directory and offset */
	bool has_gone GUARDED_BY(lock); /* some are no longer in the list */
	bool is_changed GUARDED_BY(lock); /* since the names were made */
	size_t nr_listed GUARDED_BY(lock);
	uint64_t list GUARDED_BY(lock); /* number of the last one */
	uint64_t listed_ns GUARDED_BY(lock); /* when the last attempt ended */
	bool is_listing GUARDED_BY(lock);
	uint64_t began_ns GUARDED_BY(lock); /* the current list */
	int list_error GUARDED_BY(lock); /* of the last attempt */
	uint64_t trees GUARDED_BY(lock); /* bytes */
	struct loaded *oldest GUARDED_BY(lock), *newest GUARDED_BY(lock); /* of the trees */
};

/* tier_view.c */
bool view_must_not_wait(const struct tier_waiter *w);
/* Waits for a while. The lock is released meanwhile. */
int view_await_change(struct tier_view *v, const struct tier_waiter *w, uint64_t until_ns) REQUIRES(v->lock);

/* tier_view_names.c. The path of a seal from the mountpoint, without a zero byte. */
void view_path(const struct tier_seal *s, enum view_kind kind, struct buf *ret);
int view_rebuild_names(struct tier_view *v) REQUIRES(v->lock);
void view_clear_names(struct tier_view *v) REQUIRES(v->lock);

/* tier_view_list.c */
void view_run_list(struct tier_job *job);

/* tier_view_load.c. Adds a new checkpoint, which is not shown until view_rebuild_names(). */
int view_add_checkpoint(struct tier_view *v, const struct tier_manifest *m);
void view_loaded_free(struct loaded *l); /* NULL is fine */
