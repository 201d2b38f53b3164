/*
 * Attributes: what stat(2) shows and what chmod, chown, utimensat and truncate change.
 *
 * An inode's record is in the view; size and data times of a regular file are its content's, which changes them
 * without touching the record. So mtime is the content's once there is one, and ctime the later of both.
 *
 * Read times are kept in memory, as relatime would have them, and reach the view with the next change of the record or
 * when the inode is forgotten: a crash may lose them, which nobody is promised.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "index/namespace.h"

struct buf;
struct engine_tx;
struct fs;
struct inode;

/* What comes of changing it: 0; -EROFS: it is of another node's; -EPERM: it is sealed. */
static inline int attr_sealed(const struct ns_inode *in)
{
	return in->flags & INODE_COPY ? -EROFS : in->flags & INODE_SEALED ? -EPERM : 0;
}

/* Of a file with this content; of a copy the record has what they were, and the content when it was made. */
static inline int64_t attr_mtime(const struct ns_inode *in, const struct ns_content *c)
{
	return in->flags & INODE_COPY || c->mtime_ns == 0 ? in->mtime_ns : c->mtime_ns;
}

static inline int64_t attr_ctime(const struct ns_inode *in, const struct ns_content *c)
{
	return in->flags & INODE_COPY || c->ctime_ns < in->ctime_ns ? in->ctime_ns : c->ctime_ns;
}

/* The record, with a read time from memory. 1 found, 0 absent, <0. */
int attr_load(struct fs *fs, uint64_t ino, struct ns_inode *ret);
/* Add the record to a transaction. Under fs.names, exclusive. */
void attr_store(struct fs *fs, struct engine_tx *tx, const struct ns_inode *in);

/*
 * Before the content of a pinned inode is changed, and after: 0, and it counts as a writer until attr_write_end();
 * attr_sealed(): not to be changed. Not under fs.names. `ret`: its record.
 */
int attr_write_begin(struct fs *fs, struct inode *i, struct ns_inode *ret);
void attr_write_end(struct fs *fs, struct inode *i);

/* Of a record whose size is known; the rest of the content is taken as empty. */
void attr_fill(const struct ns_inode *in, uint64_t size, struct stat *ret);
/* Of a pinned inode. -ENOENT if it is gone. */
int attr_stat(struct fs *fs, struct inode *i, struct stat *ret);
int attr_birth(struct fs *fs, uint64_t ino, struct timespec *ret); /* what struct stat has no room for */

enum attr_what {
	ATTR_MODE = 1 << 0,
	ATTR_UID = 1 << 1,
	ATTR_GID = 1 << 2,
	ATTR_SIZE = 1 << 3,
	ATTR_ATIME = 1 << 4,
	ATTR_MTIME = 1 << 5,
};

struct attr_change {
	uint32_t what; /* enum attr_what; 0: chown() to nobody in particular, which still counts as a change */
	uint32_t mode, uid, gid;
	uint64_t size;
	int64_t atime_ns, mtime_ns;
	bool kill_setid; /* the caller may not keep set-id bits on a file it truncates */
};
int attr_change(struct fs *fs, struct inode *i, const struct attr_change *c, struct stat *ret);

/* Has, or may have, set-id bits or capabilities that a write takes away. */
bool attr_privileged(const struct ns_inode *in);
/* After a write: set-id bits (if told) and file capabilities go. 1: the mode has changed. Cheap unless i->privileged.
 * */
int attr_drop_privileges(struct fs *fs, struct inode *i, bool kill_setid);
/* Something was read. */
void attr_touch(struct fs *fs, struct inode *i);

/* The target, not NUL-terminated, appended to *ret. */
int attr_readlink(struct fs *fs, struct inode *i, struct buf *ret);
