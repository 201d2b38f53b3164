/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A round between the engine, which calls decide() in a commit, and the agent, which runs it with all nodes. The states
 * are described in service_internal.h.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/daemon/service_internal.h"

#define QUIET_NS UINT64_C(50000000) /* no new page for this long: the program has paused */
#define WRITERS_PART 4u /* part of the time a round waits for this node that is granted to writers */

static bool is_there(struct service *s) REQUIRES(s->lock)
{
	assert(mutex_held(&s->lock));
	return s->agent != 0 && s->nodes && !s->hang_up && !s->stopping;
}

bool service_is_there(void *userdata)
{
	struct service *s = userdata;
	bool yes;

	mutex_lock(&s->lock);
	yes = is_there(s) && !s->is_silent;
	mutex_unlock(&s->lock);
	return yes;
}

static void enter(struct service *s, enum service_state state) REQUIRES(s->lock)
{
	assert(mutex_held(&s->lock));
	s->state = state;
	cond_broadcast(&s->changed);
}

/* --- decide() --- */

/* The round that a decide() call takes part in. */
struct taken {
	uint64_t agent, round, serial;
	struct cluster_decision d; /* without owners */
};

static int copy_nodes(struct service *s, struct cluster_decision *ret) REQUIRES(s->lock)
{
	assert(mutex_held(&s->lock));
	ret->nodes = malloc(s->nr_nodes * sizeof(*ret->nodes));
	if (!ret->nodes)
		return -ENOMEM;
	memcpy(ret->nodes, s->nodes, s->nr_nodes * sizeof(*ret->nodes));
	ret->nr_nodes = s->nr_nodes;
	ret->self = s->self;
	return 0;
}

/* Wait for a round to begin, and request one if needed. */
static int await_begin(struct service *s, uint64_t until_ns) REQUIRES(s->lock)
{
	uint64_t agent = s->agent;
	int r = 0;

	assert(mutex_held(&s->lock));
	s->nr_deciding++;
	for (;;) {
		if (!is_there(s) || s->agent != agent)
			r = -ENOTCONN;
		else if (s->is_silent)
			r = -ETIMEDOUT; /* another thread has detected it meanwhile */
		if (r < 0 || s->state == SERVICE_BEGUN)
			break;
		if (!s->is_wanted && service_send_plain(s, LINK_WANT, 0) == 0)
			s->is_wanted = true;
		if (!service_wait_until(s, &s->changed, until_ns)) {
			s->is_silent = true;
			r = -ETIMEDOUT;
			break;
		}
	}
	s->nr_deciding--;
	return r;
}

static int take_round(struct service *s, uint64_t until_ns, struct taken *ret)
{
	struct taken t = { 0 };
	int r;

	mutex_lock(&s->lock);
	r = await_begin(s, until_ns);
	if (r == 0)
		r = copy_nodes(s, &t.d);
	if (r == 0) {
		t.agent = s->agent;
		t.round = s->round;
		t.serial = t.d.round = s->serial;
		enter(s, SERVICE_OFFERED);
	}
	mutex_unlock(&s->lock);
	if (r == 0)
		*ret = t;
	return r;
}

/* Passes the answer to the waiting thread, if there is one. */
static void wake_waiter(struct service *s, int r, struct buf *answer) REQUIRES(s->lock)
{
	struct service_waiter *w = TAKE(s->waiter);

	assert(mutex_held(&s->lock));
	if (!w)
		return;
	w->is_done = true;
	w->r = r;
	if (answer)
		buf_move(&w->answer, answer);
}

void service_end_round(struct service *s, int r)
{
	wake_waiter(s, r, NULL);
	enter(s, SERVICE_NONE);
}

/*
 * Wait until a round in state OFFERED or STORED continues. On timeout it enters state `left` and continues without this
 * node.
 */
