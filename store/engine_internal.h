/*
 * What the files of store/engine share. Nobody else includes this.
 *
 * Who does what:
 *   engine.c    opening, closing, transactions, numbers, space
 *   buffers.c   the bounded memory that carries data
 *   champions.c files that new data is compared with first
 *   content.c   one file: its segments, how they change; range.c, stage.c and read.c the rest
 *   clone.c     a range of a file gets the extents of another; patch.c many at once
 *   layer.c     extents that files have in common
 *   keep.c      chunks for other nodes, files of chunks that they have
 *   later.c     changes that the log has before the segments
 *   jobs.c      data on its way from write() into the log: workers, order per file
 *   dedup.c     what a job does: new or known
 *   domains.c   with whom it is shared
 *   dedup_append.c  new: its place in a pack
 *   dedup_shifted.c  or moved
 *   run.c       all segments of a file by one reference
 *   txlog.c     the one ordered log; applying it to the view
 *   commit.c    the commit point; group commit
 *   chunker.c   where bytes are cut by content
 *   collective.c  a commit's part in a round of the cluster; round.c which chunk becomes what
 *   chunking.c  whether they are
 *   compress.c  how new data is compressed
 *   view.c      writing the view out, snapshots of the journal
 *   write_back.c a file's changes into the view
 *   stack.c     recipes of the view, with the layers they are made of
 *   absorb.c    fingerprints from memory into RocksDB
 *   exclusive*.c what deleting some files would free
 *   filter.c    which fingerprints RocksDB does not have
 *   freed.c     what is gone, as the paths of data must know it
 *   gc*.c       collecting what nobody refers to
 *   grid.c      where pages begin
 *   heal.c      files get another copy of what is damaged and cannot be written over
 *   recover.c   opening after a crash; rebuild
 *   referrers.c who refers to which frame
 *   recut.c     the stage of a file that is cut by content
 *   repoint.c   files refer to other copies of their chunks
 *   scrub*.c    looking for damage
 *   name_walk.c names of inodes
 *   owners.c    whose files there are
 *   moving.c    chunks that are stored in two places, and a crash
 *   vacate.c    the places that they have left
 *   shares.c    chunks that other nodes have, or have from here
 *   shares_gc.c collecting these; together.c: with the other nodes; shares_carry.c: when they move
 *   shift.c     which bytes have moved
 *   shifted.c   looking for them in champions
 *
 * Lock order (docs/locking.md): view_lock (shared or exclusive), or map_lock of a content > content.lock (two: by
 * inode) > contents_lock, log.lock, append_lock, buffers.lock, queue.lock, heal.lock, pace.lock, scrub.lock.
 * The last eight are leaves but for append_lock > packs' own locks and log.lock > RocksDB. gc.lock and referrers.lock,
 * and then flush_lock, come before all of them, absorb_lock before append_lock. Nobody waits for a job while holding
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
#include "index/shares.h"
#include "store/engine/alone.h"
#include "store/engine/cluster.h"
#include "store/engine/engine.h"
#include "store/engine/fptable.h"
#include "store/engine/grid.h"
#include "store/engine/pace.h"
#include "store/engine/record_format.h"
#include "store/engine/segment.h"
#include "store/engine/superblock.h"
#include "store/engine/variables.h"
#include "store/pack/pack.h"

struct buffer_slab;
struct cluster_node;
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
struct run;
struct search;
struct shifted_map;

#define NR_WORKERS 3		   /* enough to keep two cores and the disk busy at once; more only adds switching */
#define NR_UNWRITTEN_MAX 8	   /* frames kept in memory because the disk refused them */
#define CONTENT_BUCKETS 16384
#define NR_WARM 16 /* lineages that grow at the same time */

/* Bytes on their way. One job is at most 1 MiB, page-aligned at its start unless it is cut by content. */
struct job {
	struct content *c; /* holds a reference */
	struct engine_buffer *b;
	const uint8_t *data;
	uint64_t off;
	uint32_t len; /* data is zero-padded up to the page */
	uint32_t *cuts; /* where its chunks end in data, ours; NULL: it consists of pages */
	size_t nr_cuts;
	uint64_t size_after; /* of the file, if this job extends it */
	int64_t time_ns;
	struct extent_list extents; /* the result, relative to off */
	int error;
	bool done;
	unsigned ticket; /* of e->users, from the first look for known chunks until what was found is in the log */
	struct job *next_in_file;  /* content.lock */
	struct job *next_in_queue; /* queue.lock */
};

struct champion {
	struct content *c; /* holds a reference */
	bool is_useful; /* knew something once */
	unsigned nr_useless; /* jobs that it knew nothing of, until then */
};

/* Where bytes that have moved were found last: shifted.c. */
struct shift_hint {
	uint64_t ino; /* of the champion; 0: none */
	uint64_t at, from; /* the bytes of the file before `at` are those before `from` there */
	unsigned nr_found, nr_vain; /* jobs of which something was found; of which nothing was, since */
	uint64_t vain_bytes; /* that were looked for, and not found, of all of them */
};

