/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The dedup engine: the interface of a store for every producer of data (fs, gpu, mpi-agent).
 *
 * A store holds names and attributes, changed by transactions on key-value pairs (index/namespace_table.h), and file
 * contents, changed through `struct content`. Both kinds of changes enter one log in the order in which they take
 * effect. A commit makes a prefix of that log durable. After a crash the store is therefore in the state of a single
 * moment, no older than the last acknowledged sync: there is never a rename without the data it names, and never half a
 * file.
 *
 * Written bytes enter the log once they have been chunked, fingerprinted and given an address, shortly after
 * content_write() returns, and in write order within a file. content_flush() waits for this: call it before a change
 * that must not overtake the data (rename, link, close).
 *
 * Every function may be called from any thread. Errors are negative errno values.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/cdc.h"
#include "base/fp.h"
#include "index/namespace_table.h"
#include "store/codec/coding.h"

struct content;
struct db;
struct engine;
struct job;

/* Compression of new data, applied where it saves space. */
struct compress {
	enum compress_kind {
		COMPRESS_NONE,
		COMPRESS_LZ4,
		COMPRESS_ZSTD,
		COMPRESS_AUTO, /* lz4, while it does not delay writers */
	} kind;
	int level; /* zstd level, 1 to 19; 0: the zstd default */
};
/* Accepts "none", "lz4", "zstd", "zstd:LEVEL" and "auto"; -EINVAL otherwise. */
int compress_parse(const char *s, size_t len, struct compress *ret);

/* Chunking of new data: fixed-size pages; content-defined, so that data is found again after it has moved; or pages
 * that are also searched for at other offsets of the champions (previous versions). */
enum chunking { CHUNKING_PAGE, CHUNKING_CDC, CHUNKING_AUTO };
/* Accepts "page", "cdc" and "auto"; -EINVAL otherwise. */
int chunking_parse(const char *s, size_t len, enum chunking *ret);
/* Parses "MIN:MEAN:MAX" (sizes such as 512 or 4K). -EINVAL unless 256 <= MIN, 2 MIN <= MEAN, 2 MEAN <= MAX <= 64K. */
int chunking_parse_sizes(const char *s, struct cdc_params *ret);

struct cluster_calls;

struct engine_conf {
	uint64_t page;	      /* chunk size of new data: power of two, 4 KiB to 1 MiB */
	uint64_t cache;	      /* memory for lookups: fingerprints, tables, RocksDB */
	uint64_t dirty;	      /* memory for data not yet in packs */
	uint64_t commit_s;    /* a change becomes durable within this many seconds; 0: only on sync */
	uint64_t write_rate, read_rate; /* bytes of pack I/O per second, 0: unlimited */
	int hash;	      /* enum fp_kind; 0: FP_CLMUL for a new store, the stored kind for an existing one */
	/* 1 + enum fp_domain_kind; 0: FP_OF_ALL for a new store, the stored kind for an existing one */
	int dedup;
	const char *cluster;  /* key file for the fingerprints of a new store; NULL: random key */
	const struct cluster_calls *cluster_calls; /* calls of a store in a cluster, borrowed; NULL: stand-alone */
	uint64_t pending;     /* memory for chunks deferred until a round */
	struct compress compress;
	enum chunking chunking;
	struct cdc_params cdc; /* within the limits of chunking_parse_sizes(); zeros: the default */
	bool verify;	      /* compare bytes before sharing a chunk */
	bool read_only;
	/* Internal sizes; 0: the default. Tests set tiny values to reach every state transition early. */
	uint64_t pack_bytes;	    /* size of a full pack */
	uint64_t journal_segment;   /* size of a journal file */
	uint64_t snapshot_bytes;    /* journal bytes before a snapshot replaces them */
	uint64_t view_flush_bytes;  /* unflushed bytes of the view before it is flushed */
	uint64_t ingest_entries;    /* fingerprints in memory before RocksDB absorbs them */
	unsigned processors;	    /* that threads and pack streams are made for */
};

