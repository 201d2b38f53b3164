/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Declarations shared by the files of the journal. Not included outside this folder. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/mutex.h"
#include "store/journal/journal.h"
#include "store/journal/journal_format.h"

#define SPARE_NAME "spare"	   /* zero-filled and durable: the next segment */
#define SPARE_TMP_NAME "spare.tmp" /* a spare being made */
#define NEW_TMP_NAME "new.tmp"	   /* a segment being made because there is no suitable spare */
#define SNAP_TMP_NAME "snap.tmp"   /* a snapshot being written; one at a time */

struct journal_segment {
	uint64_t first, last; /* groups; last = first - 1: none yet */
	uint64_t size, end;   /* bytes of the file, and offset of the next group */
};

/* Working memory for compression, kept from one group to the next. { 0 } has none. */
struct journal_coder {
	struct ZSTD_CCtx_s *zstd;
	uint8_t *payload;
	size_t room;
};

/* One thread at a time turns NONE or READY into BUSY and owns the spare's files until it sets the outcome. */
enum journal_spare { SPARE_NONE, SPARE_BUSY, SPARE_READY };

struct journal {
	int dirfd; /* constant after journal_open(), as are all up to the next comment */
	uint8_t store_id[JOURNAL_ID_LEN];
	uint64_t segment_bytes;
	bool read_only, spare_by_caller;

	/* Used by the appending thread only. */
	int fd;		    /* current segment; -1: the next group needs a new one */
	uint64_t off, size; /* offset of the next group, and bytes of the segment */
	uint64_t stale_end; /* > off: a failed write may have left bytes up to here */
	uint64_t last_bytes; /* of the last group, which ends at `off`, if it is joint; else 0 */

	struct journal_coder coder;

	/* Read by any thread, without the lock. */
	_Atomic uint64_t last, snapshot_number, snapshot_bytes;
	_Atomic uint64_t appended;	/* bytes of groups after the snapshot found on open; never decreases */
	_Atomic uint64_t snapshot_mark; /* `appended` as of the newest snapshot */

	struct mutex lock; /* leaf; never held across I/O */
	struct journal_segment *segments GUARDED_BY(lock); /* in order of `first`; the last is the current one */
	size_t nr_segments GUARDED_BY(lock), room GUARDED_BY(lock);
	enum journal_spare spare GUARDED_BY(lock);
	uint64_t spare_bytes GUARDED_BY(lock);
	uint64_t spare_next_try GUARDED_BY(lock); /* in terms of `appended` */
	bool shrink GUARDED_BY(lock); /* the next group starts a segment of the first size */
	unsigned nr_readers GUARDED_BY(lock); /* while there are any, no file is overwritten, only unlinked */
	bool snapshot_open GUARDED_BY(lock);
};

static inline void journal_closep(struct journal **j)
{
	journal_close(*j);
}

struct journal_name {
	char s[32];
};
struct journal_name journal_log_name(uint64_t first);
struct journal_name journal_snap_name(uint64_t number);

/* journal_segment.c: creating and removing segments. */

/* Reserve room for one more entry of `segments`. */
int journal_segments_reserve(struct journal *j);
/* Start segment `number` with space for a group of `group_bytes`, durably. By the appending thread only. */
int journal_segment_start(struct journal *j, uint64_t number, uint64_t group_bytes);
/* Must the next group start a small segment, although the current one has room? */
bool journal_shrink_wanted(struct journal *j);
/* Free most of the preallocated space of a journal that is being closed. Failures are logged. */
void journal_segment_trim(struct journal *j);
/* Remove the segments with no group above `number`; one of them may become the spare. */
void journal_segments_drop(struct journal *j, uint64_t number);
/* Zero bytes [from, to) of a file, not synced. */
int journal_zero(int fd, uint64_t from, uint64_t to);
/* Write a group at `off` with one write, not synced. Sets the payload fields of `g`. */
int journal_group_write(int fd, uint64_t off, struct journal_group *g, const void *payload, size_t len);

/* journal_compress.c */

/* Choose the payload of `g` for these records: the records themselves, or compressed bytes, borrowed until the next
 * call; then g->flags and g->records_len are set. Returns its length. */
size_t journal_compress(struct journal_coder *c, struct journal_group *g, const void *records, size_t len,
			const void **ret);
void journal_coder_release(struct journal_coder *c);

/* journal_window.c: read groups of a file through a buffer that holds at least the requested group. */
struct journal_window {
	int fd; /* owned */
	uint64_t size;
	uint64_t off; /* of data[0] in the file */
	uint8_t *data;
	size_t len, room;
	uint8_t *records; /* of the last compressed group that was read */
	struct journal_name name;
};

#define JOURNAL_WINDOW_NONE ((struct journal_window){ .fd = -1 })

/* Open a file of this journal and check its header block. 0, -ENOENT (not logged), or an error, logged: -EBADMSG ... */
int journal_window_open(struct journal_window *w, struct journal *j, enum journal_file_kind kind, uint64_t number,
			int flags);
void journal_window_release(struct journal_window *w); /* JOURNAL_WINDOW_NONE is fine */
/* Bytes [off, off + len), borrowed until the next call. -EBADMSG: the file is shorter. Logs read errors. */
int journal_window_get(struct journal_window *w, uint64_t off, size_t len, const uint8_t **ret);
/* Header of the group at `off`. 1: intact; 0: none of this store; <0: I/O error, unknown version. */
int journal_window_header(struct journal_window *w, const struct journal *j, uint64_t off, struct journal_group *ret);
/* The whole group, 1/0/<0 as above; payload borrowed until the next call. */
int journal_window_group(struct journal_window *w, const struct journal *j, uint64_t off, struct journal_group *ret,
			 const void **ret_payload);
/* The same for the records: g->records_len bytes. A payload that cannot be decompressed is not an intact group. */
int journal_window_records(struct journal_window *w, const struct journal *j, uint64_t off, struct journal_group *ret,
			   const void **ret_records);