struct content {
	struct engine *e;
	uint64_t ino;
	struct content *next;	    /* in its hash bucket: contents_lock */
	unsigned refs;		    /* contents_lock */
	struct content *next_dirty, **dirty_at; /* contents_lock; dirty_at: who points to it, NULL if nobody does */
	struct content *prev_staged, *next_staged; /* contents_lock */

	struct mutex lock;
	struct cond drained;
	struct ns_content live GUARDED_BY(lock);   /* as an application sees it, less mapped */
	struct ns_content logged GUARDED_BY(lock); /* as the log has it; changes under view_lock too */
	bool dirty GUARDED_BY(lock);		   /* logged or a segment differs from the view; on the dirty list */
	bool in_view GUARDED_BY(lock);		   /* RocksDB has an entry, and maybe segments, of it */
	bool dropped GUARDED_BY(lock);
	struct segment_tree segments GUARDED_BY(lock); /* those in memory: all that are dirty, and some */
	struct later *later GUARDED_BY(lock); /* changes that they are to get; the oldest first (later.c) */
	uint64_t made_from GUARDED_BY(lock); /* the file that it began as a clone of; 0: none */
	/* all of them, as they are with nothing waiting; NULL: nobody has asked yet */
	struct run *run GUARDED_BY(lock);
	size_t nr_segments, nr_clean GUARDED_BY(lock); /* in it; of these, as the view has them */
	struct job *jobs, **jobs_end GUARDED_BY(lock); /* in the order written */
	/* where pages begin, of what is written; not kept when nobody refers to it */
	struct grid grid GUARDED_BY(lock);
	/* Staging: one contiguous range of fresh bytes. */
	struct engine_buffer *stage GUARDED_BY(lock);
	bool stage_is_cut;		  /* by content: recut.c */
	/* file offset of stage->data[0]: a page begins there, unless it is cut by content */
	uint64_t stage_base;
	uint32_t stage_start, stage_end;  /* fresh bytes in it */
	int64_t stage_time_ns;
	int error GUARDED_BY(lock); /* the last one met after write() had returned */
	uint64_t nr_errors, nr_errors_told GUARDED_BY(lock);
	struct compress compress GUARDED_BY(lock);
	_Atomic bool by_content; /* new bytes are cut so; changed under the lock */
	_Atomic bool is_auto; /* into pages, but it is looked for those that have moved; likewise */
	struct shift_hint shift GUARDED_BY(lock);
	struct mutex map_lock; /* before the lock of any content; held while it is read for the map */
	struct shifted_map *map GUARDED_BY(map_lock); /* as a champion: where its bytes are; NULL: none yet */
	_Atomic unsigned nr_challengers; /* files that it is a champion of */
	struct champion champions[CHAMPIONS_MAX] GUARDED_BY(lock); /* in the order they are asked */
	unsigned nr_champions GUARDED_BY(lock);
	uint64_t nr_submitted, nr_finished GUARDED_BY(lock); /* jobs ever */
	struct engine_waiter *waiters GUARDED_BY(lock); /* for jobs to finish, then for a commit */
	int load_error GUARDED_BY(lock); /* its record could not be read */
	uint64_t log_end GUARDED_BY(lock); /* log position behind this content's last record */
};

/* Counters: relaxed, for people. */
struct engine_counters {
	_Atomic uint64_t written, zero, champion, successor, memory, indexed, shifted, fresh, verified_different, read;
	_Atomic uint64_t in_vain; /* look-ups in RocksDB, one per page */
	_Atomic uint64_t nr_commits, nr_commit_waiters, commit_ns_sum;
};

/* The bytes that the log refers to up to `end` are durable, within these marks. */
struct packed {
	uint64_t end, since_ns;
	struct pack_marks marks;
};

/* A frame whose notes, or bytes, are still to be written. */
struct unsettled {
	struct unsettled *next;
	struct pack_frame *f; /* partly written; NULL: all that has to be here is */
	uint32_t pack, frame;
	struct share_frame note; /* as it is to be in the end */
	uint64_t nr_more, more_bytes; /* that are away then, and were not counted */
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
	_Atomic uint64_t segment_limit; /* absorb_share_memory() says which */

	struct {
		struct mutex lock; /* held while the table is made; before flush_lock and view_lock */
		_Atomic bool complete; /* the view has all that its recipes say; set with view_lock held exclusively */
	} referrers;
	/* one at a time writes the view out: the background thread or a collection; before view_lock */
	struct mutex flush_lock;
	struct rwlock view_lock; /* shared: change logged state; exclusive: the view is being cut */
	uint64_t next_layer; /* the lowest number never given; of whoever writes into the view, see write_back.c */