/*
 * Open a store; create it if `path` is missing or an empty directory. After a crash, opening recovers the store: it
 * truncates the packs at the last commit and replays the journal into the view. A store that needs no recovery can be
 * opened read-only on a read-only disk; nothing is written then. Every failure is logged in full. Error codes: -EBUSY
 * in use, -ENOTDIR not a directory, -EACCES/-EPERM no permission, -EOPNOTSUPP other version or unknown features,
 * -ENODATA index missing or unusable (fsck.ckptfs --rebuild), -EBADMSG damaged, -EEXIST not empty and not a store,
 * -EINVAL options contradict the store, -EROFS recovery is needed but the disk is read-only.
 */
int engine_open(const char *path, const struct engine_conf *conf, struct engine **ret);
/* Refuse (-EROFS) or allow all changes from now on. Not for a store opened read-only. Background work on existing data
 * continues. */
void engine_set_read_only(struct engine *e, bool read_only);
/* If engine_open() created the store, engine_close() removes it. For a store that was never used. */
void engine_discard_new(struct engine *e);
/* Commit everything and close. Returns the error of that last commit; the engine is freed either way. NULL is fine. */
int engine_close(struct engine *e);
/* Rebuild the index from packs and journal. The store must not be open. Progress is logged. */
int engine_rebuild(const char *path, const struct engine_conf *conf);

struct db *engine_db(struct engine *e); /* the view, for reading (ns_get_*) */
const struct fp_key *engine_key(const struct engine *e);
const uint8_t *engine_secret(const struct engine *e); /* FP_KEY_LEN bytes: the key is made from them */
const uint8_t *engine_store_id(const struct engine *e); /* 16 bytes */
int engine_root(const struct engine *e); /* descriptor of the store's directory, until the engine is closed */
uint64_t engine_created_ns(const struct engine *e); /* when the store was made, since 1970 */
bool engine_is_in_cluster(const struct engine *e); /* made with cluster= */

/* Transactions on names and attributes. Built on the stack and applied atomically: visible to ns_get_* at once, logged
 * before any later change, durable with the next commit. */
struct engine_tx {
	struct buf records;
	bool grows; /* deletes nothing: refused when the room left is needed for later deletions */
};
#define ENGINE_TX_EMPTY ((struct engine_tx){ .records = BUF_EMPTY })
#define ENGINE_TX_GROWING ((struct engine_tx){ .records = BUF_EMPTY, .grows = true })
void engine_tx_put(struct engine_tx *tx, struct ns_key key, const void *value, size_t len);
void engine_tx_del(struct engine_tx *tx, struct ns_key key);
void engine_tx_del_prefix(struct engine_tx *tx, struct ns_key prefix);
/* Drop an inode's bytes, recipe and size. Its content, if open, must not be written any more. */
void engine_tx_drop_content(struct engine_tx *tx, uint64_t ino);
int engine_tx_apply(struct engine *e, struct engine_tx *tx); /* empties tx; -ENOSPC, -EIO: no change */
void engine_tx_release(struct engine_tx *tx);

/* Allocate an inode number. A number is never reused during the life of a store. */
int engine_new_number(struct engine *e, uint64_t *ret);

/* Make everything in the log durable. Concurrent callers share one commit. */
int engine_sync(struct engine *e);
/* Asynchronous engine_sync(): `done` receives the result, from any thread, with no lock held, possibly before this call
 * returns. The calling thread may have to run a commit on behalf of other waiters first. */
struct engine_waiter {
	void (*done)(struct engine_waiter *w, int r); /* w belongs to the caller again */
	/* Private to the engine. */
	struct engine_waiter *next;
	uint64_t target; /* position of the log to wait for; before that, number of the content's jobs */
	struct content *c;
	uint64_t *seen;
	bool patient; /* latency does not matter, so there is time to compress */
};
void engine_sync_then(struct engine *e, struct engine_waiter *w);
/* Announce a sync that the caller will request after other work. Meanwhile another thread writes the data flushed so
 * far. */
