/*
 * A commit's part in a round of the cluster (cluster.h). New chunks are in frames that are full and held, or still
 * being filled; they have their addresses already, so whatever a round decides, no recipe changes.
 *
 *   1. offer them, hear which of them others have, too, and who is to store each
 *   2. write the frames, without what others are to store (packs_frame_write_partly()), and sync the packs
 *   3. note in the journal, with the marks, which chunks are lent, and which are away and not settled     crash before: nothing of this was
 *      Only now say that this node has stored what it was to.                                             crash after: what is away counts as
 *   4. hear who has                                                                                      gone, and nothing in the log refers to it
 *   5. write what is not elsewhere after all (packs_frame_settle())
 *   6. note what is, settled, with its owners                                                             from here on it is as good as here
 * Then the commit goes on to the log, which refers to these chunks. So a chunk is lent before anybody relies on it, and
 * relied on before anybody is told that it is durable.
 *
 * If nobody has anything of what was offered, steps 1 and 2 are all there is, and the commit waits for nobody's disk
 * but its own. If that is likely to be so (alone.h), what comes behind the first frames, or all of it, is neither held
 * nor offered, as without a cluster; others hear of it when it is durable and who waited for that has been answered,
 * and may ask for it to be lent.
 *
 * What fails at 1, or is not heard of at 4, costs space: all is written here. What fails at 2, 3, 5 or 6 fails the
 * commit; frames that are written partly stay in memory, and the next commit begins with them. There is room to keep
 * them before they are: one that nobody has any more would be gone, and the next commit would know nothing of it.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine/cluster.h"
#include "store/engine/engine_internal.h"
#include "store/engine/round.h"

#define HELD_DEFAULT MiB(64)
#define ROUND_FRAMES 16u /* of a MiB; 8 or 32 made no difference that could be measured */
#define MOSTLY_ALONE_PART 8u /* less than one page of so many is on other nodes */

struct offered {
	struct fp fp;
	uint32_t frame, chunk, len; /* which of the frames */
};

struct taken {
	struct pack_frame *f; /* partly written */
	uint32_t pack, frame;
	uint32_t nr_away;
	struct share_frame note;
	struct unsettled *left; /* of one with something away: there is room to leave it, whatever happens */
};

struct round {
	struct engine *e;
	struct taken *frames;
	size_t nr;
	struct offered *offer;
	struct fp *fps; /* of `offer` */
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

/* Is what comes now for a round, if there are others? */
static bool is_held(const struct engine *e) REQUIRES(e->append_lock)
{
	if (alone_is_confirming(&e->alone))
		return !e->is_offering && e->nr_held < ALONE_PROBE_FRAMES;
	return e->alone.state != ALONE_LETTING_GO;
}

bool collective_holds(struct engine *e)
{
	return is_held(e) && has_agent(e);
}

bool collective_lets_go(const struct engine *e)
{
	return !is_held(e) && has_agent(e);
}

void collective_committed(struct engine *e)
{
	mutex_lock(&e->append_lock);
	alone_committed(&e->alone);
	mutex_unlock(&e->append_lock);
}

void engine_cluster_is_shared(struct engine *e)
{
	mutex_lock(&e->append_lock);
	alone_found_out(&e->alone);
	mutex_unlock(&e->append_lock);
}

void engine_cluster_met(struct engine *e)
{
	mutex_lock(&e->append_lock);
	alone_met(&e->alone);
	mutex_unlock(&e->append_lock);
}

static size_t held_max(const struct engine *e)
{
	uint64_t bytes = e->conf.pending ? e->conf.pending : HELD_DEFAULT;

	return MAX((size_t)(bytes / PACK_FRAME_BYTES), (size_t)1);
}

/*
 * So many are worth a round, before there is no room. Where nodes have much in common none is begun early: of pages
 * that the others are about to write, too, the first to come would store all.
 */
static size_t round_frames(const struct engine *e) REQUIRES(e->append_lock)
{
	size_t half = (held_max(e) + 1) / 2;

	if (e->alone.state == ALONE_PROBING)
		return e->is_offering ? SIZE_MAX : MIN((size_t)ALONE_PROBE_FRAMES, half);
	return e->is_mostly_alone ? MIN((size_t)ROUND_FRAMES, half) : half;
}

unsigned collective_spare(const struct engine *e)
{
	/* some more come while a round is under way */
	return e->conf.cluster_calls ? (unsigned)MIN(held_max(e), (size_t)4 * ROUND_FRAMES) : 0;
}

bool collective_make_room(struct engine *e, size_t nr)
{
	size_t need = e->nr_held + e->nr_taken + nr;
	struct pack_frame **more;

	if (need <= e->size_held)
		return true;
	more = reallocarray(e->held, need + 64, sizeof(*more));
	if (!more)
		return false;
	e->held = more;
	e->size_held = need + 64;
	return true;
}

struct pack_frame *collective_hold(struct engine *e, struct pack_frame *f)
{
	struct pack_frame *oldest;