	struct mutex contents_lock;
	struct content *contents[CONTENT_BUCKETS] GUARDED_BY(contents_lock);
	struct content *dirty_contents, **dirty_contents_end GUARDED_BY(contents_lock);
	struct content *staged_first, *staged_last GUARDED_BY(contents_lock); /* oldest first */
	struct content *warm[NR_WARM] GUARDED_BY(contents_lock); /* referenced, while there is memory; NULL: none */
	unsigned next_warm GUARDED_BY(contents_lock);

	struct {
		struct mutex lock;
		struct buf pending GUARDED_BY(lock);	/* records not yet in the journal */
		uint64_t end GUARDED_BY(lock);		/* bytes ever logged */
		uint64_t committed GUARDED_BY(lock);	/* bytes of them durable */
		uint64_t oldest_ns GUARDED_BY(lock);	/* when the oldest pending one came */
		struct engine_waiter *waiters, **waiters_end GUARDED_BY(lock); /* by target */
		unsigned nr_leaders GUARDED_BY(lock);	/* threads that see to it that they get what they wait for */
		struct cond leader_cond;
		bool syncing_packs GUARDED_BY(lock);	/* somebody is at the first half of a commit */
		bool appending GUARDED_BY(lock);	/* at the second */
		struct packed packed GUARDED_BY(lock);	/* how far the first half has come */
		int last_error GUARDED_BY(lock);	/* of the last commit */
		struct pack_marks marks GUARDED_BY(lock); /* of the last commit */
		uint64_t next_number, numbers_end GUARDED_BY(lock);
	} log;

	struct epoch users; /* of addresses that no lock protects: jobs, readers, clones */
	struct {
		_Atomic bool running; /* one collection at a time */
		struct mutex lock; /* of a collection, or of the background thread while it heals; before all others */
		/* set with view_lock held exclusively; used under it or inside `users` */
		struct gc_window *_Atomic window;
		struct mutex totals_lock; /* leaf */
		struct freed_totals totals GUARDED_BY(totals_lock);
		_Atomic bool any; /* something is gone: tables that are read must be told */
	} gc;

	struct {
		struct mutex lock;
		struct move *moves GUARDED_BY(lock); /* damaged chunks and their new places; NULL: none */
		size_t nr GUARDED_BY(lock);
		bool too_many GUARDED_BY(lock); /* that has been told */
	} heal;

	struct {
		_Atomic bool running; /* one scrub at a time */
		struct mutex lock; /* leaf */
		struct scrub_state state GUARDED_BY(lock);
	} scrub;

	struct {
		struct mutex lock; /* leaf */
		struct variable_notes notes GUARDED_BY(lock); /* as the view has them */
	} variables;

	struct {
		struct mutex lock;
		struct pace pace GUARDED_BY(lock);
		unsigned nr_jobs GUARDED_BY(lock); /* submitted and not in the log */
		unsigned nr_waiters GUARDED_BY(lock); /* for jobs or a commit */
		uint64_t busy_ns GUARDED_BY(lock); /* while there were any of both, until ... */
		uint64_t since_ns GUARDED_BY(lock);
		unsigned nr_idle GUARDED_BY(lock); /* threads that look whether more come */
		struct cond more_cond;
		unsigned nr_spare; /* as many jobs leave a processor to compress; constant */
	} pace; /* of compress=auto */

	struct {
		/* held while notes enter journal and view, and while the view is cut: after view_lock, before
		 * log.lock */
		struct mutex lock;
		struct share_totals totals GUARDED_BY(lock);
		struct share_node *nodes GUARDED_BY(lock); /* by number */
		struct buf waiting GUARDED_BY(lock); /* notes that the next commit of them takes along */
		struct pack_marks opened; /* frames before these were there when the store was opened; constant */
		unsigned nr_settling GUARDED_BY(lock); /* who may yet note that a chunk is elsewhere, or lent */
		struct cond settled;
		/* what is referred to in this window was told; what is not may be unlent */
		bool collecting GUARDED_BY(lock);
		struct cluster_window window GUARDED_BY(lock);
		struct pack_marks marked GUARDED_BY(lock); /* then */
		/* places that are being given up (shares_carry.c), in order; NULL: none are */
		const struct move *moved GUARDED_BY(lock);
		size_t nr_moved GUARDED_BY(lock);
		_Atomic bool any; /* something is shared: tables that are read must be told */
		_Atomic bool any_told; /* as totals have it */
		/* an agent is there; by number, who does not take part then (shares_sure.c). Changed under lock */
		_Atomic bool has_world, any_lost;
		_Atomic uint64_t lost[(UINT16_MAX + 1) / 64];
		/* frames that a round has not come to an end with: their notes are not what they will be */
		_Atomic bool has_left;
		_Atomic bool paused; /* changes wait for a commit: it does without a round */
		_Atomic uint64_t fetched, nr_rounds;
#define GIVE_GUESSES 8u /* twice as many as requests that a node has with another at once */
		/* where chunks for other nodes may be asked for next: pack and offset (give.c) */
		_Atomic uint64_t give_next[GIVE_GUESSES];
		_Atomic unsigned give_turn; /* which of these goes next */
		_Atomic bool gives_next; /* it was so the last time */
	} shares; /* with the other nodes of a cluster */

