/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The part of a commit that runs a round of the cluster (cluster_calls.h). New chunks are in frames that are full and
 * deferred, or still being filled. They have their addresses already, so the decision of a round changes no recipe.
 *
 *   1. offer the chunks; receive which of them peers have, too, and the owners of each
 *   2. write the frames without the chunks that peers own (packs_frame_write_partly()), and sync the packs
 *   3. record in the journal, with the pack marks, the pinned chunks         crash before: nothing has happened
 *      and the remote ones, unsettled. Only now report that this node has    crash after: remote chunks count as freed,
 *      stored its share.                                                     and nothing in the log refers to them
 *   4. receive which nodes have stored theirs
 *   5. write the chunks that are not remote after all (packs_frame_settle())
 *   6. record the remote ones, settled, with their owners                    after: they are as good as local
 * Then the commit continues with the log, which refers to these chunks. So a chunk is pinned before any node relies on
 * it, and the reference is durable before the data is reported as durable.
 *
 * If peers have none of the offered chunks, steps 1 and 2 are all, and the commit waits for no other node's disk. If
 * that is likely (round_backoff.h), the chunks after the first frames, or all chunks, are neither deferred nor offered,
 * as without a cluster. They are announced once they are durable and the callers waiting for that have been answered;
 * peers may then request pins.
 *
 * A failure in 1, or a missing end in 4, costs space: all chunks are written here. A failure in 2, 3, 5 or 6 fails the
 * commit. Frames that are partly written stay in memory, and the next commit starts with them. The memory to keep them
 * is allocated before they are written: a frame that is lost here would be gone, and the next commit would not miss it.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/dedup/dedup.h"
#include "store/dedup/dedup_tables.h"
#include "store/log/commit.h"
#include "store/remote/remote.h"
#include "store/remote/round.h"

#define DEFERRED_DEFAULT MiB(64)
#define ROUND_FRAMES 16u /* of 1 MiB; 8 or 32 made no measurable difference */
#define MOSTLY_UNIQUE_PART 8u /* fewer than one page in 8 is on peers */

struct offered {
	struct fp fp;
	uint32_t frame, chunk, len; /* frame: index in round.frames */
};

struct taken {
	struct pack_frame *f; /* partly written */
	uint32_t pack, frame;
	uint32_t nr_remote;
	struct share_frame note;
	struct unsettled *left; /* of a frame with remote chunks: preallocated for leave_unsettled() */
};

struct round {
	struct engine *e;
	struct taken *frames;
	size_t nr;
	struct offered *offer;
	struct fp *fps; /* fingerprints of `offer` */
	uint8_t *fates;
	size_t nr_offered;
	struct cluster_decision d;
};

static void round_release(struct round *rd)
{
	cluster_decision_release(&rd->d);
	for (size_t i = 0; i < rd->nr && rd->frames; i++)
		free(rd->frames[i].left);
	free(rd->frames);
	free(rd->offer);
	free(rd->fps);
	free(rd->fates);
}

static bool has_agent(const struct engine *e)
{
	const struct cluster_calls *calls = e->conf.cluster_calls;

	return calls && calls->is_there(calls->userdata);
}

/* Are new chunks deferred for a round, if there are peers? */
static bool is_deferred(const struct engine *e) REQUIRES(append_lock)
{
	if (backoff_is_last_sample(&e->shares->backoff))
		return !e->shares->is_offering && e->shares->nr_deferred < BACKOFF_SAMPLE_FRAMES;
	return e->shares->backoff.state != OFFER_NOTHING;
}

bool remote_is_deferring(struct engine *e)
{
	return is_deferred(e) && has_agent(e);
}

/* Are new chunks written at once, and announced later? */
static bool is_announcing(const struct engine *e) REQUIRES(append_lock)
{
	return !is_deferred(e) && has_agent(e);
}

void remote_committed(struct engine *e)
{
	dedup_lock(e);
	backoff_committed(&e->shares->backoff);
	dedup_unlock(e);
}

void engine_cluster_is_shared(struct engine *e)
{
	dedup_lock(e);
	backoff_reported(&e->shares->backoff);
	dedup_unlock(e);
}

void engine_cluster_peers_changed(struct engine *e)
{
	dedup_lock(e);
	backoff_peers_changed(&e->shares->backoff);
	dedup_unlock(e);
}

static size_t deferred_max(const struct engine *e)
{
	uint64_t bytes = e->conf.pending ? e->conf.pending : DEFERRED_DEFAULT;

	return MAX((size_t)(bytes / PACK_FRAME_BYTES), (size_t)1);
}