	if (!collective_make_room(e, 1))
		return f;
	e->held[e->nr_held++] = f;
	if (!e->is_round_due && e->nr_held >= round_frames(e)) {
		e->is_round_due = true;
		e->wants_round = true;
	}
	if (e->nr_held <= held_max(e))
		return NULL;
	oldest = e->held[0];
	memmove(e->held, e->held + 1, --e->nr_held * sizeof(*e->held));
	return oldest;
}

void collective_put_back(struct engine *e, struct pack_frame **frames, size_t nr)
{
	assert(e->nr_taken >= nr);
	e->nr_taken -= nr;
	for (size_t i = 0; i < nr; i++)
		if (frames[i])
			e->held[e->nr_held++] = frames[i];
}

void collective_want(struct engine *e)
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

	mutex_lock(&e->append_lock);
	pending = e->nr_held > 0 || e->is_offering || (!collective_lets_go(e) && (e->small || e->varied));
	mutex_unlock(&e->append_lock);
	return pending;
}

uint64_t engine_cluster_held_ns(struct engine *e)
{
	uint64_t ns;

	mutex_lock(&e->append_lock);
	ns = e->alone.state == ALONE_SHARING && !e->is_mostly_alone ? e->held_ns : 0;
	mutex_unlock(&e->append_lock);
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

/* --- what the last one has left --- */

static void leave(struct engine *e, struct taken *t)
{
	struct unsettled *u = TAKE(t->left);

	shares_settling(e, true);
	*u = (struct unsettled){ .next = e->unsettled, .f = TAKE(t->f), .pack = t->pack, .frame = t->frame, .note = t->note };
	e->unsettled = u;
	atomic_store(&e->shares.has_left, true);
}

static int settle_left(struct engine *e, const struct pack_marks *marks)
{
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	int r = 0;

	for (struct unsettled *u = e->unsettled; u && r == 0; u = u->next) {
		r = u->f ? packs_frame_settle(e->packs, u->f, u->note.away) : 0;
		if (r == 0) {
			u->f = NULL;
			u->note.settled = true;
			shares_put(&u->note, u->pack, u->frame, &records);
		}
	}
	if (r < 0)
		return r;
	mutex_lock(&e->shares.lock);
	for (struct unsettled *u = e->unsettled; u; u = u->next) {
		e->shares.totals.nr_away += u->nr_more;
		e->shares.totals.away_bytes += u->more_bytes;
		u->nr_more = u->more_bytes = 0;
	}
	r = shares_commit(e, marks, &records);
	mutex_unlock(&e->shares.lock);
	for (struct unsettled *u; r == 0 && (u = e->unsettled);) {
		e->unsettled = u->next;
		free(u);
		shares_settled(e);
	}
	if (r == 0)
		atomic_store(&e->shares.has_left, false);
	return r;
}

void collective_arrive(struct engine *e)
{
	for (struct unsettled *u; (u = e->arriving);) {
		e->arriving = u->next;
		u->next = e->unsettled;
		e->unsettled = u;
	}
}

void collective_release(struct engine *e)
{
	mutex_lock(&e->append_lock);
	collective_arrive(e);
	mutex_unlock(&e->append_lock);
	for (struct unsettled *u; (u = e->unsettled);) {
		e->unsettled = u->next;
		if (u->f) /* its place stays as a crash would leave it */
			packs_frame_leave(e->packs, u->f);
		free(u);
		shares_settled(e);
	}
	alone_release(&e->alone);
	for (size_t i = 0; i < e->nr_held; i++)
		packs_frame_abandon(e->packs, e->held[i]);
	e->nr_held = e->size_held = 0;
	free(TAKE(e->held));
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
	for (size_t i = 0; i < n; i++) /* one that is there twice is written twice */
		if (i == 0 || !fp_equal(rd->offer[i].fp, rd->offer[i - 1].fp))
			rd->offer[rd->nr_offered++] = rd->offer[i];
	for (size_t i = 0; i < rd->nr_offered; i++)
		rd->fps[i] = rd->offer[i].fp;
	return 0;
}

/* Of each frame, what is lent and what is away. */
static int take_fates(struct round *rd)
{
	for (size_t i = 0; i < rd->nr_offered; i++) {
		struct taken *t = &rd->frames[rd->offer[i].frame];

		if (rd->fates[i] == ROUND_LEND)
			share_set(t->note.lent, rd->offer[i].chunk);
		if (rd->fates[i] == ROUND_AWAIT) {
			share_set(t->note.away, rd->offer[i].chunk);
			t->nr_away++;
			t->left = t->left ?: malloc(sizeof(*t->left));
			if (!t->left)
				return -ENOMEM;
		}
	}
	return 0;
}

static int decide(struct round *rd)
{
	const struct cluster_calls *calls = rd->e->conf.cluster_calls;
	int r = calls->decide(calls->userdata, rd->fps, rd->nr_offered, &rd->d);

	if (r < 0)
		return r;
	r = round_decide(&rd->d, rd->e->dirs.sb.store_id, rd->nr_offered, rd->fates);
	if (r < 0)
		log_errno(r, "a round of the cluster came to a decision that cannot be");
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

		if (t->nr_away == 0 && packs_frame_write(p, frames[i]) == 0)
			frames[i] = NULL;
		if (t->nr_away > 0 && packs_frame_write_partly(p, frames[i], t->note.away) == 0)
			t->f = TAKE(frames[i]);
	}
	return packs_sync_end(p, ret);
}

