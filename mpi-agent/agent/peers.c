/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/peers.h"

#include <errno.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/wire/arena.h"
#include "mpi-agent/agent/mpi_errno.h"
#include "mpi-agent/agent/world.h"

#define PAGE ((size_t)4096)
#define STREAM_MIN ((size_t)65536) /* MPI transfers longer messages in pieces of about 32 KiB */
#define RECEIVES_MAX 16u /* in progress: with the longest messages, 256 MiB */

struct outgoing {
	MPI_Request request;
	struct buf bytes; /* without a borrowed body */
	size_t len; /* including it */
	enum peer_lane lane;
	bool is_sent;
	peers_sent_fn *sent; /* callback; NULL: none */
	void *userdata;
	uint64_t id;
	struct outgoing *next;
};

/* A message that MPI is receiving. */
struct incoming {
	MPI_Request request;
	struct message message;
	uint32_t from;
	enum peer_lane lane;
	uint64_t sequence; /* expected */
	bool is_whole;
};

struct peers {
	const struct world *w;
	struct arena *arena; /* for received messages; NULL: none */
	struct outgoing *first, **end;
	size_t unsent; /* bytes */
	MPI_Request *requests; /* of outgoing messages, then of `in`, for MPI_Testsome() */
	int *done; /* its result */
	size_t nr_out, size; /* outgoing messages; room in `requests`, including `in` */
	struct incoming in[RECEIVES_MAX]; /* in the order they were found */
	size_t nr_in;
	size_t nr_hints; /* outgoing and incoming */
	uint64_t *sent[NR_PEER_LANES], *found[NR_PEER_LANES]; /* number of messages, by rank */
};

void message_release(struct message *m)
{
	if (m->arena)
		arena_give_back(m->arena, m->slot, m->slot_len);
	else
		free(m->data);
	*m = MESSAGE_NONE;
}

void message_move(struct message *to, struct message *from)
{
	*to = *from;
	*from = MESSAGE_NONE;
}

/* Makes room for one more message. */
static int make_room_to_send(struct peers *p)
{
	size_t size = MAX(2 * p->size, (size_t)2 * RECEIVES_MAX);
	void *requests, *done;

	if (p->nr_out + RECEIVES_MAX < p->size)
		return 0;
	requests = realloc(p->requests, size * sizeof(*p->requests));
	p->requests = requests ?: p->requests;
	done = realloc(p->done, size * sizeof(*p->done));
	p->done = done ?: p->done;
	if (!requests || !done)
		return -ENOMEM;
	p->size = size;
	return 0;
}

int peers_new(const struct world *w, struct arena *arena, struct peers **ret)
{
	struct peers *p = calloc(1, sizeof(*p));
	bool failed = !p;

	for (int lane = 0; !failed && lane < NR_PEER_LANES; lane++) {
		p->sent[lane] = calloc(w->nr, sizeof(*p->sent[lane]));
		p->found[lane] = calloc(w->nr, sizeof(*p->found[lane]));
		failed = !p->sent[lane] || !p->found[lane];
	}
	if (failed) {
		peers_free(p);
		return -ENOMEM;
	}
	p->w = w;
	p->arena = arena;
	p->end = &p->first;
	if (make_room_to_send(p) < 0) {
		peers_free(p);
		return -ENOMEM;
	}
	*ret = p;
	return 0;
}

void peers_free(struct peers *p)
{
	if (!p)
		return;
	/* Messages in transit are not freed, since MPI may still use them; the process is about to end. */
	for (int lane = 0; lane < NR_PEER_LANES; lane++) {
		free(p->sent[lane]);
		free(p->found[lane]);
	}
	free(p->requests);
	free(p->done);
	free(p);
}

/* --- sending --- */

static void outgoing_free(struct outgoing *o)
{
	if (!o)
		return;
	buf_release(&o->bytes);
	free(o);
}