/*
 * Number of deferred frames that start a round before memory runs out. Where nodes have much in common, rounds do not
 * start early: if peers are about to write the same pages, the first node would store all of them.
 */
static size_t round_frames(const struct engine *e) REQUIRES(append_lock)
{
	size_t half = (deferred_max(e) + 1) / 2;

	if (e->shares->backoff.state == OFFER_SAMPLE)
		return e->shares->is_offering ? SIZE_MAX : MIN((size_t)BACKOFF_SAMPLE_FRAMES, half);
	return e->shares->is_mostly_unique ? MIN((size_t)ROUND_FRAMES, half) : half;
}

unsigned remote_nr_spare(const struct engine *e)
{
	/* more frames fill up during a round */
	return e->conf.cluster_calls ? (unsigned)MIN(deferred_max(e), (size_t)4 * ROUND_FRAMES) : 0;
}

/* Makes room to defer `nr` more frames; false: out of memory. */
static bool make_room(struct engine *e, size_t nr) REQUIRES(append_lock)
{
	size_t need = e->shares->nr_deferred + e->shares->nr_taken + nr;
	struct pack_frame **more;

	if (need <= e->shares->size_deferred)
		return true;
	more = reallocarray(e->shares->deferred, need + 64, sizeof(*more));
	if (!more)
		return false;
	e->shares->deferred = more;
	e->shares->size_deferred = need + 64;
	return true;
}

struct pack_frame *remote_defer(struct engine *e, struct pack_frame *f)
{
	struct pack_frame *oldest;

	if (!remote_is_deferring(e) || !make_room(e, 1))
		return f;
	e->shares->deferred[e->shares->nr_deferred++] = f;
	if (!e->shares->is_round_due && e->shares->nr_deferred >= round_frames(e)) {
		e->shares->is_round_due = true;
		e->shares->wants_round = true;
	}
	if (e->shares->nr_deferred <= deferred_max(e))
		return NULL;
	oldest = e->shares->deferred[0];
	memmove(e->shares->deferred, e->shares->deferred + 1, --e->shares->nr_deferred * sizeof(*e->shares->deferred));
	return oldest;
}

/* Defers those of `nr_taken` again that are not NULL because they could not be written. The room is reserved. */
static void put_back(struct engine *e, struct pack_frame **frames, size_t nr) REQUIRES(append_lock)
{
	assert(e->shares->nr_taken >= nr);
	e->shares->nr_taken -= nr;
	for (size_t i = 0; i < nr; i++)
		if (frames[i])
			e->shares->deferred[e->shares->nr_deferred++] = frames[i];
}

/* Before the last deferred frame fills up: is_announcing() may change when it does. */
bool remote_append_begin(struct engine *e)
{
	return is_announcing(e);
}

bool remote_append_end(struct engine *e, bool begun, const struct batch *b)
{
	bool wants_round = e->shares->wants_round, any = false;

	e->shares->wants_round = false;
	for (unsigned i = 0; b && i < b->n; i++)
		if (b->cause[i] == CLAIMED) {
			any = true;
			if (begun)
				backoff_add_written(&e->shares->backoff, b->fps[i]);
		}
	if (any && !begun && e->conf.cluster_calls)
		e->shares->deferred_ns = monotonic_ns();
	return wants_round;
}

void remote_request_round(struct engine *e)
{
	const struct cluster_calls *calls = e->conf.cluster_calls;

	if (calls && calls->want)
		calls->want(calls->userdata);
}

int engine_cluster_round(struct engine *e)
{
	struct pack_marks marks;

	return commit_frames(e, &marks);
}

bool engine_cluster_pending(struct engine *e)
{
	bool pending;

	if (!e->remote)
		return false;
	dedup_lock(e);
	pending = e->shares->nr_deferred > 0 || e->shares->is_offering ||
		  (!is_announcing(e) && (dedup_open_frame(e, false) || dedup_open_frame(e, true)));
	dedup_unlock(e);
	return pending;
}

uint64_t engine_cluster_deferred_ns(struct engine *e)
{
	uint64_t ns;

	dedup_lock(e);
	ns = e->shares->backoff.state == OFFER_ALL && !e->shares->is_mostly_unique ? e->shares->deferred_ns : 0;
	dedup_unlock(e);
	return ns;
}

/* --- without a round --- */

