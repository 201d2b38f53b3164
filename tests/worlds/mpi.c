/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * As much of MPI as an agent calls, between the agents of a world. Messages of one node to another come in the order
 * they were sent, as MPI promises, and no other order is kept; a send is done at once, or when the receiver has it, out
 * of the sender's memory. What is collective is done when those have come to it that it needs, here and there at
 * different times. Most of it is freed by memory.c.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "worlds_internal.h"

/* What mpi.h leaves to the implementation. */
struct ompi_communicator_t {
	unsigned number;
	uint64_t nr_collective[WORLDS_NODES]; /* that each has begun */
	struct collective *first;
	struct ompi_message_t *queues[WORLDS_NODES][WORLDS_NODES]; /* from, to */
};
struct ompi_datatype_t {
	size_t len;
};
struct ompi_op_t {
	MPI_User_function *fn;
};
struct ompi_predefined_datatype_t {
	struct ompi_datatype_t type;
};
struct ompi_predefined_op_t {
	struct ompi_op_t op;
};
struct ompi_predefined_request_t {
	int none;
};
struct ompi_predefined_communicator_t {
	int none;
};
struct ompi_predefined_errhandler_t {
	int none;
};
struct ompi_predefined_datatype_t ompi_mpi_byte = { { 1 } }, ompi_mpi_uint64_t = { { 8 } }, ompi_mpi_datatype_null;
struct ompi_predefined_op_t ompi_mpi_op_sum, ompi_mpi_op_null;
struct ompi_predefined_request_t ompi_request_null;
struct ompi_predefined_communicator_t ompi_mpi_comm_world;
struct ompi_predefined_errhandler_t ompi_mpi_errors_return;

struct ompi_message_t {
	struct ompi_message_t *next;
	unsigned from;
	int tag;
	const void *bytes;
	size_t len;
	uint64_t at_ns; /* when it is there */
	bool is_had; /* the receiver has it */
};

enum kind { REDUCE, BROADCAST, ALL }; /* what they wait for: root for all, all for root, all for all */
struct collective {
	struct collective *next;
	uint64_t number;
	enum kind kind;
	size_t len;
	bool has_come[WORLDS_NODES];
	uint64_t at_ns[WORLDS_NODES]; /* when each learns of it, once it can; 0: it cannot yet */
	uint8_t *in[WORLDS_NODES], *out[WORLDS_NODES];
	bool is_sum, is_gather;
	MPI_User_function *fn;
};

struct ompi_request_t {
	struct ompi_message_t *message; /* sent, or received; NULL: collective */
	bool is_receive;
	void *to;
	uint64_t at_ns;
	struct collective *c;
	unsigned rank;
};

static struct ompi_communicator_t comms[2];
static uint64_t last_ns[2][WORLDS_NODES][WORLDS_NODES];

void mpi_begin(void)
{
	memset(comms, 0, sizeof(comms));
	memset(last_ns, 0, sizeof(last_ns));
	comms[1].number = 1;
}

MPI_Comm mpi_comm(unsigned i)
{
	return &comms[i];
}

static unsigned self(void)
{
	return ws->current->w.rank;
}

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

/* How long something is on its way. */
static uint64_t delay_ns(void)
{
	if (ws_faulty(SLOW_MESSAGE))
		return ws_between(MS, 2 * ws->waits.stall_ns);
	return ws_chance(90) ? ws_between(1000, MS) : ws_between(MS, 10 * MS);
}

static int dead_or(int code)
{
	return ws->is_dead ? MPI_ERR_OTHER : code;
}

static void request_new(struct ompi_request_t r, MPI_Request *ret)
{
	*ret = must(malloc(sizeof(r)));
	**ret = r;
}

/* --- messages --- */

int MPI_Isend(const void *p, int nr, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *ret)
{
	struct ompi_message_t *m = must(calloc(1, sizeof(*m))), **at = &comm->queues[self()][to];
	uint64_t *last = &last_ns[comm->number][self()][to];
	bool is_eager = ws_chance(50);

	*m = (struct ompi_message_t){ .from = self(), .tag = tag, .bytes = p, .len = (size_t)nr * type->len };
	m->at_ns = *last = MAX(*last, ws->now_ns + delay_ns());
	if (is_eager)
		m->bytes = memcpy(must(malloc(m->len)), p, m->len);
	while (*at)
		at = &(*at)->next;
	*at = m;
	request_new((struct ompi_request_t){ .message = m, .at_ns = is_eager ? ws->now_ns + ws_between(0, MS) : NEVER },
		    ret);
	return dead_or(MPI_SUCCESS);
}

static struct ompi_message_t **find(MPI_Comm comm, unsigned from, int tag)
{
	struct ompi_message_t **at = &comm->queues[from][self()];

	while (*at && tag != MPI_ANY_TAG && (*at)->tag != tag)
		at = &(*at)->next;
	return *at && (*at)->at_ns <= ws->now_ns ? at : NULL;
}

/* Of any that has come, but in order for each node. */
static struct ompi_message_t **find_any(MPI_Comm comm, int tag)
{
	unsigned first = ws_below(ws->nr);

