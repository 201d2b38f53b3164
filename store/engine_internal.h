/*
 * State of an open store, shared by the folders of store/. Only they include this header.
 *
 * docs/architecture.md lists the folders; the opening comment of each file describes its part.
 *
 * Lock order (docs/locking.md): view_lock (shared or exclusive), or map_lock of a content > content.lock (two: by
 * inode) > contents_lock, log.lock, append_lock, buffers.lock, queue.lock, heal.lock, pace.lock, scrub.lock. The last
 * eight are leaves except append_lock > locks inside packs and log.lock > RocksDB. gc.lock and referrers.lock, followed
 * by flush_lock, come before all of these; absorb_lock comes before append_lock. Never wait for a job while holding
 * view_lock: the job needs it to finish.
 */
#pragma once

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>

#include "base/cdc.h"
#include "base/epoch.h"
#include "base/mutex.h"
#include "index/fingerprint_filter.h"
#include "index/freed.h"
#include "index/recipes.h"
#include "store/cut_hooks.h"
#include "store/engine.h"
#include "store/dedup/fptable.h"
#include "store/dedup/compress_pace.h"
#include "store/log/record_format.h"
#include "store/file/segment.h"
#include "store/superblock.h"
#include "store/recode/variables.h"
#include "store/pack/pack.h"

struct allocated;
struct buffer_slab;
struct db_batch;
struct fingerprint_entry;
struct gc_window;
struct job;
struct io_rate;
struct db_snapshot;
struct journal;
struct journal_snapshot;
struct later;
struct move;
struct remote_hooks;
struct run;
struct search;
struct shares;
struct shifted_map;

#define NR_WORKERS 3		   /* keeps two cores and the disk busy; more only add context switches */
#define NR_UNWRITTEN_MAX 8	   /* frames kept in memory after a failed write */
#define CONTENT_BUCKETS 16384
#define NR_WARM 16 /* lineages that grow concurrently */

/* Written data on its way to the packs. A job is at most 1 MiB; it starts page-aligned unless chunked by content. */
struct job {
	struct content *c; /* holds a reference */
	struct engine_buffer *b;
	const uint8_t *data;
	uint64_t off;
	uint32_t len; /* data is zero-padded to a whole page */
	uint32_t *cuts; /* chunk ends in data, owned; NULL: fixed-size pages */
	size_t nr_cuts;
	int64_t time_ns;
	struct extent_list extents; /* the result, relative to off */
	int error;
	bool done;
	/* in e->users, held from the first lookup of known chunks until their addresses are in the log */
	unsigned ticket;
	struct job *next_in_file;  /* content.lock */
	struct job *next_in_queue; /* queue.lock */
};

struct champion {
	struct content *c; /* holds a reference */
	bool is_useful; /* a lookup in it has succeeded */
	unsigned nr_useless; /* jobs without a match, while not yet useful */
};

/* Where moved bytes were last found: shifted.c. */
struct shift_hint {
	uint64_t ino; /* of the champion; 0: none */
	uint64_t at, from; /* the file's bytes before `at` equal those before `from` in the champion */
	unsigned nr_found, nr_vain; /* jobs with matches; jobs without matches since the last one */
	uint64_t vain_bytes; /* total bytes searched without a match */
};

