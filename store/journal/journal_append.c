/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Appending a group: one write into the zero-filled space of the current segment, one fdatasync, acknowledge. A crash
 * before the sync leaves a torn group, which is ignored, or a complete group that was never acknowledged.
 *
 * If the write fails, the segment is still usable, but may contain bytes of the failed group. They are zeroed, and the
 * zeros synced, before the next attempt: a shorter group must not be followed by the rest of a longer one.
 *
 * If the sync fails, the state of everything written since the last successful sync is unknown: the kernel may have
 * marked the pages clean, and a second fdatasync would succeed without writing them. So the segment is abandoned. Its
 * groups before this one are durable. This group is written again, from memory, into a new segment that starts with its
 * number and so hides whatever the old segment holds in its place. If that fails too, the caller gets the error, and
 * every later attempt starts a new segment. The same applies if a sync of another file fails between the write and the
 * sync of a group: the drive may have dropped the group with it (base/io.h).
 *
 * A joint group (journal_append_joint()) is synced at the same time as data that it depends on. It is the last one until
 * both are durable: the next group is written after that. If the data cannot be made durable, the group counts as a
 * failed write: it is zeroed before the next attempt. After a crash before that, the next caller of journal_open() finds
 * the data missing.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "store/journal/journal.h"
#include "store/journal/journal_internal.h"

/* Sync everything written after `failures` was read. `number` is for the message: the group being appended. */
static int sync_or_close(struct journal *j, uint64_t number, uint64_t failures)
{
	int r;

	r = io_sync_since(j->fd, failures);
	if (r < 0) {
		log_errno(r, "journal: group %" PRIu64 ": cannot sync, closing the segment", number);
		closep(&j->fd);
		j->fd = -1;
	}
	return r;
}

static int clear_stale(struct journal *j, uint64_t number)
{
	uint64_t failures = io_sync_failures();
	int r;

	if (j->stale_end <= j->off)
		return 0;
	r = journal_zero(j->fd, j->off, j->stale_end);
	if (r < 0)
		return log_errno(r, "journal: group %" PRIu64 ": cannot clear a failed write", number);
	r = sync_or_close(j, number, failures);
	if (r < 0)
		return r;
	j->stale_end = 0;
	return 0;
}

/* Write the group into the current segment, which has room. If the segment had to be abandoned, j->fd is -1. */
static int put_group(struct journal *j, struct journal_group *g, const void *payload, size_t len,
		     struct journal_beside *b)
{
	uint64_t failures;
	int r;

	r = clear_stale(j, g->number);
	if (r < 0)
		return r;
	failures = io_sync_failures();
	j->stale_end = j->off + journal_group_bytes(len);
	r = journal_group_write(j->fd, j->off, g, payload, len);
	if (r < 0)
		return log_errno(r, "journal: group %" PRIu64 ": cannot write %zu bytes", g->number, len);
	if (b)
		b->start(b);
	r = sync_or_close(j, g->number, failures);
	if (!b)
		return r;
	b->result = b->finish(b);
	if (b->result < 0)
		return b->result;
	if (r == 0 && io_sync_failures() != failures) { /* the drive may have dropped the group since */
		log_error("journal: group %" PRIu64 ": another sync failed, closing the segment", g->number);
		closep(&j->fd);
		j->fd = -1;
		r = -EIO;
	}
	return r;
}

/* The group is durable. */
static void advance(struct journal *j, uint64_t number, uint64_t bytes, bool is_joint)
{
	struct journal_segment *s;

	j->off += bytes;
	j->stale_end = 0;
	j->last_bytes = is_joint ? bytes : 0;
	atomic_fetch_add(&j->appended, bytes);
	mutex_lock(&j->lock);
	s = &j->segments[j->nr_segments - 1];
	s->last = number;
	s->end = j->off;
	mutex_unlock(&j->lock);
	atomic_store(&j->last, number);
}

static int append(struct journal *j, const void *records, size_t len, bool compress, struct journal_beside *b)
{
	struct journal_group g = { .number = journal_last(j) + 1, .flags = b ? JOURNAL_GROUP_JOINT : 0 };
	const void *payload = records;
	uint64_t bytes;
	int r;

	if (j->read_only)
		return -EROFS;
	if (len > JOURNAL_PAYLOAD_MAX)
		return log_errno(-EINVAL, "journal: group %" PRIu64 ": %zu bytes are too many", g.number, len);
	memcpy(g.store_id, j->store_id, sizeof(g.store_id));
	if (compress)
		len = journal_compress(&j->coder, &g, records, len, &payload);
	bytes = journal_group_bytes(len);
	if (j->fd < 0 || bytes > j->size - j->off || journal_shrink_wanted(j)) {
		r = journal_segment_start(j, g.number, bytes);
		if (r < 0 && (j->fd < 0 || bytes > j->size - j->off)) /* else continue in the large segment */
			return r;
	}
	r = put_group(j, &g, payload, len, b);
	if (r < 0 && j->fd < 0 && !(b && b->result < 0)) {
		r = journal_segment_start(j, g.number, bytes);
		if (r == 0)
			r = put_group(j, &g, payload, len, NULL); /* what it depends on is durable by now */
	}
	if (r < 0)
		return r;
	advance(j, g.number, bytes, b);
	if (!j->spare_by_caller)
		(void)journal_prepare(j); /* this group is durable even if it fails */
	return 0;
}

int journal_append(struct journal *j, const void *records, size_t len)
{
	return append(j, records, len, true, NULL);
}

int journal_append_as_is(struct journal *j, const void *records, size_t len)
{
	return append(j, records, len, false, NULL);
}

int journal_append_joint(struct journal *j, const void *records, size_t len, struct journal_beside *b)
{
	b->result = 0;
	return append(j, records, len, false, b);
}

bool journal_last_is_joint(const struct journal *j)
{
	return j->last_bytes > 0;
}

int journal_drop_last(struct journal *j)
{
	uint64_t number = journal_last(j);
	struct journal_segment *s;
	int r = 0;

	assert(j->last_bytes > 0);
	if (!j->read_only) {
		uint64_t failures = io_sync_failures();

		r = journal_zero(j->fd, j->off - j->last_bytes, j->off);
		if (r == 0)
			r = io_sync_since(j->fd, failures);
		if (r < 0)
			return log_errno(r, "journal: group %" PRIu64 ": cannot remove", number);
	}
	mutex_lock(&j->lock);
	s = &j->segments[j->nr_segments - 1];
	s->last = number - 1;
	s->end -= j->last_bytes;
	mutex_unlock(&j->lock);
	j->off -= j->read_only ? 0 : j->last_bytes; /* not set there */
	j->last_bytes = 0;
	atomic_store(&j->last, number - 1);
	return 0;
}