static void outgoing_freep(struct outgoing **o)
{
	outgoing_free(*o);
}

static struct peer_header header_of(const struct peers *p, uint32_t to, enum peer_type type, uint64_t number)
{
	assert(to < p->w->nr && to != p->w->rank);
	return (struct peer_header){
		.type = type, .from = p->w->rank, .to = to, .sequence = p->sent[peer_lane(type)][to], .number = number
	};
}

/* Adds a message passed to MPI. */
static void is_on_its_way(struct peers *p, const struct peer_header *h, struct outgoing *o)
{
	o->lane = peer_lane(h->type);
	p->nr_out++;
	p->nr_hints += o->lane == PEER_LANE_HINTS;
	p->sent[o->lane][h->to]++;
	p->unsent += o->len;
	*p->end = o;
	p->end = &o->next;
}

int peers_send(struct peers *p, uint32_t to, enum peer_type type, uint64_t number, const void *body, size_t len)
{
	_cleanup_(outgoing_freep) struct outgoing *o = calloc(1, sizeof(*o));
	struct peer_header h = header_of(p, to, type, number);
	int r;

	if (!o || make_room_to_send(p) < 0)
		return -ENOMEM;
	peer_encode(&p->w->message_key, &h, body, len, &o->bytes);
	o->len = o->bytes.len;
	r = buf_error(&o->bytes);
	if (r == 0)
		r = mpi_errno(MPI_Isend(o->bytes.data, (int)o->len, MPI_BYTE, (int)to, (int)peer_lane(type),
					p->w->messages, &o->request),
			      "message to another node");
	if (r == 0)
		is_on_its_way(p, &h, TAKE(o));
	return r;
}

/* Sends header and body as one message, without copying the body. */
static int send_pieces(struct peers *p, struct outgoing *o, const struct peer_header *h, const void *body, size_t len)
{
	int lens[] = { (int)o->bytes.len, (int)len }, r;
	MPI_Aint at[] = { (MPI_Aint)(uintptr_t)o->bytes.data, (MPI_Aint)(uintptr_t)body };
	MPI_Datatype type;

	r = mpi_errno(MPI_Type_create_hindexed(2, lens, at, MPI_BYTE, &type), "message of two pieces");
	if (r < 0)
		return r;
	r = mpi_errno(MPI_Type_commit(&type), "message of two pieces");
	if (r == 0)
		r = mpi_errno(MPI_Isend(MPI_BOTTOM, 1, type, (int)h->to, (int)peer_lane(h->type), p->w->messages,
					&o->request),
			      "message to another node");
	MPI_Type_free(&type); /* MPI frees it once the message is sent */
	return r;
}

int peers_send_borrowed(struct peers *p, uint32_t to, enum peer_type type, uint64_t number, const void *body,
			size_t len, peers_sent_fn *sent, void *userdata, uint64_t id)
{
	_cleanup_(outgoing_freep) struct outgoing *o = calloc(1, sizeof(*o));
	struct peer_header h = header_of(p, to, type, number);
	struct peer_header_wire d;
	int r;

	if (!o || make_room_to_send(p) < 0)
		return -ENOMEM;
	d = peer_header_encode(&p->w->message_key, &h, body, len);
	buf_add(&o->bytes, &d, sizeof(d));
	o->len = sizeof(d) + len;
	o->sent = sent;
	o->userdata = userdata;
	o->id = id;
	r = buf_error(&o->bytes);
	if (r == 0)
		r = send_pieces(p, o, &h, body, len);
	if (r == 0)
		is_on_its_way(p, &h, TAKE(o));
	return r;
}

size_t peers_unsent(const struct peers *p)
{
	return p->unsent;
}

bool peers_moving(const struct peers *p)
{
	return p->nr_out + p->nr_in > p->nr_hints;
}

bool peers_streaming(const struct peers *p)
{
	size_t len = p->unsent;

	for (size_t i = 0; i < p->nr_in; i++)
		len += p->in[i].message.len;
	return len >= STREAM_MIN && peers_moving(p);
}

