/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/collects.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/wire/link.h"
#include "mpi-agent/agent/peers.h"
#include "mpi-agent/agent/rounds.h"
#include "mpi-agent/agent/waits.h"
#include "mpi-agent/agent/world.h"

#define BITS_PER_CHUNK 16u /* false positives: one chunk in 1700 stays pinned needlessly */
#define WINDOWS_MAX (1u << 20) /* 7e13 chunks */

/*
 * NONE: no collection. WAITING: a step has arrived, but a round is in progress. DOING: the daemon and the children of
 * this node execute it. BETWEEN, rank 0: a round may run between two windows.
 */
enum state { NONE, WAITING, DOING, BETWEEN };

struct collects {
	const struct world *w;
	struct peers *peers;
	struct link *daemon;
	const struct waits *waits;
	struct rounds *rounds;

	enum state state;
	bool is_wanted, is_ending; /* rank 0: another collection is requested, the agents are ending */
	uint64_t nr, number; /* of ended collections; of the current or last one */
	uint64_t until_ns;

	struct link_step step;
	struct buf step_filter; /* of UNPIN */
	bool is_daemon_done;
	bool *has_child; /* by rank: this child has answered */
	uint32_t nr_children, nr_done;
	struct link_done sum; /* sum of the answers so far */
	struct buf filter; /* union of their filters */

	/* rank 0 */
	struct link_done all; /* sum of all windows so far */
	uint32_t window, nr_windows, filter_len;
	uint64_t nr_rounds; /* when BETWEEN began */
};

int collects_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits,
		 struct rounds *rounds, struct collects **ret)
{
	struct collects *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	*c = (struct collects){ .w = w, .peers = p, .daemon = daemon, .waits = waits, .rounds = rounds };
	c->has_child = calloc(w->nr, sizeof(*c->has_child));
	if (!c->has_child) {
		free(c);
		return -ENOMEM;
	}
	*ret = c;
	return 0;
}

void collects_free(struct collects *c)
{
	if (!c)
		return;
	buf_release(&c->step_filter);
	buf_release(&c->filter);
	free(c->has_child);
	free(c);
}

/* --- the tree: children are rank + 2^k for all 2^k > rank --- */

static uint32_t parent_of(uint32_t rank)
{
	uint32_t bit = 1;

	while (bit <= rank / 2)
		bit <<= 1;
	return rank - bit;
}

static bool is_child(const struct collects *c, uint32_t rank)
{
	return rank != 0 && parent_of(rank) == c->w->rank;
}

static int send_down(struct collects *c, enum peer_type type, const struct buf *body, uint32_t *ret_nr)
{
	int r = buf_error(body);

	*ret_nr = 0;
	for (uint64_t bit = 1; r == 0 && c->w->rank + bit < c->w->nr; bit <<= 1)
		if (bit > c->w->rank) {
			r = peers_send(c->peers, (uint32_t)(c->w->rank + bit), type, c->number, body->data, body->len);
			++*ret_nr;
		}
	return r;
}

/* --- a step, on this node --- */

static bool is_window(const struct link_step *s)
{
	return s->kind != LINK_PREPARE;
}

static void add_done(struct collects *c, const struct link_done *d)
{
	if (d->error < 0 && c->sum.error == 0)
		c->sum.error = d->error;
	c->sum.nr_referred += d->nr_referred;
	c->sum.nr_kept += d->nr_kept;
	c->sum.kept_bytes += d->kept_bytes;
	c->sum.nr_dropped += d->nr_dropped;
	c->sum.dropped_bytes += d->dropped_bytes;
	if (d->missing[0] != '\0')
		memcpy(c->sum.missing, d->missing, sizeof(c->sum.missing));
	if (d->len == 0)
		return;
	if (d->len != c->filter.len) {
		c->sum.error = -EBADMSG; /* filters must have the requested length */
		return;
	}
	for (size_t i = 0; i < d->len; i++)
		c->filter.data[i] |= d->filter[i];
}

static void daemon_is_done(struct collects *c, const struct link_done *d)
{
	c->is_daemon_done = true;
	add_done(c, d);
}

static int start_doing(struct collects *c)
{
	c->state = DOING;
	if (is_window(&c->step)) {
		rounds_hold(c->rounds, true);
		rounds_forget(c->rounds);
	}
	if (c->daemon->fd < 0) {
		daemon_is_done(c, &(struct link_done){ .error = -ENOTCONN });
		return 0;
	}
	link_encode_step(c->number, &c->step, &c->daemon->out);
	return 0;
}