static int write_all(struct engine *e, struct pack_frame **frames, size_t nr, struct pack_marks *ret)
{
	for (size_t i = 0; i < nr; i++)
		if (packs_frame_write(e->packs, frames[i]) == 0)
			frames[i] = NULL;
	return packs_sync_end(e->packs, ret); /* a frame that could not be written makes it fail */
}

/* --- frames left by a failed round --- */

static void leave_unsettled(struct engine *e, struct taken *t)
{
	struct unsettled *u = TAKE(t->left);

	shares_settling(e, true);
	*u = (struct unsettled){
		.next = e->shares->unsettled, .f = TAKE(t->f), .pack = t->pack, .frame = t->frame, .note = t->note
	};
	e->shares->unsettled = u;
	atomic_store(&e->shares->has_left, true);
}

static int settle_left(struct engine *e, const struct pack_marks *marks)
{
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	int r = 0;

	for (struct unsettled *u = e->shares->unsettled; u && r == 0; u = u->next) {
		r = u->f ? packs_frame_settle(e->packs, u->f, u->note.remote) : 0;
		if (r == 0) {
			u->f = NULL;
			u->note.settled = true;
			shares_put(&u->note, u->pack, u->frame, &records);
		}
	}
	if (r < 0)
		return r;
	mutex_lock(&e->shares->lock);
	for (struct unsettled *u = e->shares->unsettled; u; u = u->next) {
		e->shares->totals.nr_remote += u->nr_more;
		e->shares->totals.remote_bytes += u->more_bytes;
		u->nr_more = u->more_bytes = 0;
	}
	r = shares_commit(e, marks, &records);
	mutex_unlock(&e->shares->lock);
	for (struct unsettled *u; r == 0 && (u = e->shares->unsettled);) {
		e->shares->unsettled = u->next;
		free(u);
		shares_settled(e);
	}
	if (r == 0)
		atomic_store(&e->shares->has_left, false);
	return r;
}

/* Unsettled frames that have arrived belong to this commit. */
static void take_arriving(struct engine *e) REQUIRES(append_lock)
{
	for (struct unsettled *u; (u = e->shares->arriving);) {
		e->shares->arriving = u->next;
		u->next = e->shares->unsettled;
		e->shares->unsettled = u;
	}
}

void remote_abandon_frames(struct engine *e)
{
	dedup_lock(e);
	take_arriving(e);
	dedup_unlock(e);
	for (struct unsettled *u; (u = e->shares->unsettled);) {
		e->shares->unsettled = u->next;
		if (u->f) /* its place stays as after a crash */
			packs_frame_leave(e->packs, u->f);
		free(u);
		shares_settled(e);
	}
	backoff_release(&e->shares->backoff);
	for (size_t i = 0; i < e->shares->nr_deferred; i++)
		packs_frame_abandon(e->packs, e->shares->deferred[i]);
	e->shares->nr_deferred = e->shares->size_deferred = 0;
	free(TAKE(e->shares->deferred));
}

/* --- step 1 --- */

static int compare_offered(const void *a, const void *b)
{
	const struct offered *x = a, *y = b;

	return fp_compare(x->fp, y->fp);
}

static int make_offer(struct round *rd, struct pack_frame **frames)
{
	size_t max = 0, n = 0;

	for (size_t i = 0; i < rd->nr; i++)
		max += pack_frame_nr(frames[i]);
	rd->frames = calloc(rd->nr, sizeof(*rd->frames));
	rd->offer = calloc(max, sizeof(*rd->offer));
	rd->fps = calloc(max, sizeof(*rd->fps));
	rd->fates = calloc(max, 1);
	if (!rd->frames || !rd->offer || !rd->fps || !rd->fates)
		return -ENOMEM;
	for (size_t i = 0; i < rd->nr; i++) {
		pack_frame_place(frames[i], &rd->frames[i].pack, &rd->frames[i].frame);
		for (uint32_t k = 0; k < pack_frame_nr(frames[i]); k++)
			rd->offer[n++] = (struct offered){ pack_frame_fp(frames[i], k), (uint32_t)i, k,
							   pack_frame_len(frames[i], k) };
	}
	qsort(rd->offer, n, sizeof(*rd->offer), compare_offered);
	for (size_t i = 0; i < n; i++) /* duplicates are offered once, and the others written here */
		if (i == 0 || !fp_equal(rd->offer[i].fp, rd->offer[i - 1].fp))
			rd->offer[rd->nr_offered++] = rd->offer[i];
	for (size_t i = 0; i < rd->nr_offered; i++)
		rd->fps[i] = rd->offer[i].fp;
	return 0;
}