bool peers_hinting(const struct peers *p)
{
	return p->nr_hints > 0;
}

/* Removes messages that MPI has sent. */
static void remove_sent(struct peers *p)
{
	struct outgoing **at = &p->first;

	while (*at) {
		struct outgoing *o = *at;

		if (!o->is_sent) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		p->nr_out--;
		p->nr_hints -= o->lane == PEER_LANE_HINTS;
		p->unsent -= o->len;
		if (o->sent)
			o->sent(o->userdata, o->id);
		outgoing_free(o);
	}
	p->end = at;
}

/* Tests all requests with one call: every call makes MPI progress all of them, and yields the processor if nothing
 * happened. */
int peers_progress(struct peers *p)
{
	size_t nr = 0;
	int nr_done = 0, r;

	for (struct outgoing *o = p->first; o; o = o->next)
		p->requests[nr++] = o->request;
	for (size_t i = 0; i < p->nr_in; i++)
		p->requests[nr++] = p->in[i].request;
	if (nr == 0) /* MPI_Improbe() progresses only after it has found nothing: a message would wait for a nap */
		return mpi_errno(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, p->w->messages, &nr_done, MPI_STATUS_IGNORE),
				 "looking for messages");
	r = mpi_errno(MPI_Testsome((int)nr, p->requests, &nr_done, p->done, MPI_STATUSES_IGNORE), "messages of nodes");
	if (r < 0 || nr_done == MPI_UNDEFINED || nr_done == 0)
		return r;
	nr = 0;
	for (struct outgoing *o = p->first; o; o = o->next) {
		o->request = p->requests[nr++];
		o->is_sent = o->request == MPI_REQUEST_NULL;
	}
	for (size_t i = 0; i < p->nr_in; i++) {
		p->in[i].request = p->requests[nr++];
		p->in[i].is_whole = p->in[i].request == MPI_REQUEST_NULL;
	}
	remove_sent(p);
	return 0;
}

/* --- receiving --- */

/* Aligns the end to a page: bodies mostly end with whole pages of chunks, which are then aligned. */
static int make_room(struct peers *p, enum peer_lane lane, size_t len, struct message *ret)
{
	struct message m = { .len = len, .slot_len = round_up(len, PAGE) };

	if (p->arena && lane == PEER_LANE_ANSWERS && len >= ARENA_MIN)
		m.slot = arena_take(p->arena, m.slot_len);
	if (m.slot) {
		m.arena = p->arena;
		m.data = m.slot + (m.slot_len - len);
	} else {
		m.data = malloc(MAX(len, (size_t)1));
	}
	*ret = m;
	return m.data ? 0 : -ENOMEM;
}

/* Starts receiving a message of that lane, or of any (NR_PEER_LANES). 1/0 there is none/<0 */
static int find_message(struct peers *p, enum peer_lane lane)
{
	struct incoming *in = &p->in[p->nr_in];
	MPI_Message message;
	MPI_Status status;
	int is_there, len, r;

	if (p->nr_in == RECEIVES_MAX)
		return 0;
	r = mpi_errno(MPI_Improbe(MPI_ANY_SOURCE, lane == NR_PEER_LANES ? MPI_ANY_TAG : (int)lane, p->w->messages,
				  &is_there, &message, &status),
		      "looking for messages");
	if (r < 0 || !is_there)
		return r;
	if (status.MPI_TAG < 0 || status.MPI_TAG >= NR_PEER_LANES)
		return log_errno(-EIO, "rank %d: message of unknown type", status.MPI_SOURCE);
	lane = (enum peer_lane)status.MPI_TAG;
	r = mpi_errno(MPI_Get_count(&status, MPI_BYTE, &len), "length of a message");
	if (r < 0)
		return r;
	if (len < 0 || (size_t)len > sizeof(struct peer_header_wire) + PEER_BODY_MAX)
		return log_errno(-EIO, "rank %d: message of %d bytes: too long",
				 status.MPI_SOURCE, len);
	*in = (struct incoming){ .from = (uint32_t)status.MPI_SOURCE, .lane = lane };
	r = make_room(p, lane, (size_t)len, &in->message);
	if (r < 0)
		return r;
	in->sequence = p->found[lane][in->from]++;
	r = mpi_errno(MPI_Imrecv(in->message.data, len, MPI_BYTE, &message, &in->request), "message of another node");
	if (r == 0) /* short messages are complete by now */
		r = mpi_errno(MPI_Test(&in->request, &is_there, MPI_STATUS_IGNORE), "message of another node");
	if (r < 0)
		return r;
	in->is_whole = is_there;
	p->nr_in++;
	p->nr_hints += lane == PEER_LANE_HINTS;
	return 1;
}