	struct mutex absorb_lock; /* held while `frozen` and `kept` are read without append_lock */
	struct mutex append_lock;
	struct fptable recent, frozen, kept GUARDED_BY(append_lock); /* not yet absorbed; being absorbed; absorbed */
	struct pack_marks frozen_marks GUARDED_BY(append_lock);
	struct {
		size_t nr; /* of `recent` when it was last looked at */
		uint64_t since_ns; /* it has been so */
	} quiet GUARDED_BY(append_lock);
	uint64_t absorb_generation GUARDED_BY(append_lock);
	struct {
		bool on GUARDED_BY(append_lock); /* there may be two copies of a chunk: nothing is absorbed */
		/* of the note that was found; constant after loading, as is the rest until gc.lock is held */
		struct pack_marks marks;
		struct move *m; /* copies that were found */
		size_t nr, size;
	} moving;
	struct {
		const struct move *m; /* sorted; NULL: none */
		size_t nr;
	} repointed GUARDED_BY(view_lock); /* what enters the log refers to the new places of these */
	struct {
		/* in_use is changed, and both are put in place, under append_lock, by the background thread. */
		struct fingerprint_filter in_use, next;
		uint64_t nr_good, scan_from; /* the background thread's */
	} filter;
	/* shared by jobs: few pages, chunks cut by content */
	struct pack_frame *small, *varied GUARDED_BY(append_lock);
	struct fp small_tweak, varied_tweak GUARDED_BY(append_lock); /* of the first chunk in each */
	/* a job may add two past the limit */
	struct pack_frame *unwritten[NR_UNWRITTEN_MAX + 4] GUARDED_BY(append_lock);
	unsigned nr_unwritten GUARDED_BY(append_lock);
	int unwritten_error GUARDED_BY(append_lock);
	unsigned nr_filling GUARDED_BY(append_lock); /* small frames that left `small` and are being written */
	/* full ones that wait for a round, in order; and those of the last one that could not be settled */
	struct pack_frame **held GUARDED_BY(append_lock);
	/* those that are taken may all come back: nr_held + nr_taken <= size_held */
	size_t nr_held, nr_taken, size_held GUARDED_BY(append_lock);
	bool is_mostly_alone GUARDED_BY(append_lock); /* the last round has found little that other nodes have */
	bool is_round_due GUARDED_BY(append_lock); /* enough is held, and since then nobody has taken it */
	bool wants_round GUARDED_BY(append_lock); /* and nobody was told that yet */
	bool is_offering GUARDED_BY(append_lock); /* a commit has taken what was held, and is on its way to a round */
	uint64_t held_ns GUARDED_BY(append_lock); /* when a chunk was added last to a frame that is held, or will be */
	struct alone alone GUARDED_BY(append_lock); /* of a store in a cluster: are chunks held at all? */
	struct unsettled *unsettled; /* of whoever is at the first half of a commit */
	struct unsettled *arriving GUARDED_BY(append_lock); /* for the next one */
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
		_Atomic uint64_t bytes; /* of all jobs that there are; less of them under the lock */
		bool sync_ahead GUARDED_BY(lock); /* a commit will come: its first half is to be done */
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
	} keeper; /* the background thread: timer, view, snapshot, absorbing */

	_Atomic uint64_t segment_memory, dirty_segment_memory, map_memory;
	struct search *_Atomic searches[NR_WORKERS + 1]; /* memory for shifted.c that nobody uses now */
	_Atomic int64_t logical;
	_Atomic uint64_t space_avail, space_checked_ns;
	_Atomic bool has_reserve;
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
int content_lookup(struct engine *e, uint64_t ino, struct content **ret); /* 1 in memory (referenced), 0 not */
/* settled */
int content_segment(struct content *c, uint64_t number, bool make, struct segment **ret) REQUIRES(c->lock);
int content_segment_as_it_is(struct content *c, uint64_t number, bool make, struct segment **ret) REQUIRES(c->lock);
/* A segment that shares all extents of that one, in no tree yet; 0: there are none. */
int segment_shared(struct content *from, uint64_t number, struct segment **ret) REQUIRES(from->lock);
/* such a one, where there is none yet */
void content_add_segment(struct content *c, struct segment *s) REQUIRES(c->lock);
/* One that shares these layers, which are counted as mapped already. -ENOMEM */
int content_add_layers(struct content *c, uint64_t number, struct layer *l) REQUIRES(c->lock);
void content_forget_run(struct content *c);
void segment_free(struct engine *e, struct segment *s); /* that is in no tree */
/* Make the logged state what `rp` says. In the log or from it. */
int content_apply(struct content *c, const struct replace *rp) REQUIRES(c->lock);
/* but for size and times ... */
int content_apply_extents(struct content *c, const struct replace *rp) REQUIRES(c->lock);
void content_is_changed(struct content *c, const struct replace *rp) REQUIRES(c->lock); /* ... and these */
void content_forget(struct content *c) REQUIRES(c->lock); /* drop: all segments, size 0 */
/* Apply and log in one go: what every change of bytes ends in. Needs view_lock shared. All, or for want of memory some,
 * or none. */
