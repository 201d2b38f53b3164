/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Fetching chunks from other nodes, and serving chunks to them. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/daemon/service_internal.h"

#define IN_FLIGHT 2u /* messages per caller: the next one is transferred while this one is copied */
#define GETS_BYTES_MAX ((size_t)2 << 20) /* queued GET messages: 100,000 chunks */
#define CHUNK_MAX (1u << 20)
#define TAKEN_NS UINT64_C(5000000) /* delay of the notice that shared memory is free */
#define PAGE ((size_t)4096) /* alignment for direct I/O */

/* --- from other nodes --- */

/* A part of a caller's wants, sent in one message. */
struct slice {
	struct service_request rq;
	size_t from, nr;
};

static bool is_askable(const struct cluster_want *w)
{
	return w->len >= 1 && w->len <= CHUNK_MAX && w->nr_owners <= CLUSTER_OWNERS_MAX;
}

/* As many as fit into one message. Ends before a want that cannot be requested, which is skipped. */
static struct slice slice_of(const struct cluster_want *wants, size_t from, size_t nr)
{
	struct slice sl = { .rq.answered_by = LINK_CHUNKS, .from = from };
	size_t bytes = 0;

	while (sl.nr < nr - from && sl.nr < LINK_CHUNKS_MAX && is_askable(&wants[from + sl.nr])) {
		bytes += wants[from + sl.nr].len;
		if (bytes > LINK_BYTES_MAX)
			break;
		sl.nr++;
	}
	return sl;
}

static int by_id(const void *a, const void *b)
{
	return memcmp(a, b, CLUSTER_ID_LEN);
}

/* Most chunks have the same owners as the previous one: do not add recent ones again. */
static bool is_among_last(const uint8_t (*ids)[CLUSTER_ID_LEN], uint32_t nr, const uint8_t *id)
{
	for (uint32_t i = 1; i <= MIN(nr, CLUSTER_OWNERS_MAX); i++)
		if (by_id(ids[nr - i], id) == 0)
			return true;
	return false;
}

/* All owners of the wants, each once, sorted. The caller frees them. */
static int owners_of(const struct cluster_want *wants, size_t nr, uint8_t (**ret)[CLUSTER_ID_LEN], uint32_t *ret_nr)
{
	uint8_t(*ids)[CLUSTER_ID_LEN] = malloc(MAX(nr * CLUSTER_OWNERS_MAX, (size_t)1) * sizeof(*ids));
	uint32_t nr_ids = 0, kept = 0;

	if (!ids)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++)
		for (uint32_t k = 0; k < wants[i].nr_owners; k++)
			if (!is_among_last((const uint8_t(*)[CLUSTER_ID_LEN])ids, nr_ids, wants[i].owners[k]))
				memcpy(ids[nr_ids++], wants[i].owners[k], sizeof(*ids));
	qsort(ids, nr_ids, sizeof(*ids), by_id);
	for (uint32_t i = 0; i < nr_ids; i++)
		if (kept == 0 || by_id(ids[kept - 1], ids[i]) != 0)
			memmove(ids[kept++], ids[i], sizeof(*ids));
	*ret = ids;
	*ret_nr = kept;
	return 0;
}

static struct link_want link_want_of(const struct cluster_want *w, const uint8_t (*ids)[CLUSTER_ID_LEN], uint32_t nr_ids)
{
	struct link_want ret = { .fp = w->fp, .len = w->len, .nr_owners = w->nr_owners, .as_is = w->as_is };

	for (uint32_t k = 0; k < w->nr_owners; k++) {
		const uint8_t(*id)[CLUSTER_ID_LEN] = bsearch(w->owners[k], ids, nr_ids, sizeof(*ids), by_id);

		ret.owners[k] = (uint16_t)(id - ids);
	}
	return ret;
}

