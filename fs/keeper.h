/* What this node has for others: chunks, and copies of directories that they have sealed. Called by the service (mpi-agent/service.h), one at a time. */
#pragma once

#include <stdint.h>

struct cluster_node;
struct fs;
struct link_copy;
struct link_drop;
struct link_put;

/* `nodes` are those that take part. */
int keeper_keep(struct fs *fs, const struct link_put *put, const struct cluster_node *nodes, uint32_t nr_nodes, uint8_t *kept);
/* -ESTALE: not all chunks of it are here, or with others than who sends it. */
int keeper_copy(struct fs *fs, const struct link_copy *copy, const struct cluster_node *nodes, uint32_t nr_nodes);
int keeper_drop(struct fs *fs, const struct link_drop *drop);