static int await_answer(struct service *s, enum service_state left, uint64_t until_ns, struct buf *ret) REQUIRES(s->lock)
{
	struct service_waiter w = { .answer = BUF_EMPTY };

	assert(mutex_held(&s->lock) && !s->waiter);
	s->waiter = &w;
	while (!w.is_done && !s->stopping && service_wait_until(s, &s->changed, until_ns))
		;
	if (w.is_done) {
		buf_move(ret, &w.answer);
		return w.r;
	}
	s->waiter = NULL;
	enter(s, left);
	if (s->stopping)
		return -ENOTCONN;
	s->is_silent = true;
	return -ETIMEDOUT;
}

static int offer(struct service *s, const struct taken *t, const struct fp *pages, size_t nr, uint64_t until_ns,
		 struct buf *ret)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int r;

	link_encode_offer(t->round, pages, (uint32_t)nr, &b);
	mutex_lock(&s->lock);
	r = s->serial == t->serial && s->state == SERVICE_OFFERED ? service_send(s, t->agent, &b) : -ECANCELED;
	if (r == 0)
		r = await_answer(s, SERVICE_LEFT, until_ns, ret);
	mutex_unlock(&s->lock);
	return r;
}

static int decision_of(const struct buf *in, size_t nr_offered, struct cluster_decision *d)
{
	_cleanup_(freep) struct link_owners *owners = NULL;
	uint32_t nr;
	int r = link_decode_decision(in->data, in->len, (uint32_t)nr_offered, d->nr_nodes, &owners, &nr);

	static_assert(CLUSTER_OWNERS_MAX == LINK_OWNERS_MAX, "as they come");
	if (r < 0)
		return r;
	d->owners = calloc(MAX(nr, 1u), sizeof(*d->owners));
	if (!d->owners)
		return -ENOMEM;
	d->nr = nr;
	for (uint32_t i = 0; i < nr; i++) {
		d->owners[i] =
			(struct cluster_owners){ .index = owners[i].index, .nr = owners[i].nr, .has = owners[i].has };
		memcpy(d->owners[i].owners, owners[i].owners, sizeof(d->owners[i].owners));
	}
	return 0;
}

/* Counts a failed round, and answers the nodes that wait for this one. */
static int decide_failed(struct service *s, const struct taken *t, int r)
{
	if (r == -EBADMSG)
		service_hang_up(s, t->agent, "a decision");
	mutex_lock(&s->lock);
	s->stats.nr_failed++;
	if (t->serial != 0 && s->serial == t->serial && s->state == SERVICE_STORING) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;

		link_encode_stored(t->round, -ECANCELED, &b);
		service_send(s, t->agent, &b);
		enter(s, SERVICE_NONE);
	}
	mutex_unlock(&s->lock);
	if (r == -ETIMEDOUT)
		log_warning("agent: no round within %" PRIu64 " ms; everything is stored here until there is one",
			    s->limits.round_ns / 1000000);
	return r == -EBADMSG ? -ENOTCONN : r == -ENOMEM ? -ECANCELED : r;
}

int service_decide(void *userdata, const struct fp *pages, size_t nr, struct cluster_decision *ret)
{
	_cleanup_(buf_release) struct buf answer = BUF_EMPTY;
	struct service *s = userdata;
	uint64_t until_ns = monotonic_ns() + s->limits.round_ns;
	struct taken t = { 0 };
	int r;

	if (nr > LINK_LEN_MAX / FP_LEN)
		return -ECANCELED; /* exceeds a message and the memory intended for it */
	if (!service_is_there(s))
		return -ENOTCONN;
	r = take_round(s, until_ns, &t);
	if (r == 0)
		r = offer(s, &t, pages, nr, until_ns, &answer);
	if (r == 0)
		r = decision_of(&answer, nr, &t.d);
	if (r < 0) {
		cluster_decision_release(&t.d);
		return decide_failed(s, &t, r);
	}
	*ret = t.d;
	return 0;
}

/* --- settle() --- */

