/* What the files of the journal share. Nobody outside this folder includes it. */
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
#define SPARE_TMP_NAME "spare.tmp" /* on its way there */
#define NEW_TMP_NAME "new.tmp"	   /* a segment made because no spare would do */
#define SNAP_TMP_NAME "snap.tmp"   /* a snapshot being written; there is one at a time */

struct journal_segment {
	uint64_t first, last; /* groups; last = first - 1: none yet */
	uint64_t size, end;   /* bytes of the file, and where the next group goes */
};

/* Working memory for compressing groups, kept from one to the next. { 0 } has none. */
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

	/* Of the appending thread. */
	int fd;		    /* segment being appended to; -1: the next group needs a new one */
	uint64_t off, size; /* where the next group goes, and bytes of that segment */
	uint64_t stale_end; /* > off: a failed write may have left bytes up to here */

	struct journal_coder coder;

	/* Read by any thread, without the lock. */
	_Atomic uint64_t last, snapshot_number, snapshot_bytes;
	_Atomic uint64_t appended;	/* bytes of groups after the snapshot found on open, ever growing */
	_Atomic uint64_t snapshot_mark; /* value of `appended` that the newest snapshot stands for */

	struct mutex lock; /* leaf; never held across I/O */
	struct journal_segment *segments GUARDED_BY(lock); /* in order of `first`; the last is the current one */
	size_t nr_segments GUARDED_BY(lock), room GUARDED_BY(lock);
	enum journal_spare spare GUARDED_BY(lock);
	uint64_t spare_bytes GUARDED_BY(lock);
	uint64_t spare_next_try GUARDED_BY(lock); /* value of `appended` */
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

/* journal_segment.c: segments come and go. */

/* Room for one more entry of `segments`. */
int journal_segments_reserve(struct journal *j);
/* Start segment `number` with space for a group of `group_bytes`, durable. Of the appending thread. */
int journal_segment_start(struct journal *j, uint64_t number, uint64_t group_bytes);
/* Has the next group to start a small segment, though there is room? */
bool journal_shrink_wanted(struct journal *j);
/* Of a journal that is about to be closed: give back most of what lies ahead. A failure is logged. */
void journal_segment_trim(struct journal *j);
/* Remove the segments whose groups are all at or below `number`; one may become the spare. */
void journal_segments_drop(struct journal *j, uint64_t number);
/* Zero bytes [from, to) of a file, not synced. */
int journal_zero(int fd, uint64_t from, uint64_t to);
/* Write a group at `off`, with one write, not synced. g's payload fields are filled in. */
int journal_group_write(int fd, uint64_t off, struct journal_group *g, const void *payload, size_t len);

/* journal_compress.c */

/* What to write as the payload of `g` for these records: they themselves, or fewer bytes, borrowed until the next call
 * and then told by g->flags and g->records_len. Bytes of it. */
size_t journal_compress(struct journal_coder *c, struct journal_group *g, const void *records, size_t len,
			const void **ret);
void journal_coder_release(struct journal_coder *c);

/* journal_window.c: groups of a file, read through a buffer that holds at least the group asked for. */
struct journal_window {
	int fd; /* owned */
	uint64_t size;
	uint64_t off; /* of data[0] in the file */
	uint8_t *data;
	size_t len, room;
	uint8_t *records; /* of the compressed group read last */
	struct journal_name name;
};

#define JOURNAL_WINDOW_NONE ((struct journal_window){ .fd = -1 })

/* Open a file of this journal and check its header block. 0, -ENOENT (not logged), or logged: -EBADMSG ... */
int journal_window_open(struct journal_window *w, struct journal *j, enum journal_file_kind kind, uint64_t number,
			int flags);
void journal_window_release(struct journal_window *w); /* JOURNAL_WINDOW_NONE is fine */
/* Bytes [off, off + len), borrowed until the next call. -EBADMSG: the file is shorter. Logs read errors. */
int journal_window_get(struct journal_window *w, uint64_t off, size_t len, const uint8_t **ret);
/* Header of the group at `off`. 1: there is an intact one; 0: none of this store; <0: I/O, version. */
int journal_window_header(struct journal_window *w, const struct journal *j, uint64_t off, struct journal_group *ret);
/* The whole group, 1/0/<0 as above; payload borrowed until the next call. */
int journal_window_group(struct journal_window *w, const struct journal *j, uint64_t off, struct journal_group *ret,
			 const void **ret_payload);
/* The same, but the records: g->records_len bytes. A payload that cannot be decompressed is no intact group. */
int journal_window_records(struct journal_window *w, const struct journal *j, uint64_t off, struct journal_group *ret,
			   const void **ret_records);
