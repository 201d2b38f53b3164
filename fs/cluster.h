/*
 * The mount's part in a cluster: what connects the engine with the agent of the node (mpi-agent/service.h). Only stores that were made with
 * cluster= have one; all others are mounted as if this were not here.
 */
#pragma once

#include <stdbool.h>

struct cluster;
struct cluster_calls;
struct engine;
struct options;
struct service_stats;

/* In this order: new, open the engine with its calls, start, stop, close the engine, free. */
int cluster_new(struct cluster **ret);
const struct cluster_calls *cluster_engine_calls(struct cluster *c);
/* Await the agent at o->agent, or in the directory `store`. -EINVAL: o->agent, but the store is of no cluster. Logs. */
int cluster_start(struct cluster *c, struct engine *e, const char *store, const struct options *o);
/* What waits for a round is committed, with one if an agent is there, and then there is none any more. NULL is fine. */
void cluster_stop(struct cluster *c);
void cluster_free(struct cluster *c); /* NULL is fine */

/* false: the store is of no cluster. */
bool cluster_stats(struct cluster *c, struct service_stats *ret);
