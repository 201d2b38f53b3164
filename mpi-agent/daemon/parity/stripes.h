/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * All stripes of this store (mpi-agent/daemon/parity/stripe.h): protect=xor. Several nodes have a replica, made of
 * remote chunks, of a directory that another node, the sender, has sealed. Each covers its slot: the part of the chunks
 * stored only by the sender that is selected by their fingerprints. A chunk that a replica needs is in a strip of a
 * stripe with all members connected. So after the loss of any one node it exists or can be rebuilt.
 *
 * A stripe has at most one strip per node and per host, and none of this node or its host.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mpi-agent/daemon/parity/stripe.h"

struct ns_replica;
struct service_world;
struct stripes;

int stripes_new(struct fs *fs, struct stripes **ret); /* borrows fs */
void stripes_free(struct stripes *s); /* NULL is fine */

/*
 * Cover the chunks that this replica needs and that are not covered yet; durable on return. One call at a time, and not
 * concurrent with stripes_sweep(). Memory: 40 bytes per chunk of all stripes, and 32 MiB. Errors as of stripe_add();
 * -EHOSTUNREACH: the sender is not connected.
 */
int stripes_cover(struct stripes *s, const struct stripe_io *io, const struct service_world *w, uint64_t top,
		  const struct ns_replica *c);
/*
 * The slot covered by stripes_cover() has been recorded in the replica: from now on only that slot is needed. Until
 * then stripes_sweep() keeps both the recorded and the newly covered one.
 */
void stripes_settled(struct stripes *s, uint64_t top);
/* Drop stripes of which no replica needs a chunk. */
int stripes_sweep(struct stripes *s, const struct service_world *w);
struct stripes_figures {
	size_t nr;
	uint64_t parity_bytes, covered_bytes; /* stored by the stripes, and covered by them */
};
int stripes_figures(struct stripes *s, struct stripes_figures *ret);
/*
 * Rebuild chunks that no node stores any more (got: already present) from those that are left, and verify their
 * fingerprints. Any thread.
 */
int stripes_rebuild(struct stripes *s, const struct stripe_io *io, const struct service_world *w,
		    struct cluster_want *wants, size_t nr);