static void remove_incoming(struct peers *p, size_t i, struct incoming *ret)
{
	*ret = p->in[i];
	p->nr_in--;
	p->nr_hints -= ret->lane == PEER_LANE_HINTS;
	memmove(&p->in[i], &p->in[i + 1], (p->nr_in - i) * sizeof(p->in[0]));
}

static int check_message(const struct peers *p, const struct incoming *in, struct peer_header *ret)
{
	int r = peer_decode(&p->w->message_key, in->message.data, in->message.len, ret);

	if (r == 0 && (ret->from != in->from || ret->to != p->w->rank || ret->sequence != in->sequence ||
		       peer_lane(ret->type) != in->lane))
		r = -EBADMSG;
	if (r < 0)
		log_warning("node %s (rank %" PRIu32 "): ignored an invalid message of %zu bytes",
			    p->w->nodes[in->from].name, in->from, in->message.len);
	return r;
}

unsigned peers_coming(const struct peers *p, enum peer_lane lane, size_t *ret_bytes)
{
	unsigned nr = 0;

	*ret_bytes = 0;
	for (size_t i = 0; i < p->nr_in; i++)
		if (p->in[i].lane == lane) {
			nr++;
			*ret_bytes += p->in[i].message.len;
		}
	return nr;
}

/* Takes a complete message, hints first. 1/0 */
static int take_whole(struct peers *p, struct incoming *ret)
{
	size_t first = p->nr_in;

	for (size_t i = p->nr_in; i-- > 0;)
		if (p->in[i].is_whole && (first == p->nr_in || p->in[i].lane == PEER_LANE_HINTS ||
					  p->in[first].lane != PEER_LANE_HINTS))
			first = i;
	if (first == p->nr_in)
		return 0;
	remove_incoming(p, first, ret);
	return 1;
}

/* Finds one message, or one per lane that is not paused if some are. 1/0/<0 */
static int find_any(struct peers *p, unsigned paused)
{
	int r = 0, any = 0;

	if (paused == 0)
		return find_message(p, NR_PEER_LANES);
	for (enum peer_lane lane = 0; r >= 0 && lane < NR_PEER_LANES; lane++)
		if (!(paused >> lane & 1)) {
			r = find_message(p, lane);
			any |= r > 0;
		}
	return r < 0 ? r : any;
}

int peers_next(struct peers *p, unsigned paused, struct peer_header *ret, struct message *ret_message)
{
	struct incoming in;
	int r;

	r = find_any(p, paused);
	/* MPI may deliver a lookup of one node before an announcement of another that was sent before the round of the
	 * lookup started: the home would miss it. */
	if (r > 0)
		while ((r = find_message(p, PEER_LANE_HINTS)) > 0)
			;
	if (r < 0)
		return r;
	while ((r = take_whole(p, &in)) > 0) {
		if (check_message(p, &in, ret) == 0) {
			message_move(ret_message, &in.message);
			return 1;
		}
		message_release(&in.message);
	}
	return r;
}
