/*
 * The dedup engine: what every producer of data (fs, gpu, mpi-agent) sees of a store.
 *
 * It keeps two kinds of things: names and attributes, changed by transactions of keys and values
 * (index/namespace.h), and the bytes of files, changed through `struct content`. Both kinds of
 * changes enter one log in the order in which they take effect, and a commit makes a prefix of that log
 * durable. So after any crash the store is exactly what it was at one moment, not before the last
 * acknowledged sync: never a rename without the data it names, never half a file.
 *
 * Bytes take effect in the log when they have been cut, fingerprinted and given an address, a little
 * after content_write() returned; per file in the order they were written. content_flush() waits for it:
 * call it before a change that must not overtake the data (rename, link, close).
 *
 * Thread rule: everything may be called from any thread. Negative errno throughout.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/cdc.h"
#include "base/fp.h"
#include "index/namespace.h"
#include "store/code/coding.h"

struct content;
struct db;
struct engine;
struct job;

/* How new data is compressed, where it pays. */
struct compress {
	enum compress_kind {
		COMPRESS_NONE,
		COMPRESS_LZ4,
		COMPRESS_ZSTD,
		COMPRESS_AUTO, /* with lz4, as long as writers need not wait for it */
	} kind;
	int level; /* of zstd, 1 to 19; 0: its default */
};
/* "none", "lz4", "zstd", "zstd:LEVEL", "auto". -EINVAL: none of these. */
int compress_parse(const char *s, size_t len, struct compress *ret);

/* How new data is cut: into pages, or where its content says, so that it is found again when it has moved; or into
 * pages that are looked for in the champions' bytes, wherever they have moved to. */
enum chunking { CHUNKING_PAGE, CHUNKING_CDC, CHUNKING_AUTO };
/* "page", "cdc", "auto". -EINVAL: none of these. */
int chunking_parse(const char *s, size_t len, enum chunking *ret);
/* "MIN:MEAN:MAX" with sizes as 512 or 4K, and 256 <= MIN, 2 MIN <= MEAN, 2 MEAN <= MAX <= 64K. -EINVAL: not so. */
int chunking_parse_sizes(const char *s, struct cdc_params *ret);

struct cluster_calls;

struct engine_conf {
	uint64_t page;	      /* chunk size of new data: power of two, 4 KiB to 1 MiB */
	uint64_t cache;	      /* memory for look-ups: fingerprints, tables, RocksDB */
	uint64_t dirty;	      /* memory for data not yet in packs */
	uint64_t commit_s;    /* a change is durable after this many seconds at the latest; 0: only when asked */
	uint64_t write_rate, read_rate; /* bytes of pack I/O per second, 0: unlimited */
	int hash;	      /* enum fp_kind, 0: FP_CLMUL for a new store, as stored for an old one */
	int dedup;	      /* 1 + enum fp_domain_kind, 0: FP_OF_ALL for a new store, as stored for an old one */
	const char *cluster;  /* file whose bytes are the fingerprint key of a new store; NULL: random */
	const struct cluster_calls *cluster_calls; /* of such a store, borrowed; NULL: it goes by itself */
	uint64_t pending;     /* memory for chunks that wait for a round */
	struct compress compress;
	enum chunking chunking;
	struct cdc_params cdc; /* as chunking_parse_sizes() allows; zeros: the default */
	bool verify;	      /* compare bytes before sharing a chunk */
	bool read_only;
	/* Sizes of internal steps; 0: the default. Tests make them tiny so that every transition happens soon. */
	uint64_t pack_bytes;	    /* of a full pack */
	uint64_t journal_segment;   /* of a journal file */
	uint64_t snapshot_bytes;    /* of journal before a snapshot replaces it */
	uint64_t view_flush_bytes;  /* of unflushed view */
	uint64_t ingest_entries;    /* fingerprints in memory before RocksDB absorbs them */
};

/*
 * Open a store, creating it if `path` is missing or an empty directory. After a crash this recovers: cuts the packs
 * at the last commit and replays the journal into the view. The causes of failure are logged in full; the errno tells
 * them apart: -EBUSY in use, -ENOTDIR not a directory, -EACCES/-EPERM, -EOPNOTSUPP another version or unknown
 * features, -ENODATA the index is missing or unusable (fsck.ckptfs --rebuild), -EBADMSG damage, -EEXIST not empty and
 * not a store, -EINVAL options that contradict the store, -EROFS it is to be recovered and its disk is read-only. One
 * that is not, and only to be read, is read where it lies: nothing is written.
 */
