/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/relays.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "mpi-agent/wire/link.h"
#include "mpi-agent/agent/peers.h"
#include "mpi-agent/agent/waits.h"
#include "mpi-agent/agent/world.h"

#define QUESTIONS_MAX 64u /* per direction: with the longest answers, 64 MiB; excess ones are answered with -EBUSY */
#define RELAYS_MAX 16u /* requests of other nodes passed to the daemon or being received, except questions, ... */
#define RELAY_BYTES_MAX ((size_t)32 << 20) /* with this many bytes; the last one may exceed it */
#define ID_LEN 16u

/* Message types of a request: sent by a daemon, received by the other daemon, and the answer; and between agents. */
static const struct kind {
	enum link_type link, link_there, link_answer;
	enum peer_type peer, peer_answer;
} kinds[] = {
	{ LINK_PUT, LINK_PUT, LINK_KEPT, PEER_PUT, PEER_KEPT },
	{ LINK_REPLICATE, LINK_REPLICATE, LINK_REPLICATED, PEER_REPLICATE, PEER_REPLICATED },
	{ LINK_DROP, LINK_DROP, LINK_DROPPED, PEER_DROP, PEER_DROPPED },
	{ LINK_QUERY, LINK_QUESTION, LINK_ANSWER, PEER_QUESTION, PEER_ANSWER },
};

/* A request without an answer so far, of this node's daemon or of another node. */
struct relay {
	const struct kind *kind;
	uint64_t number; /* assigned by this agent */
	uint64_t asked_number; /* assigned by the requester */
	uint32_t rank; /* the other node */
	uint32_t nr; /* PUT: number of chunks */
	uint64_t put_chunks, put_bytes; /* PUT: chunks sent with it */
	size_t bytes; /* of the message */
	uint64_t until_ns;
	struct relay *next;
};

struct relays {
	const struct world *w;
	struct peers *peers;
	struct link *daemon;
	const struct waits *waits;
	struct relays_figures figures;
	struct relay *local, *remote;
	uint32_t nr_local_questions, nr_remote_questions;
	uint32_t nr_remote; /* except questions */
	size_t remote_bytes;
	uint64_t number; /* of the last relay */
};

int relays_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits, struct relays **ret)
{
	struct relays *rs = calloc(1, sizeof(*rs));

	if (!rs)
		return -ENOMEM;
	*rs = (struct relays){ .w = w, .peers = p, .daemon = daemon, .waits = waits };
	*ret = rs;
	return 0;
}

static void list_free(struct relay *first)
{
	while (first) {
		struct relay *next = first->next;

		free(first);
		first = next;
	}
}

void relays_free(struct relays *rs)
{
	if (!rs)
		return;
	list_free(rs->local);
	list_free(rs->remote);
	free(rs);
}

static bool is_question(const struct relay *y)
{
	return y->kind->link == LINK_QUERY;
}

/* --- checking messages --- */

/* Checks a request in the form sent between agents, and fills in its figures. -EBADMSG: malformed. */
static int check_request(struct relay *y, const void *body, size_t len)
{
	struct link_put put;
	struct link_replica replica;
	struct link_drop drop;
	int r;

	switch (y->kind->link) {
	case LINK_PUT:
		r = link_decode_put(body, len, &put);
		if (r < 0)
			return r;
		y->nr = put.nr;
		for (uint32_t i = 0; i < put.nr; i++) {
			y->put_chunks += put.chunks[i] != NULL;
			y->put_bytes += put.chunks[i] ? put.wants[i].len : 0;
		}
		free(put.wants);
		free(put.chunks);
		return 0;
	case LINK_REPLICATE:
		r = link_decode_replica(body, len, &replica);
		if (r == 0)
			free(replica.chunks);
		return r;
	case LINK_DROP:
		return link_decode_drop(body, len, &drop);
	default:
		return link_decode_question(body, len);
	}
}

/* Checks the answer to a request. */
static int check_answer(const struct relay *y, const void *body, size_t len, int *ret_error)
{
	const uint8_t *kept;
	const void *said;
	size_t said_len;

	if (is_question(y))
		return link_decode_answer(body, len, ret_error, &said, &said_len);
	return y->kind->link == LINK_PUT ? link_decode_kept(body, len, y->nr, ret_error, &kept) :
					   link_decode_error(body, len, ret_error);
}