/* ret NULL: does not wait for the end of the round. */
static int send_stored(struct service *s, uint64_t serial, int stored, uint64_t until_ns, uint64_t *ret_agent,
		       struct buf *ret)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int r;

	mutex_lock(&s->lock);
	*ret_agent = s->agent;
	if (!is_there(s)) {
		r = -ENOTCONN;
	} else if (s->serial != serial || s->state != SERVICE_STORING) {
		r = -ECANCELED;
	} else {
		link_encode_stored(s->round, stored, &b);
		r = service_send(s, s->agent, &b);
	}
	if (r == 0)
		s->state = ret ? SERVICE_STORED : SERVICE_NONE;
	if (r == 0 && ret)
		r = await_answer(s, SERVICE_NONE, until_ns, ret);
	mutex_unlock(&s->lock);
	return r;
}

static int settled_of(struct service *s, uint64_t agent, const struct cluster_decision *d, const struct buf *in,
		      bool *has_stored)
{
	const uint8_t *settled;
	int r = link_decode_settled(in->data, in->len, d->nr_nodes, &settled);

	if (r < 0) {
		service_hang_up(s, agent, "an end of a round");
		return -ENOTCONN;
	}
	for (uint32_t n = 0; n < d->nr_nodes; n++)
		has_stored[n] = settled[n] == 1;
	return 0;
}

int service_settle(void *userdata, const struct cluster_decision *d, int stored, bool *has_stored)
{
	_cleanup_(buf_release) struct buf answer = BUF_EMPTY;
	struct service *s = userdata;
	uint64_t agent;
	int r;

	r = send_stored(s, d->round, stored, monotonic_ns() + s->limits.round_ns, &agent, has_stored ? &answer : NULL);
	if (r == 0 && has_stored)
		r = settled_of(s, agent, d, &answer, has_stored);
	mutex_lock(&s->lock);
	if (r == 0 && stored == 0)
		s->stats.nr_rounds++;
	else
		s->stats.nr_failed++;
	mutex_unlock(&s->lock);
	if (r == -ETIMEDOUT)
		log_warning("agent: no end of a round within %" PRIu64
			    " ms; everything is stored here until there is one",
			    s->limits.round_ns / 1000000);
	return r == -ENOMEM ? -ECANCELED : r;
}

/* --- messages of the agent about rounds --- */

void service_begin(struct service *s, uint64_t round)
{
	bool is_awaited, pending;
	uint64_t serial;

	mutex_lock(&s->lock);
	service_end_round(s, -ECANCELED);
	s->round = round;
	serial = ++s->serial;
	s->begun_ns = monotonic_ns();
	s->is_wanted = s->is_silent = false;
	s->look_ns = 0;
	service_announce(s); /* before anything is offered: other nodes may offer the same */
	enter(s, SERVICE_BEGUN);
	is_awaited = s->nr_deciding > 0;
	mutex_unlock(&s->lock);
	if (is_awaited)
		return;
	pending = s->store.pending(s->store.userdata);
	mutex_lock(&s->lock);
	if (pending) {
		s->look_ns = 1; /* check at once in service_await_writers() */
	} else if (s->serial == serial && s->nr_deciding == 0) {
		s->begun_ns = 0; /* waited long enough */
	}
	mutex_unlock(&s->lock);
}

/*
 * Deferred data is offered in this round. But if nodes are likely to have the same data, and a program is still writing
 * it here, the others would store all that this node does not offer yet. So the round is delayed until the program
 * pauses, or a commit calls decide().
 */
