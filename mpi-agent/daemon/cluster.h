/*
 * The mount's part in a cluster: what connects the engine with the agent of the node (mpi-agent/service.h). Only stores
 * that were made with cluster= have one; all others are mounted as if this were not here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cluster;
struct cluster_calls;
struct buf;
struct cluster_node;
struct fs;
struct options;
struct service;
struct service_stats;

/* In this order: new, open the engine with its calls, start, stop, close the engine, free. */
int cluster_new(struct cluster **ret);
const struct cluster_calls *cluster_engine_calls(struct cluster *c);
/* Await the agent at o->agent, or in the directory `store`. -EINVAL: o->agent or o->protect, but the store is of no
 * cluster. Logs. */
int cluster_start(struct cluster *c, struct fs *fs, const char *store, const struct options *o);
/* What waits for a round is committed, with one if an agent is there, and then there is none any more. NULL is fine. */
void cluster_stop(struct cluster *c);
void cluster_free(struct cluster *c); /* NULL is fine */

struct service *cluster_service(struct cluster *c); /* NULL: the store is of no cluster */

/* How a collection of all nodes has ended. */
struct cluster_collected {
	uint64_t nr_kept, kept_bytes; /* of what nodes have lent: others refer to it */
	uint64_t nr_dropped, dropped_bytes; /* nobody does any more */
	int error; /* of a node; 0 or negative */
	/* the name of a node that is away, and may refer to what others have: nothing was dropped. Empty: none */
	char missing[64];
};
/* -EOPNOTSUPP: the store is of no cluster; -ENOTCONN: no agent is there, or it has gone meanwhile; -ECANCELED:
 * goes_on(). Long. */
int cluster_collect(struct cluster *c, bool (*goes_on)(void *userdata), void *userdata, struct cluster_collected *ret);

/* false: the store is of no cluster. */
bool cluster_stats(struct cluster *c, struct service_stats *ret);

/* --- for fs/view.h --- */

#define CLUSTER_NAME_LEN 64u
/* What this node is called; "" if the store is of no cluster. */
void cluster_name(struct cluster *c, char ret[CLUSTER_NAME_LEN]);
/* Nodes that take part now, for the caller to free; none without an agent. *ret_self: this one, if there are any. */
int cluster_nodes(struct cluster *c, struct cluster_node **ret, uint32_t *ret_nr, uint32_t *ret_self);
/* They may refer to what this store has, from now on. */
int cluster_meet(struct cluster *c);
/* service_ask() */
int cluster_ask(struct cluster *c, const uint8_t *id, const void *question, size_t len, struct buf *ret);