static int start_step(struct collects *c, uint64_t number, const struct link_step *s)
{
	_cleanup_(buf_release) struct buf body = BUF_EMPTY, filter = BUF_EMPTY;
	int r;

	buf_add(&filter, s->filter, s->kind == LINK_UNPIN ? s->len : 0); /* s->filter may point into c->filter */
	link_encode_step_body(s, &body);
	r = buf_error(&filter);
	if (r < 0)
		return r;
	c->number = number;
	c->step = *s;
	buf_release(&c->step_filter);
	buf_move(&c->step_filter, &filter);
	c->step.filter = c->step_filter.data;
	c->sum = (struct link_done){ .kind = s->kind, .window = s->window };
	c->is_daemon_done = false;
	c->nr_done = 0;
	memset(c->has_child, 0, c->w->nr * sizeof(*c->has_child));
	buf_clear(&c->filter);
	if (s->kind == LINK_MARK) {
		r = buf_reserve(&c->filter, s->len);
		if (r < 0)
			return r;
		memset(c->filter.data, 0, s->len);
		c->filter.len = s->len;
	}
	c->until_ns = monotonic_ns() + (is_window(s) ? c->waits->window_ns : c->waits->prepare_ns);
	c->state = WAITING;
	return send_down(c, PEER_STEP, &body, &c->nr_children);
}

/* Drops the collection in progress. */
static void drop_collection(struct collects *c)
{
	c->state = NONE;
	buf_release(&c->step_filter);
	buf_release(&c->filter);
	c->step.filter = NULL;
	rounds_hold(c->rounds, false);
}

static int send_collected(struct collects *c, const struct link_done *d)
{
	_cleanup_(buf_release) struct buf body = BUF_EMPTY;
	uint32_t nr;

	link_encode_done_body(d, &body);
	if (c->daemon->fd >= 0)
		link_encode_done(LINK_COLLECTED, c->number, d, &c->daemon->out);
	drop_collection(c);
	c->nr++;
	return send_down(c, PEER_COLLECTED, &body, &nr);
}

static int send_to_parent(struct collects *c)
{
	_cleanup_(buf_release) struct buf body = BUF_EMPTY;
	int r;

	if (c->sum.error == 0 && c->step.kind == LINK_MARK) {
		c->sum.len = (uint32_t)c->filter.len;
		c->sum.filter = c->filter.data;
	}
	link_encode_done_body(&c->sum, &body);
	r = buf_error(&body);
	if (r == 0)
		r = peers_send(c->peers, parent_of(c->w->rank), PEER_DONE, c->number, body.data, body.len);
	c->state = NONE;
	buf_release(&c->step_filter);
	buf_release(&c->filter);
	if (c->step.kind == LINK_UNPIN)
		rounds_hold(c->rounds, false);
	return r;
}

/* --- rank 0: the sequence of steps --- */

static int end_collection(struct collects *c, int error)
{
	if (error < 0 && c->all.error == 0)
		c->all.error = error;
	if (c->all.missing[0] != '\0')
		log_notice("collection %" PRIu64 ": node %s is not connected: chunks that it may refer to stay pinned",
			   c->number, c->all.missing);
	else if (c->all.error < 0)
		log_errno(c->all.error, "collection %" PRIu64 ": ended early", c->number);
	return send_collected(c, &c->all);
}

/* As many windows as the filter's maximum size requires. */
static void plan_windows(struct collects *c, uint64_t nr_referred)
{
	uint64_t bytes = nr_referred <= UINT64_MAX / BITS_PER_CHUNK ? nr_referred * BITS_PER_CHUNK / 8 : UINT64_MAX / 8;
	uint64_t len = LINK_FILTER_MIN, nr;

	while (len < bytes && len < LINK_FILTER_MAX)
		len *= 2;
	c->filter_len = (uint32_t)len;
	c->window = 0;
	nr = MAX(bytes / len + (bytes % len > 0), UINT64_C(1));
	c->nr_windows = (uint32_t)MIN(nr, (uint64_t)WINDOWS_MAX);
}

static int start_window(struct collects *c)
{
	struct link_step s = { .kind = LINK_MARK, .window = c->window, .nr_windows = c->nr_windows, .len = c->filter_len };

	if (getrandom(&s.seed, sizeof(s.seed), 0) != sizeof(s.seed))
		return log_errno(-EIO, "cannot get random numbers");
	return start_step(c, c->number, &s);
}

static int start_between(struct collects *c)
{
	rounds_hold(c->rounds, false);
	c->state = BETWEEN;
	c->nr_rounds = rounds_figures(c->rounds)->nr;
	return 0;
}