struct content {
	struct engine *e;
	uint64_t ino;
	struct content *next;	    /* in its hash bucket: contents_lock */
	unsigned refs;		    /* contents_lock */
	/* contents_lock; dirty_at: the pointer that links to it, NULL if not on the list */
	struct content *next_dirty, **dirty_at;
	struct content *prev_staged, *next_staged; /* contents_lock */

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
	struct segment_tree segments GUARDED_BY(lock); /* segments in memory: all dirty ones and some clean ones */
	/* logged changes not yet applied to the segments, oldest first (pending_changes.c) */
	struct later *later GUARDED_BY(lock);
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
	uint64_t nr_errors, nr_errors_told GUARDED_BY(lock);
	_Atomic uint64_t promised, spent; /* its part of engine.promised.bytes: not written yet; the next job takes it */
	struct allocated *allocated GUARDED_BY(lock); /* ranges with reserved space; NULL: none */
	struct compress compress GUARDED_BY(lock);
	_Atomic bool by_content; /* new bytes are chunked by content; changed under the lock */
	_Atomic bool is_auto; /* chunking=auto: pages, with a search for moved ones; changed under the lock */
	struct shift_hint shift GUARDED_BY(lock);
	struct mutex map_lock; /* before the lock of any content; held while the content is read to build the map */
	struct shifted_map *map GUARDED_BY(map_lock); /* as a champion: index of its bytes; NULL: not built yet */
	_Atomic unsigned nr_challengers; /* files that have it as a champion */
	struct champion champions[CHAMPIONS_MAX] GUARDED_BY(lock); /* in lookup order */
	unsigned nr_champions GUARDED_BY(lock);
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

/* Statistics; relaxed atomics. */
struct engine_counters {
	_Atomic uint64_t written, zero, champion, successor, memory, indexed, shifted, fresh, verified_different, read;
	_Atomic uint64_t in_vain; /* unsuccessful lookups in RocksDB, one per page */
	_Atomic uint64_t nr_commits, nr_commit_waiters, commit_ns_sum;
};

/* All data that the log refers to up to `end` is durable in the packs; `marks` are the pack ends. */
struct packed {
	uint64_t end, since_ns;
	struct pack_marks marks;
};

struct engine {
	/* constant after engine_open() */
	struct engine_conf conf;
	char *path;
	struct store_dirs dirs;
	struct fp_key key;
	struct cdc cdc;
	struct db *db;
	struct packs *packs;
	struct journal *journal;
	struct io_rate *read_rate, *write_rate;
	const struct remote_hooks *remote; /* NULL: all chunks are here, and for this store alone */
	const struct cut_hooks *cuts; /* NULL: pages of all files start at 0 */
	struct shares *shares; /* state of `remote` (store/remote/remote.h) */
	_Atomic bool read_only; /* refuses new content changes; changes already begun still reach the disk */
	_Atomic uint64_t segment_limit; /* set by absorb_share_memory() */

	struct {
		struct mutex lock; /* held while the back-reference table is built; before flush_lock and view_lock */
		/* the table covers all recipes of the view; set with view_lock held exclusively */
		_Atomic bool complete;
	} referrers;
	/* serializes writing the view out, by the background thread or a collection; before view_lock */
	struct mutex flush_lock;
	struct rwlock view_lock; /* shared: to change logged state; exclusive: while the view is cut */
	uint64_t next_layer; /* lowest unused number; owned by the current writer of the view, see write_back.c */

	struct mutex contents_lock;
	struct content *contents[CONTENT_BUCKETS] GUARDED_BY(contents_lock);
	struct content *dirty_contents, **dirty_contents_end GUARDED_BY(contents_lock);
	struct content *staged_first, *staged_last GUARDED_BY(contents_lock); /* oldest first */
	/* most recent lineages, referenced while memory allows; NULL: none */
	struct content *warm[NR_WARM] GUARDED_BY(contents_lock);
	unsigned next_warm GUARDED_BY(contents_lock);

	struct {
		struct mutex lock;
		struct buf pending GUARDED_BY(lock);	/* records not yet in the journal */
		uint64_t end GUARDED_BY(lock);		/* bytes ever logged */
		uint64_t committed GUARDED_BY(lock);	/* durable part of `end` */
		uint64_t oldest_ns GUARDED_BY(lock);	/* arrival time of the oldest pending record */
		struct engine_waiter *waiters, **waiters_end GUARDED_BY(lock); /* sorted by target */
		unsigned nr_leaders GUARDED_BY(lock);	/* threads that run commits for all waiters */
		struct cond leader_cond;
		bool syncing_packs GUARDED_BY(lock);	/* a thread runs the first half of a commit */
		bool appending GUARDED_BY(lock);	/* a thread runs the second half */
		struct packed packed GUARDED_BY(lock);	/* progress of the first half */
		int last_error GUARDED_BY(lock);	/* of the last commit */
		struct pack_marks marks GUARDED_BY(lock); /* of the last commit */
		uint64_t next_number, numbers_end GUARDED_BY(lock);
	} log;