void engine_sync_ahead(struct engine *e);

/*
 * Memory that carries data from the kernel to the packs without copying. `data` is aligned to 4 KiB and holds
 * ENGINE_BUFFER_SIZE bytes, with ENGINE_BUFFER_FRONT more in front of it for a request header. engine_buffer_get()
 * blocks while all of `dirty` is in use.
 */
#define ENGINE_BUFFER_SIZE ((size_t)1 << 20)
#define ENGINE_BUFFER_FRONT ((size_t)4096)
struct engine_buffer {
	uint8_t *data;
	struct engine_buffer *next;
};
unsigned engine_nr_buffers(const struct engine *e); /* of which a caller must leave some: writing needs them */
int engine_buffer_get(struct engine *e, struct engine_buffer **ret);
void engine_buffer_put(struct engine *e, struct engine_buffer *b); /* NULL is fine */

/* The bytes of one regular file. There is one reference-counted object per inode, however often it is opened. An inode
 * without content has an empty one. */
int content_open(struct engine *e, uint64_t ino, struct content **ret);
void content_close(struct content *c); /* NULL is fine; unflushed data is still processed */

/* Size, mapped bytes and data times as an application sees them now. */
void content_stat(struct content *c, struct ns_content *ret);
/* content_stat() for any inode, without opening it: from memory if loaded, else from the view. Zeros: no content. */
int content_peek(struct engine *e, uint64_t ino, struct ns_content *ret);
/* Set the files (champions) likely to hold the same bytes at the same offsets, most likely first. They stay open until
 * they are replaced or c is closed. */
#define CHAMPIONS_MAX 5u
void content_set_champions(struct content *c, const uint64_t *inos, unsigned n);

/* Override the configured compression for new bytes of c; NULL: as configured. A frame shared with other files is
 * compressed if any of them asks for compression. */
void content_set_compress(struct content *c, const struct compress *how);

/* Override the configured chunking for new bytes of c; NULL: as configured. Existing data is unchanged. */
void content_set_chunking(struct content *c, const enum chunking *how);

/* Copies p and returns once the engine holds the bytes. -ENOSPC, -EFBIG, -EIO. off == CONTENT_APPEND: append. */
#define CONTENT_APPEND UINT64_MAX
int content_write(struct content *c, const void *p, size_t len, uint64_t off);
/*
 * content_write() of bytes inside *b. May take the buffer instead of copying and then sets *b to NULL. A non-NULL
 * *remaining is work left over: the caller must run it, or queue it for the engine's threads, before waiting for
 * anything.
 */
int content_write_buffer(struct content *c, struct engine_buffer **b, const void *p, size_t len, uint64_t off,
			 struct job **remaining);
void job_run(struct job *j);
void job_queue(struct job *j); /* NULL is fine */
/* Returns the number of bytes read, fewer than len only at the end of the file. Every byte is verified; damage is
 * logged and returns -EIO. */
ssize_t content_read(struct content *c, void *p, size_t len, uint64_t off);
/* Call after replying to a reader: decodes the data likely to be read next, if any. */
void engine_read_ahead(struct engine *e);
/* Both take effect in parts of 256 MiB of data. -EINTR: cancelled (base/cancel.h), after some of them; the file then has
 * another size between its old one and the new one. */
int content_truncate(struct content *c, uint64_t size);
/*
 * Erase bytes of a removed file before its content is dropped, so that the drop takes a short time: a few hundred MiB
 * from *segment on, which is 0 at first and advances. 1: more are left; 0: none. The size is unchanged. Calls may be
 * spread over any time; after a crash they start over with 0.
 */
