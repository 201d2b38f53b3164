/* What this node has for others: chunks, and copies of directories that they have sealed. Called by the service
 * (mpi-agent/service.h), one at a time. */
#pragma once

#include <stdint.h>

struct cluster_node;
struct fs;
struct link_copy;
struct link_drop;
struct link_put;
struct service_world;
struct stripe_io;

/* `nodes` are those that take part. */
int keeper_keep(struct fs *fs, const struct link_put *put, const struct cluster_node *nodes, uint32_t nr_nodes,
		uint8_t *kept);
/* -ESTALE: not all chunks of it are here, or with others than who sends it. With slots these are nobody's but the
 * sender's, perhaps, and keeper_cover() is to follow. */
int keeper_copy(struct fs *fs, const struct link_copy *copy, const struct cluster_node *nodes, uint32_t nr_nodes);
/*
 * What a copy with slots needs, which is here, and whose chunks its sender has lent since, is covered (fs/stripes.h).
 * When all have done so, and after the drop of a copy: what none needs any more goes. -ESTALE: there is no such copy.
 */
int keeper_cover(struct fs *fs, const struct link_copy *copy, const struct stripe_io *io, const struct service_world *w);
int keeper_settle(struct fs *fs, const struct link_copy *copy, const struct service_world *w);
int keeper_uncover(struct fs *fs, const struct service_world *w);
/* -EHOSTDOWN: of one that is abandoned, its node may come back, as far as this one was told. */
int keeper_drop(struct fs *fs, const struct link_drop *drop);
