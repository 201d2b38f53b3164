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
static int sync_or_give_up(struct journal *j, uint64_t number, uint64_t failures)
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
	r = sync_or_give_up(j, number, failures);
	if (r < 0)
		return r;
	j->stale_end = 0;
	return 0;
}

/* Write the group into the current segment, which has room. If the segment had to be abandoned, j->fd is -1. */
static int put_group(struct journal *j, struct journal_group *g, const void *payload, size_t len)
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
	return sync_or_give_up(j, g->number, failures);
}

/* The group is durable. */
static void advance(struct journal *j, uint64_t number, uint64_t bytes)
{
	struct journal_segment *s;

	j->off += bytes;
	j->stale_end = 0;
	atomic_fetch_add(&j->appended, bytes);
	mutex_lock(&j->lock);
	s = &j->segments[j->nr_segments - 1];
	s->last = number;
	s->end = j->off;
	mutex_unlock(&j->lock);
	atomic_store(&j->last, number);
}

static int append(struct journal *j, const void *records, size_t len, bool compress)
{
	struct journal_group g = { .number = journal_last(j) + 1 };
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
	r = put_group(j, &g, payload, len);
	if (r < 0 && j->fd < 0) {
		r = journal_segment_start(j, g.number, bytes);
		if (r == 0)
			r = put_group(j, &g, payload, len);
	}
	if (r < 0)
		return r;
	advance(j, g.number, bytes);
	if (!j->spare_by_caller)
		(void)journal_prepare(j); /* this group is durable even if it fails */
	return 0;
}

int journal_append(struct journal *j, const void *records, size_t len)
{
	return append(j, records, len, true);
}

int journal_append_as_is(struct journal *j, const void *records, size_t len)
{
	return append(j, records, len, false);
}
