/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Replicas: read-only copies of directories that other nodes have sealed.
 *
 * A replica is an ordinary, sealed tree of this store: inodes, names, recipes. Garbage collection, fsck and crash
 * recovery treat it like any other. But its top has no name, so it is not reachable from the root; an ns_replica record
 * identifies its origin. mpi-agent/daemon/nodes/node_view.h makes it visible. Its files refer to chunks by their
 * fingerprints: those in this store are shared; the others are remote, on the nodes that the caller names, and are
 * fetched when read.
 *
 * A replica exists completely or not at all; replica.c describes the order. There may be two of one directory: one kept
 * for its node, which is dropped only at the request of that node or the node that took its place; and one cached on
 * access, of another seal, or of the same seal while users are in it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "index/namespace_table.h"
#include "store/remote/cluster_calls.h"

struct fs;

struct nodes_origin {
	uint8_t id[CLUSTER_ID_LEN];
	char name[64];
};

struct nodes_seal {
	struct nodes_origin from;
	uint64_t ino; /* of the directory on its node */
	int64_t sealed_ns;
	const char *path; /* from that node's root; "": the root itself is sealed */
	bool cached; /* may be dropped at any time */
	bool is_stripe; /* a stripe, not a replica: `from` is this store, `ino` the number of the stripe */
	uint8_t slot, nr_slots; /* as in struct ns_replica, ... */
	const uint8_t *sender; /* if nr_slots > 0 */
};

/*
 * Source of a catalog's bytes (store/catalog/catalog_format.h), in order. Returns their number, up to len;
 * 0: end; <0.
 */
struct nodes_source {
	ssize_t (*read)(void *userdata, void *buf, size_t len);
	void *userdata;
};

/*
 * Create a replica. Durable on return. It replaces an older replica of the same directory of the same node; but a
 * cached one never replaces a kept one. Chunks that are not known here are assumed to be on `owner`. Long; any thread.
 * Memory: 96 bytes per directory and 8 per file, plus 1 MiB.
 *   -EEXIST     the same seal is already kept here; nothing was created
 *   -EBADMSG    the catalog, which is not trusted, is malformed or describes another directory or seal than `s`
 *   -EINVAL     the name or path in `s` is invalid, or it is this node
 *   -E2BIG      more than SEAL_INODES_MAX inodes
 *   -EAGAIN     a collection of all nodes did not end for long
 *   -EROFS, -ENOSPC, and whatever `read` returns
 */
int nodes_take(struct fs *fs, const struct nodes_seal *s, const struct nodes_source *catalog,
	       const struct cluster_node *owner, uint64_t *ret_top); /* ret_top may be NULL */
/*
 * Drop all replicas of that directory sealed at or before that time. 0 also if there is none. Open files stay readable,
 * like deleted ones.
 */
int nodes_drop(struct fs *fs, const struct nodes_origin *from, uint64_t ino, int64_t sealed_ns);
int nodes_drop_replica(struct fs *fs, uint64_t top); /* likewise, only this one */
bool nodes_is_looked_at(struct fs *fs, uint64_t top); /* referenced by the kernel or a request */
/* The next complete replica after `after` (0 or a top): 1/0/<0. */
int nodes_next(struct fs *fs, uint64_t after, uint64_t *ret_top, struct ns_replica *ret);
int nodes_next_stripe(struct fs *fs, uint64_t after, uint64_t *ret_top, struct ns_replica *ret); /* likewise */
/* Record the slot that this node covers for a kept replica, and its sender. Durable with the next sync. */
int nodes_set_slots(struct fs *fs, uint64_t top, uint8_t slot, uint8_t nr_slots, const uint8_t sender[CLUSTER_ID_LEN]);
/*
 * Set the permissions of group and others of a replica's top (CATALOG_ACCESS), and its access list accordingly. Durable
 * with the next sync. -EROFS, unless they are already set.
 */
int nodes_set_access(struct fs *fs, uint64_t top, uint32_t access);

/* At mount: remove replicas that were being created or removed when the last mount ended. */
int nodes_clear(struct fs *fs);
