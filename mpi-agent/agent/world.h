/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The session of all agents of a cluster. Collective: all ranks of MPI_COMM_WORLD enter together, or none does.
 *
 * Every node sends a card with a fresh nonce, and then a proof, a MAC with the cluster's key over the cards of all
 * nodes. A node with another key, or that has received other cards, cannot compute it. The session keys are derived
 * from the same: messages of an earlier session are not valid in this one. The cluster's key itself is never sent.
 */
#pragma once

#include <mpi.h>
#include <stdint.h>

#include "mpi-agent/wire/link_format.h"
#include "mpi-agent/wire/mac.h"

struct world {
	uint32_t rank, nr;
	MPI_Comm rounds, messages; /* separate: collective operations, and messages */
	struct link_node *nodes; /* by rank */
	uint32_t *hosts;
	uint32_t *by_store; /* ranks */
	uint32_t replicas;
	uint64_t popular_max; /* the smallest of all nodes */
	struct mac_key message_key, set_key, stored_key;
};

/* Name of this host: CKPTFS_AGENT_HOST, or that of MPI. */
void world_host(char ret[LINK_NAME_LEN]);
/* `w` is NULL if there is no daemon (`error`), which is then sent to all ranks. Mismatches are logged on all ranks:
 * -EINVAL; -ENOMEM, -EIO. */
int world_enter(const struct link_welcome *w, int error, struct world *ret);
void world_release(struct world *w); /* does not call MPI, whose end frees the communicators */
/* The rank of a store. 1/0 */
int world_find(const struct world *w, const uint8_t store_id[16], uint32_t *ret);
