/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Protection of sealed directories against the loss of a node. A thread sends what is sealed here to this node's
 * partner (mpi-agent/daemon/replica/replica_send.h) as soon as an agent is connected, and drops there what is no longer
 * sealed. With protect=xor, several nodes hold the catalog and parity of the chunks that only one node stores
 * (mpi-agent/daemon/parity/stripes.h). Guard records say which node holds what (index/guards.h).
 *
 * The partner is the next node on another host in the circular order of store ids. Nodes that join later may change the
 * partner for later seals; a replica stays with its node as long as that is connected. A replica counts while its node
 * is not connected, until protect_repair().
 *
 * With compact_group= directories go to the gathering nodes of this node's group instead, and this node releases its
 * own chunks (mpi-agent/daemon/replica/gather_group.h). With one gathering node that is no protection.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fs/mount_options.h"

struct fs;
struct protect;
struct service;

struct protect_status {
	enum protect_mode mode;
	uint64_t nr_sealed, nr_protected; /* directories of this store, as of the last pass */
	/* time of the oldest seal of a directory that no other node has; 0: none, or not requested. Known without an
	 * agent, too */
	uint64_t unprotected_since_ns;
	uint64_t nr_rereplicated; /* replicas of lost nodes' directories that were re-replicated */
	uint64_t chunks, bytes; /* sent since the mount */
	bool is_busy;
	bool has_no_agent; /* no agent is connected */
	int error; /* of the last directory that could not be protected; 0: none, or not tried yet */
	uint64_t nr_repaired; /* number of completed protect_repair() requests */
};

/* A directory that could not be protected. */
struct protect_failure {
	int error; /* -EIO: connected nodes do not have all of it */
	char node[64], path[4096]; /* owning node, and path there */
};

int protect_new(struct fs *fs, const struct options *o, struct protect **ret); /* borrows fs */
/* NULL: the store belongs to no cluster, and nothing happens */
int protect_start(struct protect *p, struct service *service);
/* Call before stopping the service. Unfinished work is done by the next mount. NULL is fine. */
void protect_stop(struct protect *p);
void protect_free(struct protect *p); /* NULL is fine */

/* A directory was sealed or unsealed, or nodes have connected. Returns at once. */
void protect_wake(struct protect *p);
/*
 * Re-replicate: nodes that are not connected now are considered lost, and their replicas are created on other nodes.
 * All seals of this store are checked, and replicas of directories of lost nodes are sent to another node. Returns at
 * once with a number; when nr_repaired reaches it, everything is done except what protect_failed() lists. -EOPNOTSUPP:
 * the store belongs to no cluster; -ENOTCONN: no agent is connected.
 */
int protect_repair(struct protect *p, uint64_t *ret);
/* The first PROTECT_FAILED_MAX directories that could not be protected in the last pass: 1/0 */
#define PROTECT_FAILED_MAX 64u
int protect_failed(struct protect *p, uint32_t number, struct protect_failure *ret);
/*
 * Declare a node permanently lost: its replicas are created on another node, and parts of its directories that no node
 * has any more are not a failure. -ENOENT: unknown; -EBUSY: connected; -EOPNOTSUPP
 */
int protect_forget(struct protect *p, const char *name);
/*
 * State of a sealed directory. 0: another node has all of it. -EAGAIN: not yet; -EOPNOTSUPP: protect=none; -ENODATA:
 * not sealed; -ENOTCONN: no agent is connected; -EHOSTUNREACH: no node on another host; -EHOSTDOWN: the holder is not
 * connected and may be lost; others: result of the last attempt. It is retried in each case except 0, -EOPNOTSUPP,
 * -ENODATA and -EHOSTDOWN; the last needs protect_repair().
 */
int protect_state(struct protect *p, uint64_t dir);
/*
 * The same for compact_group=: 0: the gathering nodes have it, and this node, unless it is one of them, has released
 * its chunks. -EOPNOTSUPP: without that option.
 */
int protect_gathered(struct protect *p, uint64_t dir);
void protect_status(struct protect *p, struct protect_status *ret);