int engine_open(const char *path, const struct engine_conf *conf, struct engine **ret);
/* Commit everything and close. The error of that last commit, if any; the engine is gone either way. NULL is fine. */
int engine_close(struct engine *e);
/* Packs and journal -> a new index. The store must not be open. Progress to the log. */
int engine_rebuild(const char *path, const struct engine_conf *conf);

struct db *engine_db(struct engine *e); /* the view, for reading (ns_get_*) */
const struct fp_key *engine_key(const struct engine *e);
const uint8_t *engine_store_id(const struct engine *e); /* 16 bytes */

/*
 * Transactions on names and attributes. Built on the stack, applied whole: visible to ns_get_* at once, in the
 * log before anything that starts later, durable with the next commit.
 */
struct engine_tx {
	struct buf records;
	bool grows; /* it deletes nothing: refused where what is deleted later would not find room any more */
};
#define ENGINE_TX_EMPTY ((struct engine_tx){ .records = BUF_EMPTY })
#define ENGINE_TX_GROWING ((struct engine_tx){ .records = BUF_EMPTY, .grows = true })
void engine_tx_put(struct engine_tx *tx, struct ns_key key, const void *value, size_t len);
void engine_tx_del(struct engine_tx *tx, struct ns_key key);
void engine_tx_del_prefix(struct engine_tx *tx, struct ns_key prefix);
/* Forget an inode's bytes, recipe and size. Whoever has its content open must not write to it any more. */
void engine_tx_drop_content(struct engine_tx *tx, uint64_t ino);
int engine_tx_apply(struct engine *e, struct engine_tx *tx); /* and empties it; -ENOSPC, -EIO: nothing happened */
void engine_tx_release(struct engine_tx *tx);

/* Numbers that are never given twice in the life of a store: inode numbers. */
int engine_new_number(struct engine *e, uint64_t *ret);

/* Make everything that is in the log durable. Concurrent callers share one commit. */
int engine_sync(struct engine *e);
/*
 * The same without waiting: `done` hears the result, from any thread that holds no lock, perhaps before this returns.
 * The thread that calls may have to commit for others before it gets away.
 */
struct engine_waiter {
	void (*done)(struct engine_waiter *w, int r); /* w is the caller's again */
	/* The engine's. */
	struct engine_waiter *next;
	uint64_t target; /* this much of the log; before that, of the content's jobs */
	struct content *c;
	uint64_t *seen;
	bool patient; /* so there is time to compress */
};
void engine_sync_then(struct engine *e, struct engine_waiter *w);
/* A sync is to come, but the caller has something else to do first: meanwhile another thread writes what has been
 * flushed so far. */
void engine_sync_ahead(struct engine *e);

/*
 * Memory that carries data from the kernel to the packs without a copy. `data` is 4 KiB aligned, has
 * ENGINE_BUFFER_SIZE bytes, and ENGINE_BUFFER_FRONT more before it for a request header. Getting one waits while
 * all of `dirty` is in use.
 */
#define ENGINE_BUFFER_SIZE ((size_t)1 << 20)
#define ENGINE_BUFFER_FRONT ((size_t)4096)
struct engine_buffer {
	uint8_t *data;
	struct engine_buffer *next;
};
int engine_buffer_get(struct engine *e, struct engine_buffer **ret);
void engine_buffer_put(struct engine *e, struct engine_buffer *b); /* NULL is fine */

/*
 * The bytes of one regular file. One object per inode however often it is opened; content_open() and
 * content_close() count. The content of an inode that has none yet is empty.
 */
int content_open(struct engine *e, uint64_t ino, struct content **ret);
void content_close(struct content *c); /* NULL is fine; unflushed data goes on being processed */

/* Size, mapped bytes and data times as an application sees them now. */
void content_stat(struct content *c, struct ns_content *ret);
/* The same of any inode, without opening it: what is in memory if there is something, else as the view has it. Zeros:
 * none. */
