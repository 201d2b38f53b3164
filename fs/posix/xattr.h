/*
 * Extended attributes: user.*, trusted.*, security.* and the two POSIX ACLs, kept as they come; and, under
 * user.ckptfs., settings that new files inherit and figures that are made up when asked for and never listed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/namespace.h"

struct buf;
struct content;
struct engine_tx;
struct fs;
struct inode;

/* The value, appended to *ret. -ENODATA: there is none. */
int xattr_get(struct fs *fs, struct inode *i, const char *name, struct buf *ret);
/* Names, each with its NUL; trusted ones only for the privileged. */
int xattr_list(struct fs *fs, struct inode *i, bool privileged, struct buf *ret);
/* `flags` as of setxattr(2). `kill_setgid`: the caller is not of the file's group, so an access ACL takes that bit
 * away. */
int xattr_set(struct fs *fs, struct inode *i, const char *name, const void *p, size_t len, int flags, bool kill_setgid);
int xattr_remove(struct fs *fs, struct inode *i, const char *name);

/* Is it a name of an attribute that may be kept? -EOPNOTSUPP, -EINVAL, -ERANGE: no. */
int xattr_check_name(const char *name);

/* What other changes do to extended attributes, as part of their transaction. Under fs.names, exclusive. */
int xattr_acl_chmod(struct fs *fs, struct engine_tx *tx, const struct ns_inode *in);
void xattr_drop_capabilities(struct engine_tx *tx, uint64_t ino);
int xattr_drop_all(struct fs *fs, struct engine_tx *tx, const struct ns_inode *in);
/* What the settings of a file mean for bytes that are written to it from now on. */
int xattr_apply_settings(struct fs *fs, uint64_t ino, struct content *c);

/* A new entry takes over what `dir` bequeaths: the default ACL (or else the umask) and settings. Changes in->mode,
 * in->flags. */
int xattr_inherit(struct fs *fs, struct engine_tx *tx, const struct ns_inode *dir, uint32_t umask, struct ns_inode *in);
