/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The reduction of popular_merge.h over all nodes of a round. Collective: every rank of `comm` begins it, with the same conf
 * and key, one after the other. */
#pragma once

#include <mpi.h>

#include "mpi-agent/popular/popular_merge.h"

struct mac_key;

/* What a rank has sent and done, exactly: times are noisy. */
struct reduce_cost {
	uint64_t merges; /* that this rank has done */
	uint64_t entries; /* that went into them */
	uint64_t pages; /* that all ranks brought together; one that several did is counted for each */
	uint64_t message_bytes; /* of each message on the way up, and of the one that comes down */
};

/* One that is under way. A thread has one at a time. */
struct reduction;

/*
 * `conf` and `own` are borrowed until it is freed. A rank that cannot begin (-ENOMEM, -EIO) leaves the others waiting:
 * its world is to end. What fails later on one rank (-ENOMEM; -EBADMSG: wrong MAC; -EIO: MPI has failed)
 * fails on all, if MPI still works. log2(ranks) messages up, and as many down.
 */
int reduction_begin(MPI_Comm comm, const struct merge_conf *conf, const struct mac_key *key,
		    const struct popular_set *own, struct reduction **ret);
enum { REDUCTION_WAITS, REDUCTION_DONE, REDUCTION_GOES_ON /* a step further */ };
int reduction_test(struct reduction *red); /* One of these; -EIO is the end of MPI here. */
/* Once it is done: the result is the same on all ranks. */
int reduction_result(struct reduction *red, struct popular_set *ret, struct reduce_cost *cost);
void reduction_free(struct reduction *red); /* done, or failed; NULL is fine */
