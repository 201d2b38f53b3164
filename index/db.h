/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The RocksDB under index/: nothing else includes rocksdb/c.h.
 *
 * Two column families. `view` holds every table of names, attributes and recipes under one-byte
 * prefixes (index_format.h). One family, because the flush of one memtable is atomic by nature: the
 * view on disk is the state at one commit and carries that commit's number. No WAL: the journal is
 * the log. The memtable is written out only by db_view_flush(), never by RocksDB's own decision
 * (its limit is set far above the one the engine flushes at), so nothing uncommitted reaches disk.
 * `fingerprints` is fed by ingested SST files only and needs no order with the view: its entries
 * are hints that are checked against the packs.
 *
 * Foreign errors become errno here: -EBADMSG damaged, -ENOSPC, -EDQUOT, -EIO, -EBUSY (locked by another process).
 * All functions may be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct db;
struct db_batch;
struct db_iter;
struct db_snapshot;

enum db_family { DB_VIEW, DB_FINGERPRINTS };

struct db_conf {
	uint64_t cache;	    /* bytes for blocks, filters and indexes together */
	bool create;	    /* if it is missing */
	bool read_only;
};

int db_open(const char *dir, const struct db_conf *conf, struct db **ret);
void db_close(struct db *db); /* NULL is fine; unflushed changes are dropped */
int db_stopped(const struct db *db); /* <0: RocksDB refuses changes until the next db_open(); 0 */

/* 1 found (appended to *ret, which may be NULL to ask for presence), 0 absent, <0. */
int db_get(struct db *db, enum db_family family, const void *key, size_t key_len, struct buf *ret);
/* The same in a pinned state of the view; NULL: as it is now. */
int db_get_at(struct db *db, const struct db_snapshot *state, const void *key, size_t key_len, struct buf *ret);
/* For each of n equally long keys: 1/0 in found[i], and the value in values + i * value_len.
 * A value that is not value_len long is damage. */
int db_get_many(struct db *db, enum db_family family, const void *keys, size_t key_len, size_t n, void *values,
		size_t value_len, uint8_t *found);

/* Up to `max` entries with keys and values of these lengths from key `from` on, in order; `values` may be NULL. The
 * cache is not filled with them. */
int db_scan(struct db *db, enum db_family family, const void *from, void *keys, size_t key_len, void *values,
	    size_t value_len, size_t max, size_t *ret_nr);

/* A batch is applied to the view whole or not at all. It belongs to one thread. */
int db_batch_new(struct db *db, struct db_batch **ret);
void db_batch_put(struct db_batch *b, const void *key, size_t key_len, const void *value, size_t value_len);
void db_batch_del(struct db_batch *b, const void *key, size_t key_len);
/* Applies the batch and clears it for reuse. Fails only if RocksDB has stopped until the next db_open(): nothing
 * applied, b kept. */
int db_batch_apply(struct db_batch *b);
/* The same, bypassing the overlay: for large batches, which later callers would have to drain. */
int db_batch_apply_through(struct db_batch *b);
void db_batch_free(struct db_batch *b);
static inline void db_batch_freep(struct db_batch **b)
{
	db_batch_free(*b);
}

/* All keys with `prefix`, from `from` on (NULL: from the prefix), in order. Pins one state of the view. */
int db_iter_new(struct db *db, const struct db_snapshot *snapshot, const void *prefix, size_t prefix_len,
		const void *from, size_t from_len, struct db_iter **ret);
/* 1: next entry, borrowed until the next call; 0: end; <0. */
int db_iter_next(struct db_iter *it, const void **key, size_t *key_len, const void **value, size_t *value_len);
/* Moves to the first key at or after `from`, which must have the prefix of the iterator. */
void db_iter_seek(struct db_iter *it, const void *from, size_t from_len);
void db_iter_free(struct db_iter *it);
static inline void db_iter_freep(struct db_iter **it)
{
	db_iter_free(*it);
}

int db_snapshot_new(struct db *db, struct db_snapshot **ret);
void db_snapshot_free(struct db_snapshot *s);

/* Starts to flush the memtable; later writes go to a new one. */
int db_view_flush_start(struct db *db);
/* Waits until it is durable, or has failed. After a failure it stays in memory, reads and writes continue, and the next
 * flush includes it; db_view_flush_start() returns -ENOSPC or -EDQUOT until there is space for all. */
int db_view_flush_wait(struct db *db);
uint64_t db_view_unflushed(struct db *db); /* bytes in memtables */
bool db_view_is_flushed(struct db *db); /* nothing was changed since the last flush */

/* Add entries (equally long keys and values, key after key and value after value, sorted, distinct) to
 * `fingerprints` as one SST file, in parts: each has larger keys than the one before it, and only one needs to be in
 * memory. An entry that is there already is replaced. Durable after the commit. */
struct db_ingestion;
int db_ingestion_new(struct db *db, struct db_ingestion **ret);
int db_ingestion_add(struct db_ingestion *in, const void *keys, size_t key_len, const void *values, size_t value_len,
		     size_t n);
int db_ingestion_commit(struct db_ingestion *in); /* at least one entry was added, and nothing has failed */
void db_ingestion_free(struct db_ingestion *in); /* drops what was not committed; NULL is fine */
static inline void db_ingestion_freep(struct db_ingestion **in)
{
	db_ingestion_free(*in);
}
int db_compact(struct db *db, enum db_family family); /* when the node is idle; blocks */
/* Compactions drop stale entries. Set once for a family; called by RocksDB's threads until db_close(). */
typedef bool db_stale_fn(void *userdata, const void *key, size_t key_len, const void *value, size_t value_len);
void db_set_stale(struct db *db, enum db_family family, db_stale_fn *fn, void *userdata);

struct db_stats {
	uint64_t view_disk, fingerprints_disk; /* bytes of SST files */
	uint64_t fingerprints_nr;	       /* estimated */
	uint64_t memory;		       /* memtables, block cache, table readers */
	uint64_t view_nr; /* keys, estimated; without those since the last db_view_flush_wait() */
	uint64_t nr_reads;		       /* of single keys, and iterators made, since db_open() */
};
void db_stats(struct db *db, struct db_stats *ret);
uint64_t db_allocated(const struct db *db); /* disk space of all its files, in whole blocks; 0: cannot be listed */
