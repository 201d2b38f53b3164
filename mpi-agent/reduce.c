/*
 * A set is one element of a type of so many bytes, so that MPI cannot take it to pieces, and MPI_Reduce() merges elements with
 * our operation in a tree of its choice. Its result is of one tree, and another rank's tree would give other owners: hence not
 * MPI_Allreduce(), which may reduce on several ranks, but one result that is broadcast.
 *
 * The operation is called by MPI without anything of ours, cannot fail, and may be given any sets: what it needs is in a
 * variable of the thread, and a merge that fails becomes a set that says so.
 */
#include "mpi-agent/reduce.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/popular_format.h"

static _Thread_local struct {
	const struct merge_conf *conf;
	struct reduce_cost *cost;
	size_t len; /* of an element */
} reducing;

static int mpi_errno(int code, const char *what)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int len;

	if (code == MPI_SUCCESS)
		return 0;
	MPI_Error_string(code, text, &len);
	return log_errno(-EIO, "MPI: %s: %s", what, text);
}

static int merge_bytes(const void *in, void *inout)
{
	_cleanup_(popular_set_release) struct popular_set a = { 0 }, b = { 0 }, both = { 0 };
	int r;

	r = popular_decode(reducing.conf, in, reducing.len, &a);
	if (r == 0)
		r = popular_decode(reducing.conf, inout, reducing.len, &b);
	if (r == 0)
		r = popular_merge(reducing.conf, &a, &b, &both);
	if (r == 0)
		popular_encode(reducing.conf, &both, inout);
	reducing.cost->merges++;
	reducing.cost->entries += a.nr + b.nr;
	return r;
}

static void merge_operation(void *in, void *inout, int *nr, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *nr; i++) {
		void *to = (uint8_t *)inout + (size_t)i * reducing.len;
		int r = merge_bytes((uint8_t *)in + (size_t)i * reducing.len, to);

		if (r < 0)
			popular_encode_error(reducing.conf, r, to);
	}
}

/* As long as the longest set there can be. */
static int agree_on_len(MPI_Comm comm, const struct merge_conf *conf, size_t nr, size_t *ret)
{
	uint64_t sum = nr;
	int r = mpi_errno(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, comm), "sizes");

	if (r < 0)
		return r;
	*ret = popular_encoded_len(conf, MIN(sum, (uint64_t)conf->max));
	return *ret <= INT_MAX ? 0 : -EFBIG;
}

/* Everybody has memory for it, or nobody goes on. */
static int alloc_together(MPI_Comm comm, size_t len, uint8_t **ret)
{
	uint8_t *p = malloc(len);
	int all = p != NULL;
	int r = mpi_errno(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm), "memory");

	if (r == 0 && !all)
		r = -ENOMEM;
	if (r < 0) {
		free(p);
		return r;
	}
	*ret = p;
	return 0;
}

static int reduce_bytes(MPI_Comm comm, uint8_t *set, size_t len)
{
	MPI_Datatype type;
	MPI_Op op;
	int rank, r;

	r = mpi_errno(MPI_Comm_rank(comm, &rank), "rank");
	if (r < 0)
		return r;
	r = mpi_errno(MPI_Type_contiguous((int)len, MPI_BYTE, &type), "type");
	if (r < 0)
		return r;
	MPI_Type_commit(&type);
	r = mpi_errno(MPI_Op_create(merge_operation, 1, &op), "operation");
	if (r == 0) {
		r = mpi_errno(MPI_Reduce(rank == 0 ? MPI_IN_PLACE : set, set, 1, type, op, 0, comm), "reduction");
		MPI_Op_free(&op);
	}
	if (r == 0)
		r = mpi_errno(MPI_Bcast(set, 1, type, 0, comm), "result");
	MPI_Type_free(&type);
	return r;
}

int popular_reduce(MPI_Comm comm, const struct merge_conf *conf, const struct popular_set *own, struct popular_set *ret,
		   struct reduce_cost *cost)
{
	_cleanup_(freep) uint8_t *set = NULL;
	size_t len = 0;
	int r;

	*cost = (struct reduce_cost){ 0 };
	r = agree_on_len(comm, conf, own->nr, &len);
	if (r == 0)
		r = alloc_together(comm, len, &set);
	if (r < 0)
		return r;
	memset(set, 0, len);
	popular_encode(conf, own, set);
	reducing.conf = conf;
	reducing.cost = cost;
	reducing.len = len;
	r = reduce_bytes(comm, set, len);
	cost->message_bytes = len;
	return r < 0 ? r : popular_decode(conf, set, len, ret);
}
