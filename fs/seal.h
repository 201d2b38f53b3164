/*
 * Sealing: a directory with all that is below it becomes durable, then immutable, and is listed; all or nothing.
 *
 * In a sealed directory nothing changes any more, for nobody, until it is unsealed: bytes, names, attributes, extended
 * attributes and times of reading. That goes for the directory itself, which cannot be removed or renamed, and for
 * files in it that have other names elsewhere. Directories above it can be renamed.
 */
#pragma once

#include <stdint.h>

#include "index/namespace.h"

struct buf;
struct fs;
struct who;

/* More than that in one directory: -E2BIG. All marks are one transaction, and one group of the journal. */
#define SEAL_INODES_MAX (1u << 18)

/*
 * By the owner of everything in it, or root: else -EPERM. -EACCES: not writable for its owner. -EALREADY: it is sealed,
 * and durable, and *ret says how. -EEXIST: it lies in a sealed one, or has a sealed one, or a file of one, in it.
 * -EBUSY: something in it is open for writing, or it is being sealed. -ECANCELED: somebody has unsealed it meanwhile.
 * -ENAMETOOLONG: it lies deeper than a path can tell. -EROFS. *culprit is what these are about, from the root, where
 * that is not the directory itself; an empty buffer else. Takes as long as everything in the store takes to become
 * durable. Its time is later than that of all other seals, whatever the clock says: the newest epoch goes by it.
 */
int seal_directory(struct fs *fs, uint64_t dir, const struct who *who, struct ns_seal *ret, struct buf *culprit);
/* The opposite, by its owner or root. -ENODATA: it is not sealed, or lies in one that is, *culprit; "." is the root.
 * -EROFS: it is of another node (fs/abandon.h). */
int seal_undo(struct fs *fs, uint64_t dir, const struct who *who, struct buf *culprit);

/* At a mount, before requests come: what a crash has left of seals that were not finished; and when the last was. */
int seal_take_back_all(struct fs *fs);

/*
 * The seal of a directory, and the root that it has now: the same if nothing is damaged. For those who may know of it
 * (-EPERM). -ENODATA: it is not sealed; -ESTALE: it was unsealed meanwhile. Takes time with the extents of its files.
 */
int seal_check(struct fs *fs, uint64_t dir, uint32_t uid, struct ns_seal *ret, uint8_t root[NS_SEAL_ROOT_LEN]);

/* The next sealed directory behind `after` that `uid` may know of: root, whoever runs the mount, and its owner. 1, with
 * its path from the root, without a NUL ("" is the root's); 0 none; <0. What lies too deep for a path is left out. */
int seal_next(struct fs *fs, uint64_t after, uint32_t uid, uint64_t *ret_ino, struct ns_seal *ret, struct buf *path);