int content_erase_some(struct content *c, uint64_t *segment);
/* 1/0/<0: is it better erased before it is dropped? If not, a drop takes a fraction of a millisecond. */
int content_takes_steps(struct engine *e, uint64_t ino);
int content_punch(struct content *c, uint64_t off, uint64_t len); /* zeros, frees space; size unchanged */
/*
 * The bytes of a file that is no longer written are in another place, and are erased here (store/file/away.c). The
 * caller has applied a record of that place (ns_key_away()), after engine_expect_away(). Size and times stay. From here
 * on, and when it is opened again, all functions that read its bytes or recipe, or change bytes or size, fail with
 * -EREMOTE. -EINTR: cancelled; call it again.
 */
void engine_expect_away(struct engine *e); /* before the first such record is applied */
bool engine_expects_away(const struct engine *e); /* false: there is no such record */
int content_send_away(struct content *c);
bool content_is_away(const struct content *c);
/*
 * Reserve space for [off, off+len) until it is written, the file is truncated, or content_allocate_end(); with
 * `extend`, also extend the size. Bytes that have been written are reserved for writing them again; those that are
 * reserved already are not reserved twice. -ENOSPC: the store has less space left. The space is allocated on the disk
 * (space.c); which ranges it is for is known in memory only, so it ends with the mount.
 */
int content_allocate(struct content *c, uint64_t off, uint64_t len, bool extend);
void content_allocate_end(struct content *c); /* call when the last writer has closed */
/* Share bytes instead of copying. Ranges may be unaligned; within one file they must not overlap. *ret: bytes done.
 * -EXDEV: the files belong to different dedup domains, which share nothing. */
int content_clone(struct content *from, uint64_t from_off, struct content *to, uint64_t to_off, uint64_t len,
		  uint64_t *ret);
/* The same, but ends early, after a part that takes some 20 milliseconds. */
int content_clone_some(struct content *from, uint64_t from_off, struct content *to, uint64_t to_off, uint64_t len,
		       uint64_t *ret);
/*
 * content_clone() for many small ranges: one logged change per MiB of `to`, however many ranges it contains. Ranges are
 * sorted, do not overlap in `to`, and have len > 0. Parts beyond the end of a source become holes. A source may be `to`
 * itself if no range changes bytes that another range shares. On error some ranges may be done; on -EXDEV (as in
 * content_clone()) none are.
 */
struct content_patch {
	struct content *from;
	uint64_t from_off, off, len;
};
int content_patch(struct content *to, const struct content_patch *p, size_t nr);
/* Apply logged patches that are still pending to the recipe, as far as memory allows. Call it when idle, so that later
 * lookups do not have to. */
void content_catch_up_all(struct content *c);
/*
 * Compare by extents, without reading data. [off, equal_end) is known to be equal; [equal_end, differ_end) may differ
 * and must be read to find out; both ends are at most `end`. Costs time proportional to the extents; stops after those
 * of about 1 GiB of data. A hole common to both costs nothing, whatever its length.
 */
struct content_sameness {
	uint64_t equal_end, differ_end;
};
int content_compare(struct content *a, struct content *b, uint64_t off, uint64_t end, struct content_sameness *ret);
/* Bytes of a file as a sequence of chunks. All stores with the same key identify them by the same fingerprints. */
struct content_piece {
	struct fp fp; /* FP_NONE: a hole */
	uint32_t chunk_len; /* 1 to 1 MiB; 0 for a hole */
	uint32_t from; /* offset in the chunk */
	uint64_t len; /* bytes */
};
/* Lists the pieces of c from `off` on: up to `max`, contiguous. Returns their number; 0: end of file. */
int content_pieces(struct content *c, uint64_t off, struct content_piece *ret, size_t max);
/* A chunk, as a piece has it; the piece may be a part of it. */
struct content_chunk {
	uint64_t off; /* of any byte of the piece, in the file */
	struct fp fp;
	uint32_t len; /* of the chunk */
	void *buf; /* for the whole chunk */
};
/* Reads chunks, and verifies them. The caller changes no data meanwhile. -ESTALE: another chunk is there by now, because
 * the file was written or recoded; -EIO: damage, which is logged. */