/* Sets the pinned and remote chunks of each frame. */
static int take_fates(struct round *rd)
{
	for (size_t i = 0; i < rd->nr_offered; i++) {
		struct taken *t = &rd->frames[rd->offer[i].frame];

		if (rd->fates[i] == ROUND_PIN)
			share_set(t->note.pinned, rd->offer[i].chunk);
		if (rd->fates[i] == ROUND_AWAIT) {
			share_set(t->note.remote, rd->offer[i].chunk);
			t->nr_remote++;
			t->left = t->left ?: malloc(sizeof(*t->left));
			if (!t->left)
				return -ENOMEM;
		}
	}
	return 0;
}

static int request_decision(struct round *rd)
{
	const struct cluster_calls *calls = rd->e->conf.cluster_calls;
	int r = calls->decide(calls->userdata, rd->fps, rd->nr_offered, &rd->d);

	if (r < 0)
		return r;
	r = round_decide(&rd->d, rd->e->dirs.sb.store_id, rd->nr_offered, rd->fates);
	if (r < 0)
		log_errno(r, "round: invalid decision");
	else
		r = take_fates(rd);
	if (r < 0)
		calls->settle(calls->userdata, &rd->d, r, NULL);
	return r;
}

/* --- step 2 and 3 --- */

static int write_frames(struct round *rd, struct pack_frame **frames, struct pack_marks *ret)
{
	struct packs *p = rd->e->packs;

	for (size_t i = 0; i < rd->nr; i++) {
		struct taken *t = &rd->frames[i];

		if (t->nr_remote == 0 && packs_frame_write(p, frames[i]) == 0)
			frames[i] = NULL;
		if (t->nr_remote > 0 && packs_frame_write_partly(p, frames[i], t->note.remote) == 0)
			t->f = TAKE(frames[i]);
	}
	return packs_sync_end(p, ret);
}

static bool is_noted(const struct taken *t)
{
	return t->nr_remote > 0 || share_any(t->note.pinned);
}

/* Adds the chunks of this round with that fate, and their bytes. */
static void count_fate(const struct round *rd, enum round_fate fate, uint64_t *nr, uint64_t *bytes)
{
	for (size_t i = 0; i < rd->nr_offered; i++)
		if (rd->fates[i] == fate) {
			(*nr)++;
			*bytes += rd->offer[i].len;
		}
}

static int note_stored(struct round *rd, const struct pack_marks *marks)
{
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	struct engine *e = rd->e;
	struct share_totals *totals;
	int r;

	for (size_t i = 0; i < rd->nr; i++) {
		struct taken *t = &rd->frames[i];

		t->note.settled = t->nr_remote == 0;
		if (is_noted(t))
			shares_put(&t->note, t->pack, t->frame, &records);
	}
	if (records.len == 0 && buf_error(&records) == 0)
		return 0;
	mutex_lock(&e->shares->lock);
	totals = &e->shares->totals;
	count_fate(rd, ROUND_PIN, &totals->nr_pinned, &totals->pinned_bytes);
	r = shares_register_peers(e, rd->d.nodes, rd->d.nr_nodes); /* any of them may refer to the pinned chunks */
	if (r == 0)
		r = shares_commit(e, marks, &records);
	mutex_unlock(&e->shares->lock);
	return r;
}

/* --- steps 4 to 6 --- */

/* Applies the end of the round to the records. has_stored NULL: no chunk becomes remote. */
static int settle_notes(struct engine *e, struct round *rd, const bool *has_stored) REQUIRES(e->shares->lock)
{
	uint16_t numbers[CLUSTER_OWNERS_MAX];
	int r = 0;

	round_settle(&rd->d, has_stored, rd->nr_offered, rd->fates);
	for (size_t i = 0; i < rd->nr; i++)
		memset(rd->frames[i].note.remote, 0, sizeof(rd->frames[i].note.remote));
	for (size_t i = 0; i < rd->d.nr; i++) {
		const struct cluster_owners *o = &rd->d.owners[i];
		const struct offered *of = &rd->offer[o->index];
		struct share_frame *note = &rd->frames[of->frame].note;

		if (rd->fates[o->index] != ROUND_REMOTE)
			continue;
		for (uint32_t k = 0; k < o->nr && r == 0; k++)
			r = shares_number(e, &rd->d.nodes[o->owners[k]], &numbers[k]);
		if (r < 0)
			break;
		share_set(note->remote, of->chunk);
		note->owners[of->chunk].nr = (uint8_t)o->nr;
		memcpy(note->owners[of->chunk].node, numbers, o->nr * sizeof(*numbers));
	}
	return r;
}