/* The caller frees them. */
static int link_wants_of(const struct cluster_want *wants, size_t nr, const uint8_t (*ids)[CLUSTER_ID_LEN],
			 uint32_t nr_ids, struct link_want **ret)
{
	struct link_want *v = malloc(nr * sizeof(*v));

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++)
		v[i] = link_want_of(&wants[i], ids, nr_ids);
	*ret = v;
	return 0;
}

static int encode_fetch(uint64_t number, const struct cluster_want *wants, size_t nr, struct buf *ret)
{
	_cleanup_(freep) uint8_t(*ids)[CLUSTER_ID_LEN] = NULL;
	_cleanup_(freep) struct link_want *v = NULL;
	uint32_t nr_ids;
	int r;

	r = owners_of(wants, nr, &ids, &nr_ids);
	if (r == 0)
		r = link_wants_of(wants, nr, (const uint8_t(*)[CLUSTER_ID_LEN])ids, nr_ids, &v);
	if (r < 0)
		return r;
	link_encode_fetch(number, (const uint8_t(*)[CLUSTER_ID_LEN])ids, nr_ids, v, (uint32_t)nr, ret);
	return buf_error(ret);
}

static int ask(struct service *s, uint64_t agent, const struct cluster_want *wants, struct slice *sl)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int r;

	mutex_lock(&s->lock);
	sl->rq.number = ++s->number;
	mutex_unlock(&s->lock);
	r = encode_fetch(sl->rq.number, wants + sl->from, sl->nr, &b);
	if (r < 0)
		return r;
	return service_request_send(s, agent, &sl->rq, &b);
}

/* On ENOMEM the notice is dropped, and the agent loses that memory. */
static int put_taken(struct service *s) REQUIRES(s->lock)
{
	int r;

	assert(mutex_held(&s->lock));
	r = service_put(s, s->agent, &s->taken, 0);
	if (r < 0)
		buf_release(&s->taken);
	return r;
}

/* Send both in one message. */
static int put_behind_taken(struct service *s, uint64_t agent, struct buf *message) REQUIRES(s->lock)
{
	assert(mutex_held(&s->lock));
	if (s->taken.len == 0 || s->agent != agent || buf_error(message) < 0)
		return service_put(s, agent, message, 0);
	buf_add(&s->taken, message->data, message->len);
	return put_taken(s);
}

/* A separate message would wake the agent, so the notice is sent with the next one, or after a delay. */
static void report_taken(struct service *s, uint64_t agent, uint64_t number) REQUIRES(s->lock)
{
	assert(mutex_held(&s->lock));
	if (s->agent != agent)
		return;
	link_encode_plain(LINK_TAKEN, number, &s->taken);
	if (s->taken_ns == 0) {
		s->taken_ns = monotonic_ns() + TAKEN_NS;
		service_wake(s);
	}
}

uint64_t service_report_taken(struct service *s, uint64_t now_ns)
{
	assert(mutex_held(&s->lock));
	if (s->taken_ns == 0)
		return UINT64_MAX;
	if (now_ns >= s->taken_ns) { /* keep the timer: more are likely to follow, and need not wake this thread */
		s->taken_ns = s->taken.len > 0 ? now_ns + TAKEN_NS : 0;
		if (s->taken.len > 0)
			put_taken(s);
	}
	return s->taken_ns == 0 ? UINT64_MAX : s->taken_ns;
}

int service_request_send(struct service *s, uint64_t agent, struct service_request *rq, struct buf *message)
{
	int r;

	mutex_lock(&s->lock);
	r = put_behind_taken(s, agent, message);
	if (r == 0)
		service_request_add(s, rq);
	mutex_unlock(&s->lock);
	service_flush(s);
	return r;
}

void service_request_add(struct service *s, struct service_request *rq)
{
	assert(mutex_held(&s->lock));
	cond_init(&rq->done);
	rq->next = s->requests;
	s->requests = rq;
}

void service_forget(struct service *s, struct service_request *rq)
{
	assert(mutex_held(&s->lock));
	for (struct service_request **p = &s->requests; *p; p = &(*p)->next)
		if (*p == rq) {
			*p = rq->next;
			cond_release(&rq->done);
			return;
		}
}