uint64_t service_await_writers(struct service *s, uint64_t now_ns)
{
	uint64_t serial, look_ns, until_ns, deferred_ns;

	mutex_lock(&s->lock);
	if (s->state != SERVICE_BEGUN || s->nr_deciding > 0)
		s->look_ns = 0;
	look_ns = s->look_ns;
	serial = s->serial;
	until_ns = s->begun_ns + s->limits.begin_ns / WRITERS_PART;
	mutex_unlock(&s->lock);
	if (look_ns == 0 || now_ns < look_ns)
		return look_ns ?: UINT64_MAX;
	deferred_ns = s->store.deferred_ns ? s->store.deferred_ns(s->store.userdata) : 0;
	look_ns = 0;
	if (deferred_ns != 0 && deferred_ns + QUIET_NS > now_ns && now_ns < until_ns)
		look_ns = MIN(deferred_ns + QUIET_NS, until_ns);
	mutex_lock(&s->lock);
	if (s->serial == serial)
		s->look_ns = look_ns;
	if (s->serial == serial && look_ns == 0) {
		s->commit_wanted = true;
		cond_broadcast(&s->changed);
	}
	mutex_unlock(&s->lock);
	return look_ns ?: UINT64_MAX;
}

uint64_t service_begin_without_round(struct service *s, uint64_t now_ns)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	assert(mutex_held(&s->lock));
	if (s->state != SERVICE_BEGUN)
		return UINT64_MAX;
	if (s->begun_ns != 0 && now_ns - s->begun_ns < s->limits.begin_ns)
		return s->begun_ns + s->limits.begin_ns;
	link_encode_offer(s->round, NULL, 0, &b);
	enter(s, service_send(s, s->agent, &b) == 0 ? SERVICE_EMPTY : SERVICE_NONE);
	return UINT64_MAX;
}

/* No thread here waits for the decision, but other nodes wait for this one. */
static void answer_without_round(struct service *s, uint64_t round) REQUIRES(s->lock)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	assert(mutex_held(&s->lock));
	link_encode_stored(round, s->state == SERVICE_EMPTY ? 0 : -ECANCELED, &b);
	service_send(s, s->agent, &b);
	enter(s, SERVICE_NONE);
}

void service_answer(struct service *s, enum link_type type, uint64_t round, struct buf *body)
{
	mutex_lock(&s->lock);
	if (round != s->round) {
		log_debug("agent: message about round %" PRIu64 ", which is over", round);
	} else if (type == LINK_DECISION && (s->state == SERVICE_EMPTY || s->state == SERVICE_LEFT)) {
		answer_without_round(s, round);
	} else if (type == LINK_DECISION && s->state == SERVICE_OFFERED && s->waiter) {
		wake_waiter(s, 0, body);
		enter(s, SERVICE_STORING);
	} else if (type == LINK_SETTLED && s->state == SERVICE_STORED) {
		wake_waiter(s, 0, body);
		enter(s, SERVICE_NONE);
	}
	mutex_unlock(&s->lock);
}

void service_want(void *userdata)
{
	struct service *s = userdata;

	mutex_lock(&s->lock);
	if (is_there(s)) {
		s->commit_wanted = true;
		cond_broadcast(&s->changed);
	}
	mutex_unlock(&s->lock);
}

/* A commit for this round did not call decide(): the deferred data was already offered in the round before. No other
 * call will follow. */
static void end_waiting(struct service *s, uint64_t serial) REQUIRES(s->lock)
{
	assert(mutex_held(&s->lock));
	if (s->state != SERVICE_BEGUN || s->serial != serial || s->nr_deciding > 0)
		return;
	s->begun_ns = 0;
	service_begin_without_round(s, monotonic_ns());
}

/* A commit takes as long as the disk and calls decide(), so the thread that owns the socket must not run it. */
void *service_committer(void *userdata)
{
	struct service *s = userdata;
	uint64_t serial;

	mutex_lock(&s->lock);
	while (!s->stopping) {
		if (!s->commit_wanted) {
			cond_wait(&s->changed, &s->lock);
			continue;
		}
		s->commit_wanted = false;
		serial = s->serial;
		mutex_unlock(&s->lock);
		s->store.commit(s->store.userdata);
		mutex_lock(&s->lock);
		end_waiting(s, serial);
	}
	mutex_unlock(&s->lock);
	return NULL;
}