int content_read_chunks(struct content *c, const struct content_chunk *v, size_t nr);
/* SEEK_DATA, SEEK_HOLE; -ENXIO past the end. A hole after more than 16 GiB of data may not be found. */
int content_seek(struct content *c, uint64_t off, int whence, uint64_t *ret);
int content_set_times(struct content *c, int64_t mtime_ns, int64_t ctime_ns);
/*
 * For callers that maintain times themselves, as the kernel does with a write-back cache. Every change sets the times
 * to now, so that after a crash new bytes never carry old times. content_restore_times() puts back the times last set,
 * or those from before the first change; content_keep_times() makes the present times the ones to put back. Restoring
 * is cheap if nothing has changed; otherwise it waits for earlier writes. A content without times gets mtime_ns and
 * ctime_ns.
 */
int content_restore_times(struct content *c, int64_t mtime_ns, int64_t ctime_ns);
void content_keep_times(struct content *c);

/*
 * Wait until everything written to c is in the log. An error that occurs after write() has returned is reported by
 * every flush until a sync has reported it; syncs report it once to each open file, independent of the others. `seen`
 * is the per-open-file state, initialized with content_errors() at open.
 */
int content_flush(struct content *c);
/* Flush, then engine_sync_then(). seen NULL: no particular open file. */
void content_sync_then(struct content *c, uint64_t *seen, struct engine_waiter *w);
uint64_t content_errors(struct content *c);

struct engine_space {
	uint64_t total, free, avail; /* of the disk under the store, in bytes; avail excludes the reserve */
};
int engine_space(struct engine *e, struct engine_space *ret);
/* The same for figures that must not wait for a disk: what the housekeeper saw in the last second or, if the disk hangs
 * or fails, before that. Returns the age in nanoseconds. */
uint64_t engine_space_seen(struct engine *e, struct engine_space *ret);

/* Garbage collection: frees chunks that no file refers to, concurrent with all other operations. One collection at a
 * time (-EBUSY). It may be stopped or killed at any moment; the next one continues from there. */
struct gc_report {
	uint64_t nr_packs, nr_packs_total, nr_frames, nr_recipes; /* examined */
	uint64_t live_chunks, live_bytes; /* referenced */
	uint64_t dead_chunks, dead_bytes; /* unreferenced */
	uint64_t dead_disk; /* disk space that punching them returns, without moving other chunks */
	uint64_t freed_chunks, freed_bytes;
	uint64_t nr_removed; /* packs removed */
	uint64_t nr_freed_layers; /* recipe layers removed from the index */
	uint64_t nr_moved_packs, moved_bytes; /* packs emptied by moving their live chunks, and bytes moved */
	/* fragmented files, and bytes of them rewritten in read order */
	uint64_t nr_placed, placed_bytes;
	bool complete; /* all packs since the last complete collection, or the start of this one, were examined */
};
struct gc_conf {
	bool delete; /* false: only report */
	unsigned move_below; /* percent: empty a pack with less live data than this; 0: never, only punch holes */
	bool place; /* defragment the newest files */
	size_t window_frames; /* frames examined per pass, which bounds memory; 0: 128 Ki */
	uint64_t budget_ns; /* stop after this time; 0: run to completion */
	uint64_t rate; /* pack bytes read and written per second; 0: unlimited */
	bool (*step)(void *userdata, const struct gc_report *so_far); /* progress; false: stop. NULL: none */
	void *userdata;
};
int engine_gc(struct engine *e, const struct gc_conf *conf, struct gc_report *ret);