int service_request_await(struct service *s, struct service_request *rq, uint64_t until_ns)
{
	int r;

	mutex_lock(&s->lock);
	while (!rq->is_done && !s->stopping && service_wait_until(s, &rq->done, until_ns))
		;
	r = rq->is_done ? rq->r : s->stopping ? -ENOTCONN : -ETIMEDOUT;
	service_forget(s, rq);
	mutex_unlock(&s->lock);
	return r;
}

/* Finds the chunks in the message, or in the agent's arena, which may still change: the caller verifies its copy. */
static int decode_answer(const struct service_request *rq, const struct link_want *wants, uint32_t nr, const void **chunks)
{
	return rq->lies_in ? link_decode_places(rq->answer.data, rq->answer.len, wants, nr, arena_data(rq->lies_in),
						arena_len(rq->lies_in), chunks) :
			     link_decode_chunks(rq->answer.data, rq->answer.len, wants, nr, chunks);
}

static int copy_chunks(struct service *s, uint64_t agent, const struct slice *sl, struct cluster_want *wants)
{
	_cleanup_(freep) const void **chunks = malloc(sl->nr * sizeof(*chunks));
	_cleanup_(freep) struct link_want *v = calloc(sl->nr, sizeof(*v));
	uint64_t nr_got = 0, bytes = 0;
	int r;

	if (!chunks || !v)
		return -ENOMEM;
	for (size_t i = 0; i < sl->nr; i++)
		v[i] = (struct link_want){ .fp = wants[sl->from + i].fp, .len = wants[sl->from + i].len };
	r = decode_answer(&sl->rq, v, (uint32_t)sl->nr, chunks);
	if (r < 0) {
		service_hang_up(s, agent, "chunks");
		return -ENOTCONN;
	}
	for (size_t i = 0; i < sl->nr; i++) {
		struct cluster_want *w = &wants[sl->from + i];

		w->got = chunks[i] != NULL;
		if (!w->got)
			continue;
		memcpy(w->buf, chunks[i], w->len);
		w->matches = w->key && fp_is_of(w->key, w->fp, w->buf, w->len);
		nr_got++;
		bytes += w->len;
	}
	mutex_lock(&s->lock);
	s->stats.nr_fetched += nr_got;
	s->stats.fetched_bytes += bytes;
	mutex_unlock(&s->lock);
	return 0;
}

/* Requests in flight, oldest first. */
struct flight {
	struct slice slices[IN_FLIGHT];
	unsigned first, nr;
};

static int launch(struct service *s, uint64_t agent, const struct cluster_want *wants, size_t nr, size_t *next,
		  struct flight *f)
{
	int r = 0;

	while (r == 0 && f->nr < IN_FLIGHT && *next < nr) {
		struct slice *sl = &f->slices[(f->first + f->nr) % IN_FLIGHT];

		*sl = slice_of(wants, *next, nr);
		*next += MAX(sl->nr, (size_t)1);
		if (sl->nr == 0)
			continue;
		r = ask(s, agent, wants, sl);
		f->nr += r == 0;
	}
	return r;
}

/* Stops at the first error; requests in flight are then collected without waiting. */
static int fetch_all(struct service *s, uint64_t agent, struct cluster_want *wants, size_t nr)
{
	struct flight f = { 0 };
	size_t next = 0;
	int r, first = 0;

	do {
		if (first == 0)
			first = launch(s, agent, wants, nr, &next, &f);
		if (f.nr > 0) {
			struct slice *sl = &f.slices[f.first];

			r = service_request_await(s, &sl->rq, first == 0 ? monotonic_ns() + s->limits.fetch_ns : 0);
			if (r == 0)
				r = copy_chunks(s, agent, sl, wants);
			mutex_lock(&s->lock);
			service_spare(s, &sl->rq.answer);
			if (sl->rq.lies_in)
				report_taken(s, agent, sl->rq.number);
			mutex_unlock(&s->lock);
			arena_put(sl->rq.lies_in);
			f.first = (f.first + 1) % IN_FLIGHT;
			f.nr--;
			first = first < 0 ? first : r;
		}
	} while (f.nr > 0 || (first == 0 && next < nr));
	return first;
}