static bool is_noted(const struct taken *t)
{
	return t->nr_away > 0 || share_any(t->note.lent);
}

/* Chunks of this round that became so, and their bytes. */
static void count(const struct round *rd, enum round_fate fate, uint64_t *nr, uint64_t *bytes)
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

		t->note.settled = t->nr_away == 0;
		if (is_noted(t))
			shares_put(&t->note, t->pack, t->frame, &records);
	}
	if (records.len == 0 && buf_error(&records) == 0)
		return 0;
	mutex_lock(&e->shares.lock);
	totals = &e->shares.totals;
	count(rd, ROUND_LEND, &totals->nr_lent, &totals->lent_bytes);
	r = shares_meet(e, rd->d.nodes, rd->d.nr_nodes); /* any of them may refer to what is lent */
	if (r == 0)
		r = shares_commit(e, marks, &records);
	mutex_unlock(&e->shares.lock);
	return r;
}

/* --- steps 4 to 6 --- */

/* How it ends, if has_stored is NULL without any of the others. */
static int settle_notes(struct engine *e, struct round *rd, const bool *has_stored) REQUIRES(e->shares.lock)
{
	uint16_t numbers[CLUSTER_OWNERS_MAX];
	int r = 0;

	round_settle(&rd->d, has_stored, rd->nr_offered, rd->fates);
	for (size_t i = 0; i < rd->nr; i++)
		memset(rd->frames[i].note.away, 0, sizeof(rd->frames[i].note.away));
	for (size_t i = 0; i < rd->d.nr; i++) {
		const struct cluster_owners *o = &rd->d.owners[i];
		const struct offered *of = &rd->offer[o->index];
		struct share_frame *note = &rd->frames[of->frame].note;

		if (rd->fates[o->index] != ROUND_ELSEWHERE)
			continue;
		for (uint32_t k = 0; k < o->nr && r == 0; k++)
			r = shares_number(e, &rd->d.nodes[o->owners[k]], &numbers[k]);
		if (r < 0)
			break;
		share_set(note->away, of->chunk);
		note->owners[of->chunk].nr = (uint8_t)o->nr;
		memcpy(note->owners[of->chunk].node, numbers, o->nr * sizeof(*numbers));
	}
	return r;
}

