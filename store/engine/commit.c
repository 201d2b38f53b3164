/*
 * The commit point. Only the order makes it safe:
 *   1. note the end of the log             later changes wait for the next commit
 *   2. write the frames it refers to       crash: bytes nobody refers to, cut off at the next mount
 *   3. sync the packs                      (also frames of other writers: a chunk we share may be theirs)
 *   4. append the log up to that end       COMMIT POINT: before it nothing of this, after it all
 *      to the journal, with the packs' marks, and sync it
 *   5. take it off the log, acknowledge    the view already has it in memory; view.c writes it out later
 * A step that fails leaves the log as it was: nothing is lost, the caller gets the errno, whoever else waits tries again.
 * Where a failed sync may have dropped pages behind our back, packs and journal themselves refuse to go on as if nothing
 * had happened.
 *
 * Steps 1 to 3 of one commit run beside steps 4 and 5 of the one before, each pair by whoever comes first; the others
 * follow, and those whose changes are covered are done with it (group commit). If several have done 1 to 3 before the next
 * 4, that one covers them all.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine/engine_internal.h"
#include "store/journal/journal.h"

/* How a commit ended. All who wait look again what there is for them to do. */
static int told(struct engine *e, int r) REQUIRES(e->log.lock)
{
	e->log.last_error = r;
	cond_broadcast(&e->log.committed_cond);
	return r;
}

/* Steps 1 to 3. The lock is let go while the disk works. */
static int sync_packs(struct engine *e) REQUIRES(e->log.lock)
{
	uint64_t end = e->log.end, start_ns = monotonic_ns();
	struct pack_marks marks;
	int r;

	e->log.syncing_packs = true;
	mutex_unlock(&e->log.lock);
	r = dedup_sync_frames(e, &marks);
	if (r == -ENOSPC && reserve_release(e))
		r = dedup_sync_frames(e, &marks);
	mutex_lock(&e->log.lock);
	e->log.syncing_packs = false;
	if (r < 0)
		return told(e, r);
	e->log.packed = (struct packed){ .end = end, .since_ns = start_ns, .marks = marks };
	cond_broadcast(&e->log.committed_cond);
	return 0; /* not yet a commit: what the last one failed with stands */
}

/* `len` bytes of the log and the marks as one group of the journal. */
static int encode(const struct buf *log, size_t len, const struct pack_marks *marks, struct buf *ret)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY;

	marks_encode(marks, &rec);
	journal_record_add(ret, RECORD_MARKS, rec.data, rec.len);
	buf_add(ret, log->data, len);
	return buf_error(&rec) < 0 ? -ENOMEM : buf_error(ret);
}

static void take_off(struct buf *log, size_t len)
{
	log->len -= len;
	memmove(log->data, log->data + len, log->len);
	if (log->len == 0)
		buf_release(log); /* a burst's memory goes back */
}

/* Steps 4 and 5, likewise. */
static int append(struct engine *e) REQUIRES(e->log.lock)
{
	_cleanup_(buf_release) struct buf group = BUF_EMPTY;
	struct packed packed = e->log.packed;
	size_t len = (size_t)(packed.end - e->log.committed);
	int r;

	r = encode(&e->log.pending, len, &packed.marks, &group);
	if (r < 0)
		return r;
	e->log.appending = true;
	mutex_unlock(&e->log.lock);
	r = journal_append(e->journal, group.data, group.len);
	if (r == -ENOSPC && reserve_release(e))
		r = journal_append(e->journal, group.data, group.len);
	mutex_lock(&e->log.lock);
	e->log.appending = false;
	if (r < 0)
		return told(e, r);
	take_off(&e->log.pending, len);
	e->log.oldest_ns = packed.since_ns; /* what is left came since */
	e->log.committed = packed.end;
	e->log.marks = packed.marks;
	atomic_fetch_add_explicit(&e->count.nr_commits, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&e->count.commit_ns_sum, monotonic_ns() - packed.since_ns, memory_order_relaxed);
	return told(e, 0);
}

int engine_sync(struct engine *e)
{
	uint64_t target;
	int r = 0;

	atomic_fetch_add_explicit(&e->count.nr_commit_waiters, 1, memory_order_relaxed);
	mutex_lock(&e->log.lock);
	target = e->log.end;
	while (e->log.committed < target && r == 0) {
		if (e->log.packed.end < target && !e->log.syncing_packs)
			r = sync_packs(e);
		else if (e->log.packed.end >= target && !e->log.appending)
			r = append(e);
		else
			cond_wait(&e->log.committed_cond, &e->log.lock);
	}
	mutex_unlock(&e->log.lock);
	return r;
}
