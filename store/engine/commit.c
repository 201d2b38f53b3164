/*
 * The commit point. Only the order makes it safe:
 *   1. take all of the log so far          later changes wait for the next commit
 *   2. write the frames it refers to       crash: bytes nobody refers to, cut off at the next mount
 *   3. sync the packs                      (also frames of other writers: a chunk we share may be theirs)
 *   4. append the log to the journal,      COMMIT POINT: before it nothing of this, after it all
 *      with the packs' marks, and sync it
 *   5. acknowledge                         the view already has it in memory; view.c writes it out later
 * A step that fails puts what was taken back in front of the log: nothing is lost, the caller gets the errno, the next
 * commit tries again. Where a failed sync may have dropped pages behind our back, packs and journal themselves refuse to
 * go on as if nothing had happened.
 *
 * Whoever comes first leads a commit, the others follow: those whose changes it covers are done with it (group commit).
 */
#include <errno.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine/engine_internal.h"
#include "store/journal/journal.h"

static int commit_taken(struct engine *e, const struct buf *taken, struct pack_marks *marks)
{
	_cleanup_(buf_release) struct buf group = BUF_EMPTY, rec = BUF_EMPTY;
	int r;

	r = dedup_sync_frames(e, marks);
	if (r < 0)
		return r;
	marks_encode(marks, &rec);
	journal_record_add(&group, RECORD_MARKS, rec.data, rec.len);
	buf_add(&group, taken->data, taken->len);
	if (buf_error(&rec) < 0 || buf_error(&group) < 0)
		return -ENOMEM;
	return journal_append(e->journal, group.data, group.len);
}

static void put_back(struct engine *e, struct buf *taken) REQUIRES(e->log.lock)
{
	buf_add(taken, e->log.pending.data, e->log.pending.len);
	buf_release(&e->log.pending);
	buf_move(&e->log.pending, taken);
	if (e->log.pending.failed)
		e->log.failed = -ENOMEM; /* its order is broken: nothing may be committed on top of it */
}

/* One commit. The caller has set `committing` and holds the lock; it is let go while the disk works. */
static int lead(struct engine *e) REQUIRES(e->log.lock)
{
	_cleanup_(buf_release) struct buf taken = BUF_EMPTY;
	uint64_t end = e->log.end, start_ns = monotonic_ns(), oldest_ns = e->log.oldest_ns;
	struct pack_marks marks;
	int r = e->log.failed;

	if (r == 0) {
		buf_move(&taken, &e->log.pending);
		mutex_unlock(&e->log.lock);
		r = commit_taken(e, &taken, &marks);
		if (r == -ENOSPC && reserve_release(e))
			r = commit_taken(e, &taken, &marks);
		mutex_lock(&e->log.lock);
		if (r < 0) {
			put_back(e, &taken);
			e->log.oldest_ns = oldest_ns;
		}
	}
	if (r == 0) {
		e->log.committed = end;
		e->log.marks = marks;
		atomic_fetch_add_explicit(&e->count.nr_commits, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&e->count.commit_ns_sum, monotonic_ns() - start_ns, memory_order_relaxed);
	}
	e->log.last_error = r;
	e->log.last_error_end = end;
	return r;
}

int engine_sync(struct engine *e)
{
	uint64_t target;
	int r = 0;

	atomic_fetch_add_explicit(&e->count.nr_commit_waiters, 1, memory_order_relaxed);
	mutex_lock(&e->log.lock);
	target = e->log.end;
	while (e->log.committed < target && r == 0) {
		if (!e->log.committing) {
			e->log.committing = true;
			r = lead(e);
			e->log.committing = false;
			cond_broadcast(&e->log.committed_cond);
			continue;
		}
		while (e->log.committing)
			cond_wait(&e->log.committed_cond, &e->log.lock);
		if (e->log.last_error < 0 && e->log.last_error_end >= target)
			r = e->log.last_error;
	}
	mutex_unlock(&e->log.lock);
	return r;
}