int content_peek(struct engine *e, uint64_t ino, struct ns_content *ret);
/* Inodes whose bytes at the same offset are likely the same as what comes, the likeliest first. They stay open until
 * others, or none, are set, or c is closed. */
#define CHAMPIONS_MAX 5u
void content_set_champions(struct content *c, const uint64_t *inos, unsigned n);

/* How its new bytes are compressed, instead of as the engine's configuration says; NULL: as that says. What is stored
 * together with bytes of others follows whichever of them wants to be compressed. */
void content_set_compress(struct content *c, const struct compress *how);

/* How its new bytes are cut, instead of as the engine's configuration says; NULL: as that says. What it has stays as
 * it is. */
void content_set_chunking(struct content *c, const enum chunking *how);

/* Copies p. Returns when the bytes are in the engine's hands. -ENOSPC, -EFBIG, -EIO. off == CONTENT_APPEND: at the
 * end. */
#define CONTENT_APPEND UINT64_MAX
int content_write(struct content *c, const void *p, size_t len, uint64_t off);
/*
 * The same for bytes inside *b; may take the buffer instead of copying, then *b is NULL afterwards. What is then left
 * to do (*later, if not NULL) is the caller's: run it, or queue it for the engine's threads, and wait for nothing
 * before.
 */
int content_write_buffer(struct content *c, struct engine_buffer **b, const void *p, size_t len, uint64_t off,
			 struct job **later);
void job_run(struct job *j);
void job_queue(struct job *j); /* NULL is fine */
/* Bytes read, fewer than len only at the end of the file. Every byte is checked: -EIO after logging what is damaged. */
ssize_t content_read(struct content *c, void *p, size_t len, uint64_t off);
/* When a reader has been answered: decode what he will likely want next, if anything. */
void engine_read_ahead(struct engine *e);
int content_truncate(struct content *c, uint64_t size);
int content_punch(struct content *c, uint64_t off, uint64_t len); /* zeros, no space; size stays */
/* Make [off, off+len) readable zeros where it is a hole and extend the size if told. Space is not reserved ahead:
 * nobody knows what will be new; but -ENOSPC if the store has less than len free. */
int content_allocate(struct content *c, uint64_t off, uint64_t len, bool extend);
/* Share bytes instead of copying them; ranges may be unaligned and, in one file, must not overlap. *ret: bytes done.
 * -EXDEV: the files are of different domains, which share nothing. */
int content_clone(struct content *from, uint64_t from_off, struct content *to, uint64_t to_off, uint64_t len,
		  uint64_t *ret);
/*
 * The same for many small ranges at once: one change per MiB of `to`, however many ranges lie in it. They are in order
 * and do not overlap in `to`, and have len > 0; what their sources do not have, behind their ends, becomes a hole. A
 * source may be `to` itself, if none of the ranges changes what another shares. After an error some have been done;
 * -EXDEV as content_clone(), and none has.
 */
struct content_patch {
	struct content *from;
	uint64_t from_off, off, len;
};
int content_patch(struct content *to, const struct content_patch *p, size_t nr);
/* What patches have logged is brought to where it is looked for, as far as memory allows. Who has the time does so
 * before somebody looks, who then would have to. */
void content_catch_up_all(struct content *c);
/*
 * From `off` on the two are known to be equal up to equal_end; from there up to differ_end they may not be, and have to
 * be read; both at most `end`. Nothing is read for it; takes time with the extents up to there.
 */
struct content_sameness {
	uint64_t equal_end, differ_end;
};
int content_compare(struct content *a, struct content *b, uint64_t off, uint64_t end, struct content_sameness *ret);
/* SEEK_DATA, SEEK_HOLE; -ENXIO past the end. */
int content_seek(struct content *c, uint64_t off, int whence, uint64_t *ret);
int content_set_mtime(struct content *c, int64_t mtime_ns);

/*
 * Wait until all that was written to c is in the log. An error that data met after write() had returned is told by
 * flushes until a sync has told it: by each opener's own, once, even if another's was first. So everyone who calls
 * fsync hears of it, and nobody hears it in another's place. `seen` is content_errors() at the opener's start.
 */
