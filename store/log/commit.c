/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The commit. Only the order makes it safe:
 *   1. read the end of the log              later changes belong to the next commit
 *   2. write the frames it refers to        crash: unreferenced bytes, truncated at the next mount
 *   3. sync the packs                       (also frames of other writers: a shared chunk may be theirs)
 *   4. append the log up to that end        COMMIT POINT: nothing of it before, all of it after
 *      to the journal, with the packs' marks, and sync it
 *   5. remove it from the log, acknowledge  the view has it in memory already; view.c writes it out later
 *      and then announce it to other nodes
 * A failed step leaves the log as it was: nothing is lost, one waiter gets the errno, and the commit is retried for the
 * others. A failed sync may have lost data written before it, so packs and journal write that data again first, or
 * refuse to continue (store/pack/pack_rewrite.c, store/journal/journal_append.c).
 *
 * A small commit is a joint one: steps 3 and 4 run at the same time, and the group names the frames that it depends on
 * (joint.c). A thread that syncs packs alone runs beside the one that syncs the journal.
 *
 * Steps 1 to 3 of a larger commit run concurrently with steps 4 and 5 of the previous one. If steps 1 to 3 ran several
 * times before the next step 4, that one covers them all. Every request for durability is a waiter in the list, and
 * waiters share commits (group commit). Up to two of the waiting threads are leaders. A leader runs the half that is due
 * and not already running. It leaves once its own request is done and another leader remains, or no waiters are left.
 * The other threads need not wait at all: a leader calls their completion. An fsync of a larger commit thus involves no
 * thread but its own.
 * (64 KiB appended and synced by 4 processes on 2 processors: 23 context switches each when all threads waited for
 * every half; waking idle processors took most of the time.)
 */
#include "store/log/commit.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/dedup/compress.h"
#include "store/dedup/dedup.h"
#include "store/dedup/write_jobs.h"
#include "store/journal/journal.h"
#include "store/log/log_state.h"
#include "store/log/record_format.h"
#include "store/remote_hooks.h"
#include "store/space.h"

/* Half of a commit has failed: takes out the first waiter it was for, which gets the error. For the others it is
 * retried. */
static struct engine_waiter *failed(struct engine *e, uint64_t from) REQUIRES(e->log->lock)
{
	struct engine_waiter **p = &e->log->waiters, *w;

	while (*p && (*p)->target <= from)
		p = &(*p)->next;
	w = *p;
	if (w) {
		*p = w->next;
		if (!w->next)
			e->log->waiters_end = p;
		w->next = NULL;
	}
	return w;
}

/* Takes completed waiters off the list. */
static struct engine_waiter *satisfied(struct engine *e) REQUIRES(e->log->lock)
{
	struct engine_waiter *first = e->log->waiters, **p = &first;

	while (*p && (*p)->target <= e->log->committed)
		p = &(*p)->next;
	e->log->waiters = *p;
	*p = NULL;
	if (!e->log->waiters)
		e->log->waiters_end = &e->log->waiters;
	return first;
}

static void complete_waiters(struct engine *e, struct engine_waiter *w, int r) REQUIRES(e->log->lock)
{
	struct engine_waiter *next;

	if (!w)
		return;
	mutex_unlock(&e->log->lock);
	for (; w; w = next) {
		next = w->next;
		if (!w->patient)
			compress_wait_ends(e);
		w->done(w, r);
	}
	mutex_lock(&e->log->lock);
}

/* Steps 1 to 3. The lock is dropped during I/O. */
static void sync_packs(struct engine *e) REQUIRES(e->log->lock)
{
	uint64_t end = e->log->end, start_ns = monotonic_ns();
	struct pack_marks marks;
	int r;

	e->log->syncing_packs = true;
	mutex_unlock(&e->log->lock);
	r = dedup_sync_frames(e, &marks);
	if (reserve_helps(e, r))
		r = dedup_sync_frames(e, &marks);
	if (r == 0 && e->remote)
		e->remote->committed(e);
	mutex_lock(&e->log->lock);
	e->log->syncing_packs = false;
	cond_broadcast(&e->log->leader_cond); /* commit_frames() may be waiting for it */
	if (r < 0) {
		e->log->last_error = r;
		complete_waiters(e, failed(e, e->log->packed.end), r);
		return;
	}
	/* Not a commit yet: last_error stays as it is. */
	e->log->packed = (struct packed){ .end = end, .since_ns = start_ns, .marks = marks };
}