int content_log(struct content *c, const struct replace *rp, size_t nr) REQUIRES(c->lock);
/* Return holding view_lock shared and c->lock, with nothing staged and no job of c under way. */
void content_lock_quiet(struct content *c) ACQUIRE(c->lock) ACQUIRE_SHARED(c->e->view_lock);
void content_unlock_quiet(struct content *c) RELEASE(c->lock) RELEASE_SHARED(c->e->view_lock);
/* Where the bytes off + at[0], off + at[1] ... lie, at most 1 MiB further; ADDR_NONE: nowhere. */
int content_addresses(struct content *c, uint64_t off, const uint32_t *at, unsigned n, struct addr *ret);
/* The extents of [off, off+len), at most 1 MiB more than a segment, offsets relative to off. */
int content_extents(struct content *c, uint64_t off, uint64_t len, struct extent_list *ret) REQUIRES(c->lock);
/* Logs that [off, off+len) is these from now on, at most 1 MiB, offsets relative to off; the file grows if it must. */
int content_set_extents(struct content *c, uint64_t off, uint64_t len, const struct extent_list *l) REQUIRES(c->lock);
/* As the log says, when it is read again. */
int content_clone_again(struct content *from, struct content *to, const struct clone *cl);
/* The list of dirty contents; under contents_lock. `at`: dirty_contents, or dirty_contents_end. */
void dirty_insert(struct engine *e, struct content *c, struct content **at) REQUIRES(e->contents_lock);
void dirty_remove(struct engine *e, struct content *c) REQUIRES(e->contents_lock);
int content_next_segment(struct content *c, uint64_t from, uint64_t *ret) REQUIRES(c->lock);
/* Give back memory of clean segments when all contents together hold more. */
void contents_trim(struct engine *e, uint64_t limit);
/* Its recipe is wanted again soon: it stays in memory for a while, also when nobody refers to it. */
void content_keep_warm(struct content *c);
void contents_cool(struct engine *e); /* none of them any more */

/* What a segment takes, after every change of it: memory of its own (layers count themselves), and what waits for the
 * view. */
void segment_count(struct engine *e, struct segment *s);

/* later.c */
/* As content_log(), of changes that all keep what lies between their extents. These wait, and take the list that all of
 * them are in: 1. 0: not this way, and nothing was done. */
int content_log_later(struct content *c, const struct replace *rp, size_t nr, struct extent_list *x) REQUIRES(c->lock);
/* The same for clones of the whole of a file, of which `to` has nothing yet: 1. 0: not this way. */
int content_clone_later(struct content *from, struct content *to, const struct clone *cl, size_t nr)
	REQUIRES(from->lock, to->lock);
int content_catch_up(struct content *c, size_t max) REQUIRES(c->lock); /* with as many of them; -ENOMEM */
void content_forget_later(struct content *c); /* nobody needs them any more */

/* write_back.c */
/* Changes of the view, and the layers that are new in it. */
struct view_batch {
	struct db_batch *db;
	struct layer **layers; /* referenced; they have their numbers already */
	size_t nr, size;
};
int view_batch_init(struct engine *e, struct view_batch *b);
int view_batch_apply(struct view_batch *b); /* all, and empties it; or nothing, and it is kept */
void view_batch_release(struct view_batch *b); /* what has not been applied is not there */
/* Put the dirty parts into the view. No change between the two, since view_lock is held exclusively or the lock all
 * along. */
int content_write_back(struct content *c, struct view_batch *batch) REQUIRES(c->lock);
void content_written_back(struct content *c) REQUIRES(c->lock); /* the view has them */
/* The same for some of it, from segment *at on: 1: there is more; 0: that was all. The lock may be let go in
 * between. */
int content_write_back_slice(struct content *c, struct view_batch *batch, uint64_t *at) REQUIRES(c->lock);

/* The bytes of some extents of c, which begin at `off` of it, zeros between them. No lock, but inside e->users. */
int extents_read(struct content *c, const struct extent_list *l, void *p, size_t len, uint64_t off);
/* The logged state only, under the lock. */
int content_read_logged(struct content *c, void *p, size_t len, uint64_t off) REQUIRES(c->lock);

/* vacate.c */
/* Of sorted moves. The caller commits, then calls the second. */
/* is_shared: as shares_carry() says */
int vacate(struct engine *e, const struct move *m, size_t nr, bool is_shared, struct freed_totals *ret);
void vacate_forget_tables(struct engine *e, const struct move *m, size_t nr);

/* moving.c: two copies of a chunk, and a crash */
#define MOVING_NOTE "moving"
int moving_begin(struct engine *e); /* before the first copy; with gc.lock held, as those below. Costs a commit */
/* Point all files to the copies and give up the places that they were made of: `m`, in any order, is sorted. Adds what
 * was given up to *ret. On success, what was begun has ended; else moving_give_up(). */