	struct epoch users; /* users of addresses not protected by a lock: jobs, readers, clones */
	struct {
		_Atomic bool running; /* one collection at a time */
		/* held by a collection, or by the background thread during repair; before all other locks */
		struct mutex lock;
		/* set with view_lock held exclusively; used under it or inside `users` */
		struct gc_window *_Atomic window;
		struct mutex totals_lock; /* leaf */
		struct freed_totals totals GUARDED_BY(totals_lock);
		_Atomic bool any; /* chunks have been freed: check the freed table for each pack table read */
	} gc;

	struct {
		struct mutex lock;
		struct move *moves GUARDED_BY(lock); /* damaged chunks and their new locations; NULL: none */
		size_t nr GUARDED_BY(lock);
		bool too_many GUARDED_BY(lock); /* the overflow has been logged */
	} heal;

	struct {
		_Atomic bool running; /* one scrub at a time */
		struct mutex lock; /* leaf */
		struct scrub_state state GUARDED_BY(lock);
	} scrub;

	struct {
		struct mutex lock; /* leaf */
		struct variable_notes notes GUARDED_BY(lock); /* same as in the view */
	} variables;

	struct {
		struct mutex lock;
		struct pace pace GUARDED_BY(lock);
		unsigned nr_jobs GUARDED_BY(lock); /* submitted but not in the log */
		unsigned nr_waiters GUARDED_BY(lock); /* threads waiting for jobs or a commit */
		uint64_t busy_ns GUARDED_BY(lock); /* accumulated time with jobs or waiters, up to since_ns */
		uint64_t since_ns GUARDED_BY(lock);
		unsigned nr_idle GUARDED_BY(lock); /* threads waiting to see whether more jobs arrive */
		struct cond more_cond;
		unsigned nr_spare; /* up to this many jobs leave a processor free for compression; constant */
	} pace; /* used by compress=auto */

	struct mutex absorb_lock; /* held while `frozen` and `kept` are read without append_lock */
	struct mutex append_lock;
	struct fptable recent, frozen, kept GUARDED_BY(append_lock); /* not yet absorbed; being absorbed; absorbed */
	struct pack_marks frozen_marks GUARDED_BY(append_lock);
	struct {
		size_t nr; /* entries of `recent` at the last check */
		uint64_t since_ns; /* unchanged since */
	} quiet GUARDED_BY(append_lock);
	uint64_t absorb_generation GUARDED_BY(append_lock);
	struct {
		bool on GUARDED_BY(append_lock); /* chunks may have two copies: absorb nothing */
		/* marks of the note found at open; constant after loading, as are the other fields until gc.lock is
		 * held */
		struct pack_marks marks;
		struct move *m; /* copies found */
		size_t nr, size;
	} moving;
	struct {
		const struct move *m; /* sorted; NULL: none */
		size_t nr;
	} repointed GUARDED_BY(view_lock); /* records entering the log are redirected to the new places of these */
	struct {
		/* in_use is changed, and both filters are installed, under append_lock, by the background thread. */
		struct fingerprint_filter in_use, next;
		uint64_t nr_good, scan_from; /* used by the background thread only */
	} filter;
	/* frames shared by jobs: for a few pages; for chunks cut by content */
	struct pack_frame *small, *varied GUARDED_BY(append_lock);
	struct fp small_tweak, varied_tweak GUARDED_BY(append_lock); /* tweak of the first chunk in each */
	/* a job may exceed the limit by two */
	struct pack_frame *unwritten[NR_UNWRITTEN_MAX + 4] GUARDED_BY(append_lock);
	unsigned nr_unwritten GUARDED_BY(append_lock);
	int unwritten_error GUARDED_BY(append_lock);
	unsigned nr_filling GUARDED_BY(append_lock); /* small frames that left `small` and are being written */
	struct cond filling_cond;