static int encode_error(const struct relay *y, uint64_t number, int error, struct buf *ret)
{
	_cleanup_(freep) uint8_t *none = calloc(MAX(y->nr, UINT32_C(1)), 1);

	if (!none)
		return -ENOMEM;
	if (y->kind->link == LINK_PUT)
		link_encode_kept(number, error, none, y->nr, ret);
	else if (is_question(y))
		link_encode_answer(number, error, NULL, 0, ret);
	else
		link_encode_error(y->kind->link_answer, number, error, ret);
	return buf_error(ret);
}

/* --- requests of this node's daemon --- */

static const struct kind *kind_of_link(enum link_type type, bool is_answer)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if ((is_answer ? kinds[i].link_answer : kinds[i].link) == type)
			return &kinds[i];
	return NULL;
}

static const struct kind *kind_of_peer(enum peer_type type, bool is_answer)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if ((is_answer ? kinds[i].peer_answer : kinds[i].peer) == type)
			return &kinds[i];
	return NULL;
}

/* Sends a request to its target node. Replaces the target's id by that of this node, or removes it from a query. */
static int send_on(struct relays *rs, const struct relay *y, const void *body, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	if (is_question(y))
		return peers_send(rs->peers, y->rank, y->kind->peer, y->number, (const uint8_t *)body + ID_LEN,
				  len - ID_LEN);
	buf_reserve(&b, len);
	buf_add(&b, rs->w->nodes[rs->w->rank].store_id, ID_LEN);
	buf_add(&b, (const uint8_t *)body + ID_LEN, len - ID_LEN);
	if (buf_error(&b) < 0)
		return -ENOMEM;
	return peers_send(rs->peers, y->rank, y->kind->peer, y->number, b.data, b.len);
}

static uint64_t wait_ns(const struct relays *rs, const struct relay *y)
{
	return is_question(y) ? rs->waits->ask_ns : rs->waits->keep_ns;
}

static int check_local_request(struct relay *y, const void *body, size_t len)
{
	const uint8_t *id;
	const void *question;
	size_t question_len;

	return is_question(y) ? link_decode_query(body, len, &id, &question, &question_len) : check_request(y, body, len);
}

/* 0, or why the request cannot be passed on: -EHOSTUNREACH, -EBUSY. */
static int check_target(const struct relays *rs, struct relay *y, const void *body)
{
	if (world_find(rs->w, body, &y->rank) <= 0 || y->rank == rs->w->rank)
		return -EHOSTUNREACH;
	return is_question(y) && rs->nr_local_questions == QUESTIONS_MAX ? -EBUSY : 0;
}

int relays_request(struct relays *rs, const struct link_header *h, const void *body)
{
	struct relay *y = calloc(1, sizeof(*y));
	int r, why;

	if (!y)
		return -ENOMEM;
	*y = (struct relay){ .kind = kind_of_link(h->type, false), .asked_number = h->number };
	assert(y->kind);
	r = check_local_request(y, body, h->len);
	why = r == 0 ? check_target(rs, y, body) : 0;
	if (why < 0) {
		r = encode_error(y, h->number, why, &rs->daemon->out);
		free(y);
		return r;
	}
	y->number = ++rs->number;
	y->until_ns = monotonic_ns() + wait_ns(rs, y);
	if (r == 0)
		r = send_on(rs, y, body, h->len);
	if (r < 0) {
		free(y);
		return r;
	}
	y->next = rs->local;
	rs->local = y;
	rs->nr_local_questions += is_question(y);
	return 0;
}

static struct relay **find_relay(struct relay **at, uint64_t number)
{
	while (*at && (*at)->number != number)
		at = &(*at)->next;
	return at;
}

static void remove_relay(struct relay **at)
{
	struct relay *y = *at;

	*at = y->next;
	free(y);
}

static void remove_local(struct relays *rs, struct relay **at)
{
	rs->nr_local_questions -= is_question(*at);
	remove_relay(at);
}

int relays_peer_answer(struct relays *rs, const struct peer_header *h, const void *body, size_t len)
{
	struct relay **at = find_relay(&rs->local, h->number), *y = *at;
	int r, error;

	if (!y)
		return 0; /* late */
	if (y->rank != h->from || y->kind != kind_of_peer(h->type, true))
		return -EBADMSG;
	r = check_answer(y, body, len, &error);
	if (r == 0)
		link_encode_body(y->kind->link_answer, y->asked_number, body, len, &rs->daemon->out);
	else if (encode_error(y, y->asked_number, -EBADMSG, &rs->daemon->out) < 0)
		return -ENOMEM;
	remove_local(rs, at);
	return r < 0 ? r : buf_error(&rs->daemon->out);
}

