/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Sealing: a directory with everything below it becomes durable, then immutable, and is listed; all or nothing.
 *
 * Until it is unsealed, nothing in a sealed directory can be changed by any user, including root: bytes, names,
 * attributes, extended attributes and read times. This includes the directory itself, which cannot be removed or
 * renamed, and files in it that have other names elsewhere. Directories above it can be renamed.
 */
#pragma once

#include <stdint.h>

#include "index/namespace_table.h"

struct buf;
struct fs;
struct cred;

/* A larger tree fails with -E2BIG. Bounds the memory of a seal: 24 bytes per inode. */
#define SEAL_INODES_MAX (1u << 18)

/*
 * Allowed for the owner of everything in the directory and for root; else -EPERM. *culprit is the path from the root of
 * the inode an error is about, empty if that is the directory itself.
 *   -EACCES        the directory is not writable for its owner
 *   -EALREADY      already sealed and durable; *ret describes the seal
 *   -EEXIST        it lies in a sealed directory, or contains one or a file of one
 *   -EBUSY         something in it is open for writing, or is being sealed or unsealed
 *   -EINTR         cancelled (base/cancel.h)
 *   -ENAMETOOLONG  it lies too deep for a path
 *   -EROFS
 * Takes as long as making everything in the store durable. The time of the seal is later than that of all other seals,
 * even if the clock was set back: it determines which checkpoint is the newest.
 */
int seal_directory(struct fs *fs, uint64_t dir, const struct cred *cred, struct ns_seal *ret, struct buf *culprit);
/* The same without waiting for writers, for a caller that tries again. */
int seal_directory_now(struct fs *fs, uint64_t dir, const struct cred *cred, struct ns_seal *ret, struct buf *culprit);
/*
 * Unseal, for the owner and root. Waits for a seal of the directory in progress. -ENODATA: it is not sealed itself; if
 * it lies in a sealed one, *culprit is that one ("." is the root). -EREMOTE: it was dropped (fs/away/dropped.h).
 * -EROFS: it is a replica (mpi-agent/daemon/replica/abandon.h).
 */
int seal_undo(struct fs *fs, uint64_t dir, const struct cred *cred, struct buf *culprit);

/* Request and result of seal_remove(). */
struct seal_removal {
	int64_t sealed_ns; /* time of the seal to remove; 0: any */
	uint32_t owner; /* not 0: only if this user owns the whole tree and its parent directory */
};
struct seal_removed {
	uint64_t dir; /* directory of the removed name, also after an error; 0: not removed */
	char name[NS_NAME_MAX + 1];
};
/*
 * Remove a sealed directory and everything below it (seal_remove.c), durably and atomically. Allowed for root, and for
 * a caller that may unseal it, may remove its name and owns everything in it; else -EPERM, -EACCES. -ENODATA: not
 * sealed. -ESTALE: another seal. -EBUSY: being sealed, or the root. -EINTR: cancelled, nothing has changed. -EROFS.
 * Garbage collection frees the space.
 */
int seal_remove(struct fs *fs, uint64_t top, const struct cred *cred, const struct seal_removal *how,
		struct seal_removed *ret);

/* At mount, before the first request: undo seals left unfinished by a crash, unless the mount is read-only; find the time
 * of the latest seal, and count the others. */
int seal_take_back_all(struct fs *fs);

/*
 * The seal of a directory, and its root computed now: equal to the sealed one if nothing is damaged. -EPERM: the seal
 * is not visible to `uid` (see seal_next()). -ENODATA: not sealed; -ESTALE: unsealed meanwhile. Takes time proportional
 * to the extents of its files.
 */
int seal_check(struct fs *fs, uint64_t dir, uint32_t uid, struct ns_seal *ret, uint8_t root[NS_SEAL_ROOT_LEN]);

/*
 * The next sealed directory after `after` that is visible to `uid`: to root, the mounting user and the owner. 1, with
 * its path from the root, not NUL-terminated ("" is the root); 0 none; <0. Directories too deep for a path are skipped.
 */
int seal_next(struct fs *fs, uint64_t after, uint32_t uid, uint64_t *ret_ino, struct ns_seal *ret, struct buf *path);
