/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One open file: its state, and the functions that change it. For the files of store/file alone; content.h has what the
 * other folders of store/ call, engine.h what callers of the store do.
 *
 * `live` is the state that applications see, `logged` the state in the log. Staged bytes and jobs are the difference. A
 * job that ends applies its extents to `logged` and logs them in one step (content_log()), in the order of the writes.
 */
#pragma once

#include <stdatomic.h>

#include "base/mutex.h"
#include "store/engine_state.h"
#include "store/cut_hooks.h"
#include "store/file/content.h"
#include "store/file/extents/segment.h"
#include "store/log/record_format.h"
#include "store/log/view.h"

struct allocated;
struct champions;
struct db_batch;
struct job;
struct layer;
struct pending_change;
struct run;

struct content {
	struct engine *e;
	uint64_t ino;
	struct content *next;	    /* in its hash bucket: file_table.lock */
	/* From 1 to 0, and up by a thread that has none, under file_table.lock only. */
	_Atomic unsigned refs;
	/* file_table.lock; dirty_at: the pointer that links to it, NULL if not on the list */
	struct content *next_dirty, **dirty_at;
	struct content *prev_staged, *next_staged; /* file_table.lock */

	/* Held while edges of a partly written page or chunk are read, and while content is cut; also for look-ups of
	 * recipes in the index, for a removed file those of 16 MiB or of some hundred MiB at a time (erase.c). */
	struct mutex lock;
	struct cond drained;
	struct ns_content live GUARDED_BY(lock);   /* state seen by applications, except `mapped` */
	struct ns_content logged GUARDED_BY(lock); /* state in the log; changes under view_lock too */
	/* Times before the first change since they were last set: see content_restore_times(). */
	int64_t set_mtime_ns, set_ctime_ns GUARDED_BY(lock);
	bool times_changed GUARDED_BY(lock);
	/* `logged` or a segment differs from the view; on the dirty list */
	bool dirty GUARDED_BY(lock);
	bool in_view GUARDED_BY(lock);		   /* RocksDB has an entry for it, and possibly segments */
	bool dropped GUARDED_BY(lock);
	bool is_away_known GUARDED_BY(lock);
	_Atomic bool is_away; /* its bytes are in a tier alone; changed under the lock */
	struct segment_tree segments GUARDED_BY(lock); /* segments in memory: all dirty ones and some clean ones */
	/* logged changes not yet applied to the segments, oldest first (pending_changes.c) */
	struct pending_change *pending GUARDED_BY(lock);
	uint64_t made_from GUARDED_BY(lock); /* the file it was cloned from at creation; 0: none */
	/* all segments, built while no change is pending; NULL: not built, or changed since */
	struct run *run GUARDED_BY(lock);
	size_t nr_segments, nr_clean GUARDED_BY(lock); /* in the tree; of these, equal to the view */
	struct job *jobs, **jobs_end GUARDED_BY(lock); /* in the order written */
	/* page boundaries of recent writes; dropped with the last reference */
	struct grid grid GUARDED_BY(lock);
	/* Staging: one contiguous range of fresh bytes. */
	struct engine_buffer *stage GUARDED_BY(lock);
	bool stage_is_cut;		  /* chunked by content: recut.c */
	/* file offset of stage->data[0]; page-aligned unless chunked by content */
	uint64_t stage_base;
	uint32_t stage_start, stage_end;  /* range of new bytes in it */
	int64_t stage_time_ns;
	int error GUARDED_BY(lock); /* last error that occurred after write() had returned */
	uint64_t nr_errors, nr_errors_reported GUARDED_BY(lock);
	_Atomic uint64_t promised, spent; /* reserved space: not written yet; the next job takes it (reservation.c) */
	struct allocated *allocated GUARDED_BY(lock); /* ranges with reserved space; NULL: none, `promised` is 0 */
	struct compress compress GUARDED_BY(lock);
	_Atomic bool by_content; /* new bytes are chunked by content; changed under the lock */
	_Atomic bool is_auto; /* chunking=auto: pages, with a search for moved ones; changed under the lock */
	struct champions *champions; /* its previous versions (store/dedup); constant */
	uint64_t nr_submitted, nr_finished GUARDED_BY(lock); /* total numbers of jobs */
	struct engine_waiter *waiters GUARDED_BY(lock); /* waiting for jobs to finish, then for a commit */
	int load_error GUARDED_BY(lock); /* error reading its record */
	uint64_t log_end GUARDED_BY(lock); /* log position after this content's last record */
	/* Range without holes, found by the last SEEK_HOLE, when log_end was `as_of`. */
	struct {
		uint64_t as_of, start, end;
		bool is_whole; /* a hole follows, or the end of the file */
	} data_run GUARDED_BY(lock);
};