/*
 * Compaction (recoding): the chunks of each variable, taken from all files that contain it, are stored once more side
 * by side, coded by their data type (store/codec), and all files are redirected to the new location. Chunks that do not
 * get smaller stay where they are. File contents do not change, and concurrent readers are not affected. Chunks already
 * coded are skipped, so a compaction may be stopped or killed at any moment and the next one continues. -EBUSY while a
 * collection or another compaction runs.
 *
 * The description of a file is only a hint: if it is wrong, the data is coded badly but not corrupted.
 */
struct compact_extent {
	uint32_t file; /* index into compact_conf.inos */
	uint64_t off, len; /* len > 0; off + len does not overflow */
};
struct compact_variable {
	/* key under which the result is recorded, up to VARIABLE_KEY_MAX bytes; NULL: not recorded */
	const char *key;
	struct coding_shape shape;
	const struct compact_extent *extent; /* grouped by file, each group in the variable's order */
	size_t nr_extents;
	size_t before; /* 1 + index (smaller than ours) of the same variable one step earlier; 0: none */
	/* 1 + index of the 32-bit float variable that this one was rounded from; it is placed with that one, and
	 * `before` is ignored */
	size_t wide;
};
#define COMPACT_CHAIN_MAX 15u

enum compact_order {
	COMPACT_WHOLE, /* one file after the other */
	COMPACT_TURNS, /* blocks of the files interleaved */
	COMPACT_BEST, /* per variable, the order with the smaller sample */
};
/* Result of one variable. In bytes of chunks, each counted once; steps coded together count with the first of them. */
struct compact_result {
	uint64_t plain; /* examined */
	/* plain bytes coded by this run; their size on disk before (a lower bound) and after */
	uint64_t coded, before, after;
	uint64_t kept; /* plain bytes left as they are because coding does not make them smaller */
	uint64_t known; /* coded by an earlier run */
	uint64_t code_ns; /* CPU time of coding */
	bool turns; /* the interleaved order was used */
	struct coder_spec coder; /* the last one used; undefined if `coded` is 0 */
};
struct compact_report {
	uint64_t nr_variables; /* completed */
	struct compact_result sum; /* without `turns` and `coder` */
	uint64_t freed, written; /* pack bytes as allocated on disk; valid at the end only */
	bool complete;
};
struct compact_conf {
	const uint64_t *inos;
	const struct compact_variable *variable;
	size_t nr_variables;
	/* one per variable, owned by the caller; written until the call returns, but never during step() */
	struct compact_result *result;
	enum compact_order order;
	uint64_t block; /* bytes per interleaved block */
	/* a step is coded against others up to this many steps away, at most COMPACT_CHAIN_MAX; 0: independently */
	unsigned chain;
	bool chain_forced; /* even if reading a step then reads more than its plain bytes */
	double budget; /* CPU seconds per GB; <= 0: no limit */
	bool dry_run; /* only report */
	bool yields; /* pause while writers are busy */
	uint64_t budget_ns, rate; /* as in gc_conf */
	/* progress, called often; false: stop. NULL: none */
	bool (*step)(void *userdata, const struct compact_report *so_far);
	void *userdata;
};
/* True while writers wait or keep the processors busy. `yields` checks this before each frame. */
bool engine_is_busy(struct engine *e);
int engine_compact(struct engine *e, const struct compact_conf *conf, struct compact_report *ret);

/* Recorded results of compacted variables by key: totals, and the last method used. A few bytes for each of the last
 * 1000 variables. */
#define VARIABLE_KEY_MAX 1024
struct variable_note {
	char *key;
	struct coder_spec coder;
	bool turns;
	uint64_t coded, before, after; /* bytes, as in compact_result */
	uint64_t code_ns;
	uint64_t last_ns; /* wall-clock time of the last compaction */
};
/* Next note in key order after `after`; NULL: the first. 1/0/<0; the caller frees the key. Searches up to 1000 notes in
 * memory. */
int engine_variable_next(struct engine *e, const char *after, struct variable_note *ret);