/* Encode `len` bytes of the log and the marks as one journal group. `joint`: the frames of a joint commit, or NULL. */
static int encode(const struct buf *log, size_t len, const struct pack_marks *marks, const struct pack_written *joint,
		  struct buf *ret)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY;

	marks_encode(marks, &rec);
	journal_record_add(ret, RECORD_MARKS, rec.data, rec.len);
	if (joint) {
		buf_clear(&rec);
		frames_encode(joint, &rec);
		journal_record_add(ret, RECORD_FRAMES, rec.data, rec.len);
	}
	buf_add(ret, log->data, len);
	return buf_error(&rec) < 0 ? -ENOMEM : buf_error(ret);
}

#define LOG_KEPT MiB(2) /* memory kept for the next records */

static void take_off(struct buf *log, size_t len)
{
	log->len -= len;
	memmove(log->data, log->data + len, log->len);
	if (log->len == 0 && log->size > LOG_KEPT)
		buf_release(log); /* free memory after a burst */
}

#define SOON_BYTES MiB(1) /* group size: 5 ms to compress; most disks write it uncompressed in less time */

/* Is a waiter up to this point of the log urgent? */
static bool is_urgent(struct engine *e, uint64_t end) REQUIRES(e->log->lock)
{
	for (const struct engine_waiter *w = e->log->waiters; w && w->target <= end; w = w->next)
		if (!w->patient)
			return true;
	return false;
}

static int append_group(struct engine *e, const struct buf *group, bool urgent)
{
	if (urgent && group->len <= SOON_BYTES)
		return journal_append_as_is(e->journal, group->data, group->len);
	return journal_append(e->journal, group->data, group->len);
}

/* Step 5. */
static void appended(struct engine *e, const struct packed *packed) REQUIRES(e->log->lock)
{
	take_off(&e->log->pending, (size_t)(packed->end - e->log->committed));
	e->log->oldest_ns = packed->since_ns; /* the remaining records arrived since */
	e->log->committed = packed->end;
	e->log->marks = packed->marks;
	atomic_fetch_add_explicit(&e->count.nr_commits, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&e->count.commit_ns_sum, monotonic_ns() - packed->since_ns, memory_order_relaxed);
	complete_waiters(e, satisfied(e), 0);
}

/* Steps 4 and 5. The lock is dropped during I/O. */
static void append(struct engine *e) REQUIRES(e->log->lock)
{
	_cleanup_(buf_release) struct buf group = BUF_EMPTY;
	struct packed packed = e->log->packed;
	size_t len = (size_t)(packed.end - e->log->committed);
	bool urgent = is_urgent(e, packed.end);
	int r;

	e->log->appending = true;
	r = encode(&e->log->pending, len, &packed.marks, NULL, &group);
	if (r == 0) {
		mutex_unlock(&e->log->lock);
		r = append_group(e, &group, urgent);
		if (reserve_helps(e, r))
			r = append_group(e, &group, urgent);
		mutex_lock(&e->log->lock);
	}
	e->log->appending = false;
	cond_broadcast(&e->log->leader_cond); /* commit_notes() may be waiting for it */
	e->log->last_error = r;
	if (r < 0) {
		complete_waiters(e, failed(e, e->log->committed), r);
		return;
	}
	e->log->unconfirmed = false;
	appended(e, &packed);
	if (e->remote) {
		mutex_unlock(&e->log->lock);
		e->remote->announce(e);
		mutex_lock(&e->log->lock);
	}
}

/* --- joint commits --- */

struct join {
	struct journal_beside beside;
	struct engine *e;
	struct pack_marks marks; /* of the sync */
	bool ended; /* the sync */
};

static int end_sync(struct join *j)
{
	int r;

	j->ended = true;
	r = packs_sync_end(j->e->packs, &j->marks);
	if (reserve_helps(j->e, r))
		r = dedup_sync_frames(j->e, &j->marks); /* covers later frames as well */
	return r;
}

static void join_start(struct journal_beside *b)
{
	jobs_sync_packs(container_of(b, struct join, beside)->e, true);
}

static int join_finish(struct journal_beside *b)
{
	struct join *j = container_of(b, struct join, beside);

	jobs_sync_packs(j->e, false);
	return end_sync(j);
}

