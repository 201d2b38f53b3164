/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Collection by all nodes (collects.h), between the agent, which sends one step after the other, and the store. A
 * thread executes them, as each takes as long as the disk. A step that arrives while another is executed replaces a
 * waiting one, which the agent has abandoned. When the collection has ended, or the agent has disconnected, the
 * store is notified once.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/daemon/service_internal.h"

#define LOOK_NS (UINT64_C(100) * 1000000) /* between two calls of goes_on() */

struct service_step {
	uint64_t number, agent;
	struct buf body; /* step.filter points into it */
	struct link_step step;
	bool is_ours; /* requested by this node */
	struct cluster_node *nodes;
	uint32_t nr_nodes;
};

static void step_free(struct service_step *t)
{
	if (!t)
		return;
	buf_release(&t->body);
	free(t->nodes);
	free(t);
}

int service_step(struct service *s, uint64_t number, struct buf *body)
{
	struct service_step *t = calloc(1, sizeof(*t)), *before;
	int r;

	if (!t)
		return -ENOMEM;
	buf_move(&t->body, body);
	t->number = number;
	r = link_decode_step(t->body.data, t->body.len, &t->step);
	if (r < 0) {
		step_free(t);
		return r;
	}
	mutex_lock(&s->lock);
	t->agent = s->agent;
	t->is_ours = s->nr_collecting > 0;
	t->nodes = calloc(MAX(s->nr_nodes, 1u), sizeof(*t->nodes));
	if (t->nodes) {
		memcpy(t->nodes, s->nodes, s->nr_nodes * sizeof(*t->nodes));
		t->nr_nodes = s->nr_nodes;
		before = s->step;
		s->step = t; /* owned by the collector thread from here on */
		cond_broadcast(&s->changed);
	} else {
		before = t;
		r = -ENOMEM;
	}
	mutex_unlock(&s->lock);
	step_free(before);
	return r;
}

/* The current collection is over for this node. */
void service_leave_collection(struct service *s)
{
	assert(mutex_held(&s->lock));
	step_free(TAKE(s->step));
	s->is_over = true;
	s->free_too = false;
	cond_broadcast(&s->changed);
}

int service_collected(struct service *s, const void *body, size_t len)
{
	struct link_done d;

	if (link_decode_done(body, len, &d) < 0 || d.kind != 0)
		return -EBADMSG;
	mutex_lock(&s->lock);
	service_leave_collection(s);
	s->free_too = s->nr_collecting == 0; /* otherwise the requesting thread does */
	s->last_collection = d;
	s->nr_collections++;
	mutex_unlock(&s->lock);
	return 0;
}

static void take_step(struct service *s, struct service_step *t, uint64_t *dropped)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) uint8_t *filter = t->step.kind == LINK_MARK ? calloc(1, t->step.len) : NULL;
	struct link_done d = { .kind = t->step.kind, .window = t->step.window };
	int r;

	if (t->step.kind == LINK_MARK && !filter)
		r = -ENOMEM;
	else if (!s->store.step)
		r = -EOPNOTSUPP;
	else
		r = s->store.step(s->store.userdata, &t->step, t->nodes, t->nr_nodes, t->is_ours, filter, &d);
	d.error = MIN(r, 0);
	if (t->step.kind == LINK_MARK && r == 0) {
		d.len = t->step.len;
		d.filter = filter;
	}
	*dropped += d.nr_dropped;
	link_encode_done(LINK_DONE, t->number, &d, &b);
	mutex_lock(&s->lock);
	r = service_send(s, t->agent, &b);
	mutex_unlock(&s->lock);
	if (r < 0)
		log_debug("agent: disconnected during a collection");
}

void *service_collector(void *userdata)
{
	struct service *s = userdata;
	uint64_t dropped = 0; /* unpinned here in this collection */

	mutex_lock(&s->lock);
	while (!s->stopping) {
		struct service_step *t = TAKE(s->step);

		if (t) {
			mutex_unlock(&s->lock);
			take_step(s, t, &dropped);
			step_free(t);
			mutex_lock(&s->lock);
		} else if (s->is_over) {
			bool free_too = s->free_too && dropped > 0;

			s->is_over = false;
			dropped = 0;
			mutex_unlock(&s->lock);
			if (s->store.collection_ended)
				s->store.collection_ended(s->store.userdata, free_too);
			mutex_lock(&s->lock);
		} else {
			cond_wait(&s->changed, &s->lock);
		}
	}
	step_free(TAKE(s->step));
	mutex_unlock(&s->lock);
	return NULL;
}

int service_collect(struct service *s, bool (*goes_on)(void *userdata), void *userdata, struct link_done *ret)
{
	uint64_t agent, before;
	int r;

	mutex_lock(&s->lock);
	agent = s->agent;
	before = s->nr_collections;
	s->nr_collecting++;
	r = agent != 0 && s->nodes && !s->hang_up && !s->stopping ? service_send_plain(s, LINK_WANT_COLLECT, 0) :
								    -ENOTCONN;
	while (r == 0 && s->nr_collections == before) {
		if (s->agent != agent || s->stopping)
			r = -ENOTCONN;
		else
			service_wait_until(s, &s->changed, monotonic_ns() + LOOK_NS);
		mutex_unlock(&s->lock);
		if (r == 0 && !goes_on(userdata))
			r = -ECANCELED;
		mutex_lock(&s->lock);
	}
	s->nr_collecting--;
	if (s->nr_collections != before) {
		*ret = s->last_collection;
		r = 0;
	}
	mutex_unlock(&s->lock);
	return r;
}

bool service_stopping(struct service *s)
{
	bool stopping;

	mutex_lock(&s->lock);
	stopping = s->stopping;
	mutex_unlock(&s->lock);
	return stopping;
}
