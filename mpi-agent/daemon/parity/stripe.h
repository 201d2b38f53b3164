/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A stripe: parity that one node stores so that several other nodes, its members, need no full copies. For each member
 * it lists chunks that only that node has, one after the other: a strip. The parity is the XOR of all strips, shorter
 * ones padded with zeros. The bytes that one member loses are the XOR of the parity and the other strips at the same
 * offset.
 *
 * It is a tree of this store like a replica (mpi-agent/daemon/replica/replica.h), created atomically in the same way: a
 * file "parity", and for each member a file named by the id of its node, which refers to the remote chunks of its
 * strip. So these stay pinned as long as the stripe exists, garbage collection and fsck treat it as any other tree, and
 * no other record is needed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/remote/cluster_calls.h"

struct fs;

#define STRIPE_MEMBERS_MAX 7u
#define STRIP_CHUNKS_MAX 65536u /* limits of a strip, ... */
#define STRIP_BYTES_MAX (UINT64_C(256) << 20) /* which bound the cost of adding to a stripe */

/* Fetches chunks that are not here, as in struct cluster_calls, from nodes that store them in full. */
struct stripe_io {
	struct fs *fs;
	int (*fetch)(void *userdata, struct cluster_want *wants, size_t nr);
	void *userdata;
};

struct stripe {
	uint64_t top, number; /* top of the tree, and the number in its ns_replica */
	uint64_t parity, len; /* inode and length */
	uint32_t nr;
	struct stripe_member {
		uint8_t node[CLUSTER_ID_LEN];
		uint64_t ino, len;
	} members[STRIPE_MEMBERS_MAX];
};

/* All stripes of the store, which the caller frees. -EBADMSG: one is malformed (logged). */
int stripe_load_all(struct fs *fs, struct stripe **ret, size_t *ret_nr);

/* A chunk of a strip. */
struct strip_chunk {
	struct fp fp;
	uint32_t len;
};
/* Iterate over the chunks of a member or of the parity, with their offsets. A result other than 0 ends it. */
int strip_each(struct fs *fs, uint64_t ino, int (*each)(void *userdata, const struct strip_chunk *c, uint64_t off),
	       void *userdata);

/*
 * Create a stripe of the members of `old` (NULL: none) and one more, which has these chunks. It is durable on return
 * and replaces the old one; the caller drops the old tree. `node` must not be a member yet. -EIO: a chunk cannot be
 * fetched; -EAGAIN, -ESTALE: all nodes are collecting, or have collected meanwhile. Long.
 */
int stripe_add(const struct stripe_io *io, const struct stripe *old, const struct cluster_node *node,
	       const struct strip_chunk *chunks, size_t nr);
int stripe_drop(struct fs *fs, const struct stripe *s);

/* Rebuild bytes of a member at `off` of its strip from the others. Sets *failed if a chunk cannot be fetched. */
struct stripe_range {
	const struct stripe *s;
	uint32_t member;
	uint64_t off;
	uint32_t len;
	uint8_t *to;
	bool failed;
};
int stripe_rebuild(const struct stripe_io *io, struct stripe_range *ranges, size_t nr); /* -ENOMEM */