int service_fetch_whole(void *userdata, struct cluster_want *wants, size_t nr)
{
	struct service *s = userdata;
	size_t nr_got = 0;
	uint64_t agent;
	int r;

	mutex_lock(&s->lock);
	agent = s->stopping ? 0 : s->nodes ? s->agent : 0;
	mutex_unlock(&s->lock);
	for (size_t i = 0; i < nr; i++)
		wants[i].got = wants[i].matches = false;
	r = agent ? fetch_all(s, agent, wants, nr) : -ENOTCONN;
	for (size_t i = 0; i < nr; i++)
		nr_got += wants[i].got;
	mutex_lock(&s->lock);
	s->stats.nr_not_fetched += nr - nr_got;
	mutex_unlock(&s->lock);
	if (r == -ETIMEDOUT)
		log_warning("agent: no chunks from other nodes within %" PRIu64 " ms",
			    s->limits.fetch_ns / 1000000);
	return nr_got > 0 ? 0 : r == -ENOMEM ? -ENOTCONN : r;
}

static bool have_all(const struct cluster_want *wants, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		if (!wants[i].got)
			return false;
	return true;
}

int service_fetch(void *userdata, struct cluster_want *wants, size_t nr)
{
	struct service *s = userdata;
	int r = service_fetch_whole(s, wants, nr);

	if (r == 0 && s->store.rebuild && !have_all(wants, nr))
		s->store.rebuild(s->store.userdata, wants, nr); /* an error is ignored: what was fetched is valid */
	return r;
}

void service_answered(struct service *s, enum link_type type, uint64_t number, struct buf *body)
{
	enum link_type answers = type == LINK_PLACES ? LINK_CHUNKS : type;
	struct service_request *rq;

	mutex_lock(&s->lock);
	for (rq = s->requests; rq && (rq->number != number || rq->answered_by != answers || rq->is_done); rq = rq->next)
		;
	if (rq) {
		buf_move(&rq->answer, body);
		if (type == LINK_PLACES && s->shared.theirs)
			rq->lies_in = arena_get(s->shared.theirs);
		rq->is_done = true;
		cond_broadcast(&rq->done);
	} else if (type == LINK_PLACES) { /* late: no thread waits for it any more */
		report_taken(s, s->agent, number);
	}
	mutex_unlock(&s->lock);
}

void service_fail_requests(struct service *s)
{
	assert(mutex_held(&s->lock));
	for (struct service_request *rq = s->requests; rq; rq = rq->next)
		if (!rq->is_done) {
			rq->r = -ENOTCONN;
			rq->is_done = true;
			cond_broadcast(&rq->done);
		}
}

/* --- for other nodes --- */

void service_get_free(struct service_get *g)
{
	if (!g)
		return;
	buf_release(&g->body);
	free(g);
}

/* false: the queue would exceed `max` bytes. */
static bool service_queue_put(struct service *s, struct service_queue *q, size_t max, struct service_get *g)
{
	bool has_room;

	mutex_lock(&s->lock);
	has_room = q->bytes + g->body.len <= max;
	if (has_room) {
		q->bytes += g->body.len;
		g->next = NULL;
		*(q->end ?: &q->first) = g;
		q->end = &g->next;
		service_queue_wake(q);
	}
	mutex_unlock(&s->lock);
	return has_room;
}

bool service_queue_add(struct service *s, struct service_queue *q, size_t max, enum link_type type, uint64_t number,
		       struct buf *body, struct service_get **ret)
{
	struct service_get *g = calloc(1, sizeof(*g));