static int next_step(struct collects *c)
{
	struct link_step s = c->step;

	c->all.nr_kept += c->sum.nr_kept;
	c->all.kept_bytes += c->sum.kept_bytes;
	c->all.nr_dropped += c->sum.nr_dropped;
	c->all.dropped_bytes += c->sum.dropped_bytes;
	memcpy(c->all.missing, c->sum.missing, sizeof(c->all.missing));
	if (c->sum.error < 0 || c->sum.missing[0] != '\0')
		return end_collection(c, c->sum.error);
	switch (s.kind) {
	case LINK_PREPARE:
		c->all.nr_referred = c->sum.nr_referred;
		plan_windows(c, c->sum.nr_referred);
		return start_between(c);
	case LINK_MARK:
		s.kind = LINK_UNPIN;
		s.filter = c->filter.data;
		return start_step(c, c->number, &s);
	case LINK_UNPIN:
		return ++c->window < c->nr_windows ? start_between(c) : end_collection(c, 0);
	}
	return -EIO;
}

static int finish_between(struct collects *c)
{
	if (!rounds_idle(c->rounds) || (rounds_wanted(c->rounds) && rounds_figures(c->rounds)->nr == c->nr_rounds))
		return 0;
	rounds_hold(c->rounds, true);
	return start_window(c);
}

static int start_collection(struct collects *c)
{
	c->is_wanted = false;
	c->all = (struct link_done){ 0 };
	return start_step(c, c->number + 1, &(struct link_step){ .kind = LINK_PREPARE });
}

/* --- messages --- */

int collects_want(struct collects *c)
{
	if (c->w->rank != 0)
		return peers_send(c->peers, 0, PEER_COLLECT, 0, NULL, 0);
	c->is_wanted = true;
	return 0;
}

int collects_peer_want(struct collects *c)
{
	if (c->w->rank != 0)
		return -EBADMSG;
	c->is_wanted = true;
	return 0;
}

/* Is it an answer to the current step? Late ones are no error. */
static bool is_answer(const struct collects *c, uint64_t number, const struct link_done *d)
{
	return c->state == DOING && number == c->number && d->kind == c->step.kind && d->window == c->step.window;
}

int collects_done(struct collects *c, uint64_t number, const void *body, size_t len)
{
	struct link_done d;

	if (link_decode_done(body, len, &d) < 0 || d.kind == 0 || number > c->number)
		return -EBADMSG;
	if (is_answer(c, number, &d) && !c->is_daemon_done)
		daemon_is_done(c, &d);
	return 0;
}

int collects_peer_step(struct collects *c, uint32_t from, uint64_t number, const void *body, size_t len)
{
	struct link_step s;

	if (c->w->rank == 0 || from != parent_of(c->w->rank) || number < c->number || link_decode_step(body, len, &s) < 0)
		return -EBADMSG;
	return start_step(c, number, &s);
}

int collects_peer_done(struct collects *c, uint32_t from, uint64_t number, const void *body, size_t len)
{
	struct link_done d;

	if (!is_child(c, from) || number > c->number || link_decode_done(body, len, &d) < 0 || d.kind == 0)
		return -EBADMSG;
	/* A child may be done while this node still waits for the end of a round. */
	if (number != c->number || (c->state != DOING && c->state != WAITING) || d.kind != c->step.kind ||
	    d.window != c->step.window || c->has_child[from])
		return 0;
	c->has_child[from] = true;
	c->nr_done++;
	add_done(c, &d);
	return 0;
}

int collects_peer_collected(struct collects *c, uint32_t from, uint64_t number, const void *body, size_t len)
{
	struct link_done d;

	if (c->w->rank == 0 || from != parent_of(c->w->rank) || number != c->number ||
	    link_decode_done(body, len, &d) < 0 || d.kind != 0)
		return -EBADMSG;
	return send_collected(c, &d);
}

void collects_end(struct collects *c)
{
	c->is_ending = true;
	drop_collection(c);
}

/* --- progress --- */

static int finish_step(struct collects *c)
{
	if (!c->is_daemon_done || c->nr_done < c->nr_children)
		return 0;
	return c->w->rank == 0 ? next_step(c) : send_to_parent(c);
}

int collects_progress(struct collects *c, uint64_t now_ns)
{
	enum state before = c->state;
	int r = 0;

	if (c->is_ending)
		return 0;
	switch (c->state) {
	case NONE:
		if (c->is_wanted)
			r = start_collection(c);
		break;
	case WAITING:
		if (!is_window(&c->step) || rounds_idle(c->rounds))
			r = start_doing(c);
		break;
	case DOING:
		if (c->daemon->fd < 0 && !c->is_daemon_done)
			daemon_is_done(c, &(struct link_done){ .error = -ENOTCONN });
		r = finish_step(c);
		break;
	case BETWEEN:
		r = finish_between(c);
		break;
	}
	if (r == 0 && c->w->rank == 0 && (c->state == WAITING || c->state == DOING) && now_ns >= c->until_ns)
		r = end_collection(c, -ETIMEDOUT);
	return r < 0 ? r : c->state != before;
}

uint64_t collects_nr(const struct collects *c)
{
	return c->nr;
}
