/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The node directory view: sealed directories of other nodes, read-only, at .ckptfs/nodes/NAME/PATH in the root of a
 * store that belongs to a cluster.
 *
 *   .ckptfs            can be looked up but is not listed: find, cp -r and rm -rf of the root do not reach it
 *     nodes            lists all known nodes (mpi-agent/daemon/nodes/peer_list.h); this node is a link to the root
 *       NAME           this and the directories from here to PATH are synthetic
 *         PATH         a sealed directory: a replica of it (mpi-agent/daemon/replica/replica.h), created when it is
 *                      first looked up
 *
 * Synthetic directories have inode numbers that no store assigns, and exist until unmount. All others are ordinary
 * inodes. Nothing below .ckptfs can be changed: EROFS.
 *
 * If the root of a store has an entry .ckptfs of its own at mount, that entry is used and there is no view until it is
 * renamed and the store is mounted again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fs/cluster_hooks.h"
#include "index/namespace_table.h"

struct buf;
struct fs;
struct view;

#define VIEW_NAME ".ckptfs"

/* Borrows fs. *ret is NULL if the store has no view. */
int view_new(struct fs *fs, struct view **ret);
void view_free(struct view *v); /* NULL is fine */

/* Is this name, or any name in that directory, part of the view? Both pointers may be NULL. */
bool view_has(const struct view *v, uint64_t dir, const char *name);
/* Look up the inode, synthetic or of a replica. May query peers and block as long: call without a lock. -ENOENT */
int view_lookup(struct view *v, uint64_t dir, const char *name, uint64_t *ret);
/* For a synthetic inode. -ENOENT */
int view_stat(struct view *v, uint64_t ino, struct stat *ret);
int view_readlink(struct view *v, uint64_t ino, struct buf *ret);
uint64_t view_parent(struct view *v, uint64_t ino); /* of a synthetic directory; 0: none */
/* Names in a synthetic directory, sorted by cookie, which the caller frees. Their `ino` is arbitrary. */
int view_list(struct view *v, uint64_t ino, struct ns_dirent **ret, size_t *ret_nr);
/*
 * The first replica after `after` (0 or a top) that this store holds for another node with all chunks
 * (mpi-agent/daemon/replica/replica_receive.h): 1/0/<0. *path is its path below `nodes`. `v` NULL: none.
 */
int view_next_kept(struct view *v, uint64_t after, uint64_t *ret_top, struct buf *path);
/*
 * `dir` is synthetic or the top of a replica, and so belongs to a node. The first directory sealed by that node after
 * `after`, ordered by its inodes: 1/0/<0; *path is from the root. Directories with too long a path are skipped.
 * -ENODATA: it belongs to no node, -ENOTUNIQ: not to a single one. May query peers. `v` may be NULL, here and below.
 */
int view_next_seal(struct view *v, uint64_t dir, uint64_t after, uint64_t *ret_ino, int64_t *ret_sealed_ns,
		   struct buf *path);
/* For the top of a replica: the inode of the original directory, and the time of its seal. 1/0/<0 */
int view_replica_of(struct view *v, uint64_t top, uint64_t *ret_ino, int64_t *ret_sealed_ns);
int view_trim(struct view *v); /* peer_list_trim() */
void view_changed(struct view *v); /* peer_list_forget() */
void view_abandon(struct view *v, const uint8_t *store, uint64_t ino, bool yes); /* peer_list_abandon() */
bool view_is_abandoned(struct view *v, const uint8_t *store, uint64_t ino);
int view_check(struct view *v); /* peer_list_check(), then waits for the kernel to forget what was dropped */
void view_set_invalidate(struct view *v, view_invalidate_fn *invalidate, void *userdata);
