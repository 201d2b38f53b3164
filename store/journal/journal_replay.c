/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reading the journal back: the parts of the snapshot, then the groups after it, one at a time in a bounded buffer.
 *
 * A reader sees the journal as it was when the reader was created: groups appended later are not read. A snapshot
 * committed meanwhile either leaves the reader's files alone or unlinks them. While a reader exists, no file is
 * overwritten to become the spare.
 */
#include "store/journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "store/journal/journal_internal.h"

struct journal_reader {
	struct journal *journal;
	uint64_t next;	   /* number of the first group not yet returned */
	uint64_t snapshot; /* being read; 0: none, or completely returned */
	uint32_t next_part;
	uint64_t nr_records; /* in the parts returned so far */
	struct journal_segment *segments;
	size_t nr_segments, segment; /* current one, or the first one after the snapshot */
	struct journal_window window;
	uint64_t off; /* in `window` */
};

/* Copy the snapshot number and the segments under one lock. */
static int capture(struct journal *j, struct journal_reader *rd, uint64_t after)
{
	struct journal_segment *segments;

	mutex_lock(&j->lock);
	segments = calloc(j->nr_segments + 1, sizeof(*segments));
	if (segments && j->nr_segments > 0)
		memcpy(segments, j->segments, j->nr_segments * sizeof(*segments));
	free(rd->segments);
	rd->segments = segments;
	rd->nr_segments = j->nr_segments;
	rd->snapshot = after == 0 ? j->snapshot_number : 0;
	mutex_unlock(&j->lock);
	return segments ? 0 : -ENOMEM;
}

/* Open the snapshot now: it may be unlinked soon. */
static int reader_start(struct journal *j, struct journal_reader *rd, uint64_t after)
{
	int r;

	do {
		r = capture(j, rd, after);
		if (r < 0)
			return r;
		if (rd->snapshot == 0)
			break;
		r = journal_window_open(&rd->window, j, JOURNAL_SNAP, rd->snapshot, O_RDONLY);
	} while (r == -ENOENT && rd->snapshot != journal_snapshot_number(j)); /* replaced by a newer one */
	if (r == -ENOENT)
		return log_cause(-EBADMSG, "journal %s: vanished", journal_snap_name(rd->snapshot).s);
	if (r < 0)
		return r;
	rd->off = JOURNAL_BLOCK;
	rd->next = (rd->snapshot > 0 ? rd->snapshot : after) + 1;
	if (rd->nr_segments > 0 && rd->segments[0].first > rd->next)
		return -ENOENT;
	while (rd->segment + 1 < rd->nr_segments && rd->segments[rd->segment + 1].first <= rd->next)
		rd->segment++;
	return 0;
}

int journal_read(struct journal *j, uint64_t after, struct journal_reader **ret)
{
	_cleanup_(journal_reader_freep) struct journal_reader *rd = calloc(1, sizeof(*rd));
	int r;

	if (!rd)
		return -ENOMEM;
	rd->window = JOURNAL_WINDOW_NONE;
	rd->journal = j;
	mutex_lock(&j->lock);
	j->nr_readers++;
	mutex_unlock(&j->lock);
	r = reader_start(j, rd, after);
	if (r < 0)
		return r;
	*ret = TAKE(rd);
	return 0;
}

void journal_reader_free(struct journal_reader *rd)
{
	if (!rd)
		return;
	mutex_lock(&rd->journal->lock);
	rd->journal->nr_readers--;
	mutex_unlock(&rd->journal->lock);
	journal_window_release(&rd->window);
	free(rd->segments);
	free(rd);
}

static int damaged(const struct journal_reader *rd, const char *what, uint64_t number)
{
	return log_cause(-EBADMSG, "journal %s: %s %" PRIu64 " at offset %" PRIu64 " is damaged; run fsck.ckptfs",
			 rd->window.name.s, what, number, rd->off);
}

static bool part_fits(const struct journal_reader *rd, const struct journal_group *g, const void *records)
{
	struct journal_iter it = journal_iter(records, g->records_len);
	uint64_t nr = rd->nr_records;
	const void *p;
	uint8_t type;
	size_t len;

	while (journal_iter_next(&it, &type, &p, &len) > 0)
		nr++;
	return (g->flags & JOURNAL_GROUP_SNAPSHOT) && g->number == rd->snapshot && g->part == rd->next_part &&
	       g->nr_records == nr && it.p == it.end;
}

/* Read the next part. The last part is marked, and ends the file. */
static int next_part(struct journal_reader *rd, struct journal_group *g, const void **records)
{
	int r;

	r = journal_window_records(&rd->window, rd->journal, rd->off, g, records);
	if (r < 0)
		return r;
	if (r == 0 || !part_fits(rd, g, *records))
		return damaged(rd, "snapshot part", rd->next_part);
	rd->off += journal_group_bytes(g->payload_len);
	rd->nr_records = g->nr_records;
	rd->next_part++;
	if (!(g->flags & JOURNAL_GROUP_LAST))
		return 1;
	if (rd->off != rd->window.size)
		return damaged(rd, "snapshot part", rd->next_part);
	rd->snapshot = 0;
	return 1;
}

/* Open the segment that holds group rd->next. 1, or 0: there is no such group. */
static int enter_segment(struct journal_reader *rd)
{
	const struct journal_segment *s;
	int r;

	while (rd->segment < rd->nr_segments && rd->segments[rd->segment].last < rd->next)
		rd->segment++;
	if (rd->segment == rd->nr_segments)
		return 0;
	s = &rd->segments[rd->segment];
	if (strcmp(rd->window.name.s, journal_log_name(s->first).s) == 0)
		return 1;
	journal_window_release(&rd->window);
	r = journal_window_open(&rd->window, rd->journal, JOURNAL_LOG, s->first, O_RDONLY);
	if (r == -ENOENT && journal_snapshot_number(rd->journal) < s->last)
		return log_cause(-EBADMSG, "journal %s: vanished", journal_log_name(s->first).s);
	if (r < 0)
		return r;
	rd->off = JOURNAL_BLOCK;
	for (uint64_t number = s->first; number < rd->next; number++) {
		struct journal_group g;

		r = journal_window_header(&rd->window, rd->journal, rd->off, &g);
		if (r < 0)
			return r;
		if (r == 0 || g.number != number)
			return damaged(rd, "group", number);
		rd->off += journal_group_bytes(g.payload_len);
	}
	return 1;
}

static int next_group(struct journal_reader *rd, struct journal_group *g, const void **records)
{
	int r;

	r = enter_segment(rd);
	if (r <= 0)
		return r;
	r = journal_window_records(&rd->window, rd->journal, rd->off, g, records);
	if (r < 0)
		return r;
	if (r == 0 || g->number != rd->next || (g->flags & JOURNAL_GROUP_SNAPSHOT))
		return damaged(rd, "group", rd->next);
	rd->off += journal_group_bytes(g->payload_len);
	rd->next++;
	return 1;
}

int journal_read_next(struct journal_reader *rd, uint64_t *number, bool *is_snapshot, const void **records, size_t *len)
{
	bool snapshot = rd->snapshot > 0;
	struct journal_group g;
	int r;

	r = snapshot ? next_part(rd, &g, records) : next_group(rd, &g, records);
	if (r <= 0)
		return r;
	*number = g.number;
	*is_snapshot = snapshot;
	*len = g.records_len;
	return 1;
}