int moving_complete(struct engine *e, struct move *m, size_t nr, struct freed_totals *ret);
int moving_end(struct engine *e); /* nothing was copied */
void moving_give_up(struct engine *e); /* there may be */
void moving_finish(struct engine *e); /* what a crash has left; while the engine is being opened */
int moving_load(struct engine *e); /* while the engine is being opened */
/* A chunk behind the marks of the note: if it is known at another place, it is a copy. */
int moving_meet(struct engine *e, struct fp fp, struct addr a, uint32_t len) REQUIRES(e->append_lock);

/* stage.c */
/* All that `w` waits for is in the log: it goes on to wait for a commit. */
void content_flushed(struct engine_waiter *w);
/* May drop and retake the lock. The job is queued or done or, with `later`, the caller's; what was there before is
 * queued. */
int stage_flush(struct content *c, struct job **later) REQUIRES(c->lock);
int stages_flush_all(struct engine *e);
bool stages_flush_oldest(struct engine *e); /* false: nothing is staged */

/* recut.c: all with the lock held, of a stage that is cut by content. */
uint32_t recut_takes(const struct content *c, uint64_t off, size_t len); /* as many bytes from off on; 0: none */
bool recut_is_full(const struct content *c, uint64_t off); /* and bytes from off on would go on with it */
/* c->stage_base, _start and _end for a write at off. No job of c is under way that overlaps so many bytes before it. */
#define RECUT_FRONT PACK_VARIED_LEN_MAX
void recut_begin(struct content *c, struct engine_buffer *b, uint64_t off) REQUIRES(c->lock);
/* Its whole chunks as a job, not submitted yet; the rest goes on in `b`. NULL: no memory, all is as it was. */
struct job *recut_advance(struct content *c, struct engine_buffer *b) REQUIRES(c->lock);
/* All of it as a job, which has the buffer; c->stage is not changed. recut_wait() before, which may drop the lock. */
void recut_wait(struct content *c) REQUIRES(c->lock);
struct job *recut_finish(struct content *c) REQUIRES(c->lock);

/* jobs.c */
int jobs_start(struct engine *e);
void jobs_stop(struct engine *e);
struct job *job_new(struct content *c, struct engine_buffer *b, const uint8_t *data, uint64_t off, uint32_t len);
void job_submit(struct content *c, struct job *j) REQUIRES(c->lock); /* fixes its place in the file's order */
void content_failed(struct content *c, int r) REQUIRES(c->lock); /* bytes are lost: flush and sync will say so */
void jobs_wait(struct content *c) REQUIRES(c->lock); /* for one or more; drops and retakes the lock */
/* Bytes on their way into packs. Wait until they are fewer, with no lock held. */
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
/* What all new bytes of c are fingerprinted with, as who owns it now. */
int content_tweak(struct content *c, struct fp *ret);
/* Are new bytes of both of the same domain, as who owns them now? 1/0/<0. Costs a look-up each, if there are
 * domains. */
int content_same_domain(struct content *a, struct content *b);
int content_may_share(struct content *from, struct content *to); /* 0 or -EXDEV, or <0 */

/* dedup.c */
int dedup_store(struct engine *e, const struct job *j, struct extent_list *ret);

/* dedup_append.c */
int dedup_sync_frames(struct engine *e, struct pack_marks *ret); /* all frames there are, durable */

/* collective.c */
bool collective_holds(struct engine *e) REQUIRES(e->append_lock); /* are full frames kept for a round? */
/* Keeps one that is full; returns the one that is to be written now, if any: there is no more room. */
struct pack_frame *collective_hold(struct engine *e, struct pack_frame *f) REQUIRES(e->append_lock);
/* others are told of new chunks after they are written */
bool collective_lets_go(const struct engine *e) REQUIRES(e->append_lock);
void collective_committed(struct engine *e); /* what comes now is for the next commit */
/* Room for so many more that are held; false: without memory. */
bool collective_make_room(struct engine *e, size_t nr) REQUIRES(e->append_lock);
/* Of `nr_taken`: those that are not NULL could not be written, and are held. Room there is. */
void collective_put_back(struct engine *e, struct pack_frame **frames, size_t nr) REQUIRES(e->append_lock);
/* Writes frames that packs_sync_begin() has taken, in a round if there can be one, and syncs. Those that could not be
 * written are left in `frames`, the others NULL. */
int collective_sync(struct engine *e, struct pack_frame **frames, size_t nr, struct pack_marks *ret);
void collective_arrive(struct engine *e) REQUIRES(e->append_lock); /* what is on its way is this commit's */
void collective_tell(struct engine *e); /* others, of what was written without a round; with no lock */
void collective_want(struct engine *e); /* a round, soon; with no lock */
unsigned collective_spare(const struct engine *e); /* frames that are held at once, most of the time */
void collective_release(struct engine *e);

