/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/serve.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "mpi-agent/wire/arena.h"
#include "mpi-agent/wire/link.h"
#include "mpi-agent/agent/peers.h"
#include "mpi-agent/agent/waits.h"

#define GETS_MAX 16u /* passed to the daemon at once, ... */
#define GET_BYTES_MAX ((uint64_t)32 << 20) /* with this many bytes; a single one may have more */
#define UNSENT_MAX ((size_t)64 << 20) /* bytes in transit to other nodes */
#define TAKEN_NS UINT64_C(2000000) /* delay of TAKEN, if no GET takes it along */

struct get {
	uint64_t number; /* of the request to the daemon */
	uint32_t from; /* the requesting node */
	uint64_t peer_number; /* its number of the request */
	uint64_t until_ns;
	struct link_want *wants;
	uint32_t nr;
	uint64_t bytes;
	struct get *next;
};

struct serve {
	struct peers *peers;
	struct link *daemon;
	const struct arena *theirs;
	const struct waits *waits;
	struct serve_figures figures;
	struct get *gets;
	uint32_t nr;
	uint64_t bytes;
	uint64_t number; /* of the last GET */
	struct buf taken; /* TAKEN messages, sent with the next GET, ... */
	uint64_t taken_ns; /* or at this time at the latest */
};

int serve_new(struct peers *p, struct link *daemon, const struct arena *theirs, const struct waits *waits,
	      struct serve **ret)
{
	struct serve *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	*s = (struct serve){ .peers = p, .daemon = daemon, .theirs = theirs, .waits = waits };
	*ret = s;
	return 0;
}

static void get_free(struct get *g)
{
	free(g->wants);
	free(g);
}

void serve_free(struct serve *s)
{
	if (!s)
		return;
	while (s->gets) {
		struct get *g = s->gets;

		s->gets = g->next;
		get_free(g);
	}
	buf_release(&s->taken);
	free(s);
}

bool serve_has_room(const struct serve *s)
{
	return s->nr < GETS_MAX && s->bytes < GET_BYTES_MAX && peers_unsent(s->peers) < UNSENT_MAX;
}

static void send_taken(struct serve *s)
{
	buf_add(&s->daemon->out, s->taken.data, s->taken.len);
	s->daemon->out.failed |= buf_error(&s->taken) < 0;
	buf_clear(&s->taken);
}

int serve_get(struct serve *s, uint32_t from, uint64_t number, const void *body, size_t len)
{
	struct get *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	r = link_decode_get(body, len, &g->wants, &g->nr);
	if (r < 0) {
		free(g);
		return r;
	}
	g->number = ++s->number;
	g->from = from;
	g->peer_number = number;
	g->until_ns = monotonic_ns() + s->waits->ask_ns / 4 * 3; /* before the requester times out */
	for (uint32_t i = 0; i < g->nr; i++)
		g->bytes += g->wants[i].len;
	send_taken(s);
	link_encode_get(g->number, g->wants, g->nr, &s->daemon->out);
	g->next = s->gets;
	s->gets = g;
	s->nr++;
	s->bytes += g->bytes;
	return 0;
}

static void remove_get(struct serve *s, struct get **at)
{
	struct get *g = *at;

	*at = g->next;
	s->nr--;
	s->bytes -= g->bytes;
	get_free(g);
}

/* Queues TAKEN for the next GET: a separate message would wake the daemon. */
static void queue_taken(void *userdata, uint64_t number)
{
	struct serve *s = userdata;

	if (s->daemon->fd < 0)
		return;
	if (s->taken.len == 0)
		s->taken_ns = monotonic_ns() + TAKEN_NS;
	link_encode_plain(LINK_TAKEN, number, &s->taken);
}

/* Checks and forwards the daemon's answer. `lies_there`: the body is in the daemon's arena. */
static int answer_get(struct serve *s, const struct get *g, const void *body, size_t len, bool lies_there)
{
	_cleanup_(freep) const void **chunks = calloc(MAX(g->nr, UINT32_C(1)), sizeof(*chunks));
	int r;

	if (!chunks)
		return -ENOMEM;
	r = link_decode_chunks(body, len, g->wants, g->nr, chunks);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < g->nr; i++) {
		s->figures.chunks += chunks[i] != NULL;
		s->figures.bytes += chunks[i] ? g->wants[i].len : 0;
		s->figures.missing += chunks[i] == NULL;
	}
	return lies_there ? peers_send_borrowed(s->peers, g->from, PEER_CHUNKS, g->peer_number, body, len, queue_taken,
						s, g->number) :
			    peers_send(s->peers, g->from, PEER_CHUNKS, g->peer_number, body, len);
}

static int answer_nothing(struct serve *s, const struct get *g)
{
	_cleanup_(freep) uint8_t *none = calloc(MAX(g->nr, UINT32_C(1)), 1);

	return none ? answer_get(s, g, none, g->nr, false) : -ENOMEM;
}

/* 1; 0: late; <0 */
static int answer_number(struct serve *s, uint64_t number, const void *body, size_t len, bool lies_there)
{
	for (struct get **at = &s->gets; *at; at = &(*at)->next) {
		int r;

		if ((*at)->number != number)
			continue;
		r = answer_get(s, *at, body, len, lies_there);
		remove_get(s, at);
		return r < 0 ? r : 1;
	}
	return 0;
}

int serve_chunks(struct serve *s, uint64_t number, const void *body, size_t len)
{
	int r = answer_number(s, number, body, len, false);

	return MIN(r, 0);
}

int serve_there(struct serve *s, uint64_t number, const void *body, size_t len)
{
	uint32_t there_len;
	uint64_t off;
	int r;

	r = s->theirs ? link_decode_there(body, len, arena_len(s->theirs), &off, &there_len) : -EBADMSG;
	if (r < 0)
		return r;
	r = answer_number(s, number, arena_data(s->theirs) + off, there_len, true);
	if (r == 0)
		queue_taken(s, number);
	return MIN(r, 0);
}

int serve_progress(struct serve *s, uint64_t now_ns)
{
	struct get **at = &s->gets;
	int done = 0;

	if (s->taken.len > 0 && now_ns >= s->taken_ns)
		send_taken(s);
	while (*at) {
		int r;

		if (now_ns < (*at)->until_ns) {
			at = &(*at)->next;
			continue;
		}
		r = answer_nothing(s, *at);
		if (r < 0)
			return r;
		remove_get(s, at);
		done = 1;
	}
	return done;
}

const struct serve_figures *serve_figures(const struct serve *s)
{
	return &s->figures;
}