/* Completes the partly written frames according to their records. */
static int settle_frames(struct round *rd, struct buf *records)
{
	int r = 0;

	for (size_t i = 0; i < rd->nr && r == 0; i++) {
		struct taken *t = &rd->frames[i];

		if (t->nr_remote == 0)
			continue;
		t->note.settled = true;
		r = packs_frame_settle(rd->e->packs, t->f, t->note.remote);
		if (r == 0) {
			t->f = NULL;
			shares_put(&t->note, t->pack, t->frame, records);
		}
	}
	return r;
}

static int end_round(struct round *rd, const bool *has_stored, const struct pack_marks *marks)
{
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	struct engine *e = rd->e;
	int r;

	mutex_lock(&e->shares->lock);
	r = settle_notes(e, rd, has_stored);
	mutex_unlock(&e->shares->lock);
	if (r == 0)
		r = settle_frames(rd, &records);
	if (r == 0 && records.len > 0) {
		mutex_lock(&e->shares->lock);
		count_fate(rd, ROUND_REMOTE, &e->shares->totals.nr_remote, &e->shares->totals.remote_bytes);
		r = shares_commit(e, marks, &records);
		mutex_unlock(&e->shares->lock);
	}
	for (size_t i = 0; r < 0 && i < rd->nr; i++)
		if (rd->frames[i].nr_remote > 0)
			leave_unsettled(e, &rd->frames[i]);
	return r;
}

/* This node has not stored its share: report that to the peers; no chunk becomes remote. */
static int fail_round(struct round *rd, int error)
{
	const struct cluster_calls *calls = rd->e->conf.cluster_calls;

	calls->settle(calls->userdata, &rd->d, error, NULL);
	for (size_t i = 0; i < rd->nr; i++) {
		struct taken *t = &rd->frames[i];

		memset(&t->note, 0, sizeof(t->note));
		if (t->f)
			leave_unsettled(rd->e, t);
	}
	return error;
}

static int run_round(struct round *rd, struct pack_frame **frames, struct pack_marks *ret)
{
	const struct cluster_calls *calls = rd->e->conf.cluster_calls;
	_cleanup_(freep) bool *has_stored = calloc(MAX(rd->d.nr_nodes, 1u), sizeof(*has_stored));
	int r;

	r = write_frames(rd, frames, ret);
	if (r == 0)
		r = has_stored ? note_stored(rd, ret) : -ENOMEM;
	if (r < 0)
		return fail_round(rd, r);
	atomic_fetch_add_explicit(&rd->e->shares->nr_rounds, 1, memory_order_relaxed);
	r = calls->settle(calls->userdata, &rd->d, 0, has_stored);
	return end_round(rd, r < 0 ? NULL : has_stored, ret);
}

/* Peers have none of the chunks, so this node does not wait for the end of the round. Peers still wait for its report:
 * from then on they can find what it has stored. */
static int run_without_peers(struct round *rd, struct pack_frame **frames, struct pack_marks *ret)
{
	const struct cluster_calls *calls = rd->e->conf.cluster_calls;
	int r = write_all(rd->e, frames, rd->nr, ret);

	atomic_fetch_add_explicit(&rd->e->shares->nr_rounds, r == 0, memory_order_relaxed);
	calls->settle(calls->userdata, &rd->d, r, NULL);
	return r;
}

/* Writes deferred frames that peers have nothing of. Frames that cannot be written stay deferred. */
static void write_deferred(struct engine *e, struct pack_frame **frames, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		if (packs_frame_write(e->packs, frames[i]) == 0)
			frames[i] = NULL;
	dedup_lock(e);
	put_back(e, frames, nr);
	dedup_unlock(e);
	free(frames);
}

static void note_frame(struct engine *e, const struct pack_frame *f) REQUIRES(append_lock)
{
	for (uint32_t k = 0; f && k < pack_frame_nr(f); k++)
		backoff_add_written(&e->shares->backoff, pack_frame_fp(f, k));
}

/* Takes the deferred frames. Chunks in frames still being filled are recorded for announcement, too, as they will not
 * be offered either. On ENOMEM the frames stay for the next commit. */