/* All of a commit that is small: no other half is running. */
static bool may_join(struct engine *e) REQUIRES(e->log->lock)
{
	return !e->remote && !e->log->syncing_packs && !e->log->appending && e->log->packed.end == e->log->committed &&
	       is_urgent(e, e->log->end);
}

/*
 * A whole commit, or the first half if it is not small. If the journal fails, the packs are synced, which is the first
 * half, and the second one is tried by itself. The lock is dropped during I/O.
 */
static void join(struct engine *e) REQUIRES(e->log->lock)
{
	struct join j = { .beside = { .start = join_start, .finish = join_finish }, .e = e };
	_cleanup_(buf_release) struct buf group = BUF_EMPTY;
	struct packed packed = { .end = e->log->end, .since_ns = monotonic_ns() };
	struct pack_written written;
	int r, rj = -EAGAIN;

	e->log->syncing_packs = e->log->appending = true;
	mutex_unlock(&e->log->lock);
	r = dedup_write_frames(e, &written);
	mutex_lock(&e->log->lock);
	e->log->joins = r > 0 || (r == 0 && written.nr <= PACK_WRITTEN_MAX);
	if (r > 0 && encode(&e->log->pending, (size_t)(packed.end - e->log->committed), &written.marks,
			    written.nr > 0 ? &written : NULL, &group) < 0)
		r = 0;
	mutex_unlock(&e->log->lock);
	if (r > 0 && written.nr > 0 && group.len <= SOON_BYTES)
		rj = journal_append_joint(e->journal, group.data, group.len, &j.beside);
	if (r >= 0 && !j.ended)
		r = end_sync(&j);
	else if (j.ended)
		r = j.beside.result;
	mutex_lock(&e->log->lock);
	e->log->syncing_packs = e->log->appending = false;
	cond_broadcast(&e->log->leader_cond);
	if (r < 0) {
		e->log->last_error = r;
		complete_waiters(e, failed(e, e->log->packed.end), r);
		return;
	}
	packed.marks = j.marks;
	e->log->packed = packed;
	if (rj < 0)
		return; /* append() tries, and reports failures */
	e->log->last_error = 0;
	e->log->unconfirmed = true;
	packed.marks = written.marks; /* of the group */
	appended(e, &packed);
}

int commit_frames(struct engine *e, struct pack_marks *ret)
{
	int r;

	mutex_lock(&e->log->lock);
	while (e->log->syncing_packs)
		cond_wait(&e->log->leader_cond, &e->log->lock);
	e->log->syncing_packs = true;
	mutex_unlock(&e->log->lock);
	r = dedup_sync_frames(e, ret);
	if (reserve_helps(e, r))
		r = dedup_sync_frames(e, ret);
	mutex_lock(&e->log->lock);
	e->log->syncing_packs = false;
	if (r == 0) /* the log refers to no more of them than before */
		e->log->packed.marks = *ret;
	cond_broadcast(&e->log->leader_cond);
	mutex_unlock(&e->log->lock);
	return r;
}

void commit_open(struct engine *e, const struct pack_marks *marks)
{
	e->log->marks = e->log->packed.marks = *marks;
}

void commit_marks(struct engine *e, struct pack_marks *ret)
{
	mutex_lock(&e->log->lock);
	*ret = e->log->marks;
	mutex_unlock(&e->log->lock);
}

void commit_durable(struct engine *e, struct pack_marks *ret)
{
	mutex_lock(&e->log->lock);
	*ret = e->log->packed.marks;
	mutex_unlock(&e->log->lock);
}

/* Written beside the log, between two of its groups. */
int commit_notes(struct engine *e, const struct pack_marks *marks, const struct buf *records)
{
	_cleanup_(buf_release) struct buf group = BUF_EMPTY;
	struct pack_marks with;
	int r = buf_error(records);

	if (r < 0)
		return r;
	mutex_lock(&e->log->lock);
	while (e->log->appending)
		cond_wait(&e->log->leader_cond, &e->log->lock);
	e->log->appending = true;
	with = marks ? *marks : e->log->packed.marks;
	mutex_unlock(&e->log->lock);
	r = encode(records, records->len, &with, NULL, &group);
	if (r == 0)
		r = append_group(e, &group, true);
	if (reserve_helps(e, r))
		r = append_group(e, &group, true);
	mutex_lock(&e->log->lock);
	e->log->appending = false;
	if (r == 0) {
		e->log->marks = with;
		e->log->unconfirmed = false;
	}
	if (r == 0 && marks) /* a commit between its halves must not go back behind them */
		e->log->packed.marks = with;
	cond_broadcast(&e->log->leader_cond);
	mutex_unlock(&e->log->lock);
	return r;
}