	for (unsigned i = 0; i < ws->nr; i++) {
		struct ompi_message_t **m = find(comm, (first + i) % ws->nr, tag);

		if (m)
			return m;
	}
	return NULL;
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
	(void)from;
	(void)status;
	*flag = find_any(comm, tag) != NULL;
	return dead_or(MPI_SUCCESS);
}

int MPI_Improbe(int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status)
{
	struct ompi_message_t **m = find_any(comm, tag);

	(void)from;
	*flag = m != NULL;
	if (m) {
		*message = *m;
		*status = (MPI_Status){ .MPI_SOURCE = (int)(*m)->from, .MPI_TAG = (*m)->tag, ._ucount = (*m)->len };
		*m = (*m)->next;
	}
	return dead_or(MPI_SUCCESS);
}

int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *ret)
{
	*ret = (int)(status->_ucount / type->len);
	return MPI_SUCCESS;
}

int MPI_Imrecv(void *p, int nr, MPI_Datatype type, MPI_Message *message, MPI_Request *ret)
{
	if ((size_t)nr * type->len < (*message)->len)
		abort();
	request_new((struct ompi_request_t){ .message = *message,
					     .is_receive = true,
					     .to = p,
					     .at_ns = ws_chance(70) ? ws->now_ns :
										 ws->now_ns + ws_between(0, 2 * MS) },
		    ret);
	return dead_or(MPI_SUCCESS);
}

/* --- collective --- */

static bool all_have_come(const struct collective *c)
{
	for (unsigned i = 0; i < ws->nr; i++)
		if (!c->has_come[i])
			return false;
	return true;
}

/* In a tree of any shape. All merges are done by rank 0 here, when it looks: the thread's reduction is its own then. */
static void reduce(struct collective *c)
{
	unsigned left[WORLDS_NODES], nr = ws->nr;
	struct ompi_datatype_t type = { c->len }, *t = &type;
	int one = 1;

	for (unsigned i = 0; i < nr; i++)
		left[i] = i;
	while (nr > 1) {
		unsigned a = ws_below(nr), b = (a + 1 + ws_below(nr - 1)) % nr;

		c->fn(c->in[left[a]], c->in[left[b]], &one, &t);
		left[a] = left[--nr];
	}
	memcpy(c->out[0], c->in[left[0]], c->len);
}

static void sum(struct collective *c)
{
	for (size_t k = 0; k < c->len / sizeof(uint64_t); k++) {
		uint64_t total = 0, v;

		for (unsigned i = 0; i < ws->nr; i++) {
			memcpy(&v, c->in[i] + k * sizeof(v), sizeof(v));
			total += v;
		}
		memcpy(c->out[self()] + k * sizeof(total), &total, sizeof(total));
	}
}

static void finish(struct collective *c)
{
	if (c->kind == REDUCE && self() == 0)
		reduce(c);
	if (c->kind == BROADCAST && self() != 0)
		memcpy(c->out[self()], c->in[0], c->len);
	if (c->is_sum)
		sum(c);
	for (unsigned i = 0; c->is_gather && i < ws->nr; i++)
		memcpy(c->out[self()] + i * c->len, c->in[i], c->len);
}

/* It may be done for this node, and is so some time after it was found out. */
static bool collective_is_done(struct collective *c)
{
	uint64_t *at_ns = &c->at_ns[self()];
	bool can_be = c->kind == ALL || (c->kind == REDUCE && self() == 0) ? all_have_come(c) :
		      c->kind == BROADCAST				   ? c->has_come[0] :
									     true;

	if (can_be && *at_ns == 0)
		*at_ns = ws->now_ns + (ws_chance(50) ? 0 : delay_ns());
	if (!can_be || *at_ns > ws->now_ns)
		return false;
	finish(c);
	return true;
}

/* The one that this node comes to now. */
static struct collective *come(MPI_Comm comm, enum kind kind, const void *in, void *out, size_t len, MPI_Request *ret)
{
	uint64_t number = comm->nr_collective[self()]++;
	struct collective **at = &comm->first, *c;

	while (*at && (*at)->number != number)
		at = &(*at)->next;
	if (!*at) {
		*at = must(calloc(1, sizeof(**at)));
		**at = (struct collective){ .number = number, .kind = kind, .len = len };
	}
	c = *at;
	if (c->kind != kind || c->len != len)
		ws_wrong("rank %u comes to another collective call than others", self());
	c->has_come[self()] = true;
	c->out[self()] = out;
	c->in[self()] = must(malloc(MAX(len, (size_t)1)));
	if (in && len == c->len)
		memcpy(c->in[self()], in, len);
	request_new((struct ompi_request_t){ .c = c, .rank = self() }, ret);
	return c;
}

int MPI_Ireduce(const void *in, void *out, int nr, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
		MPI_Request *ret)
{
	struct collective *c = come(comm, REDUCE, in == MPI_IN_PLACE ? out : in, out, (size_t)nr * type->len, ret);

	(void)root;
	c->fn = op->fn;
	return dead_or(MPI_SUCCESS);
}