static size_t take_deferred(struct engine *e, struct pack_frame ***ret) REQUIRES(append_lock)
{
	struct pack_frame **frames = calloc(MAX(e->shares->nr_deferred, (size_t)1), sizeof(*frames));
	size_t nr = frames ? e->shares->nr_deferred : 0;

	for (size_t i = 0; i < e->shares->nr_deferred; i++)
		note_frame(e, e->shares->deferred[i]);
	note_frame(e, dedup_open_frame(e, false));
	note_frame(e, dedup_open_frame(e, true));
	if (nr > 0)
		memcpy(frames, e->shares->deferred, nr * sizeof(*frames));
	e->shares->nr_deferred -= nr;
	e->shares->nr_taken += nr; /* keeps their slots in `deferred` reserved */
	*ret = frames;
	return nr;
}

/* Ends the offer: from now on a new round may start. */
static void stop_offering(struct engine *e, const struct round *rd, bool is_decided)
{
	struct pack_frame **frames = NULL;
	size_t nr = 0;

	dedup_lock(e);
	e->shares->is_offering = false;
	if (is_decided) {
		e->shares->is_mostly_unique = rd->d.nr < rd->nr_offered / MOSTLY_UNIQUE_PART;
		if (backoff_decided(&e->shares->backoff, rd->nr, rd->nr_offered, rd->d.nr))
			nr = take_deferred(e, &frames);
	}
	dedup_unlock(e);
	write_deferred(e, frames, nr);
}

/* Announces chunks written without a round. Only a hint: a peer must request a pin before it relies on a chunk. */
void remote_announce(struct engine *e)
{
	const struct cluster_calls *calls = e->conf.cluster_calls;
	_cleanup_(freep) struct fp *fps = NULL;
	bool has_time;
	size_t nr;

	if (!calls)
		return;
	dedup_lock(e);
	nr = backoff_take_unannounced(&e->shares->backoff, &fps);
	has_time = backoff_is_on(&e->shares->backoff);
	dedup_unlock(e);
	if (nr > 0 && calls->stored)
		calls->stored(calls->userdata, fps, nr, has_time);
}

static bool is_for_round(struct engine *e)
{
	bool yes;

	dedup_lock(e);
	yes = e->shares->backoff.state != OFFER_NOTHING && has_agent(e);
	dedup_unlock(e);
	return yes;
}

/* Frames that cannot be written stay in `frames`; the others become NULL. */
static int sync_in_round(struct engine *e, struct pack_frame **frames, size_t nr, struct pack_marks *ret)
{
	_cleanup_(round_release) struct round rd = { .e = e, .nr = nr };
	bool may = nr > 0 && is_for_round(e) && !atomic_load(&e->shares->paused);
	int r = may ? make_offer(&rd, frames) : -ENOTCONN;

	if (r == 0)
		r = request_decision(&rd);
	stop_offering(e, &rd, r == 0);
	if (r < 0) {
		r = write_all(e, frames, nr, ret);
	} else if (rd.d.nr == 0) {
		r = run_without_peers(&rd, frames, ret);
	} else {
		/* before this node reports that it has stored: a collection waits for the round to end here */
		shares_settling(e, true);
		r = run_round(&rd, frames, ret);
		shares_settled(e);
	}
	return r == 0 && e->shares->unsettled ? settle_left(e, ret) : r;
}

int remote_sync_room(struct engine *e, size_t nr)
{
	return make_room(e, nr) ? (int)e->shares->nr_deferred : -ENOMEM;
}

bool remote_sync_begin(struct engine *e, struct pack_frame **frames, size_t *nr)
{
	struct shares *s = e->shares;
	bool is_ours;

	memmove(frames + s->nr_deferred, frames, *nr * sizeof(*frames));
	if (s->nr_deferred > 0)
		memcpy(frames, s->deferred, s->nr_deferred * sizeof(*frames));
	*nr += s->nr_deferred;
	s->nr_deferred = 0;
	s->is_round_due = false;
	take_arriving(e);
	is_ours = e->conf.cluster_calls || s->unsettled;
	s->is_offering = is_ours && *nr > 0;
	if (is_ours)
		s->nr_taken += *nr;
	return is_ours;
}

int remote_sync_frames(struct engine *e, struct pack_frame **frames, size_t nr, struct pack_marks *ret)
{
	int r = sync_in_round(e, frames, nr, ret);

	dedup_lock(e);
	put_back(e, frames, nr);
	dedup_unlock(e);
	return r;
}