	*ret = g;
	if (!g)
		return false;
	g->type = type;
	g->number = number;
	buf_move(&g->body, body);
	mutex_lock(&s->lock);
	g->agent = s->agent;
	mutex_unlock(&s->lock);
	return service_queue_put(s, q, max, g);
}

void service_queue_wake(struct service_queue *q)
{
	cond_broadcast(&q->changed);
}

struct service_get *service_queue_take(struct service_queue *q)
{
	struct service_get *g = q->first;

	q->first = g->next;
	if (!q->first)
		q->end = NULL;
	q->bytes -= g->body.len;
	return g;
}

void service_queue_clear(struct service_queue *q)
{
	while (q->first)
		service_get_free(service_queue_take(q));
}

static size_t bytes_of(const struct link_want *wants, uint32_t nr)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < nr; i++)
		bytes += wants[i].len;
	return bytes;
}

/*
 * Read the chunks that are here into `bytes`, one after the other. -EXDEV: some are missing, and `rebuilds` may provide
 * them.
 */
static int read_chunks(struct service *s, const struct link_want *wants, uint32_t nr, bool rebuilds, uint8_t *bytes,
		       bool *is_here, size_t *ret)
{
	_cleanup_(freep) struct cluster_want *v = calloc(MAX(nr, 1u), sizeof(*v));
	uint8_t *end = bytes;
	uint64_t nr_served = 0;
	int r;

	if (!v)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr; i++) {
		v[i] = (struct cluster_want){
			.fp = wants[i].fp, .len = wants[i].len, .buf = end, .as_is = wants[i].as_is
		};
		end += wants[i].len;
	}
	end = bytes;
	r = s->store.chunks(s->store.userdata, v, nr);
	if (r < 0)
		return r;
	if (s->store.rebuild && !have_all(v, nr)) {
		if (!rebuilds)
			return -EXDEV;
		s->store.rebuild(s->store.userdata, v, nr); /* on failure fewer chunks are served */
	}
	for (uint32_t i = 0; i < nr; i++) {
		is_here[i] = v[i].got;
		if (!v[i].got)
			continue;
		if (end != v[i].buf)
			memmove(end, v[i].buf, v[i].len);
		end += v[i].len;
		nr_served++;
	}
	*ret = (size_t)(end - bytes);
	mutex_lock(&s->lock);
	s->stats.nr_served += nr_served;
	s->stats.served_bytes += *ret;
	mutex_unlock(&s->lock);
	return 0;
}

/* Answer a GET that cannot be processed with no chunks, so that the requester asks another node. */
static int answer_none(struct service *s, const struct service_get *g, const struct link_want *wants, uint32_t nr)
{
	_cleanup_(freep) const void **chunks = calloc(MAX(nr, 1u), sizeof(*chunks));
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int r;

	if (!chunks)
		return -ENOMEM;
	link_encode_chunks(g->number, wants, chunks, nr, &b);
	mutex_lock(&s->lock);
	r = service_send(s, g->agent, &b);
	mutex_unlock(&s->lock);
	return r;
}

/* Chunks start at a page boundary: they are read from the disk into the message itself. */
static int encode_answer(struct service *s, const struct service_get *g, const struct link_want *wants, uint32_t nr,
			 bool rebuilds, struct buf *b, size_t *ret_from)
{
	_cleanup_(freep) bool *is_here = calloc(MAX(nr, 1u), sizeof(*is_here));
	size_t head = LINK_CHUNKS_HEAD(nr), bytes = bytes_of(wants, nr);
	uint8_t *at;
	int r;

	if (!is_here || buf_reserve(b, head + PAGE + bytes) < 0)
		return -ENOMEM;
	at = (uint8_t *)round_up((uintptr_t)(b->data + head), PAGE);
	r = read_chunks(s, wants, nr, rebuilds, at, is_here, &bytes);
	if (r < 0)
		return r;
	link_put_chunks_head(g->number, is_here, nr, bytes, at - head);
	*ret_from = (size_t)(at - head - b->data);
	b->len = (size_t)(at - b->data) + bytes;
	return 0;
}