int MPI_Iallreduce(const void *in, void *out, int nr, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *ret)
{
	(void)op;
	come(comm, ALL, in == MPI_IN_PLACE ? out : in, out, (size_t)nr * type->len, ret)->is_sum = true;
	return dead_or(MPI_SUCCESS);
}

int MPI_Ibcast(void *p, int nr, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *ret)
{
	(void)root;
	come(comm, BROADCAST, p, p, (size_t)nr * type->len, ret);
	return dead_or(MPI_SUCCESS);
}

int MPI_Iallgather(const void *in, int nr, MPI_Datatype type, void *out, int nr_out, MPI_Datatype type_out,
		   MPI_Comm comm, MPI_Request *ret)
{
	(void)nr_out;
	(void)type_out;
	come(comm, ALL, in, out, (size_t)nr * type->len, ret)->is_gather = true;
	return dead_or(MPI_SUCCESS);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *ret)
{
	come(comm, ALL, NULL, NULL, 0, ret);
	return dead_or(MPI_SUCCESS);
}

/* --- requests --- */

static bool is_done(struct ompi_request_t *r)
{
	if (r->c)
		return collective_is_done(r->c);
	if (!r->is_receive)
		return r->message->is_had || r->at_ns <= ws->now_ns;
	if (r->at_ns > ws->now_ns)
		return false;
	memcpy(r->to, r->message->bytes, r->message->len);
	r->message->is_had = true;
	return true;
}

static void drop(MPI_Request *r)
{
	if (*r != MPI_REQUEST_NULL)
		free(*r);
	*r = MPI_REQUEST_NULL;
}

int MPI_Test(MPI_Request *r, int *flag, MPI_Status *status)
{
	(void)status;
	if (ws->is_dead)
		return MPI_ERR_OTHER;
	*flag = *r == MPI_REQUEST_NULL || is_done(*r);
	if (*flag)
		drop(r);
	return MPI_SUCCESS;
}

int MPI_Testsome(int nr, MPI_Request *r, int *nr_done, int *done, MPI_Status *statuses)
{
	(void)statuses;
	*nr_done = 0;
	if (ws->is_dead)
		return MPI_ERR_OTHER;
	for (int i = 0; i < nr; i++)
		if (r[i] != MPI_REQUEST_NULL && is_done(r[i])) {
			drop(&r[i]);
			done[(*nr_done)++] = i;
		}
	return MPI_SUCCESS;
}

/* --- the rest --- */

int MPI_Comm_rank(MPI_Comm comm, int *ret)
{
	(void)comm;
	*ret = (int)self();
	return MPI_SUCCESS;
}

int MPI_Type_contiguous(int nr, MPI_Datatype of, MPI_Datatype *ret)
{
	*ret = must(malloc(sizeof(**ret)));
	(*ret)->len = (size_t)nr * of->len;
	return MPI_SUCCESS;
}

int MPI_Type_commit(MPI_Datatype *type)
{
	(void)type;
	return MPI_SUCCESS;
}

int MPI_Type_free(MPI_Datatype *type)
{
	free(*type);
	*type = MPI_DATATYPE_NULL;
	return MPI_SUCCESS;
}

int MPI_Op_create(MPI_User_function *fn, int commutes, MPI_Op *ret)
{
	(void)commutes;
	*ret = must(malloc(sizeof(**ret)));
	(*ret)->fn = fn;
	return MPI_SUCCESS;
}

int MPI_Op_free(MPI_Op *op)
{
	free(*op);
	*op = MPI_OP_NULL;
	return MPI_SUCCESS;
}

int MPI_Error_string(int code, char *text, int *len)
{
	(void)code;
	*len = 4;
	memcpy(text, "dead", 5);
	return MPI_SUCCESS;
}

/* Of what is not simulated: the beginning of a world, chunks that are fetched, and a reduction that waits. */
#define NOT_HERE(name, ...)   \
	int name(__VA_ARGS__) \
	{                     \
		abort();      \
	}
NOT_HERE(MPI_Allgather, const void *a _unused_, int b _unused_, MPI_Datatype c _unused_, void *d _unused_,
	 int e _unused_, MPI_Datatype f _unused_, MPI_Comm g _unused_)
NOT_HERE(MPI_Comm_dup, MPI_Comm a _unused_, MPI_Comm *b _unused_)
NOT_HERE(MPI_Comm_size, MPI_Comm a _unused_, int *b _unused_)
NOT_HERE(MPI_Comm_set_errhandler, MPI_Comm a _unused_, MPI_Errhandler b _unused_)
NOT_HERE(MPI_Get_processor_name, char *a _unused_, int *b _unused_)
NOT_HERE(MPI_Type_create_hindexed, int a _unused_, const int *b _unused_, const MPI_Aint *c _unused_,
	 MPI_Datatype d _unused_, MPI_Datatype *e _unused_)
NOT_HERE(MPI_Wait, MPI_Request *a _unused_, MPI_Status *b _unused_)
