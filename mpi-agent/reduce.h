/* The reduction of merge.h over all nodes of a round. Collective: every rank of `comm` calls it, with the same conf. */
#pragma once

#include <mpi.h>

#include "mpi-agent/merge.h"

/* What a rank has sent and done, exactly: times are noisy. */
struct reduce_cost {
	uint64_t merges; /* that this rank has done */
	uint64_t entries; /* that went into them */
	uint64_t message_bytes; /* of each message on the way up, and of the one that comes down */
};

/*
 * `ret` is the same on all ranks. What fails on one (-ENOMEM, -EIO: MPI has failed) fails on all, if MPI still works.
 * log2(ranks) messages up, and as many down.
 */
int popular_reduce(MPI_Comm comm, const struct merge_conf *conf, const struct popular_set *own, struct popular_set *ret,
		   struct reduce_cost *cost);