/* shares.c */
int shares_load(struct engine *e, const struct pack_marks *marks);
void shares_stats(struct engine *e, struct engine_stats *ret);
void shares_release(struct engine *e);
/* As packs ask (packs_conf): what is away, and if that is not settled, it counts as gone. */
int shares_fate(struct engine *e, uint32_t pack, uint32_t frame, struct pack_fate *ret);
int shares_fetch(void *engine, uint32_t pack, uint32_t frame, const struct pack_away *chunks, size_t nr);
/* The number of a node; one that has none gets the next, and is not missed until it is met. */
int shares_number(struct engine *e, const struct cluster_node *n, uint16_t *ret) REQUIRES(e->shares.lock);
/* with the next commit of notes */
void shares_forget(struct engine *e, uint32_t number, bool is_forgotten) REQUIRES(e->shares.lock);
/* shares_sure.c: the chunk that holds `a` is here, or elsewhere in such a way that new data may rely on it. Cheap where
 * nothing is shared, and where all take part and there are no copies of other nodes' directories. */
struct shares_look { /* what was noted of the frame that was looked at last; of pack 0, which there is not: none */
	uint32_t pack, frame;
	int found;
	struct share_frame note;
};
bool shares_is_sure(struct engine *e, struct addr a, struct shares_look *look);
bool shares_any_unsure(struct engine *e); /* there may be chunks that are not */
/* Where a chunk lies, by what memory or RocksDB know, if it may be shared; `here`: with its bytes. 1/0/<0 */
int shares_find(struct engine *e, struct fp fp, uint32_t len, bool here, struct addr *ret);
void shares_put(const struct share_frame *f, uint32_t pack, uint32_t frame, struct buf *records);
/* A chunk that is here, whatever its length. */
int shares_find_here(struct engine *e, struct fp fp, struct addr *ret, uint32_t *ret_len);
/* These notes are durable, with the marks (NULL as for commit_notes()), and the view has them. */
int shares_commit(struct engine *e, const struct pack_marks *marks, struct buf *records) REQUIRES(e->shares.lock);
void shares_del(uint32_t pack, uint32_t frame, struct buf *records);

/* shares_gc.c */
int shares_mark_lent(struct engine *e, struct db_snapshot *state, struct gc_window *w); /* they are live */
bool shares_has_pack(struct engine *e, uint32_t pack); /* the collector moves nothing of it */
bool shares_is_before(const struct pack_marks *marks, uint32_t pack, uint32_t frame); /* it was there then */
/* Is a round, or what one has left, still at this frame? 1/0/<0 */
int shares_is_settling(struct engine *e, uint32_t pack, uint32_t frame);
/*
 * Chunks are gone, as `tx` says: with it notes and totals change, and all of that is durable. The deletions that made
 * them dead are, too: the log is not where notes are, and may lag behind them.
 */
struct shares_gone {
	uint32_t pack, frame; /* frame UINT32_MAX: all of the pack */
	uint64_t gone[PACK_GONE_WORDS];
};
int shares_give_up(struct engine *e, struct engine_tx *tx, const struct shares_gone *gone, size_t nr);

/* shares_carry.c */
/*
 * These chunks have moved, nobody is about to refer to an old place, and all files refer to the new ones. 1: that is
 * durable, and so is that what was lent at an old place is lent at its new one; 0: nothing is shared with other nodes.
 * From here until shares_carried() nothing is lent at an old place. `m` is sorted, and borrowed as long; gc.lock is
 * held.
 */
int shares_carry(struct engine *e, const struct move *m, size_t nr);
void shares_carried(struct engine *e);
bool shares_any_moved(struct engine *e, const struct addr *where, size_t nr) REQUIRES(e->shares.lock);
/* keep.c: notes for chunks that are here, in any order; what was noted before stays. -EAGAIN: one is not here after
 * all */
int shares_note_lent(struct engine *e, struct addr *where, size_t nr, struct buf *records) REQUIRES(e->shares.lock);

/* together.c */
/* Something begins that ends with a note about another node's chunk; shares_settled() ends it. -EAGAIN: not while nodes
 * collect together. */
int shares_settling(struct engine *e, bool even_then);
void shares_settled(struct engine *e);
/* They may refer to what is lent; committed with the next notes. */
int shares_meet(struct engine *e, const struct cluster_node *nodes, size_t nr) REQUIRES(e->shares.lock);

/* commit.c */
int commit_frames(struct engine *e, struct pack_marks *ret); /* all there are, durable; nothing of the log */
/*
 * A group of their own. `marks` are those of the sync that is under way, and the caller is the one who is at it; NULL:
 * the latest of those that are over.
 */
int commit_notes(struct engine *e, const struct pack_marks *marks, const struct buf *records);
void commit_durable(struct engine *e, struct pack_marks *ret); /* all before these is on the disk */
/* its first half, that is, unless somebody is at it: whoever comes has less to do */
void commit_begin(struct engine *e);
int engine_sync_patiently(struct engine *e); /* engine_sync() that nobody waits for: there is time to compress */