/*
 * Allocate memory shared with the agent: for chunks and, in the page before them, a byte per chunk that says if it is
 * present. NULL: none available.
 */
static struct service_untaken *untaken_new(struct service *s, uint64_t agent, size_t bytes, struct arena **ret_arena)
{
	struct service_untaken *g = bytes >= ARENA_MIN ? calloc(1, sizeof(*g)) : NULL;

	if (!g)
		return NULL;
	g->len = PAGE + bytes;
	mutex_lock(&s->lock);
	g->slot = s->agent == agent && s->shared.own ? arena_take(s->shared.own, g->len) : NULL;
	if (g->slot)
		*ret_arena = arena_get(s->shared.own);
	mutex_unlock(&s->lock);
	if (!g->slot)
		free(TAKE(g));
	return g;
}

/* Free it; if the agent has disconnected, the arena no longer exists. */
static void untaken_free(struct service *s, struct service_untaken *g, const struct arena *arena) REQUIRES(s->lock)
{
	assert(mutex_held(&s->lock));
	if (arena == s->shared.own)
		arena_give_back(s->shared.own, g->slot, g->len);
	free(g);
}

int service_taken(struct service *s, uint64_t number)
{
	struct service_untaken **at, *g;

	mutex_lock(&s->lock);
	for (at = &s->untaken; *at && (*at)->number != number; at = &(*at)->next)
		;
	g = *at;
	if (g) {
		*at = g->next;
		untaken_free(s, g, s->shared.own);
	}
	mutex_unlock(&s->lock);
	return g ? 0 : -EBADMSG;
}

void service_drop_untaken(struct service *s)
{
	assert(mutex_held(&s->lock));
	while (s->untaken) {
		struct service_untaken *g = s->untaken;

		s->untaken = g->next;
		untaken_free(s, g, s->shared.own);
	}
}

/* Send the location of the chunks in shared memory. */
static int send_there(struct service *s, const struct service_get *get, struct service_untaken *g, struct arena *arena,
		      uint32_t nr, size_t bytes)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int r;

	g->number = get->number;
	link_encode_there(get->number, (uint64_t)(g->slot + PAGE - nr - arena_data(arena)), (uint32_t)(nr + bytes), &b);
	mutex_lock(&s->lock);
	r = service_put(s, get->agent, &b, 0); /* -ENOTCONN: the arena belongs to another agent now */
	if (r == 0) {
		g->next = s->untaken;
		s->untaken = g;
	} else {
		untaken_free(s, g, arena);
	}
	mutex_unlock(&s->lock);
	service_flush(s);
	return r;
}

/* 1: answered; 0: no room in shared memory */
static int answer_there(struct service *s, const struct service_get *get, const struct link_want *wants, uint32_t nr,
			bool rebuilds)
{
	_cleanup_(arena_putp) struct arena *arena = NULL;
	size_t bytes = bytes_of(wants, nr);
	struct service_untaken *g = untaken_new(s, get->agent, bytes, &arena);
	int r;

	static_assert(sizeof(bool) == 1 && PAGE >= LINK_CHUNKS_MAX, "a byte for each, as they are sent");
	if (!g)
		return 0;
	r = read_chunks(s, wants, nr, rebuilds, g->slot + PAGE, (bool *)(g->slot + PAGE - nr), &bytes);
	if (r == 0)
		return send_there(s, get, g, arena, nr, bytes) ?: 1;
	mutex_lock(&s->lock);
	untaken_free(s, g, arena);
	mutex_unlock(&s->lock);
	return r;
}

