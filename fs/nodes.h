/*
 * Copies of directories that other nodes have sealed.
 *
 * A copy is an ordinary, sealed tree of this store: inodes, names, recipes. Collections, fsck and crash recovery treat
 * it like any other. But its top has no name, so that no way leads to it from the root; it is known by a note (struct
 * ns_copy) that says whose it is. fs/view.h shows it. Its files are made of chunks by their fingerprints: those that
 * this store has are shared, the others are elsewhere, with the nodes that the caller names, and fetched when read.
 *
 * A copy is there whole, or not at all: nodes.c tells in which order. Of one directory there may be two: one that is
 * kept for its node, which goes only when that node, or who has it in its place, says so; and one that was made because
 * somebody looked, of another seal, or of the same for as long as he is in it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "index/namespace.h"
#include "store/engine/cluster.h"

struct fs;

struct nodes_origin {
	uint8_t id[CLUSTER_ID_LEN];
	char name[64];
};

struct nodes_seal {
	struct nodes_origin from;
	uint64_t ino; /* of the directory there */
	int64_t sealed_ns;
	const char *path; /* from that node's root; "": that is sealed itself */
	bool cached; /* a copy that may go at any time */
	bool is_stripe; /* no copy: `from` is this store, and `ino` the stripe's number */
	uint8_t slot, nr_slots; /* as struct ns_copy has them, ... */
	const uint8_t *sender; /* if nr_slots > 0 */
};

/* A catalog's bytes (fs/catalog_format.h), one behind the other. How many there are, up to len; 0: no more; <0. */
struct nodes_source {
	ssize_t (*read)(void *userdata, void *buf, size_t len);
	void *userdata;
};

/*
 * Durable when this returns, in place of an older copy of the same directory of the same node; but a cached one never
 * in place of one that is kept. -EEXIST: the same seal is kept here already, and nothing was made. Nothing in the catalog
 * is trusted: -EBADMSG, also if it is another directory's or another seal's than `s` says. -EINVAL: what `s` says is no
 * name or no path, or it is this node. -E2BIG: more than SEAL_INODES_MAX inodes. -EAGAIN: nodes collect together, and
 * did not come to an end for long. -EROFS, -ENOSPC; whatever `read` returns. What is not known here `owner` is believed
 * to have. Long; any thread. Memory for each directory and file, 96 and 8 bytes, beside 1 MiB.
 */
int nodes_take(struct fs *fs, const struct nodes_seal *s, const struct nodes_source *catalog,
	       const struct cluster_node *owner, uint64_t *ret_top); /* ret_top: NULL is fine */
/* All copies of that directory that was sealed then, or before. 0 also if there is none. What somebody has open stays
 * readable for him, like a file that is deleted. */
int nodes_drop(struct fs *fs, const struct nodes_origin *from, uint64_t ino, int64_t sealed_ns);
int nodes_drop_copy(struct fs *fs, uint64_t top); /* likewise, this one */
bool nodes_is_looked_at(struct fs *fs, uint64_t top); /* the kernel refers to it, or somebody in the daemon */
/* The next whole copy behind `after`, which is 0 or a top: 1/0/<0. */
int nodes_next(struct fs *fs, uint64_t after, uint64_t *ret_top, struct ns_copy *ret);
int nodes_next_stripe(struct fs *fs, uint64_t after, uint64_t *ret_top, struct ns_copy *ret); /* likewise */
/* A kept copy is covered by others from now on, and who is behind it is another one. Durable with the next sync. */
int nodes_set_slots(struct fs *fs, uint64_t top, uint8_t slot, uint8_t nr_slots, const uint8_t sender[CLUSTER_ID_LEN]);
/*
 * Permissions of group and others of a copy's top, and of its access list, are these from now on (CATALOG_ACCESS).
 * Durable with the next sync. -EROFS, unless they are so already.
 */
int nodes_set_access(struct fs *fs, uint64_t top, uint32_t access);

/* At mount: what was being made, or removed, when the last one ended. */
int nodes_clear(struct fs *fs);