int content_flush(struct content *c);
int content_sync(struct content *c, uint64_t *seen); /* flush, then engine_sync(); seen NULL: nobody's in particular */
void content_sync_then(struct content *c, uint64_t *seen, struct engine_waiter *w); /* see engine_sync_then() */
uint64_t content_errors(struct content *c);

struct engine_space {
	uint64_t total, free, avail; /* bytes of the disk under the store; avail is less the reserve */
};
int engine_space(struct engine *e, struct engine_space *ret);

/*
 * Collecting garbage: chunks that no file refers to any more, while everything else goes on. One collection at a time
 * (-EBUSY). It may be stopped, or die, at any moment: the next one goes on from there.
 */
struct gc_report {
	uint64_t nr_packs, nr_packs_total, nr_frames, nr_recipes; /* looked at */
	uint64_t live_chunks, live_bytes; /* that are referred to */
	uint64_t dead_chunks, dead_bytes; /* that are not */
	uint64_t freed_chunks, freed_bytes; /* given back */
	uint64_t nr_removed; /* packs */
	uint64_t nr_freed_layers; /* of recipes, in the index */
	uint64_t nr_moved_packs, moved_bytes; /* whose live chunks were moved together elsewhere */
	/* files that were scattered: bytes stored once more in the order they are read */
	uint64_t nr_placed, placed_bytes;
	bool complete; /* all packs since the last complete one, or this one's beginning, were looked at */
};
struct gc_conf {
	bool delete; /* else only tell what could be */
	unsigned move_below; /* percent: a pack with less live in it is emptied. 0: never, only punched */
	bool place; /* bring what is scattered of the newest files together */
	size_t window_frames; /* looked at in one go: bounds its memory; 0: 128 Ki */
	uint64_t budget_ns; /* stop after this time; 0: when it is done */
	uint64_t rate; /* bytes of packs to read and write per second; 0: unlimited */
	bool (*step)(void *userdata, const struct gc_report *so_far); /* now and then; false: stop. NULL: none */
	void *userdata;
};
int engine_gc(struct engine *e, const struct gc_conf *conf, struct gc_report *ret);

/*
 * Compacting: the chunks of variables, of all files that have them, are stored once more side by side, coded by what
 * they are (store/code), and all files are pointed there. What does not get smaller stays where it is. Files keep their
 * bytes, whoever reads them meanwhile notices nothing. Chunks that are coded already are passed over: a compaction may
 * be stopped, or die, at any moment, and the next one does the rest. Not while a collection runs, nor another
 * compaction (-EBUSY).
 *
 * What is said of a file need not be true: it would only be coded badly.
 */
struct compact_extent {
	uint32_t file; /* number of its inode in compact_conf */
	uint64_t off, len; /* len > 0, and the sum does not overflow */
};
struct compact_variable {
	/* under which it is remembered what became of it, up to VARIABLE_KEY_MAX bytes; NULL: it is not */
	const char *key;
	struct coding_shape shape;
	const struct compact_extent *extent; /* those of one file after the other, each in the variable's order */
	size_t nr_extents;
	size_t before; /* 1 more than the number of the variable that it was a step before, a smaller one; 0: none */
	/* likewise: of 32-bit floats that this one was rounded from; it goes where that one goes, and `before` does not
	 * count */
	size_t wide;
};
#define COMPACT_CHAIN_MAX 15u

enum compact_order {
	COMPACT_WHOLE, /* one file behind the other */
	COMPACT_TURNS, /* blocks of them take turns */
	COMPACT_BEST, /* for each variable whichever a sample shows to be smaller */
};
/* What became of a variable. Bytes of chunks, each counted once; of steps that are coded together, all with the first
 * of them. */