static int answer_get(struct service *s, const struct service_get *g, const struct link_want *wants, uint32_t nr,
		      bool rebuilds)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	size_t from;
	int r = answer_there(s, g, wants, nr, rebuilds);

	if (r != 0)
		return MIN(r, 0);

	mutex_lock(&s->lock);
	service_take_spare(s, &b);
	mutex_unlock(&s->lock);
	r = encode_answer(s, g, wants, nr, rebuilds, &b, &from);
	mutex_lock(&s->lock);
	if (r == 0)
		r = service_send_from(s, g->agent, &b, from);
	service_spare(s, &b);
	mutex_unlock(&s->lock);
	return r;
}

enum service_way { SERVE, REBUILD, TOO_MUCH };

static int serve_get(struct service *s, const struct service_get *g, enum service_way way)
{
	_cleanup_(freep) struct link_want *wants = NULL;
	uint32_t nr;
	int r = link_decode_get(g->body.data, g->body.len, &wants, &nr);

	if (r < 0)
		return r;
	return way == TOO_MUCH ? answer_none(s, g, wants, nr) : answer_get(s, g, wants, nr, way == REBUILD);
}

/* A chunk that cannot be recorded as pinned is reported as not pinned. */
static int serve_pin(struct service *s, const struct service_get *g, bool is_too_much)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) uint8_t *answer = NULL;
	_cleanup_(freep) struct fp *fps = NULL;
	_cleanup_(freep) struct cluster_node *nodes = NULL;
	_cleanup_(freep) bool *pinned = NULL;
	uint32_t nr, nr_nodes, self;
	int r = link_decode_pin(g->body.data, g->body.len, &fps, &nr);

	if (r < 0)
		return r;
	pinned = calloc(MAX(nr, 1u), sizeof(*pinned));
	answer = calloc(MAX(nr, 1u), 1);
	if (!pinned || !answer)
		return -ENOMEM;
	r = service_nodes(s, &nodes, &nr_nodes, &self);
	if (r < 0)
		return r;
	if (!is_too_much && s->store.pin(s->store.userdata, nodes, nr_nodes, fps, nr, pinned) == 0)
		for (uint32_t i = 0; i < nr; i++)
			answer[i] = pinned[i];
	link_encode_pinned(g->number, answer, nr, &b);
	mutex_lock(&s->lock);
	r = service_send(s, g->agent, &b);
	mutex_unlock(&s->lock);
	return r;
}

/* Frees `g` or queues it again. */
static void serve(struct service *s, struct service_get *g, enum service_way way)
{
	int r = g->type == LINK_PIN ? serve_pin(s, g, way == TOO_MUCH) : serve_get(s, g, way);

	if (r == -EXDEV) {
		if (service_queue_put(s, &s->rebuilds, GETS_BYTES_MAX, g))
			return;
		r = serve_get(s, g, TOO_MUCH);
	}
	if (r == -EBADMSG)
		service_hang_up(s, g->agent, "what other nodes want,");
	else if (r < 0 && r != -ENOTCONN)
		log_errno(r, "chunks for other nodes");
	service_get_free(g);
}

void service_get(struct service *s, enum link_type type, uint64_t number, struct buf *body)
{
	struct service_get *g;

	if (service_queue_add(s, &s->gets, GETS_BYTES_MAX, type, number, body, &g) || !g)
		return; /* ENOMEM: the requesting node will time out and ask another */
	serve(s, g, TOO_MUCH);
}

static void *serve_queue(struct service *s, struct service_queue *q, enum service_way way)
{
	struct service_get *g;

	mutex_lock(&s->lock);
	while (!s->stopping) {
		if (!q->first || s->out_bytes > SERVICE_OUT_MAX) {
			cond_wait(&q->changed, &s->lock);
			continue;
		}
		g = service_queue_take(q);
		mutex_unlock(&s->lock);
		serve(s, g, way);
		mutex_lock(&s->lock);
	}
	mutex_unlock(&s->lock);
	return NULL;
}

void *service_server(void *userdata)
{
	struct service *s = userdata;

	return serve_queue(s, &s->gets, SERVE);
}

void *service_rebuilder(void *userdata)
{
	struct service *s = userdata;

	return serve_queue(s, &s->rebuilds, REBUILD);
}