/* --- requests of other nodes --- */

bool relays_has_room(const struct relays *rs)
{
	size_t coming_bytes;
	unsigned coming = peers_coming(rs->peers, PEER_LANE_KEEPS, &coming_bytes);

	return rs->nr_remote + coming < RELAYS_MAX && rs->remote_bytes + coming_bytes < RELAY_BYTES_MAX;
}

static bool is_sender(const struct relays *rs, uint32_t from, const void *body)
{
	return memcmp(body, rs->w->nodes[from].store_id, ID_LEN) == 0;
}

/* Answers a request of another node with an error. */
static int send_error(struct relays *rs, const struct relay *y, int error)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int r = encode_error(y, 0, error, &b);

	if (r < 0)
		return r;
	return peers_send(rs->peers, y->rank, y->kind->peer_answer, y->asked_number,
			  b.data + sizeof(struct link_header_wire), b.len - sizeof(struct link_header_wire));
}

/* Adds or removes (by: 1, -1) a request. Questions are short, and have a separate limit. */
static void count_remote_requests(struct relays *rs, const struct relay *y, int by)
{
	if (is_question(y)) {
		rs->nr_remote_questions += (uint32_t)by;
		return;
	}
	rs->nr_remote += (uint32_t)by;
	rs->remote_bytes += (size_t)by * y->bytes;
}

int relays_peer_request(struct relays *rs, const struct peer_header *h, const void *body, size_t len)
{
	struct relay *y = calloc(1, sizeof(*y));
	int r;

	if (!y)
		return -ENOMEM;
	*y = (struct relay){ .kind = kind_of_peer(h->type, false), .asked_number = h->number, .rank = h->from, .bytes = len };
	assert(y->kind);
	r = check_request(y, body, len);
	if (r == 0 && !is_question(y) && !is_sender(rs, h->from, body))
		r = -EBADMSG;
	if (r < 0 || (is_question(y) && rs->nr_remote_questions == QUESTIONS_MAX)) {
		r = r < 0 ? r : send_error(rs, y, -EBUSY);
		free(y);
		return r;
	}
	y->number = ++rs->number;
	y->until_ns = monotonic_ns() + wait_ns(rs, y) / 4 * 3; /* before the requester times out */
	link_encode_body(y->kind->link_there, y->number, body, len, &rs->daemon->out);
	y->next = rs->remote;
	rs->remote = y;
	count_remote_requests(rs, y, 1);
	return buf_error(&rs->daemon->out);
}

static void remove_remote(struct relays *rs, struct relay **at)
{
	count_remote_requests(rs, *at, -1);
	remove_relay(at);
}

int relays_answer(struct relays *rs, const struct link_header *h, const void *body)
{
	struct relay **at = find_relay(&rs->remote, h->number), *y = *at;
	int r, error;

	if (!y)
		return 0; /* late */
	if (y->kind != kind_of_link(h->type, true))
		return -EBADMSG;
	r = check_answer(y, body, h->len, &error);
	if (r < 0)
		return r;
	if (error == 0) {
		rs->figures.kept_chunks += y->put_chunks;
		rs->figures.kept_bytes += y->put_bytes;
		rs->figures.replicas += y->kind->link == LINK_REPLICATE;
	}
	r = peers_send(rs->peers, y->rank, y->kind->peer_answer, y->asked_number, body, h->len);
	remove_remote(rs, at);
	return r;
}

/* --- progress --- */

int relays_progress(struct relays *rs, uint64_t now_ns)
{
	int r = 0, any = 0;

	for (struct relay **at = &rs->local; *at && r == 0;)
		if (now_ns >= (*at)->until_ns) {
			r = encode_error(*at, (*at)->asked_number, -ETIMEDOUT, &rs->daemon->out);
			remove_local(rs, at);
			any = 1;
		} else {
			at = &(*at)->next;
		}
	for (struct relay **at = &rs->remote; *at && r == 0;)
		if (now_ns >= (*at)->until_ns) {
			r = send_error(rs, *at, -ETIMEDOUT);
			remove_remote(rs, at);
			any = 1;
		} else {
			at = &(*at)->next;
		}
	return r < 0 ? r : any;
}

const struct relays_figures *relays_figures(const struct relays *rs)
{
	return &rs->figures;
}
