/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Writing a snapshot while another thread appends groups. Only the order makes it safe:
 *   1. parts to snap.tmp, sync              crash: a stray temporary, removed on open
 *   2. rename, sync the directory           COMMIT POINT: the groups it covers are not needed any more
 *   3. remove older segments and snapshots  crash: they are covered, and removed unread on open
 * A failed sync fails the snapshot: everything that it would have replaced still exists.
 */
#include "store/journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "store/journal/journal_internal.h"

#define PART_BYTES MiB(1) /* a reader holds one part in memory; only a single larger record exceeds it */
#define RECORD_HEAD_MAX 11 /* type and varint length */

struct journal_snapshot {
	struct journal *journal;
	uint64_t number;
	uint64_t mark; /* journal's `appended` at the beginning */
	uint64_t sync_failures; /* io_sync_failures() at the beginning */
	int fd;
	uint64_t off;
	struct buf part;
	uint32_t nr_parts;
	uint64_t nr_records;
	struct journal_coder coder;
	int error; /* the first one; all further calls fail with it */
};

static void snapshot_freep(struct journal_snapshot **s)
{
	if (!*s)
		return;
	closep(&(*s)->fd);
	buf_release(&(*s)->part);
	journal_coder_release(&(*s)->coder);
	mutex_lock(&(*s)->journal->lock);
	(*s)->journal->snapshot_open = false;
	mutex_unlock(&(*s)->journal->lock);
	free(*s);
}

static bool snapshot_begin(struct journal *j)
{
	bool mine;

	mutex_lock(&j->lock);
	mine = !j->snapshot_open;
	j->snapshot_open = true;
	mutex_unlock(&j->lock);
	return mine;
}

static int write_header(struct journal_snapshot *s)
{
	struct journal_file header = { .kind = JOURNAL_SNAP, .number = s->number };
	struct journal_file_disk disk;
	int r;

	memcpy(header.store_id, s->journal->store_id, sizeof(header.store_id));
	journal_file_encode(&header, &disk);
	s->fd = io_open(s->journal->dirfd, SNAP_TMP_NAME, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (s->fd < 0)
		return log_errno(s->fd, "journal %s: cannot create", SNAP_TMP_NAME);
	r = io_pwrite(s->fd, &disk, sizeof(disk), 0);
	if (r < 0)
		return log_errno(r, "journal %s: cannot write", SNAP_TMP_NAME);
	s->off = sizeof(disk);
	return 0;
}

int journal_snapshot_new(struct journal *j, uint64_t number, struct journal_snapshot **ret)
{
	_cleanup_(snapshot_freep) struct journal_snapshot *s = NULL;
	struct journal_snapshot *n;
	int r;

	if (j->read_only)
		return -EROFS;
	if (number > journal_last(j) || number <= journal_snapshot_number(j))
		return -EINVAL;
	n = calloc(1, sizeof(*n));
	if (!n)
		return -ENOMEM;
	if (!snapshot_begin(j)) {
		free(n);
		return -EBUSY;
	}
	s = n;
	s->journal = j;
	s->number = number;
	s->fd = -1;
	s->mark = j->appended;
	s->sync_failures = io_sync_failures();
	r = write_header(s);
	if (r < 0) {
		(void)io_unlink(j->dirfd, SNAP_TMP_NAME);
		return r;
	}
	*ret = TAKE(s);
	return 0;
}

/* Write the gathered records as the next part. */
static int write_part(struct journal_snapshot *s, bool last)
{
	struct journal_group g = {
		.number = s->number,
		.flags = JOURNAL_GROUP_SNAPSHOT | (last ? JOURNAL_GROUP_LAST : 0),
		.part = s->nr_parts,
		.nr_records = s->nr_records,
	};
	const void *payload;
	size_t len = journal_compress(&s->coder, &g, s->part.data, s->part.len, &payload);
	int r;

	memcpy(g.store_id, s->journal->store_id, sizeof(g.store_id));
	r = journal_group_write(s->fd, s->off, &g, payload, len);
	if (r < 0)
		return log_errno(r, "journal %s: cannot write part %" PRIu32, SNAP_TMP_NAME, s->nr_parts);
	s->off += journal_group_bytes(len);
	s->nr_parts++;
	buf_clear(&s->part);
	return 0;
}

int journal_snapshot_add(struct journal_snapshot *s, uint8_t type, const void *p, size_t len)
{
	if (s->error < 0)
		return s->error;
	if (len > JOURNAL_PAYLOAD_MAX - RECORD_HEAD_MAX)
		return s->error = log_errno(-EINVAL, "journal snapshot: a record of %zu bytes is too long", len);
	if (s->part.len > 0 && s->part.len + RECORD_HEAD_MAX + len > PART_BYTES)
		s->error = write_part(s, false);
	if (s->error < 0)
		return s->error;
	journal_record_add(&s->part, type, p, len);
	s->nr_records++;
	return s->error = buf_error(&s->part);
}

/* Steps 1 and 2 of the opening comment. */
static int make_durable(struct journal_snapshot *s)
{
	struct journal_name name = journal_snap_name(s->number);
	int dirfd = s->journal->dirfd, r;

	r = write_part(s, true);
	if (r < 0)
		return r;
	r = io_sync_since(s->fd, s->sync_failures);
	if (r < 0)
		return log_errno(r, "journal %s: cannot sync", SNAP_TMP_NAME);
	r = io_rename(dirfd, SNAP_TMP_NAME, dirfd, name.s);
	if (r < 0)
		return log_errno(r, "journal %s: cannot rename to %s", SNAP_TMP_NAME, name.s);
	r = io_sync_dir(dirfd);
	if (r < 0) {
		(void)io_unlink(dirfd, name.s); /* whether it exists or not, everything that it covers does */
		return log_errno(r, "journal %s: cannot sync the directory", name.s);
	}
	(void)posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED); /* only read again by a rebuild */
	return 0;
}

int journal_snapshot_commit(struct journal_snapshot *snapshot)
{
	_cleanup_(snapshot_freep) struct journal_snapshot *s = snapshot;
	struct journal *j = s->journal;
	uint64_t old = journal_snapshot_number(j);
	int r = s->error;

	if (r == 0)
		r = make_durable(s);
	if (r < 0) {
		(void)io_unlink(j->dirfd, SNAP_TMP_NAME);
		return r;
	}
	mutex_lock(&j->lock); /* a reader copies number and segments together */
	j->snapshot_number = s->number;
	j->snapshot_bytes = s->off;
	j->snapshot_mark = s->mark;
	mutex_unlock(&j->lock);
	journal_segments_drop(j, s->number);
	if (old > 0) {
		struct journal_name name = journal_snap_name(old);

		r = io_unlink(j->dirfd, name.s);
		if (r < 0)
			log_warning("journal %s: cannot remove, left for the next mount: %s", name.s, strerror(-r));
	}
	return 0;
}

void journal_snapshot_abort(struct journal_snapshot *snapshot)
{
	_cleanup_(snapshot_freep) struct journal_snapshot *s = snapshot;

	if (s)
		(void)io_unlink(s->journal->dirfd, SNAP_TMP_NAME);
}