void commit_confirm(struct engine *e)
{
	static const struct buf none = BUF_EMPTY;
	bool wanted;

	mutex_lock(&e->log->lock);
	wanted = e->log->unconfirmed && !e->log->appending && e->log->committed == e->log->end;
	mutex_unlock(&e->log->lock);
	if (wanted)
		(void)commit_notes(e, NULL, &none); /* logs its failure; retried next time */
}

static bool wants_packs(struct engine *e) REQUIRES(e->log->lock)
{
	const struct engine_waiter *last;

	if (!e->log->waiters || e->log->syncing_packs)
		return false;
	if (e->log->appending && e->log->joins) /* soon there can be a joint commit */
		return false;
	last = container_of(e->log->waiters_end, struct engine_waiter, next);
	return last->target > e->log->packed.end;
}

static bool wants_append(struct engine *e) REQUIRES(e->log->lock)
{
	return e->log->waiters && !e->log->appending && e->log->waiters->target <= e->log->packed.end;
}

static bool is_waiting(struct engine *e, const struct engine_waiter *w) REQUIRES(e->log->lock)
{
	const struct engine_waiter *i = e->log->waiters;

	while (i && i != w)
		i = i->next;
	return i;
}

/* `w` may be invalid when this returns. */
static void lead(struct engine *e, const struct engine_waiter *w) REQUIRES(e->log->lock)
{
	e->log->nr_leaders++;
	while (e->log->waiters && (is_waiting(e, w) || e->log->nr_leaders == 1)) {
		if (wants_append(e)) {
			if (wants_packs(e))
				cond_signal(&e->log->leader_cond); /* for the other leader */
			append(e);
		} else if (wants_packs(e)) {
			if (may_join(e))
				join(e);
			else
				sync_packs(e);
		} else {
			cond_wait(&e->log->leader_cond, &e->log->lock);
		}
	}
	e->log->nr_leaders--;
	cond_signal(&e->log->leader_cond);
}

static void sync_then(struct engine *e, struct engine_waiter *w, bool patient)
{
	atomic_fetch_add_explicit(&e->count.nr_commit_waiters, 1, memory_order_relaxed);
	w->patient = patient;
	if (!patient)
		compress_wait_begins(e);
	mutex_lock(&e->log->lock);
	w->target = e->log->end;
	w->next = NULL;
	if (e->log->committed >= w->target) {
		complete_waiters(e, w, 0);
	} else {
		*e->log->waiters_end = w;
		e->log->waiters_end = &w->next;
		if (e->log->nr_leaders < 2)
			lead(e, w);
		else if (wants_packs(e))
			cond_signal(&e->log->leader_cond);
	}
	mutex_unlock(&e->log->lock);
}

void commit_begin(struct engine *e)
{
	mutex_lock(&e->log->lock);
	if (!e->log->syncing_packs) {
		sync_packs(e);
		cond_broadcast(&e->log->leader_cond); /* wakes leaders that arrived meanwhile and found nothing to do */
	}
	mutex_unlock(&e->log->lock);
}

void engine_sync_then(struct engine *e, struct engine_waiter *w)
{
	sync_then(e, w, false);
}

struct sync_caller {
	struct engine_waiter w;
	struct mutex lock; /* leaf */
	struct cond cond;
	bool done GUARDED_BY(lock);
	int r;
};

static void sync_done(struct engine_waiter *w, int r)
{
	struct sync_caller *s = container_of(w, struct sync_caller, w);

	mutex_lock(&s->lock);
	s->r = r;
	s->done = true;
	cond_signal(&s->cond);
	mutex_unlock(&s->lock);
}

static int sync_and_wait(struct engine *e, bool patient)
{
	struct sync_caller s = { .w.done = sync_done };

	mutex_init(&s.lock);
	cond_init(&s.cond);
	sync_then(e, &s.w, patient);
	mutex_lock(&s.lock);
	while (!s.done)
		cond_wait(&s.cond, &s.lock);
	mutex_unlock(&s.lock);
	cond_release(&s.cond);
	mutex_release(&s.lock);
	return s.r;
}

int engine_sync(struct engine *e)
{
	return sync_and_wait(e, false);
}

int engine_sync_patiently(struct engine *e)
{
	return sync_and_wait(e, true);
}