/*
 * Scrubbing: reads all committed data from disk once and compares it with its fingerprints, concurrent with all other
 * operations. A damaged chunk is recorded as if a reader had found it: reading it fails, and writing the same content
 * again repairs it. If a second copy of the content is known, it is repaired at once. One scrub at a time (-EBUSY). It
 * may be stopped or killed at any moment; the next one continues from there or from shortly before.
 */
struct scrub_sums {
	uint64_t nr_chunks, bytes; /* compared */
	uint64_t nr_damaged, nr_left; /* locations found damaged; of these, still damaged and referenced by files */
};
/* Persistent scrub state. */
struct scrub_state {
	uint32_t pack, frame; /* next frame to scrub; pack 0: start from the beginning */
	struct scrub_sums round; /* of the unfinished pass */
	uint64_t last_ns; /* wall-clock time of the last complete pass; 0: never */
	struct scrub_sums last; /* of the last complete pass */
};
struct scrub_report {
	uint64_t nr_frames, nr_chunks, bytes, read_bytes; /* examined; read_bytes: read from disk */
	uint64_t round_bytes, total_bytes; /* including earlier runs of this pass; approximate total */
	uint64_t nr_damaged; /* chunks */
	uint64_t nr_tables; /* tables, headers and packs that are damaged or missing */
	uint64_t nr_repaired, nr_unused, nr_left; /* of nr_damaged and nr_tables: repaired; unreferenced; neither */
	uint64_t nr_files, lost_bytes; /* files with unreadable ranges, and the bytes affected */
	const char *doing; /* current phase, one or two words */
	bool complete; /* everything committed at the start of the pass has been examined */
	bool is_named; /* affected files have been searched for; else nr_left is an upper bound */
};
struct scrub_conf {
	bool restart; /* start from the beginning instead of where the last run stopped */
	uint64_t budget_ns; /* stop after this time; 0: run to completion */
	uint64_t rate; /* pack bytes read per second; 0: unlimited */
	/* progress, called often; false: stop. NULL: none */
	bool (*step)(void *userdata, const struct scrub_report *so_far);
	/* Reports an unreadable range of a file. `path` is relative to the root; NULL: the file has no name. The
	 * callback itself may be NULL. */
	void (*hit)(void *userdata, const char *path, uint64_t ino, uint64_t off, uint64_t len);
	void *userdata;
};
int engine_scrub(struct engine *e, const struct scrub_conf *conf, struct scrub_report *ret);
void engine_scrub_state(struct engine *e, struct scrub_state *ret);

/*
 * Space that deleting a set of names would free: exact, as of the start of the call, concurrent with all other
 * operations. Time and I/O grow with the extents of the files and of those that share chunks with them; memory is a
 * fixed part plus 24 bytes per name. A file counts if all of its names are in the set. Open files without a name keep
 * their bytes and therefore count as sharing. If the back-reference table is incomplete, the first call reads all
 * recipes.
 */
