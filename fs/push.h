/*
 * One sealed directory to another node, so that it has all of it: chunks, and a catalog of which it makes a copy
 * (fs/nodes.h).
 *
 * A chunk that this store has is safe once the other node has it, too: whom that believes to have it does not count,
 * for it may have a copy of a directory whose chunks are elsewhere again. One that this store has elsewhere is safe if
 * two nodes that take part have it, on different hosts, of which the other node may be one, or which it refers to as
 * this one does; who is only believed to have it (store/engine/cluster.h) is asked. All other chunks are sent there,
 * those that are elsewhere fetched before; what only the other node, or its host, would have then is kept here, too. So
 * whatever host is lost, a node is left that has each.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/engine/cluster.h"

struct fs;
struct link_copy;
struct service;
struct service_world;

struct push_figures {
	uint64_t asked; /* chunks of the directory, in batches without repetitions */
	uint64_t chunks, bytes; /* sent */
};

struct push {
	struct fs *fs;
	struct service *service;
	const struct service_world *world; /* borrowed */
	uint32_t to; /* of the world */
	bool (*goes_on)(void *userdata); /* asked now and then */
	void *userdata;
};

/*
 * The directory `dir` of this store, as copy->origin, name, ino, sealed_ns and path say; the rest of *copy is filled in
 * on the way. *figures is added to. Long. -ENODATA, -ESTALE: it is not sealed, or not any more. -ESTALE too: something
 * that the other node was to have it gave up meanwhile; -EAGAIN: nodes collect together. Both may do better when they
 * are tried again. -ENOTCONN: no agent, or it has gone; -EHOSTUNREACH: the other node has. -ECANCELED: goes_on(). -EIO:
 * something of it cannot be read. All else is the other node's error.
 */
int push_directory(const struct push *p, uint64_t dir, struct link_copy *copy, struct push_figures *figures);
/* The same for a node that is to have it in place of this one (fs/hand_over.h): what is elsewhere need not be here,
 * too. */
int push_over(const struct push *p, uint64_t dir, struct link_copy *copy, struct push_figures *figures);
/* Which of these chunks, LINK_CHUNKS_MAX at most, has that node? LINK_IS_HERE: durable, and lent from now on; others as
 * LINK_KEPT has them. */
int push_ask(const struct push *p, const uint8_t *node, const struct cluster_want *wants, size_t nr, uint8_t *ret_kept);
/*
 * The same without its chunks, in four steps, since what is covered (fs/stripes.h) must not go afterwards, nor what
 * covered it before:
 *   1. each of several nodes, in copy->slot of nr_slots, makes a copy, and refers to chunks that only this one has;
 *   2. chunks that would be lost with one other node are brought here, all that are here are lent, and it is looked
 *      whether the directory is still sealed: `to` does not matter;
 *   3. each of them covers those of its part;
 *   4. each of them may let go what the copy does not need any more.
 * Errors likewise.
 */
int push_catalog(const struct push *p, uint64_t dir, struct link_copy *copy, struct push_figures *figures);
int push_hold(const struct push *p, uint64_t dir, struct link_copy *copy);
int push_cover(const struct push *p, struct link_copy *copy);
int push_settle(const struct push *p, struct link_copy *copy);
/* The other node's copy is not wanted any more; `abandons`: by nobody (fs/abandon.h). */
int push_drop(const struct push *p, const uint8_t origin[CLUSTER_ID_LEN], const char *name, uint64_t ino,
	      int64_t sealed_ns, bool abandons);