struct compact_result {
	uint64_t plain; /* looked at */
	uint64_t coded, before, after; /* plain bytes that are coded now; what those took before, and take now */
	uint64_t kept; /* plain bytes that stay as they are: they do not get smaller */
	uint64_t known; /* that were coded before */
	uint64_t code_ns; /* CPU time of coding */
	bool turns; /* the order that was taken */
	struct coder_spec coder; /* that was used last; if `coded` is 0, it has no meaning */
};
struct compact_report {
	uint64_t nr_variables; /* done */
	struct compact_result sum; /* without order and coder */
	bool complete;
};
struct compact_conf {
	const uint64_t *inos;
	const struct compact_variable *variable;
	size_t nr_variables;
	/* of each, the caller's; written until the call returns, and between two steps only */
	struct compact_result *result;
	enum compact_order order;
	uint64_t block; /* bytes that take turns */
	/* a step is coded against others that are up to so many steps away, COMPACT_CHAIN_MAX at most; 0: by itself */
	unsigned chain;
	bool chain_forced; /* also where more would have to be read for a step than it has plain bytes */
	double budget; /* CPU seconds per GB; <= 0: no limit */
	bool dry_run; /* only tell what would be */
	bool yields; /* waits while writers are busy */
	uint64_t budget_ns, rate; /* as in gc_conf */
	bool (*step)(void *userdata, const struct compact_report *so_far); /* often; false: stop. NULL: none */
	void *userdata;
};
/* Do writers wait, or keep the processors busy, at this moment? What `yields` looks at before each frame. */
bool engine_is_busy(struct engine *e);
int engine_compact(struct engine *e, const struct compact_conf *conf, struct compact_report *ret);

/* What became of variables that were compacted, ever, by their keys: sums, and how it was done last. A few bytes for
 * each of the last 1000. */
#define VARIABLE_KEY_MAX 1024
struct variable_note {
	char *key;
	struct coder_spec coder;
	bool turns;
	uint64_t coded, before, after; /* bytes, as in compact_result */
	uint64_t code_ns;
	uint64_t last_ns; /* when, by the wall clock */
};
/* The one whose key comes next behind `after`; NULL: the first. 1/0/<0; the caller frees the key. From memory: a search
 * in up to 1000. */
int engine_variable_next(struct engine *e, const char *after, struct variable_note *ret);

/*
 * Scrubbing: what is committed is read from the disk once and compared with its fingerprints, while everything else
 * goes on. What is damaged is remembered as if a reader had met it: reading it fails, writing its content again heals
 * it. Where its content is known a second time it is mended at once. One scrub at a time (-EBUSY). It may be stopped,
 * or die, at any moment: the next one goes on from there, or from shortly before.
 */
struct scrub_sums {
	uint64_t nr_chunks, bytes; /* that were compared */
	uint64_t nr_damaged, nr_left; /* places that were damaged; that still are, and files refer to them */
};
/* What a store remembers of it. */
struct scrub_state {
	uint32_t pack, frame; /* where the next one goes on; pack 0: at the beginning */
	struct scrub_sums round; /* so far, if it goes on */
	uint64_t last_ns; /* when everything had been looked at for the last time, by the wall clock; 0: never */
	struct scrub_sums last; /* then */
};
struct scrub_report {
	uint64_t nr_frames, nr_chunks, bytes, read_bytes; /* looked at; read_bytes from the disk */
	uint64_t round_bytes, total_bytes; /* with what earlier ones had looked at; of about so many */
	uint64_t nr_damaged; /* chunks */
	uint64_t nr_tables; /* tables, headers and packs that are damaged or missing */
	uint64_t nr_mended, nr_unused, nr_left; /* of both: mended; no file refers to; neither */
	uint64_t nr_files, lost_bytes; /* files that cannot be read everywhere, and how much of them */
	const char *doing; /* a word or two */
	bool complete; /* everything that was committed when the round began has been looked at */
	bool is_named; /* files that are hit have been looked for; else nr_left is what may be */
};
struct scrub_conf {
	bool restart; /* at the beginning, wherever the last one stopped */
	uint64_t budget_ns; /* look at no more after this time; 0: until all is done */
	uint64_t rate; /* bytes of packs to read per second; 0: unlimited */
	bool (*step)(void *userdata, const struct scrub_report *so_far); /* often; false: stop. NULL: none */
	/* Bytes of a file that cannot be read; `path` from the root, NULL: it has no name. NULL: nobody wants to
	 * know. */
	void (*hit)(void *userdata, const char *path, uint64_t ino, uint64_t off, uint64_t len);
	void *userdata;
};
int engine_scrub(struct engine *e, const struct scrub_conf *conf, struct scrub_report *ret);
void engine_scrub_state(struct engine *e, struct scrub_state *ret);