struct exclusive_name {
	uint64_t dir;
	uint64_t cookie; /* of a name in dir; 0: all names in it, not recursively */
};
struct exclusive_report {
	uint64_t nr_files, size, mapped; /* that would be deleted */
	uint64_t nr_linked; /* files that would stay because of another name */
	uint64_t nr_chunks, bytes; /* distinct chunks that the files refer to */
	uint64_t exclusive_chunks, exclusive_bytes; /* of these, referenced by no other file */
	/* their compressed size; for part of a unit that was compressed together, its share of the unit */
	uint64_t exclusive_stored;
	/* disk space that a collection returns for them, if it moves no other chunk: whole blocks, with the table of a
	 * frame that becomes empty; nothing for a unit that was compressed together and that other files use too */
	uint64_t exclusive_disk;
	uint64_t nr_damaged; /* frames without a table; their chunks are not counted */
	/* progress: frames found so far, frames examined, recipes read */
	uint64_t nr_frames, nr_frames_done, nr_recipes;
	uint64_t nr_built; /* recipes read first because the back-reference table did not exist */
};
struct exclusive_conf {
	const struct exclusive_name *names;
	size_t nr_names;
	struct fp_domain owner; /* FP_OF_ALL: use `names`; else all files of this user or group, and no names */
	/*
	 * Memory for the list of files: 32 bytes for each name, and 24 more while they are sorted; 8 for each file of
	 * an owner. -E2BIG: more. 0: no limit
	 */
	size_t set_bytes;
	/*
	 * Called when `names` are listed, for each directory and each file: 0; -ENOENT: leave it out; <0: the result.
	 * NULL: none
	 */
	int (*check)(void *userdata, uint64_t ino);
	/* progress; false: -ECANCELED. NULL: none */
	bool (*step)(void *userdata, const struct exclusive_report *so_far);
	void *userdata;
};
int engine_exclusive(struct engine *e, const struct exclusive_conf *conf, struct exclusive_report *ret);

/* Totals of the files of one user or group. */
struct engine_owner {
	uint32_t id;
	uint64_t nr_files, size, mapped;
};
/* List users or groups that own files, ascending from `from`, at most `max`. kind is not FP_OF_ALL. Visits all
 * inodes. */
int engine_owners(struct engine *e, enum fp_domain_kind kind, uint64_t from, struct engine_owner *v, size_t max,
		  size_t *ret_nr);

/* Counters shown by ckptfs-stat. In bytes unless noted. */
struct engine_stats {
	uint64_t written;			/* by applications since the mount */
	uint64_t zero, champion, successor, memory, indexed, shifted, fresh; /* written bytes by outcome */
	uint64_t verified_different;		/* fingerprint matches that `verify` found to differ */
	uint64_t logical;			/* mapped bytes of all files */
	uint64_t stored_chunks, stored_bytes;	/* distinct chunks in packs */
	/* compressed size of these; after some were freed, estimated from the ratio of all ever stored */
	uint64_t compressed_stored;
	uint64_t compressed, compressed_to;	/* since the mount: plain bytes compressed, and their size */
	/* since the mount, plain bytes left uncompressed: incompressible; writers would have waited */
	uint64_t unshrinkable, uncompressed_busy;
	uint64_t pack_disk, journal_disk, index_disk;
	uint64_t read;				/* bytes read by applications */
	uint64_t table_hits, table_misses;
	uint64_t fptable_entries, fptable_memory, fptable_limit;
	uint64_t filter_memory;			/* 0: no filter in use */
	uint64_t segment_memory, dirty_memory, dirty_limit, cache_limit, index_memory, table_memory;
	uint64_t nr_commits, nr_commit_waiters;
	uint64_t commit_ns_sum;
	uint64_t unsynced_age_ns;		/* durability lag: age of the oldest change not yet durable */
	uint64_t nr_damaged, nr_repaired;
	/* in a cluster: chunks stored on peers (remote); chunks pinned by peers; fetched from peers since the mount;
	 * deferred until a round */
	uint64_t remote_bytes, pinned_bytes, fetched_bytes, pending_bytes;
	uint64_t nr_rounds; /* since the mount */
	uint64_t journal_number;
	bool direct_io;				/* packs bypass the page cache */
	bool parallel_reads;			/* no request for scattered data was read place by place */
};
void engine_stats(struct engine *e, struct engine_stats *ret);

/* Details of one file, shown by ckptfs-stat. */
struct content_info {
	uint64_t size, mapped, extents, frames; /* frames: places visited by a full read */
	struct fp fingerprint; /* over the recipe's chunk fingerprints in order: equal files have equal ones */
	bool durable;	       /* everything written is committed */
};
/* Takes time proportional to the chunks. A consistent snapshot, unless the file keeps changing during the call. */
int content_info(struct content *c, struct content_info *ret);
