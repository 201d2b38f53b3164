/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The journal: the ordered log of every committed change. Together with the packs it is the authoritative state of the
 * store.
 *
 * It is a sequence of groups, one per commit, numbered from 1 without gaps. A group is written with one write and
 * carries its number, its length and a checksum over all of it, so it is either complete or absent. A group consists of
 * records (type, bytes), which the journal does not interpret.
 *
 * Files: journal/<first number, 16 hex digits>.log, preallocated and zero-filled so that an append changes no file
 * metadata and fdatasync is one flush; journal/<number>.snap, the live state as of that commit, which replaces
 * everything before it; journal/spare, a segment allocated in advance, so that deletions are possible on a full disk.
 *
 * Crash order of an append: write the group, fdatasync, acknowledge. A group torn by a crash fails its checksum and, as
 * the last group, is ignored. A group that fails its checksum and is followed by a valid group with a later number is
 * damage and not a torn tail: -EBADMSG.
 * Crash order of a snapshot: write a .tmp, fsync, rename, fsync the directory, unlink the files it replaces. A stray
 * .tmp is removed on open; older files that survive are ignored and removed.
 *
 * Thread rule: append from one thread at a time; another thread may write a snapshot at the same time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct journal;
struct journal_reader;
struct journal_snapshot;

struct journal_conf {
	uint8_t store_id[16];
	uint64_t segment_bytes; /* of a .log file; 0: 16 MiB; the first files of a journal are smaller, from 1 MiB on */
	bool read_only;
	bool spare_by_caller; /* the caller calls journal_prepare(); else open and append do */
};

/* `dirfd` is journal/ itself, used until journal_close() and not closed. Finds the end and cuts off a torn tail. */
int journal_open(int dirfd, const struct journal_conf *conf, struct journal **ret);
void journal_close(struct journal *j); /* NULL is fine */

uint64_t journal_last(const struct journal *j);	   /* number of the last group, 0: none */
uint64_t journal_snapshot_number(const struct journal *j); /* newest snapshot, 0: none */
uint64_t journal_bytes_since_snapshot(const struct journal *j);

/* Add a record to a buffer of the caller; several records form a group. */
void journal_record_add(struct buf *group, uint8_t type, const void *p, size_t len);
/* Append records as group journal_last() + 1 and make it durable. On an error (ENOSPC, EIO) nothing has been appended,
 * and the same call may be retried; if it is not, the next open may still find the complete group. */
int journal_append(struct journal *j, const void *records, size_t len);
/* The same without compression, for callers that have no time. */
int journal_append_as_is(struct journal *j, const void *records, size_t len);
/*
 * The same for a group that depends on data that is written, but not synced: the data is synced at the same time.
 * start() is called when the group is written; finish() when it is synced: it makes the data durable, or fails, and
 * then nothing has been appended. Neither is called if the group could not be written.
 * Until the next group is appended, a crash may leave this one intact without that data. So the caller checks that after
 * it has opened the journal, and calls journal_drop_last() if the data is missing.
 */
struct journal_beside {
	void (*start)(struct journal_beside *b);
	int (*finish)(struct journal_beside *b);
	int result; /* out: of finish() */
};
int journal_append_joint(struct journal *j, const void *records, size_t len, struct journal_beside *b);
/* Was the last group found on opening, or appended since, one of journal_append_joint()? */
bool journal_last_is_joint(const struct journal *j);
/* Remove the last group, durably; before anything is appended or read. In a journal that is open read-only it is only
 * ignored. */
int journal_drop_last(struct journal *j);
/* Allocate the next segment in advance, for a full disk and so that no append waits for it. Writes and syncs a whole
 * segment once per segment; otherwise free. From any thread. Errors are logged, and retried after some appends. */
int journal_prepare(struct journal *j);

/* Start again with small segments: the next group starts a segment of the first size, and the spare is removed. For a
 * store that has become small again; the older segments are removed with the next snapshot. */
void journal_shrink(struct journal *j);

/* Read groups after number `after`, oldest first. `after` 0: everything in the journal, beginning with the snapshot,
 * which is returned in several parts of bounded size that all have the number of the snapshot. -ENOENT: groups after
 * `after` have been replaced by a newer snapshot; start from 0. */
int journal_read(struct journal *j, uint64_t after, struct journal_reader **ret);
/* 1: a group, borrowed until the next call; 0: end; -EBADMSG: damage; -ENOENT: a snapshot committed since
 * journal_read() has replaced what comes next. */
int journal_read_next(struct journal_reader *r, uint64_t *number, bool *is_snapshot, const void **records, size_t *len);
void journal_reader_free(struct journal_reader *r);
static inline void journal_reader_freep(struct journal_reader **r)
{
	journal_reader_free(*r);
}

/* Records within a group. On the stack, borrowing. 1/0/-EBADMSG. */
struct journal_iter {
	const uint8_t *p, *end;
};
struct journal_iter journal_iter(const void *records, size_t len);
int journal_iter_next(struct journal_iter *it, uint8_t *type, const void **p, size_t *len);

/* Write the live state as of group `number`, piece by piece, then remove the files it replaces. One snapshot at a time
 * (-EBUSY); `number` is above that of the newest snapshot and not above journal_last() (-EINVAL). */
int journal_snapshot_new(struct journal *j, uint64_t number, struct journal_snapshot **ret);
int journal_snapshot_add(struct journal_snapshot *s, uint8_t type, const void *p, size_t len);
int journal_snapshot_commit(struct journal_snapshot *s); /* frees s either way */
void journal_snapshot_abort(struct journal_snapshot *s); /* NULL is fine */

struct journal_stats {
	uint64_t disk_bytes, nr_groups, nr_files, snapshot_bytes;
};
void journal_stats(struct journal *j, struct journal_stats *ret);
