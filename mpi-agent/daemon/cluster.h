/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The cluster side of a mount: connects the engine with the agent of the node (mpi-agent/daemon/service.h). Only stores
 * created with cluster= use it; all others are mounted as if it did not exist.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cluster;
struct cluster_calls;
struct cluster_collection;
struct buf;
struct cluster_node;
struct fs;
struct options;
struct service;
struct service_stats;

/* Order of calls: new, open the engine with its calls, start, stop, close the engine, free. */
int cluster_new(struct cluster **ret);
const struct cluster_calls *cluster_engine_calls(struct cluster *c);
/*
 * Listen for the agent at o->agent, or in the directory `store`. -EINVAL: o->agent, o->protect or o->compact_group is
 * set but the store belongs to no cluster. Logs.
 */
int cluster_start(struct cluster *c, struct fs *fs, const char *store, const struct options *o);
/* Commit deferred data, with a round if an agent is connected, then disconnect it. NULL is fine. */
void cluster_stop(struct cluster *c);
void cluster_free(struct cluster *c); /* NULL is fine */

struct service *cluster_service(struct cluster *c); /* NULL: the store belongs to no cluster */

/*
 * -EOPNOTSUPP: the store belongs to no cluster; -ENOTCONN: no agent is connected, or it has disconnected; -ECANCELED:
 * goes_on() returned false. Long.
 */
int cluster_collect(struct cluster *c, bool (*goes_on)(void *userdata), void *userdata, struct cluster_collection *ret);

/* false: the store belongs to no cluster. */
bool cluster_stats(struct cluster *c, struct service_stats *ret);

/* --- for mpi-agent/daemon/nodes/node_view.h --- */

#define CLUSTER_NAME_LEN 64u
/* Name of this node; "" if the store belongs to no cluster. */
void cluster_name(struct cluster *c, char ret[CLUSTER_NAME_LEN]);
/* Connected nodes, which the caller frees; none without an agent. *ret_self: index of this one, if there are any. */
int cluster_nodes(struct cluster *c, struct cluster_node **ret, uint32_t *ret_nr, uint32_t *ret_self);
/* Register the connected nodes: they may refer to chunks of this store from now on. */
int cluster_register_peers(struct cluster *c);
/* service_ask() */
int cluster_ask(struct cluster *c, const uint8_t *id, const void *question, size_t len, struct buf *ret);