/* txlog.c */
int log_append(struct engine *e, uint8_t type, const struct buf *record, uint64_t *ret_end);
int log_append_records(struct engine *e, const struct buf *records, uint64_t *ret_end); /* of journal_record_add() */
void log_throttle(struct engine *e); /* keeps the log in memory bounded; no lock held */
#define RECORD_BYTES 64 /* about as much as a record takes; more where it has many extents */
int log_admit_growth(struct engine *e, size_t len); /* for all but what deletes; may commit, so under no lock */
int log_apply_record(struct engine *e, uint8_t type, const void *p, size_t len, struct db_batch *batch);

/* view.c */
#define LAYERS_NOTE "layers"
int view_flush(struct engine *e, bool snapshot);
int view_write_back(struct engine *e);
int view_put_position(struct db_batch *batch, struct engine *e, uint64_t number, const struct pack_marks *marks);
/* All that a snapshot of the journal holds, of a pinned state or, NULL, as it is now. */
int view_write_state(struct db *db, const struct db_snapshot *state, const struct pack_marks *marks,
		     struct journal_snapshot *s);
bool view_wants_flush(struct engine *e);
/* For what is little in the log and much in the view, after log_admit_growth(): what waits for the latter stays
 * bounded, and the disk has room for it, or a collection could not begin. May write the view out, so under no lock. */
int view_admit_growth(struct engine *e);
bool view_wants_snapshot(struct engine *e);

/* absorb.c */
int absorb_load(struct engine *e); /* at open: fingerprints of frames RocksDB has not seen */
int absorb(struct engine *e); /* not while chunks are moved */
int absorb_loaded(struct engine *e); /* of a store that is being opened */
/* Before a job appends: with a table that is being ingested the other one may take half of that, then it waits. */
int absorb_throttle(struct engine *e) REQUIRES(e->append_lock);
bool absorb_wanted(struct engine *e);
void absorb_share_memory(struct engine *e); /* what the tables do not need, others may use */

/* filter.c */
int filter_tend(struct engine *e); /* by the background thread, often */
void filter_add(struct engine *e, const struct fingerprint_entry *entries, size_t n); /* before they go to RocksDB */
void filter_release(struct engine *e);

/* freed.c */
int freed_load(struct engine *e, uint32_t **ret_removed, size_t *ret_nr); /* at open; caller frees */
int freed_fate(void *engine, uint32_t pack, uint32_t frame, struct pack_fate *ret);
void freed_put_frame(struct engine_tx *tx, uint32_t pack, uint32_t frame, const struct freed_frame *f);
/* An entry of the fingerprint table. */
bool freed_is_stale(void *engine, const void *key, size_t key_len, const void *value, size_t len);
void freed_so_far(struct engine *e, struct freed_totals *ret);
/* What is gone goes into the log together with the sums that count it: of two transactions one may fail. */
int freed_apply(struct engine *e, struct engine_tx *tx, const struct freed_totals *t);
/* Likewise, with shares_give_up(). */
struct shares_gone;
int freed_give_up(struct engine *e, struct engine_tx *tx, const struct freed_totals *t, const struct shares_gone *gone,
		  size_t nr);
/* The collector wants it back: it must not be shared. Inside e->users. */
bool freed_condemned(struct engine *e, struct addr a);
/* What enters the log is referred to from now on. view_lock held shared. */
void freed_referred(struct engine *e, const struct extent *x, size_t nr);

/* compress.c */
struct pack_compression compress_for_pack(struct compress c);
/* Of compress=auto: is there time? What others do is counted for it, and with leaf locks only. */
void compress_init(struct engine *e);
void compress_release(struct engine *e);
enum pack_time compress_time_for(void *engine, uint32_t bytes);
bool compress_is_disturbed(void *engine);
void compress_job_begins(struct engine *e);
void compress_job_ends(struct engine *e);
void compress_wait_begins(struct engine *e); /* of someone who waits for jobs or a commit */
void compress_wait_ends(struct engine *e);

/* heal.c */
void heal_note(struct engine *e, struct addr damaged, uint32_t len, struct addr to); /* the same chunk, stored again */
int heal_tend(struct engine *e); /* by the background thread, often */
int heal_now(struct engine *e); /* all that has been noted, unless a collection is running */

/* scrub.c */
int scrub_load(struct engine *e); /* at open */

/* keeper.c */
int keeper_start(struct engine *e);
void keeper_stop(struct engine *e);

/* recover.c */
int recover_view(struct engine *e, struct pack_marks *ret); /* journal into the view; what the packs are cut at */

/* space.c */
int space_check(struct engine *e, uint64_t need); /* -ENOSPC */
int space_wait(struct engine *e, uint64_t need); /* the same beside all that is on its way; no lock is held */
void reserve_make(struct engine *e);		   /* if there is room and none yet */
int reserve_for_opening(struct engine *e);
bool reserve_release(struct engine *e); /* but for what an opening needs; true: room was made, try again */