int content_lookup(struct engine *e, uint64_t ino, struct content **ret); /* 1: in memory (referenced), 0: not */
/* A settled segment (segment_settle()). */
int content_segment(struct content *c, uint64_t number, bool make, struct segment **ret) REQUIRES(c->lock);
/* A new segment, not in a tree, that shares all extents of segment `number`; 0: it has none. */
int segment_shared(struct content *from, uint64_t number, struct segment **ret) REQUIRES(from->lock);
/* Add a segment made by segment_shared(); its number must be free. */
void content_add_segment(struct content *c, struct segment *s) REQUIRES(c->lock);
/* Add a segment that shares these layers. They are already counted as mapped. -ENOMEM */
int content_add_layers(struct content *c, uint64_t number, struct layer *l) REQUIRES(c->lock);
void content_forget_run(struct content *c);
void segment_free(struct engine *e, struct segment *s); /* not in a tree */
/* Apply `rp` to the logged state, when it is logged or replayed. */
int content_apply(struct content *c, const struct replace *rp) REQUIRES(c->lock);
/* content_apply() in two parts: the extents only ... */
int content_apply_extents(struct content *c, const struct replace *rp) REQUIRES(c->lock);
void content_is_changed(struct content *c, const struct replace *rp) REQUIRES(c->lock); /* ... then size and times */
void content_forget(struct content *c) REQUIRES(c->lock); /* drop: all segments, size 0 */
/* Remove bytes from the file, for erase.c: segments [from, to) in memory, and this many that are in the view only. */
void content_free_segments(struct content *c, uint64_t from, uint64_t to) REQUIRES(c->lock);
void content_unmap(struct content *c, uint64_t bytes) REQUIRES(c->lock);
/* Apply and log in one step; every change of bytes ends here. Needs view_lock shared. Out of memory, some or none of
 * the changes may be done. */
int content_log(struct content *c, const struct replace *rp, size_t nr) REQUIRES(c->lock);
/* call before times change: see content_restore_times() */
void content_note_times(struct content *c) REQUIRES(c->lock);
/* Return holding view_lock shared and c->lock, with nothing staged and no job of c under way. */
void content_lock_quiet(struct content *c) ACQUIRE(c->lock) ACQUIRE_SHARED(view_lock);
void content_unlock_quiet(struct content *c) RELEASE(c->lock) RELEASE_SHARED(view_lock);
/* Make a job of the staged bytes. May drop and retake the lock. The job is queued or done or, with `remaining`, left to
 * the caller; earlier data is queued. */
int stage_flush(struct content *c, struct job **remaining) REQUIRES(c->lock);
void content_failed(struct content *c, int r) REQUIRES(c->lock); /* data is lost: flush and sync will report it */
void jobs_wait(struct content *c) REQUIRES(c->lock); /* waits for at least one to finish; drops and retakes the lock */
/* Wait until no job of c overlaps the range. May drop and retake the lock. */
void jobs_wait_range(struct content *c, uint64_t off, uint64_t len) REQUIRES(c->lock);
/* The extents of [off, off+len), at most a segment plus 1 MiB, with offsets relative to off. */
int content_extents(struct content *c, uint64_t off, uint64_t len, struct extent_list *ret) REQUIRES(c->lock);
/*
 * Skip a hole: *ret is the start of the first segment with data at or after `off`, or `end`; `off` itself if its own
 * segment has data. Takes one index lookup, whatever the length of the hole. Loops over a file call this where a
 * segment has no extents, so that a large sparse file costs no time.
 */
int content_hole_end(struct content *c, uint64_t off, uint64_t end, uint64_t *ret) REQUIRES(c->lock);
int content_next_segment(struct content *c, uint64_t from, uint64_t *ret) REQUIRES(c->lock);
void content_free_clean_segments(struct content *c) REQUIRES(c->lock); /* frees memory */

/* Update the accounting of a segment after every change: its own memory (layers are counted separately) and the bytes
 * to be written to the view. */
void segment_count(struct engine *e, struct segment *s);

/* range.c */
int content_erase_range(struct content *c, uint64_t off, uint64_t len, bool keeps_times);

/* away.c */
int content_load_away(struct content *c) REQUIRES(c->lock);

/* file_read.c */
/* Read the logged state only. */
int content_read_logged(struct content *c, void *p, size_t len, uint64_t off) REQUIRES(c->lock);

/* write_back.c */
/* Changes to the view, and the layers added by them. */
struct view_batch {
	struct db_batch *db;
	struct layer **layers; /* referenced; already numbered */
	size_t nr, size;
};
int view_batch_init(struct engine *e, struct view_batch *b);
int view_batch_apply(struct view_batch *b); /* all and empties it, or nothing and keeps it */
void view_batch_release(struct view_batch *b); /* unapplied changes are discarded */
/* Write the dirty parts to the view. They stay dirty until the batch has been applied. */
int content_write_back(struct content *c, struct view_batch *batch) REQUIRES(c->lock);
