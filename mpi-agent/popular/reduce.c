/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A set is one element of a type of so many bytes, so that MPI cannot take it to pieces, and MPI_Ireduce() merges
 * elements with our operation in a tree of its choice. Its result is of one tree, and another rank's tree would give
 * other owners: hence not MPI_Iallreduce(), which may reduce on several ranks, but one result that is broadcast.
 *
 * MPI calls the operation without context, it cannot fail, and it may get any sets: its context is in a thread-local
 * variable, and a failed merge becomes a set with an error. Each set is preceded by its MAC: sets of a process without
 * the session key are not merged.
 *
 *           all have memory            all is merged at rank 0         all nodes have it
 *   SIZES ────────────────────▶ MERGE ────────────────────────▶ RESULT ──────────────────▶ DONE
 *     └─ otherwise the round ends on all nodes
 */
#include "mpi-agent/popular/reduce.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "base/util.h"
#include "mpi-agent/agent/mpi_errno.h"
#include "mpi-agent/popular/popular_format.h"
#include "mpi-agent/wire/mac.h"

enum state { SIZES, MERGE, RESULT, DONE };

struct reduction {
	MPI_Comm comm;
	const struct merge_conf *conf;
	struct mac_key key;
	struct reduce_cost cost;
	const struct popular_set *own;

	enum state state;
	MPI_Request request; /* of this state */
	struct {
		uint64_t pages, nr_without_memory;
	} sum; /* of all ranks */
	uint8_t *element;
	size_t len; /* of it: as that of the longest set there can be */
	MPI_Datatype type;
	MPI_Op op;
};

static _Thread_local struct reduction *reducing;

static void encode_element(const struct reduction *red, const struct popular_set *s, int error, uint8_t *ret)
{
	size_t len = popular_encoded_len(red->conf, s ? s->nr : 0);

	if (s)
		popular_encode(red->conf, s, ret + MAC_LEN);
	else
		popular_encode_error(red->conf, error, ret + MAC_LEN);
	mac_compute(&red->key, ret + MAC_LEN, len, ret);
}

static int decode_element(const struct reduction *red, const uint8_t *p, struct popular_set *ret)
{
	_cleanup_(popular_set_release) struct popular_set s = { 0 };
	int r = popular_decode(red->conf, p + MAC_LEN, red->len - MAC_LEN, &s);

	if (r < 0)
		return r;
	/* The number of bytes that the MAC covers is known now. */
	if (!mac_is_valid(&red->key, p + MAC_LEN, popular_encoded_len(red->conf, s.nr), p))
		return -EBADMSG;
	*ret = s;
	s = (struct popular_set){ 0 };
	return 0;
}

static int merge_elements(struct reduction *red, const uint8_t *in, uint8_t *inout)
{
	_cleanup_(popular_set_release) struct popular_set a = { 0 }, b = { 0 }, both = { 0 };
	int r;

	r = decode_element(red, in, &a);
	if (r == 0)
		r = decode_element(red, inout, &b);
	if (r == 0)
		r = popular_merge(red->conf, &a, &b, &both);
	if (r == 0)
		encode_element(red, &both, 0, inout);
	red->cost.merges++;
	red->cost.entries += a.nr + b.nr;
	return r;
}

static void merge_operation(void *in, void *inout, int *nr, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *nr; i++) {
		uint8_t *to = (uint8_t *)inout + (size_t)i * reducing->len;
		int r = merge_elements(reducing, (uint8_t *)in + (size_t)i * reducing->len, to);

		if (r < 0)
			encode_element(reducing, NULL, r, to);
	}
}

static size_t element_len(const struct merge_conf *conf, uint64_t nr)
{
	return MAC_LEN + popular_encoded_len(conf, MIN(nr, (uint64_t)conf->max));
}

/* Has room for the maximum before the size is known, so that all ranks receive both at once; unused room takes no
 * memory. */
static int start_sizes(struct reduction *red)
{
	red->element = calloc(1, element_len(red->conf, UINT64_MAX));
	red->sum.pages = red->own->nr;
	red->sum.nr_without_memory = !red->element;
	red->state = SIZES;
	return mpi_errno(MPI_Iallreduce(MPI_IN_PLACE, &red->sum, 2, MPI_UINT64_T, MPI_SUM, red->comm, &red->request),
			 "sizes");
}

static int start_merge(struct reduction *red)
{
	int rank, r;

	red->cost.pages = red->sum.pages;
	red->len = element_len(red->conf, red->sum.pages);
	if (red->sum.nr_without_memory > 0)
		return -ENOMEM;
	if (red->len > INT_MAX)
		return -EFBIG;
	encode_element(red, red->own, 0, red->element);
	red->cost.message_bytes = red->len;
	red->state = MERGE;
	r = mpi_errno(MPI_Comm_rank(red->comm, &rank), "rank");
	if (r == 0)
		r = mpi_errno(MPI_Type_contiguous((int)red->len, MPI_BYTE, &red->type), "type");
	if (r == 0)
		r = mpi_errno(MPI_Type_commit(&red->type), "type");
	if (r == 0)
		r = mpi_errno(MPI_Op_create(merge_operation, 1, &red->op), "operation");
	if (r < 0)
		return r;
	return mpi_errno(MPI_Ireduce(rank == 0 ? MPI_IN_PLACE : red->element, red->element, 1, red->type, red->op, 0,
				     red->comm, &red->request),
			 "reduction");
}

static int start_result(struct reduction *red)
{
	red->state = RESULT;
	return mpi_errno(MPI_Ibcast(red->element, 1, red->type, 0, red->comm, &red->request), "result");
}

/* The request of a state is done. */
static int start_next(struct reduction *red)
{
	switch (red->state) {
	case SIZES:
		return start_merge(red);
	case MERGE:
		return start_result(red);
	default:
		red->state = DONE;
		return 0;
	}
}

int reduction_begin(MPI_Comm comm, const struct merge_conf *conf, const struct mac_key *key,
		    const struct popular_set *own, struct reduction **ret)
{
	struct reduction *red = calloc(1, sizeof(*red));
	int r;

	if (!red)
		return -ENOMEM;
	*red = (struct reduction){
		.comm = comm,
		.conf = conf,
		.key = *key,
		.own = own,
		.request = MPI_REQUEST_NULL,
		.type = MPI_DATATYPE_NULL,
		.op = MPI_OP_NULL,
	};
	assert(!reducing);
	reducing = red;
	r = start_sizes(red);
	if (r < 0) {
		reduction_free(red);
		return r;
	}
	*ret = red;
	return 0;
}

int reduction_test(struct reduction *red)
{
	int is_done, r;

	if (red->state == DONE)
		return REDUCTION_DONE;
	r = mpi_errno(MPI_Test(&red->request, &is_done, MPI_STATUS_IGNORE), "round");
	if (r == 0 && is_done)
		r = start_next(red);
	return r < 0 ? r : red->state == DONE ? REDUCTION_DONE : is_done ? REDUCTION_GOES_ON : REDUCTION_WAITS;
}

int reduction_result(struct reduction *red, struct popular_set *ret, struct reduce_cost *cost)
{
	assert(red->state == DONE);
	*cost = red->cost;
	return decode_element(red, red->element, ret);
}

void reduction_free(struct reduction *red)
{
	if (!red)
		return;
	if (red->op != MPI_OP_NULL)
		MPI_Op_free(&red->op);
	if (red->type != MPI_DATATYPE_NULL)
		MPI_Type_free(&red->type);
	free(red->element);
	reducing = NULL;
	free(red);
}
