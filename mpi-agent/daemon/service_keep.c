/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Replicas: requests to the daemons of other nodes, and a thread that executes theirs. Each takes as long as the disk,
 * and creating a replica includes a commit, perhaps with a round; so it has its own thread.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/daemon/service_internal.h"

#define KEEPS_BYTES_MAX ((size_t)64 << 20) /* queued; the agent sends up to half of it */
#define LOOK_NS (UINT64_C(100) * 1000000) /* between two calls of goes_on() */

/* --- requests to other nodes --- */

struct service_call {
	struct service *s;
	struct service_request rq;
	uint64_t agent;
	bool is_sent;
};

int service_call_new(struct service *s, enum link_type answered_by, struct service_call **ret)
{
	struct service_call *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->s = s;
	c->rq.answered_by = answered_by;
	mutex_lock(&s->lock);
	c->rq.number = ++s->number;
	mutex_unlock(&s->lock);
	*ret = c;
	return 0;
}

uint64_t service_call_number(const struct service_call *c)
{
	return c->rq.number;
}

int service_call_send(struct service_call *c, struct buf *message)
{
	struct service *s = c->s;
	int r;

	mutex_lock(&s->lock);
	c->agent = s->agent;
	r = s->nodes && !s->hang_up && !s->stopping ? service_send(s, c->agent, message) : -ENOTCONN;
	if (r == 0) {
		c->is_sent = true;
		service_request_add(s, &c->rq);
	}
	mutex_unlock(&s->lock);
	return r;
}

int service_call_wait(struct service_call *c, bool (*goes_on)(void *userdata), void *userdata, struct buf *ret)
{
	struct service *s = c->s;
	bool wanted = true;
	int r;

	assert(c->is_sent);
	mutex_lock(&s->lock);
	while (!c->rq.is_done && !s->stopping && wanted) {
		service_wait_until(s, &c->rq.done, monotonic_ns() + LOOK_NS);
		mutex_unlock(&s->lock);
		wanted = goes_on(userdata);
		mutex_lock(&s->lock);
	}
	r = c->rq.is_done ? c->rq.r : s->stopping ? -ENOTCONN : -ECANCELED;
	if (r == 0)
		buf_move(ret, &c->rq.answer);
	mutex_unlock(&s->lock);
	return r;
}

void service_call_free(struct service_call *c)
{
	if (!c)
		return;
	mutex_lock(&c->s->lock);
	service_forget(c->s, &c->rq);
	mutex_unlock(&c->s->lock);
	buf_release(&c->rq.answer);
	free(c);
}

/* --- connected nodes --- */

int service_world(struct service *s, struct service_world *ret)
{
	struct service_world w = { 0 };
	int r = -ENOTCONN;

	mutex_lock(&s->lock);
	if (s->nodes && !s->stopping) {
		w = (struct service_world){ calloc(s->nr_nodes, sizeof(*w.nodes)),
					    calloc(s->nr_nodes, sizeof(*w.hosts)), s->nr_nodes, s->self };
		r = w.nodes && w.hosts ? 0 : -ENOMEM;
	}
	if (r == 0) {
		memcpy(w.nodes, s->nodes, w.nr * sizeof(*w.nodes));
		memcpy(w.hosts, s->hosts, w.nr * sizeof(*w.hosts));
	}
	mutex_unlock(&s->lock);
	if (r < 0)
		service_world_release(&w);
	else
		*ret = w;
	return r;
}

void service_world_release(struct service_world *w)
{
	free(TAKE(w->nodes));
	free(TAKE(w->hosts));
}

bool service_world_find(const struct service_world *w, const uint8_t *id, uint32_t *ret)
{
	for (uint32_t i = 0; i < w->nr; i++)
		if (memcmp(w->nodes[i].id, id, CLUSTER_ID_LEN) == 0) {
			*ret = i;
			return true;
		}
	return false;
}

/* --- requests of other nodes --- */

static int send_to_agent(struct service *s, const struct service_get *g, struct buf *b)
{
	int r;

	mutex_lock(&s->lock);
	r = service_send(s, g->agent, b);
	mutex_unlock(&s->lock);
	return r;
}

static void put_release(struct link_put *p)
{
	free(p->wants);
	free(p->chunks);
}

