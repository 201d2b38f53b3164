/*
 * All stripes of this store (fs/stripe.h): protect=xor. Several nodes have a copy of a directory that one of them, the
 * sender, has sealed, made of chunks that are elsewhere. Each of them, in its slot, covers its part of the chunks that
 * only the sender has: those whose fingerprint says so. A chunk that some copy needs is in a strip of a stripe whose
 * members all take part; so after the loss of any one node it is there, or can be rebuilt.
 *
 * Of a node there is one strip in a stripe, of a host as well, and none of this one's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "fs/stripe.h"

struct ns_copy;
struct service_world;
struct stripes;

int stripes_new(struct fs *fs, struct stripes **ret); /* borrows it */
void stripes_free(struct stripes *s); /* NULL is fine */

/*
 * What that copy needs, and does not have covered yet: so it is, durably, when this returns. One at a time, and not
 * beside stripes_sweep(). Memory: 40 bytes for each chunk that the stripes have, and 32 MiB. Errors as those of
 * stripe_add(); -EHOSTUNREACH: the sender does not take part.
 */
int stripes_cover(struct stripes *s, const struct stripe_io *io, const struct service_world *w, uint64_t top,
		  const struct ns_copy *c);
/* It is noted which part of that copy this node covers, as it was told when it covered it: nothing else is needed any
 * more. Until then stripes_sweep() leaves both parts. */
void stripes_settled(struct stripes *s, uint64_t top);
/* Stripes of which no copy needs any chunk go. */
int stripes_sweep(struct stripes *s, const struct service_world *w);
struct stripes_figures {
	size_t nr;
	uint64_t parity_bytes, covered_bytes; /* what they store, and what they cover */
};
int stripes_figures(struct stripes *s, struct stripes_figures *ret);
/* Of chunks that nobody has any more (got: it is there already), those that can be made of what is left; compared with
 * their fingerprints. Any thread. */
int stripes_rebuild(struct stripes *s, const struct stripe_io *io, const struct service_world *w,
		    struct cluster_want *wants, size_t nr);
