#include "mpi-agent/queries.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/util.h"
#include "mpi-agent/link.h"
#include "mpi-agent/peers.h"
#include "mpi-agent/waits.h"
#include "mpi-agent/world.h"

#define UNDER_WAY_MAX 64u /* of each direction: with the longest answers, 64 MiB */

/* One of ours that another node is to answer, or one of theirs that is with the daemon. */
struct query {
	uint64_t number; /* ours for it */
	uint64_t asker_number; /* what it is to who asks: the daemon's, or the other agent's */
	uint32_t rank; /* who is asked, or asks */
	uint64_t until_ns;
	struct query *next;
};

struct list {
	struct query *first;
	unsigned nr;
};

struct queries {
	const struct world *w;
	struct peers *peers;
	struct link *daemon;
	const struct waits *waits;
	struct list asked, served;
	uint64_t number; /* the last one */
};

int queries_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits, struct queries **ret)
{
	struct queries *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	*q = (struct queries){ .w = w, .peers = p, .daemon = daemon, .waits = waits };
	*ret = q;
	return 0;
}

static void list_remove(struct list *l, struct query **at)
{
	struct query *x = *at;

	*at = x->next;
	l->nr--;
	free(x);
}

void queries_free(struct queries *q)
{
	if (!q)
		return;
	while (q->asked.first)
		list_remove(&q->asked, &q->asked.first);
	while (q->served.first)
		list_remove(&q->served, &q->served.first);
	free(q);
}

static int list_add(struct queries *q, struct list *l, uint64_t asker_number, uint32_t rank, uint64_t wait_ns, uint64_t *ret_number)
{
	struct query *x = calloc(1, sizeof(*x));

	if (!x)
		return -ENOMEM;
	*x = (struct query){ ++q->number, asker_number, rank, monotonic_ns() + wait_ns, l->first };
	l->first = x;
	l->nr++;
	*ret_number = x->number;
	return 0;
}

static void tell_daemon(struct queries *q, uint64_t number, int error)
{
	link_encode_answer(number, error, NULL, 0, &q->daemon->out);
}

static int tell_peer(struct queries *q, uint32_t rank, uint64_t number, int error)
{
	struct le32 e = le32_put((uint32_t)-error);

	return peers_send(q->peers, rank, PEER_ANSWER, number, &e, sizeof(e));
}

/* --- ours --- */

int queries_query(struct queries *q, uint64_t number, const void *body, size_t len)
{
	const uint8_t *id;
	const void *question;
	size_t question_len;
	uint64_t ours;
	uint32_t rank;
	int r = link_decode_query(body, len, &id, &question, &question_len);

	if (r < 0)
		return r;
	if (!world_find(q->w, id, &rank) || rank == q->w->rank) {
		tell_daemon(q, number, -EHOSTUNREACH);
		return 0;
	}
	if (q->asked.nr == UNDER_WAY_MAX) {
		tell_daemon(q, number, -EBUSY);
		return 0;
	}
	r = list_add(q, &q->asked, number, rank, q->waits->ask_ns, &ours);
	return r < 0 ? r : peers_send(q->peers, rank, PEER_QUESTION, ours, question, question_len);
}

int queries_peer_answer(struct queries *q, uint32_t from, uint64_t number, const void *body, size_t len)
{
	for (struct query **at = &q->asked.first; *at; at = &(*at)->next) {
		uint64_t asker_number = (*at)->asker_number;
		const void *p;
		size_t n;
		int error, r;

		if ((*at)->number != number || (*at)->rank != from)
			continue;
		r = link_decode_answer(body, len, &error, &p, &n);
		list_remove(&q->asked, at);
		if (r < 0)
			tell_daemon(q, asker_number, -EBADMSG);
		else
			link_encode_answer(asker_number, error, p, n, &q->daemon->out);
		return r;
	}
	return 0; /* late */
}

/* --- theirs --- */

int queries_peer_question(struct queries *q, uint32_t from, uint64_t number, const void *body, size_t len)
{
	uint64_t ours;
	int r = link_decode_question(body, len);

	if (r < 0)
		return r;
	if (q->served.nr == UNDER_WAY_MAX)
		return tell_peer(q, from, number, -EBUSY);
	r = list_add(q, &q->served, number, from, q->waits->ask_ns / 4 * 3, &ours); /* before it is too late there */
	if (r == 0)
		link_encode_question(ours, body, len, &q->daemon->out);
	return r;
}

int queries_answer(struct queries *q, uint64_t number, const void *body, size_t len)
{
	const void *p;
	size_t n;
	int error, r = link_decode_answer(body, len, &error, &p, &n);

	if (r < 0)
		return r;
	for (struct query **at = &q->served.first; *at; at = &(*at)->next) {
		if ((*at)->number != number)
			continue;
		r = peers_send(q->peers, (*at)->rank, PEER_ANSWER, (*at)->asker_number, body, len);
		list_remove(&q->served, at);
		return r;
	}
	return 0; /* late */
}

/* --- what does not come in time --- */

int queries_progress(struct queries *q, uint64_t now_ns)
{
	int r = 0, any = 0;

	for (struct query **at = &q->asked.first; *at;) {
		if (now_ns < (*at)->until_ns) {
			at = &(*at)->next;
			continue;
		}
		tell_daemon(q, (*at)->asker_number, -ETIMEDOUT);
		list_remove(&q->asked, at);
		any = 1;
	}
	for (struct query **at = &q->served.first; *at && r == 0;) {
		if (now_ns < (*at)->until_ns) {
			at = &(*at)->next;
			continue;
		}
		r = tell_peer(q, (*at)->rank, (*at)->asker_number, -ETIMEDOUT);
		list_remove(&q->served, at);
		any = 1;
	}
	return r < 0 ? r : any;
}