static void count_kept(struct service *s, const struct link_put *p)
{
	mutex_lock(&s->lock);
	for (uint32_t i = 0; i < p->nr; i++) {
		s->stats.nr_kept += p->chunks[i] != NULL;
		s->stats.kept_bytes += p->chunks[i] ? p->wants[i].len : 0;
	}
	mutex_unlock(&s->lock);
}

static int do_put(struct service *s, const struct service_get *g, int error)
{
	_cleanup_(put_release) struct link_put p = { 0 };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct cluster_node *nodes = NULL;
	_cleanup_(freep) uint8_t *kept = NULL;
	uint32_t nr_nodes, self;
	int r = link_decode_put(g->body.data, g->body.len, &p);

	if (r < 0)
		return r;
	kept = calloc(MAX(p.nr, 1u), 1);
	r = kept ? service_nodes(s, &nodes, &nr_nodes, &self) : -ENOMEM;
	if (r < 0)
		return r;
	r = error < 0 ? error : s->store.keep ? 0 : -EOPNOTSUPP;
	if (r == 0)
		r = s->store.keep(s->store.userdata, &p, nodes, nr_nodes, kept);
	if (r < 0)
		memset(kept, LINK_NOT_KEPT, p.nr);
	else
		count_kept(s, &p);
	link_encode_kept(g->number, MIN(r, 0), kept, p.nr, &b);
	return send_to_agent(s, g, &b);
}

static int do_replicate(struct service *s, const struct service_get *g, int error)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct cluster_node *nodes = NULL;
	struct link_replica *c = calloc(1, sizeof(*c));
	uint32_t nr_nodes, self;
	int r = c ? link_decode_replica(g->body.data, g->body.len, c) : -ENOMEM;

	if (r < 0) {
		free(c);
		return r;
	}
	r = error < 0 ? error : s->store.replicate ? service_nodes(s, &nodes, &nr_nodes, &self) : -EOPNOTSUPP;
	if (r == 0)
		r = s->store.replicate(s->store.userdata, c, nodes, nr_nodes);
	if (r == 0) {
		mutex_lock(&s->lock);
		s->stats.nr_copied++;
		mutex_unlock(&s->lock);
	}
	free(c->chunks);
	free(c);
	link_encode_error(LINK_REPLICATED, g->number, MIN(r, 0), &b);
	return send_to_agent(s, g, &b);
}

static int do_drop(struct service *s, const struct service_get *g, int error)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct link_drop d;
	int r = link_decode_drop(g->body.data, g->body.len, &d);

	if (r < 0)
		return r;
	r = error < 0 ? error : s->store.drop ? 0 : -EOPNOTSUPP;
	if (r == 0)
		r = s->store.drop(s->store.userdata, &d);
	link_encode_error(LINK_DROPPED, g->number, MIN(r, 0), &b);
	return send_to_agent(s, g, &b);
}

/* `error`: do nothing and return it to the requester. */
static void attend_to(struct service *s, const struct service_get *g, int error)
{
	int r = g->type == LINK_PUT	  ? do_put(s, g, error) :
		g->type == LINK_REPLICATE ? do_replicate(s, g, error) :
					    do_drop(s, g, error);

	if (r == -EBADMSG)
		service_hang_up(s, g->agent, "what is to be kept,");
	else if (r < 0 && r != -ENOTCONN)
		log_errno(r, "what other nodes want to be kept");
}

void service_keep(struct service *s, enum link_type type, uint64_t number, struct buf *body)
{
	struct service_get *g;

	if (service_queue_add(s, &s->keeps, KEEPS_BYTES_MAX, type, number, body, &g) || !g)
		return; /* on ENOMEM no answer: the agent reports a timeout */
	attend_to(s, g, -EBUSY);
	service_get_free(g);
}

void *service_receiver(void *userdata)
{
	struct service *s = userdata;

	mutex_lock(&s->lock);
	while (!s->stopping) {
		struct service_get *g;

		if (!s->keeps.first) {
			cond_wait(&s->keeps.changed, &s->lock);
			continue;
		}
		g = service_queue_take(&s->keeps);
		mutex_unlock(&s->lock);
		attend_to(s, g, 0);
		service_get_free(g);
		mutex_lock(&s->lock);
	}
	mutex_unlock(&s->lock);
	return NULL;
}
