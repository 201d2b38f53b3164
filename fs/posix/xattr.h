/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Extended attributes: user.*, trusted.*, security.* and the two POSIX ACLs, stored unchanged. Below user.ckptfs. there
 * are settings that new files inherit, and figures that are computed on request and never listed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/namespace_table.h"

struct buf;
struct caller;
struct content;
struct engine_tx;
struct fs;
struct inode;

/* Append the value to *ret. -ENODATA: none. */
int xattr_get(struct fs *fs, struct inode *i, const char *name, struct buf *ret);
/* Append the names, each NUL-terminated; trusted.* only for a caller with CAP_SYS_ADMIN. */
int xattr_list(struct fs *fs, struct inode *i, struct caller *caller, struct buf *ret);
/*
 * `uid` is the caller's. `flags` as in setxattr(2). `kill_setgid`: the caller is not in the file's group, so setting an
 * access ACL clears the set-gid bit. -EPERM also for a retention rule (client/retention.h) set by a user other than the
 * owner and root. -ENOSPC: the names would take more than 64 KiB, or names and values more than 1 MiB.
 */
int xattr_set(struct fs *fs, struct inode *i, uint32_t uid, const char *name, const void *p, size_t len, int flags,
	      bool kill_setgid);
int xattr_remove(struct fs *fs, struct inode *i, uint32_t uid, const char *name);

/* May an attribute of this name be stored? -EOPNOTSUPP, -EINVAL, -ERANGE: no. */
int xattr_check_name(const char *name);

/* Effects of other changes on extended attributes, as part of their transaction. Call under fs.names, exclusive. */
int xattr_acl_chmod(struct fs *fs, struct engine_tx *tx, const struct ns_inode *in);
void xattr_drop_capabilities(struct engine_tx *tx, uint64_t ino);
int xattr_drop_all(struct fs *fs, struct engine_tx *tx, const struct ns_inode *in);
/* Copy all attributes of `from` except file capabilities. Changes in->flags. */
int xattr_copy_all(struct fs *fs, struct engine_tx *tx, const struct ns_inode *from, struct ns_inode *in);
/* Apply the settings of a file to bytes written from now on. */
int xattr_apply_settings(struct fs *fs, uint64_t ino, struct content *c);

/*
 * A new entry inherits the default ACL of `dir` (else the umask applies) and its settings. Changes in->mode, in->flags.
 */
int xattr_inherit(struct fs *fs, struct engine_tx *tx, const struct ns_inode *dir, uint32_t umask, struct ns_inode *in);
