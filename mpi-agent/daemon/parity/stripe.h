/*
 * A stripe: what one node keeps so that several others need not be copied. Of each of these, its members, it names
 * chunks that only that node has, one behind the other: a strip. What it stores is the parity, all strips added bit by
 * bit, shorter ones as if zeros followed. Whatever one member loses is the parity and what the others have at the same
 * place, added.
 *
 * It is a tree of this store like a copy of another node's directory (fs/nodes.h), all or nothing likewise: a file
 * "parity", and for each member a file by the id of its node whose chunks are those of its strip, elsewhere. So these
 * stay lent for as long as the stripe is there, collections and fsck know it as they know any other tree, and there is
 * no other record.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/engine/cluster.h"

struct fs;

#define STRIPE_MEMBERS_MAX 7u
#define STRIP_CHUNKS_MAX 65536u /* of a strip, ... */
#define STRIP_BYTES_MAX (UINT64_C(256) << 20) /* so that adding to a stripe stays bounded */

/* How chunks come that are not here: as struct cluster_calls has it, from nodes that have them whole. */
struct stripe_io {
	struct fs *fs;
	int (*fetch)(void *userdata, struct cluster_want *wants, size_t nr);
	void *userdata;
};

struct stripe {
	uint64_t top, number; /* the tree, and what its note calls it */
	uint64_t parity, len; /* inode and length */
	uint32_t nr;
	struct stripe_member {
		uint8_t node[CLUSTER_ID_LEN];
		uint64_t ino, len;
	} members[STRIPE_MEMBERS_MAX];
};

/* All of the store, for the caller to free. -EBADMSG: one is not as it should be (logged). */
int stripe_load_all(struct fs *fs, struct stripe **ret, size_t *ret_nr);

/* A chunk of a strip. */
struct strip_chunk {
	struct fp fp;
	uint32_t len;
};
/* Those of a member, or of parity, each with where it lies: what is not 0 ends it. */
int strip_each(struct fs *fs, uint64_t ino, int (*each)(void *userdata, const struct strip_chunk *c, uint64_t off),
	       void *userdata);

/*
 * A stripe of `old`, or of none if that is NULL, and one more member, which has these chunks; durable when this
 * returns, in place of the old one, whose tree the caller drops. `node` is no member yet. -EIO: a chunk cannot be had;
 * -EAGAIN, -ESTALE: nodes collect together, or have meanwhile. Long.
 */
int stripe_add(const struct stripe_io *io, const struct stripe *old, const struct cluster_node *node,
	       const struct strip_chunk *chunks, size_t nr);
int stripe_drop(struct fs *fs, const struct stripe *s);

/* What a member has, or had, at `off` of its strip, from all the others: *failed is set if something cannot be had. */
struct stripe_range {
	const struct stripe *s;
	uint32_t member;
	uint64_t off;
	uint32_t len;
	uint8_t *to;
	bool failed;
};
int stripe_rebuild(const struct stripe_io *io, struct stripe_range *ranges, size_t nr); /* -ENOMEM */