	struct {
		struct mutex lock;
		struct cond free_cond;
		struct engine_buffer *free GUARDED_BY(lock);
		struct buffer_slab *slabs GUARDED_BY(lock);
		uint64_t nr, nr_free, max GUARDED_BY(lock);
	} buffers;

	struct {
		struct mutex lock;
		struct cond cond, ended_cond;
		struct job *first, **last GUARDED_BY(lock);
		_Atomic uint64_t bytes; /* bytes of all existing jobs; decreased under the lock */
		bool sync_ahead GUARDED_BY(lock); /* a commit is expected: run its first half ahead */
		bool stop GUARDED_BY(lock);
		pthread_t workers[NR_WORKERS];
		unsigned nr_workers;
	} queue;

	struct {
		struct mutex lock;
		struct cond cond;
		bool stop GUARDED_BY(lock);
		bool running;
		pthread_t thread;
	} keeper; /* the background thread: commit timer, view, snapshots, absorbing */

	_Atomic uint64_t segment_memory, dirty_segment_memory, map_memory;
	struct search *_Atomic searches[NR_WORKERS + 1]; /* unused search memory for shifted.c */
	_Atomic int64_t logical;
	_Atomic uint64_t space_avail, space_checked_ns;
	struct {
		struct mutex lock; /* leaf; also held while the file is resized */
		int fd GUARDED_BY(lock); /* the file `promised`; -1: not made yet */
		_Atomic uint64_t held; /* its size; changed under the lock */
		_Atomic uint64_t bytes; /* reserved by content_allocate(), and no job stores them yet */
	} promised;
	_Atomic uint64_t reserve_held; /* bytes of the reserve that this mount has allocated or found */
	_Atomic bool quota_is_used_up; /* a commit failed with EDQUOT; statvfs() does not report quotas */
	struct engine_counters count;
};

/* engine.c */
void engine_free(struct engine *e); /* without committing; half-built is fine */

/* buffers.c */
int buffers_init(struct engine *e);
void buffers_release(struct engine *e);
int buffer_try(struct engine *e, struct engine_buffer **ret); /* 1: got one, 0: all in use, -ENOMEM */

/* content.c */
struct content *content_ref(struct content *c);
int content_lookup(struct engine *e, uint64_t ino, struct content **ret); /* 1: in memory (referenced), 0: not */
/* A settled segment (segment_settle()). */
int content_segment(struct content *c, uint64_t number, bool make, struct segment **ret) REQUIRES(c->lock);
int content_segment_as_it_is(struct content *c, uint64_t number, bool make, struct segment **ret) REQUIRES(c->lock);
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
void content_lock_quiet(struct content *c) ACQUIRE(c->lock) ACQUIRE_SHARED(c->e->view_lock);
void content_unlock_quiet(struct content *c) RELEASE(c->lock) RELEASE_SHARED(c->e->view_lock);
/* Addresses of the bytes at off + at[0], off + at[1] ..., within 1 MiB; ADDR_NONE: not mapped. */
int content_addresses(struct content *c, uint64_t off, const uint32_t *at, unsigned n, struct addr *ret);
/* The extents of [off, off+len), at most a segment plus 1 MiB, with offsets relative to off. */
int content_extents(struct content *c, uint64_t off, uint64_t len, struct extent_list *ret) REQUIRES(c->lock);
/*
 * Skip a hole: *ret is the start of the first segment with data at or after `off`, or `end`; `off` itself if its own
 * segment has data. Takes one index lookup, whatever the length of the hole. Loops over a file call this where a
 * segment has no extents, so that a large sparse file costs no time.
 */
int content_hole_end(struct content *c, uint64_t off, uint64_t end, uint64_t *ret) REQUIRES(c->lock);
/* Log that [off, off+len) consists of these extents, with offsets relative to off; at most 1 MiB unless it is a hole.
 * Extends the file if needed. */
int content_set_extents(struct content *c, uint64_t off, uint64_t len, const struct extent_list *l) REQUIRES(c->lock);
/* Replay a clone record of the log. */
int content_clone_again(struct content *from, struct content *to, const struct clone *cl);
/* The list of dirty contents. `at`: dirty_contents or dirty_contents_end. */
void dirty_insert(struct engine *e, struct content *c, struct content **at) REQUIRES(e->contents_lock);
void dirty_remove(struct engine *e, struct content *c) REQUIRES(e->contents_lock);
int content_next_segment(struct content *c, uint64_t from, uint64_t *ret) REQUIRES(c->lock);
/* Free clean segments while all contents together exceed the limit. */
void contents_trim(struct engine *e, uint64_t limit);
/* Keep the recipe in memory for a while after the last reference, because it will be needed again soon. */
void content_keep_warm(struct content *c);
void contents_cool(struct engine *e); /* release all of them */

/* Update the accounting of a segment after every change: its own memory (layers are counted separately) and the bytes
 * to be written to the view. */
void segment_count(struct engine *e, struct segment *s);

/* pending_changes.c */
/* content_log() for patches, changes that all keep what lies between their extents. Defers applying them to the
 * segments and takes the list `x` that holds their extents: returns 1. 0: not possible, nothing was done. */
int content_log_later(struct content *c, const struct replace *rp, size_t nr, struct extent_list *x) REQUIRES(c->lock);
/* The same for clones of a whole file into an empty `to`: 1. 0: not possible. */
int content_clone_later(struct content *from, struct content *to, const struct clone *cl, size_t nr)
	REQUIRES(from->lock, to->lock);
int content_catch_up(struct content *c, size_t max) REQUIRES(c->lock); /* apply up to `max` of them; -ENOMEM */
void content_forget_later(struct content *c); /* discard them */
/* For a hole that the log has and that cannot be applied now. The memory is allocated before it is logged. */
struct later *later_for_hole(void);
void content_queue_hole(struct content *c, struct later *l, const struct replace *rp) REQUIRES(c->lock);

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
/* Write the dirty parts to the view. Nothing may change between the two calls: view_lock is held exclusively, or the
 * lock is held throughout. */
int content_write_back(struct content *c, struct view_batch *batch) REQUIRES(c->lock);
void content_written_back(struct content *c) REQUIRES(c->lock); /* after the batch has been applied */
/* The same for a part, starting at segment *at. 1: more remains; 0: done. The lock may be dropped between calls. */
int content_write_back_slice(struct content *c, struct view_batch *batch, uint64_t *at) REQUIRES(c->lock);

/* Read extents of c that start at `off`, with zeros between them. No lock needed, but the caller must be inside
 * e->users. */
int extents_read(struct content *c, const struct extent_list *l, void *p, size_t len, uint64_t off);
/* Read the logged state only. */
int content_read_logged(struct content *c, void *p, size_t len, uint64_t off) REQUIRES(c->lock);

/* moves_release.c */
/* Release the old places of sorted moves; is_shared: the result of remote_hooks.carry(). The caller commits after the
 * first call, then makes the second. */
int vacate(struct engine *e, const struct move *m, size_t nr, bool is_shared, struct freed_totals *ret);
void vacate_forget_tables(struct engine *e, const struct move *m, size_t nr);

/* moves.c: crash-safe moves, during which a chunk has two copies */
#define MOVING_NOTE "moving"
int moving_begin(struct engine *e); /* before the first copy; needs gc.lock, like those below. Costs a commit */
/* Redirect all files to the copies and release the original places. Sorts `m`. Adds the released totals to *ret.
 * Success ends the move; after a failure call moving_give_up(). */
int moving_complete(struct engine *e, struct move *m, size_t nr, struct freed_totals *ret);
int moving_end(struct engine *e); /* no copies were made */
void moving_give_up(struct engine *e); /* copies may exist */
void moving_finish(struct engine *e); /* finish a move interrupted by a crash; at open only */
int moving_load(struct engine *e); /* at open only */
/* Check a chunk that lies beyond the marks of the note: if it is known at another place, it is a copy. */
int moving_meet(struct engine *e, struct fp fp, struct addr a, uint32_t len) REQUIRES(e->append_lock);

/* stage.c */
/* Everything `w` waits for is in the log: continue with waiting for a commit. */
void content_flushed(struct engine_waiter *w);
/* May drop and retake the lock. The job is queued or done or, with `later`, left to the caller; earlier data is
 * queued. */
int stage_flush(struct content *c, struct job **later) REQUIRES(c->lock);
int stages_flush_all(struct engine *e);
bool stages_flush_oldest(struct engine *e); /* false: nothing is staged */

/* recut.c: for a stage chunked by content, with the lock held. */
/* number of bytes at off that it accepts; 0: none */
uint32_t recut_takes(const struct content *c, uint64_t off, size_t len);
bool recut_is_full(const struct content *c, uint64_t off); /* full, and a write at off would continue it */
/* Set c->stage_base, _start and _end for a write at off. No job of c may overlap the RECUT_FRONT bytes before it. */
#define RECUT_FRONT PACK_VARIED_LEN_MAX
void recut_begin(struct content *c, struct engine_buffer *b, uint64_t off) REQUIRES(c->lock);
/* Make a job of its whole chunks, not submitted yet; the rest continues in `b`. NULL: no memory, nothing changed. */
struct job *recut_advance(struct content *c, struct engine_buffer *b) REQUIRES(c->lock);
/* Make a job of all of it, which takes the buffer; c->stage is unchanged. Call recut_wait() first, which may drop the
 * lock. */
void recut_wait(struct content *c) REQUIRES(c->lock);
struct job *recut_finish(struct content *c) REQUIRES(c->lock);

/* write_jobs.c */
int jobs_start(struct engine *e);
void jobs_stop(struct engine *e);
struct job *job_new(struct content *c, struct engine_buffer *b, const uint8_t *data, uint64_t off, uint32_t len);
void job_submit(struct content *c, struct job *j) REQUIRES(c->lock); /* fixes its place in the file's order */
void content_failed(struct content *c, int r) REQUIRES(c->lock); /* data is lost: flush and sync will report it */
void jobs_wait(struct content *c) REQUIRES(c->lock); /* waits for at least one to finish; drops and retakes the lock */
/* Bytes of jobs on their way to the packs. Wait until there are fewer; call with no lock held. */
uint64_t jobs_bytes(struct engine *e);
void jobs_wait_fewer(struct engine *e, uint64_t than);
/* Wait until no job of c overlaps the range. May drop and retake the lock. */
void jobs_wait_range(struct content *c, uint64_t off, uint64_t len) REQUIRES(c->lock);

/* champions.c */
/* at most CHAMPIONS_MAX, referenced */
unsigned champions_get(struct content *c, bool even_useless, struct content **ret);
bool champion_is_useful(struct content *c, const struct content *champion);
void champion_knew(struct content *c, const struct content *champion, unsigned pages, unsigned of_pages);

/* domains.c */
/* The fingerprint tweak of all new bytes of c, from its current owner. */
int content_tweak(struct content *c, struct fp *ret);
/* Do new bytes of both belong to the same domain, by current owners? 1/0/<0. Costs a lookup each if the store has
 * domains. */
int content_same_domain(struct content *a, struct content *b);
int content_may_share(struct content *from, struct content *to); /* 0 or -EXDEV, or <0 */

/* dedup.c */
int dedup_store(struct engine *e, const struct job *j, struct extent_list *ret);

/* dedup_append.c */
int dedup_sync_frames(struct engine *e, struct pack_marks *ret); /* make all existing frames durable */

/* commit.c */
int commit_frames(struct engine *e, struct pack_marks *ret); /* make all existing frames durable, without the log */
/* Commit notes as a separate journal group. `marks`: those of a sync in progress, which the caller runs; NULL: those of
 * the last completed sync. */
int commit_notes(struct engine *e, const struct pack_marks *marks, const struct buf *records);
void commit_durable(struct engine *e, struct pack_marks *ret); /* everything before these is on disk */
/* The first half of a commit, unless it is already running, so that the next commit has less to do. */
void commit_begin(struct engine *e);
int engine_sync_patiently(struct engine *e); /* engine_sync() without urgency: there is time to compress */

/* txlog.c */
int log_append(struct engine *e, uint8_t type, const struct buf *record, uint64_t *ret_end);
/* records made by journal_record_add() */
int log_append_records(struct engine *e, const struct buf *records, uint64_t *ret_end);
/* Also apply a batch to the view, or do neither. Needs view_lock shared. */
int log_append_with_batch(struct engine *e, const struct buf *records, struct db_batch *batch, uint64_t *ret_end);
void log_throttle(struct engine *e); /* bounds the log in memory; no lock held */
#define RECORD_BYTES 64 /* approximate size of a record; more with many extents */
int log_admit_growth(struct engine *e, size_t len); /* for all changes except deletions; may commit: no lock held */
int log_apply_record(struct engine *e, uint8_t type, const void *p, size_t len, struct db_batch *batch);

/* view.c */
#define LAYERS_NOTE "layers"
int view_flush(struct engine *e, bool snapshot);
int view_write_back(struct engine *e);
int view_put_position(struct db_batch *batch, struct engine *e, uint64_t number, const struct pack_marks *marks);
/* Write the contents of a journal snapshot, from a pinned state or, if NULL, from the current one. */
int view_write_state(struct db *db, const struct db_snapshot *state, const struct pack_marks *marks,
		     struct journal_snapshot *s);
bool view_wants_flush(struct engine *e);
/*
 * For changes that are small in the log but large in the view, after log_admit_growth(). Bounds the data waiting for
 * the view and checks that the disk has room for it; otherwise a collection could not start. May write the view out: no
 * lock held.
 */
int view_admit_growth(struct engine *e);
int view_bound_memory(struct engine *e); /* the same without the check of the disk, for deletions */
bool view_wants_snapshot(struct engine *e);

/* absorb.c */
int absorb_load(struct engine *e); /* at open: fingerprints of frames that RocksDB has not absorbed */
int absorb(struct engine *e); /* not while chunks are being moved */
int absorb_loaded(struct engine *e); /* at open only */
/* Before a job appends: while one table is being ingested, the other may grow to half of a full one; then the job
 * waits. */
int absorb_throttle(struct engine *e) REQUIRES(e->append_lock);
bool absorb_wanted(struct engine *e);
void absorb_share_memory(struct engine *e); /* gives memory that the tables do not need to other caches */

/* filter.c */
int filter_tend(struct engine *e); /* called often by the background thread */
/* before they are added to RocksDB */
void filter_add(struct engine *e, const struct fingerprint_entry *entries, size_t n);
void filter_release(struct engine *e);

/* gc_freed.c */
int freed_load(struct engine *e, uint32_t **ret_removed, size_t *ret_nr); /* at open; caller frees */
int freed_fate(void *engine, uint32_t pack, uint32_t frame, struct pack_fate *ret);
void freed_put_frame(struct engine_tx *tx, uint32_t pack, uint32_t frame, const struct freed_frame *f);
/* Is an entry of the fingerprint table stale? */
bool freed_is_stale(void *engine, const void *key, size_t key_len, const void *value, size_t len);
void freed_so_far(struct engine *e, struct freed_totals *ret);
/* Logs freed chunks and the totals that count them in one transaction: of two, one could fail. `shared`: the chunks, if
 * some are shared with other nodes (remote_hooks.free_chunks()); else NULL. */
struct remote_freed;
int freed_apply(struct engine *e, struct engine_tx *tx, const struct freed_totals *t, const struct remote_freed *shared,
		size_t nr);
/* The chunk is gc-pending and must not be shared. Call inside e->users. */
bool freed_condemned(struct engine *e, struct addr a);
/* Records that extents entering the log are referenced. view_lock held shared. */
void freed_referred(struct engine *e, const struct extent *x, size_t nr);

/* compress.c */
struct pack_compression compress_for_pack(struct compress c);
/* compress=auto: is there time to compress? Depends on the counts of jobs and waiters; takes leaf locks only. */
void compress_init(struct engine *e);
void compress_release(struct engine *e);
enum pack_time compress_time_for(void *engine, uint32_t bytes);
bool compress_is_disturbed(void *engine);
void compress_job_begins(struct engine *e);
void compress_job_ends(struct engine *e);
void compress_wait_begins(struct engine *e); /* the caller waits for jobs or a commit */
void compress_wait_ends(struct engine *e);

/* repair.c */
/* the same chunk was stored again at `to` */
void heal_note(struct engine *e, struct addr damaged, uint32_t len, struct addr to);
int heal_tend(struct engine *e); /* called often by the background thread */
int heal_now(struct engine *e); /* repair everything noted, unless a collection is running */

/* scrub.c */
int scrub_load(struct engine *e); /* at open */

/* housekeeping.c */
int keeper_start(struct engine *e);
void keeper_stop(struct engine *e);

/* recover.c */
/* replay the journal into the view; returns the marks to truncate the packs at */
int recover_view(struct engine *e, struct pack_marks *ret);

/* space.c */
int space_check(struct engine *e, uint64_t need); /* -ENOSPC, -EDQUOT */
uint64_t space_with_overhead(uint64_t len); /* len plus tables, recipes and log */
/* Reserve space for a file; the caller then adds it to content.promised. May wait for writes to finish: no lock held.
 * -ENOSPC, -EDQUOT. */
int space_promise(struct engine *e, uint64_t bytes);
void space_take_back(struct engine *e, uint64_t bytes); /* release unused reserved space */
/* May this be written? Bytes of reserved ranges may, the others if there is room. May wait for writes to finish: no
 * lock held. -ENOSPC, -EDQUOT. */
int space_admit_write(struct content *c, uint64_t off, uint64_t len);
void space_spend(struct content *c); /* a job of this file starts: allow it the space of admitted writes */
void space_close(struct engine *e); /* no file has a reservation any more */
void space_release(struct content *c); /* release all of its remaining reservation */
int space_wait(struct engine *e, uint64_t need); /* space_check() that counts data on its way; no lock held */
void reserve_make(struct engine *e); /* make the reserve whole, if there is room */
int reserve_for_opening(struct engine *e);
void reserve_restore(struct engine *e); /* allocate the missing part of it, as far as there is room */
/* Bytes that commits of the next mount need on a full disk, or 0 if the index was not opened. reserve_rest() then
 * shrinks the reserve to this size, after the index is closed. */
uint64_t reserve_at_rest(struct engine *e);
void reserve_rest(struct engine *e, uint64_t commit_bytes);
bool reserve_is_whole(struct engine *e);
bool reserve_is_there(struct engine *e); /* enough of it for changes of names and attributes on a full disk */
/* Call after an operation failed with r. True: it failed for lack of space, and releasing the reserve has made room;
 * try again. The part needed for opening is kept. */
bool reserve_helps(struct engine *e, int r);
/* From time to time: return unused reserved space; after a quota was exceeded, check whether there is room again. */
void space_look_again(struct engine *e);
