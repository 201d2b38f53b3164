/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Joint commits. A small commit does not wait for the packs before it writes its group into the journal. Frames and
 * group are written, then both are synced at the same time: one wait for the disk instead of two, and each byte is
 * written once. The group names its frames, each with the checksum of its table (RECORD_FRAMES).
 *
 *   1. write the frames                     crash: unreferenced bytes, truncated at the next mount
 *   2. write the group
 *   3. sync packs and journal, in parallel  crash: the group or any of the frames may be missing or torn
 *   4. both are durable: COMMIT POINT       only now is it acknowledged, and only now may the next group be written
 *
 * So only the last group of the journal can name frames that are missing, and only if it was not acknowledged. A mount
 * reads these frames before it uses the group:
 *   all intact   they are written again and synced, because they may be in a cache only: the next group will follow.
 *                Crash: the same choice again
 *   any missing  the group is removed, durably, and then the packs are cut at the marks of the group before it. Crash in
 *                between: the frames are still missing, and the same happens again
 * A group that the view or a snapshot has was acknowledged, and so was one with another group behind it. Their frames are
 * not read: if they are damaged, reads report it. Of the last commit before a crash a damaged frame cannot be told from
 * a missing one. So when no commit follows, the commit timer appends a group that contains only marks
 * (commit_confirm()).
 *
 * What is not a frame has no checksum in the group: while a new pack, a wiped place or a failed sync is not settled, the
 * packs are synced first (commit.c). The same goes for more frames than a mount should have to read, and in a cluster,
 * where a round decides what is written.
 */
#include "store/log/joint.h"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "base/util.h"
#include "store/journal/journal.h"
#include "store/log/record_format.h"
#include "store/pack/pack.h"

/* The marks and frames that the last group names. */
static int read_last(struct journal *j, struct pack_written *ret)
{
	_cleanup_(journal_reader_freep) struct journal_reader *reader = NULL;
	struct pack_written w = { 0 };
	struct journal_iter it;
	const void *records, *p;
	uint64_t number = 0;
	bool is_snapshot;
	uint8_t type;
	size_t len, n;
	int r;

	r = journal_read(j, journal_last(j) - 1, &reader);
	if (r < 0)
		return r;
	/* number 0 means everything, beginning with a snapshot */
	while ((r = journal_read_next(reader, &number, &is_snapshot, &records, &len)) > 0)
		if (number == journal_last(j) && !is_snapshot)
			break;
	if (r <= 0)
		return r < 0 ? r : -EBADMSG;
	it = journal_iter(records, len);
	while ((r = journal_iter_next(&it, &type, &p, &n)) > 0) {
		if (type == RECORD_MARKS)
			r = marks_decode(p, n, &w.marks);
		else if (type == RECORD_FRAMES)
			r = frames_decode(p, n, &w);
		if (r < 0)
			break;
	}
	if (r < 0 || w.marks.next_pack == 0 || w.nr == 0)
		return log_errno(-EBADMSG, "journal: group %" PRIu64 " does not name its frames", journal_last(j));
	*ret = w;
	return 0;
}

int joint_settle(struct journal *j, uint64_t known, int packs_dirfd, const struct packs_conf *conf)
{
	uint64_t number = journal_last(j);
	struct pack_written w;
	int r;

	if (!journal_last_is_joint(j) || number <= MAX(known, journal_snapshot_number(j)))
		return 0;
	r = read_last(j, &w);
	if (r == 0)
		r = packs_confirm(packs_dirfd, conf, &w);
	if (r != 0)
		return MIN(r, 0);
	log_warning("journal: commit %" PRIu64 " was not complete when the store was last in use: %s", number,
		    conf->read_only ? "ignored" : "dropped");
	r = journal_drop_last(j);
	return r < 0 ? r : 1;
}
