/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The names of a mounted tier: all its checkpoints, and the directories above them.
 *
 *   /PATH                              the newest seal of this path, of all stores
 *   /.ckptfs/stores/STORE/PATH         the newest seal of this path, of one store
 *   /.ckptfs/sealed/STORE/NUMBER       each of them, by the name of its manifest
 *
 * A checkpoint below the path of another one is shown as part of that one, and by its number. This holds among
 * checkpoints of one owner only (tier_paths.h). The newest seal is that with the latest time. Within a store the times
 * of seals increase strictly; between stores they depend on the clocks.
 *
 * The tier is listed again when a directory above checkpoints is used and the last list is some seconds old, more with
 * many checkpoints. The manifest of a checkpoint is read on first use and becomes a tree of names
 * (store/tier/reading/tier_tree.h). Requests use a tree, open files and directories do not: it is dropped when trees
 * take too much memory, and read again on demand.
 *
 * Node numbers, the inodes of the mount, stay valid when a tree is dropped:
 *   place << 32 | inode of the place + 1; place 0 has the directories above checkpoints.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "store/tier/reading/tier_cache.h"
#include "store/tier/reading/tier_tree.h"

struct tier;
struct tier_view;

/* A checkpoint in the tier. Constant. */
struct tier_seal {
	uint8_t store[TIER_ID_LEN];
	uint64_t number, ino;
	int64_t sealed_ns;
	uint8_t root[SHA256_LEN];
	uint64_t files, directories, bytes;
	uint32_t uid; /* owner of the directory */
	char *path; /* in its store */
};

/* A checkpoint in use. Constant; kept until tier_view_leave(). */
struct tier_entered {
	const struct tier_seal *seal;
	const struct tier_manifest *m;
	const struct tier_tree *tree;
	struct tier_source *source;
};

struct tier_view_conf {
	uint64_t trees; /* bytes of memory for trees; beyond it, those that no request uses are dropped, except one */
	uint64_t timeout_ns; /* for a request of a program */
};

/* Lists the tier. Borrows the first three arguments. -ETIMEDOUT: the list is not complete in time. */
int tier_view_new(struct tier *t, struct tier_pool *pool, struct tier_cache *c, const struct tier_view_conf *conf,
		  struct tier_view **ret);
void tier_view_free(struct tier_view *v); /* after the pool has been stopped; NULL is fine */
void tier_view_stop(struct tier_view *v); /* as tier_cache_stop() */

/* --- nodes --- */

#define TIER_NODE_ROOT 1u
static inline uint32_t tier_node_place(uint64_t node)
{
	return (uint32_t)(node >> 32);
}
static inline uint32_t tier_node_inode(uint64_t node)
{
	return (uint32_t)node - 1;
}
static inline uint64_t tier_node(uint32_t place, uint32_t inode)
{
	return (uint64_t)place << 32 | (inode + 1);
}
/* Offset of a name in a directory above checkpoints: 3 or more, and different for each node. */
static inline uint64_t tier_node_offset(uint64_t node)
{
	uint32_t place = tier_node_place(node);

	return place > 0 ? UINT64_C(1) << 33 | place : UINT64_C(3) + tier_node_inode(node);
}

/* --- directories above checkpoints --- */

/* Lists the tier again if that is due, and waits some seconds for the list. On failure the last list stays.
 * -EINPROGRESS. */
int tier_view_refresh(struct tier_view *v, const struct tier_waiter *w);
/* -ENOENT */
int tier_view_find(struct tier_view *v, uint32_t dir, const char *name, uint64_t *ret_node);
/*
 * Appends the node (8 bytes, native order) and the name with a zero byte of each name except .ckptfs, until more than
 * `len` bytes were appended. Begins with the name after offset `after`, in the order of tier_node_offset(), which is
 * the same in later lists: so an open directory needs no copy of its names.
 */
int tier_view_list(struct tier_view *v, uint32_t dir, uint64_t after, size_t len, struct buf *ret);
/* Time of the newest seal below the directory. -ESTALE: no such directory. */
int tier_view_time(struct tier_view *v, uint32_t dir, int64_t *ret_ns);
uint64_t tier_view_bytes(struct tier_view *v); /* of all files in all checkpoints */
size_t tier_view_nr(struct tier_view *v); /* checkpoints in the tier */

/* --- checkpoints --- */

/* -ENOENT: no longer in the tier; -ESTALE: the place never existed; -EBADMSG, -EIO, -ETIMEDOUT, -EINTR, -EINPROGRESS. */
int tier_view_enter(struct tier_view *v, uint32_t place, const struct tier_waiter *w, struct tier_entered **ret);
void tier_view_leave(struct tier_view *v, struct tier_entered *e); /* NULL is fine */
/* The attributes of its directory, without waiting. false: its manifest has not been read. */
bool tier_view_top(struct tier_view *v, uint32_t place, struct tier_inode *ret);
/*
 * The checkpoint after number `after` (0: the first one), and its path from the mountpoint, with a zero byte. If `node`
 * is in /.ckptfs/stores/STORE, only checkpoints of that store. 1/0/-ENOMEM.
 */
int tier_view_next(struct tier_view *v, uint64_t node, uint64_t after, uint64_t *ret_number, const struct tier_seal **ret,
		   struct buf *ret_path);
uint64_t tier_view_number(uint32_t place); /* of its checkpoint; place > 0 */
/* The path of a place from the mountpoint, with a zero byte. */
void tier_view_path(struct tier_view *v, uint32_t place, struct buf *ret);