/* What the round has written partly becomes what the notes say. */
static int settle_frames(struct round *rd, struct buf *records)
{
	int r = 0;

	for (size_t i = 0; i < rd->nr && r == 0; i++) {
		struct taken *t = &rd->frames[i];

		if (t->nr_away == 0)
			continue;
		t->note.settled = true;
		r = packs_frame_settle(rd->e->packs, t->f, t->note.away);
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

	mutex_lock(&e->shares.lock);
	r = settle_notes(e, rd, has_stored);
	mutex_unlock(&e->shares.lock);
	if (r == 0)
		r = settle_frames(rd, &records);
	if (r == 0 && records.len > 0) {
		mutex_lock(&e->shares.lock);
		count(rd, ROUND_ELSEWHERE, &e->shares.totals.nr_away, &e->shares.totals.away_bytes);
		r = shares_commit(e, marks, &records);
		mutex_unlock(&e->shares.lock);
	}
	for (size_t i = 0; r < 0 && i < rd->nr; i++)
		if (rd->frames[i].nr_away > 0)
			leave(e, &rd->frames[i]);
	return r;
}

/* This node has not stored what it was to: others are told, and nothing is away. */
static int fail_round(struct round *rd, int error)
{
	const struct cluster_calls *calls = rd->e->conf.cluster_calls;

	calls->settle(calls->userdata, &rd->d, error, NULL);
	for (size_t i = 0; i < rd->nr; i++) {
		struct taken *t = &rd->frames[i];

		memset(&t->note, 0, sizeof(t->note));
		if (t->f)
			leave(rd->e, t);
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
	atomic_fetch_add_explicit(&rd->e->shares.nr_rounds, 1, memory_order_relaxed);
	r = calls->settle(calls->userdata, &rd->d, 0, has_stored);
	return end_round(rd, r < 0 ? NULL : has_stored, ret);
}

/* Nobody else has anything of it: this node need not hear who has stored. Others wait for it all the same: what it has
 * stored alone is known from then on. */
static int run_alone(struct round *rd, struct pack_frame **frames, struct pack_marks *ret)
{
	const struct cluster_calls *calls = rd->e->conf.cluster_calls;
	int r = write_all(rd->e, frames, rd->nr, ret);

	atomic_fetch_add_explicit(&rd->e->shares.nr_rounds, r == 0, memory_order_relaxed);
	calls->settle(calls->userdata, &rd->d, r, NULL);
	return r;
}

/* What is held is nothing that others have. Those that cannot be written stay. */
static void let_go(struct engine *e, struct pack_frame **frames, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		if (packs_frame_write(e->packs, frames[i]) == 0)
			frames[i] = NULL;
	mutex_lock(&e->append_lock);
	collective_put_back(e, frames, nr);
	mutex_unlock(&e->append_lock);
	free(frames);
}

static void note_frame(struct engine *e, const struct pack_frame *f) REQUIRES(e->append_lock)
{
	for (uint32_t k = 0; f && k < pack_frame_nr(f); k++)
		alone_wrote(&e->alone, pack_frame_fp(f, k));
}

/* With what has begun to fill frames that are not held yet: nobody will be asked about that either. Without memory they
 * stay, and are the next commit's. */
static size_t take_held(struct engine *e, struct pack_frame ***ret) REQUIRES(e->append_lock)
{
	struct pack_frame **frames = calloc(MAX(e->nr_held, (size_t)1), sizeof(*frames));
	size_t nr = frames ? e->nr_held : 0;

	for (size_t i = 0; i < e->nr_held; i++)
		note_frame(e, e->held[i]);
	note_frame(e, e->small);
	note_frame(e, e->varied);
	if (nr > 0)
		memcpy(frames, e->held, nr * sizeof(*frames));
	e->nr_held -= nr;
	e->nr_taken += nr; /* there is room where they were */
	*ret = frames;
	return nr;
}

/* A round that begins now is another. */
static void stop_offering(struct engine *e, const struct round *rd, bool is_decided)
{
	struct pack_frame **frames = NULL;
	size_t nr = 0;

	mutex_lock(&e->append_lock);
	e->is_offering = false;
	if (is_decided) {
		e->is_mostly_alone = rd->d.nr < rd->nr_offered / MOSTLY_ALONE_PART;
		if (alone_decided(&e->alone, rd->nr, rd->nr_offered, rd->d.nr))
			nr = take_held(e, &frames);
	}
	mutex_unlock(&e->append_lock);
	let_go(e, frames, nr);
}

/* Others may find it from now on. That is a hint, and no promise: whoever wants to rely on it asks. */
void collective_tell(struct engine *e)
{
	const struct cluster_calls *calls = e->conf.cluster_calls;
	_cleanup_(freep) struct fp *fps = NULL;
	bool has_time;
	size_t nr;

	if (!calls)
		return;
	mutex_lock(&e->append_lock);
	nr = alone_take_untold(&e->alone, &fps);
	has_time = alone_is_believed(&e->alone);
	mutex_unlock(&e->append_lock);
	if (nr > 0 && calls->stored)
		calls->stored(calls->userdata, fps, nr, has_time);
}

static bool is_for_round(struct engine *e)
{
	bool yes;

	mutex_lock(&e->append_lock);
	yes = e->alone.state != ALONE_LETTING_GO && has_agent(e);
	mutex_unlock(&e->append_lock);
	return yes;
}

int collective_sync(struct engine *e, struct pack_frame **frames, size_t nr, struct pack_marks *ret)
{
	_cleanup_(round_release) struct round rd = { .e = e, .nr = nr };
	bool may = nr > 0 && is_for_round(e) && !atomic_load(&e->shares.paused);
	int r = may ? make_offer(&rd, frames) : -ENOTCONN;

	if (r == 0)
		r = decide(&rd);
	stop_offering(e, &rd, r == 0);
	if (r < 0) {
		r = write_all(e, frames, nr, ret);
	} else if (rd.d.nr == 0) {
		r = run_alone(&rd, frames, ret);
	} else {
		/* before this node says that it has stored: others may wait for it to end here */
		shares_settling(e, true);
		r = run_round(&rd, frames, ret);
		shares_settled(e);
	}
	return r == 0 && e->unsettled ? settle_left(e, ret) : r;
}
