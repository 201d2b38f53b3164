/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Attributes: what stat(2) reports and what chmod, chown, utimensat and truncate change.
 *
 * The inode record is in the view. Size and data times of a regular file belong to its content, which changes them
 * without touching the record. mtime is therefore the content's once it has one, and ctime is the later of the two.
 *
 * Read times are kept in memory with relatime semantics. They reach the view with the next change of the record or when
 * the kernel forgets the inode. A crash may lose them; their durability is not promised.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "index/namespace_table.h"

struct buf;
struct caller;
struct engine_tx;
struct fs;
struct inode;

/*
 * May this inode be changed? 0: yes; -EROFS: it is part of a replica; -EPERM: sealed; -EINPROGRESS: being sealed or
 * unsealed (freeze.h). Call under fs.names.
 */
int attr_sealed(struct fs *fs, const struct ns_inode *in);

/*
 * Times of a file with this content. For a replica they are in the record; the content's are those of its creation
 * here.
 */
static inline int64_t attr_mtime(const struct ns_inode *in, const struct ns_content *c)
{
	return in->flags & INODE_REPLICA || c->mtime_ns == 0 ? in->mtime_ns : c->mtime_ns;
}

static inline int64_t attr_ctime(const struct ns_inode *in, const struct ns_content *c)
{
	return in->flags & INODE_REPLICA || c->ctime_ns < in->ctime_ns ? in->ctime_ns : c->ctime_ns;
}

/* Load the record, with the read time from memory if that is newer. 1 found, 0 absent, <0. */
int attr_load(struct fs *fs, uint64_t ino, struct ns_inode *ret);
/* Only the directory that a directory is in. Takes no lock that all requests take. 1 found, 0 absent, <0. */
int attr_load_parent(struct fs *fs, uint64_t ino, uint64_t *ret);
/* Add the record to a transaction. Under fs.names, exclusive. */
void attr_store(struct fs *fs, struct engine_tx *tx, const struct ns_inode *in);

/*
 * Call before and after changing the content of a pinned inode, not under fs.names. attr_write_begin() returns the
 * record and counts a writer until attr_write_end(), or fails as attr_sealed().
 */
int attr_write_begin(struct fs *fs, struct inode *i, struct ns_inode *ret);
void attr_write_end(struct fs *fs, struct inode *i);

/* For a record of known size; the rest of the content is taken as empty. */
void attr_fill(const struct ns_inode *in, uint64_t size, struct stat *ret);
/* For a pinned inode. -ENOENT if it has been removed. */
int attr_stat(struct fs *fs, struct inode *i, struct stat *ret);
int attr_birth(struct fs *fs, uint64_t ino, struct timespec *ret); /* birth time, which struct stat lacks */

enum attr_what {
	ATTR_MODE = 1 << 0,
	ATTR_UID = 1 << 1,
	ATTR_GID = 1 << 2,
	ATTR_SIZE = 1 << 3,
	ATTR_ATIME = 1 << 4,
	ATTR_MTIME = 1 << 5,
};

struct attr_change {
	uint32_t what; /* enum attr_what; 0: chown() without a new owner or group, which still counts as a change */
	uint32_t mode, uid, gid;
	uint64_t size;
	int64_t atime_ns, mtime_ns;
	int64_t ctime_ns; /* now, or the time the kernel made the change */
	struct caller *caller; /* required for ATTR_UID, ATTR_GID, 0, and for ATTR_SIZE with kill_setid */
	bool kill_setid; /* truncation drops set-id bits */
};
int attr_change(struct fs *fs, struct inode *i, const struct attr_change *c, struct stat *ret);

/* May the file have set-id bits or capabilities that a write drops? */
bool attr_privileged(const struct ns_inode *in);
/*
 * After a change of content: drop file capabilities, and the set-id bits the caller may not keep; NULL: keep all set-id
 * bits. 1: the mode has changed. Cheap unless i->privileged.
 */
int attr_drop_privileges(struct fs *fs, struct inode *i, struct caller *caller);
/* Update the read time after a read. */
void attr_touch(struct fs *fs, struct inode *i);

/* The target, not NUL-terminated, appended to *ret. */
int attr_readlink(struct fs *fs, struct inode *i, struct buf *ret);
