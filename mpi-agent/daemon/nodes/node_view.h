/*
 * What other nodes have sealed, for reading: .ckptfs/nodes/NAME/PATH, in the root of a store that is one of a cluster.
 *
 *   .ckptfs            can be looked up and is not listed: find, cp -r and rm -rf of the root do not come to it
 *     nodes            listed: all nodes that are known (fs/others.h). This one is a link to the root
 *       NAME           and what leads from it to PATH: directories that are made up, as many as it takes
 *         PATH         a sealed directory: a copy of it (fs/nodes.h), made when it is looked up for the first time
 *
 * Made-up directories have inode numbers that no store gives, and are known for as long as the mount lasts. All else is
 * ordinary inodes. Nothing below .ckptfs can be changed: EROFS.
 *
 * A store whose root has a name .ckptfs of its own when it is mounted has that, and no view, until it is renamed and
 * the store is mounted again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "index/namespace.h"

struct buf;
struct fs;
struct view;

#define VIEW_NAME ".ckptfs"
#define VIEW_FIRST_INO (UINT64_C(1) << 63)
/* Is it a made-up one? */
static inline bool view_is(uint64_t ino)
{
	return ino >= VIEW_FIRST_INO;
}

/* Borrows fs. NULL in *ret: there is none. */
int view_new(struct fs *fs, struct view **ret);
void view_free(struct view *v); /* NULL is fine */

/* Does this name, or any in that directory, lead into the view? Both pointers may be NULL. */
bool view_has(const struct view *v, uint64_t dir, const char *name);
/* Which inode, made-up or of a copy, it is. May ask other nodes, and takes as long: with no lock. -ENOENT */
int view_lookup(struct view *v, uint64_t dir, const char *name, uint64_t *ret);
/* Of a made-up inode. -ENOENT */
int view_stat(struct view *v, uint64_t ino, struct stat *ret);
int view_readlink(struct view *v, uint64_t ino, struct buf *ret);
uint64_t view_parent(struct view *v, uint64_t ino); /* of a directory; 0: there is no such */
/* Names in one, in order of their cookies, for the caller to free. `ino` of these is some number. */
int view_list(struct view *v, uint64_t ino, struct ns_dirent **ret, size_t *ret_nr);
/*
 * Of copies that this store has for other nodes, with all chunks (fs/keeper.h), the first behind `after`, which is 0 or
 * a top: 1/0/<0. *path gets how it is shown, from `nodes` on. NULL: there are none.
 */
int view_next_kept(struct view *v, uint64_t after, uint64_t *ret_top, struct buf *path);
/*
 * Of what the node has sealed that `dir` belongs to, which is made up or the top of a copy, the first behind `after`, in
 * the order of inodes there: 1/0/<0; *path is from the root. What has a longer path than can be told is left out.
 * -ENODATA: it belongs to none, -ENOTUNIQ: nor to one alone. May ask other nodes. NULL is fine, as of all below.
 */
int view_next_seal(struct view *v, uint64_t dir, uint64_t after, uint64_t *ret_ino, int64_t *ret_sealed_ns,
		   struct buf *path);
/* Of a copy's top: which directory it is of, and when that was sealed. 1/0/<0 */
int view_copied(struct view *v, uint64_t top, uint64_t *ret_ino, int64_t *ret_sealed_ns);
int view_trim(struct view *v); /* others_trim() */
void view_changed(struct view *v); /* others_forget() */
void view_abandon(struct view *v, const uint8_t *store, uint64_t ino, bool yes); /* others_abandon() */
bool view_is_abandoned(struct view *v, const uint8_t *store, uint64_t ino);
int view_check(struct view *v); /* others_check(), and a moment for the kernel to forget what was dropped */
/* How to let the kernel forget a name of a made-up directory; NULL: not any more. It must not wait for a request. */
typedef void view_unlook_fn(void *userdata, uint64_t dir, const char *name);
void view_set_unlook(struct view *v, view_unlook_fn *unlook, void *userdata);
