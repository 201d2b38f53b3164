/*
 * Who takes part. Collective: all ranks of MPI_COMM_WORLD enter together, or none does.
 *
 * Every node shows a card with a fresh random number, and then a proof, made with the cluster's key, that it has seen
 * the cards of all. Who has another key, or was shown other cards, cannot make it. The keys of this world are made of
 * the same: messages of an earlier one are nothing in it. The cluster's key itself stays where it is.
 */
#pragma once

#include <mpi.h>
#include <stdint.h>

#include "mpi-agent/link_format.h"
#include "mpi-agent/seal.h"

struct world {
	uint32_t rank, nr;
	MPI_Comm rounds, messages; /* what is collective, and what is not, do not get in each other's way */
	struct link_node *nodes; /* by rank */
	uint32_t *hosts;
	uint32_t *by_store; /* ranks */
	uint32_t replicas;
	uint64_t popular_max; /* the least of all */
	struct seal_key message_key, set_key, stored_key;
};

/* The name that a node's host goes by: CKPTFS_AGENT_HOST, or what MPI says. */
void world_host(char ret[LINK_NAME_LEN]);
/* `w` is NULL if there is no daemon (`error`), which is then told to all. What is wrong is logged on all ranks:
 * -EINVAL; -ENOMEM, -EIO. */
int world_enter(const struct link_welcome *w, int error, struct world *ret);
void world_release(struct world *w); /* without MPI: communicators end with it */
/* The rank of a store. 1/0 */
int world_find(const struct world *w, const uint8_t store_id[16], uint32_t *ret);