/*
 * What would be free if some names were deleted: exactly, as of one moment, the beginning of the call, while
 * everything goes on. Time and I/O grow with the extents of their files and of those that share with them, memory with
 * the number of names (24 bytes each) beside a fixed part. A file counts if all its names are among them. Files that
 * are open though they have no name still have their bytes, and so share. The first time in the life of a store of an
 * older version all recipes are read.
 */
struct exclusive_name {
	uint64_t dir;
	uint64_t cookie; /* of a name in it; 0: all of them, but not what is in directories below */
};
struct exclusive_report {
	uint64_t nr_files, size, mapped; /* that would be gone */
	uint64_t nr_linked; /* files that would not: they have another name elsewhere */
	uint64_t nr_chunks, bytes; /* distinct ones that they refer to */
	uint64_t exclusive_chunks, exclusive_bytes; /* of these, what nobody else does */
	/* what that takes as compressed; of a part of what was compressed together its share */
	uint64_t exclusive_stored;
	uint64_t nr_damaged; /* frames without a table: what is in them is not counted */
	/* how far it has come; frames found so far, looked at, and recipes read */
	uint64_t nr_frames, nr_frames_done, nr_recipes;
	uint64_t nr_built; /* recipes that were read first, for want of the table */
};
struct exclusive_conf {
	const struct exclusive_name *names;
	size_t nr_names;
	struct fp_domain owner; /* FP_OF_ALL: none; else all files of a user or a group, and no names */
	/* now and then; false: -ECANCELED. NULL: none */
	bool (*step)(void *userdata, const struct exclusive_report *so_far);
	void *userdata;
};
int engine_exclusive(struct engine *e, const struct exclusive_conf *conf, struct exclusive_report *ret);

/* What a user's files, or those of a group, come to. */
struct engine_owner {
	uint32_t id;
	uint64_t nr_files, size, mapped;
};
/* Those who have files, by ascending numbers from `from` on, `max` at most; kind is not FP_OF_ALL. Takes time with all
 * inodes. */
int engine_owners(struct engine *e, enum fp_domain_kind kind, uint64_t from, struct engine_owner *v, size_t max,
		  size_t *ret_nr);

/* What ckptfs-stat shows. Bytes unless said. */
struct engine_stats {
	uint64_t written;			/* by applications since the mount */
	uint64_t zero, champion, successor, memory, indexed, shifted, fresh; /* written, by what became of it */
	uint64_t verified_different;		/* matches that verify found to differ */
	uint64_t logical;			/* mapped bytes of all files */
	uint64_t stored_chunks, stored_bytes;	/* distinct chunks in packs */
	/* what they take, compressed; if some are gone, by the ratio of all ever stored */
	uint64_t compressed_stored;
	uint64_t compressed, compressed_to;	/* since the mount: plain bytes that were compressed, and to how many */
	/* likewise those that were not: it does not pay; writers would have waited */
	uint64_t unshrinkable, uncompressed_busy;
	uint64_t pack_disk, journal_disk, index_disk;
	uint64_t read;				/* bytes read by applications */
	uint64_t table_hits, table_misses;
	uint64_t fptable_entries, fptable_memory, fptable_limit;
	uint64_t filter_memory;			/* 0: none in use */
	uint64_t segment_memory, dirty_memory, dirty_limit, cache_limit, index_memory, table_memory;
	uint64_t nr_commits, nr_commit_waiters;
	uint64_t commit_ns_sum;
	uint64_t unsynced_age_ns;		/* durability lag: age of the oldest change not yet durable */
	uint64_t nr_damaged, nr_healed;
	/* of a cluster: chunks that others have; that others have from here; came from others since the mount; wait for
	 * a round */
	uint64_t elsewhere_bytes, lent_bytes, fetched_bytes, pending_bytes;
	uint64_t nr_rounds; /* since the mount */
	uint64_t journal_number;
	bool direct_io;				/* packs bypass the page cache */
};
void engine_stats(struct engine *e, struct engine_stats *ret);

/* What ckptfs-stat shows of one file. */
struct content_info {
	uint64_t size, mapped, extents, frames; /* frames: places a full read has to visit */
	struct fp fingerprint; /* of the recipe's chunk fingerprints in order: equal files have equal ones */
	bool durable;	       /* everything written is committed */
};
int content_info(struct content *c, struct content_info *ret);
