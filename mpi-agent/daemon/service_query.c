/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Queries to daemons of other nodes, and answers to theirs. Their content is opaque here. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/daemon/service_internal.h"

#define QUESTIONS_MAX 64u /* queued; more are refused with -EBUSY */

/* --- own queries --- */

static int read_answer(struct service *s, uint64_t agent, const struct buf *answer, struct buf *ret)
{
	const void *p;
	size_t len;
	int error;

	if (link_decode_answer(answer->data, answer->len, &error, &p, &len) < 0) {
		service_hang_up(s, agent, "an answer");
		return -ENOTCONN;
	}
	if (error < 0)
		return error;
	buf_add(ret, p, len);
	return buf_error(ret);
}

int service_ask(struct service *s, const uint8_t *id, const void *question, size_t len, struct buf *ret)
{
	struct service_request rq = { .answered_by = LINK_ANSWER, .answer = BUF_EMPTY };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	uint64_t agent;
	int r;

	assert(len > 0 && len <= LINK_QUESTION_MAX);
	mutex_lock(&s->lock);
	agent = s->nodes && !s->stopping ? s->agent : 0;
	rq.number = ++s->number;
	mutex_unlock(&s->lock);
	if (agent == 0)
		return -ENOTCONN;
	link_encode_query(rq.number, id, question, len, &b);
	r = service_request_send(s, agent, &rq, &b);
	if (r == 0)
		r = service_request_await(s, &rq, monotonic_ns() + s->limits.fetch_ns);
	if (r == 0)
		r = read_answer(s, agent, &rq.answer, ret);
	buf_release(&rq.answer);
	return r;
}

int service_nodes(struct service *s, struct cluster_node **ret, uint32_t *ret_nr, uint32_t *ret_self)
{
	struct cluster_node *nodes;

	mutex_lock(&s->lock);
	nodes = calloc(MAX(s->nr_nodes, 1u), sizeof(*nodes));
	if (nodes && s->nr_nodes > 0)
		memcpy(nodes, s->nodes, s->nr_nodes * sizeof(*nodes));
	*ret_nr = s->nr_nodes;
	*ret_self = s->self;
	mutex_unlock(&s->lock);
	if (!nodes)
		return -ENOMEM;
	*ret = nodes;
	return 0;
}

/* --- queries of others --- */

static void question_free(struct service_get *q)
{
	if (!q)
		return;
	buf_release(&q->body);
	free(q);
}

static struct service_get *question_remove(struct service *s) REQUIRES(s->lock)
{
	struct service_get *q = s->questions;

	assert(mutex_held(&s->lock));
	s->questions = q->next;
	if (!s->questions)
		s->questions_end = &s->questions;
	s->nr_questions--;
	return q;
}

void service_drop_questions(struct service *s)
{
	assert(mutex_held(&s->lock));
	while (s->questions)
		question_free(question_remove(s));
}

static void send_answer(struct service *s, const struct service_get *q, int error, const struct buf *answer)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int r;

	link_encode_answer(q->number, MIN(error, 0), answer->data, error < 0 ? 0 : answer->len, &b);
	mutex_lock(&s->lock);
	r = service_send(s, q->agent, &b);
	mutex_unlock(&s->lock);
	if (r < 0 && r != -ENOTCONN)
		log_errno(r, "an answer for another node");
}

int service_question(struct service *s, uint64_t number, struct buf *body)
{
	struct service_get *q;
	bool is_too_much;
	int r = link_decode_question(body->data, body->len);

	if (r < 0)
		return r;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->type = LINK_QUESTION;
	q->number = number;
	buf_move(&q->body, body);
	mutex_lock(&s->lock);
	q->agent = s->agent;
	is_too_much = s->nr_questions == QUESTIONS_MAX;
	if (!is_too_much) {
		s->nr_questions++;
		*s->questions_end = q;
		s->questions_end = &q->next;
		cond_broadcast(&s->changed);
	}
	mutex_unlock(&s->lock);
	if (is_too_much) {
		send_answer(s, q, -EBUSY, &BUF_EMPTY);
		question_free(q);
	}
	return 0;
}

static void answer_query(struct service *s, const struct service_get *q)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int r = -EOPNOTSUPP;

	if (s->store.answer)
		r = s->store.answer(s->store.userdata, q->body.data, q->body.len, &b);
	if (r >= 0)
		r = buf_error(&b);
	send_answer(s, q, r, &b);
}

void *service_answerer(void *userdata)
{
	struct service *s = userdata;
	struct service_get *q;

	mutex_lock(&s->lock);
	while (!s->stopping) {
		if (!s->questions) {
			cond_wait(&s->changed, &s->lock);
			continue;
		}
		q = question_remove(s);
		mutex_unlock(&s->lock);
		answer_query(s, q);
		question_free(q);
		mutex_lock(&s->lock);
	}
	mutex_unlock(&s->lock);
	return NULL;
}
