/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Permission checks made by the daemon, with the same results as the kernel's. permission.c lists the requests that
 * need them.
 *
 * Supplementary groups and capabilities are not part of a request. They are read from /proc when a decision first
 * depends on them. If the caller's process cannot be examined, its groups are unknown and it is granted only what any
 * set of groups would grant; it has no capabilities, even as root.
 *
 * Functions that take a record also read its access list: the caller holds fs.names, shared or exclusive, from loading
 * the record on.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct fs;
struct ns_inode;
struct cred;

/* The caller of one request; belongs to one thread. */
struct caller {
	const struct cred *cred; /* borrowed */
	bool is_loaded; /* the fields below are loaded */
	struct buf status; /* text of /proc/PID/status */
	const char *groups; /* points into `status`; NULL: unknown */
	uint64_t capabilities;
};

static inline struct caller caller_of(const struct cred *cred)
{
	return (struct caller){ .cred = cred };
}

/* Loads groups and capabilities now, so that the caller can be used after the reply. */
void caller_load(struct caller *c);

static inline void caller_release(struct caller *c)
{
	buf_release(&c->status);
}

/*
 * R_OK, W_OK and X_OK, as access(2) with the caller's filesystem uid. 0; -EACCES; for W_OK also -EROFS, and -EPERM if
 * sealed; <0.
 */
int permission_check(struct fs *fs, struct caller *c, const struct ns_inode *in, unsigned want);
/* Creating a name in `dir`. As above, or -ENOENT: the directory has been removed. */
int permission_create(struct fs *fs, struct caller *c, const struct ns_inode *dir);
/*
 * Removing a name of `in` from `dir`, with the rule for sticky directories. `unseals`: the request unseals `in` first,
 * which its owner may do. Without it, or in a sealed directory, -EPERM.
 */
int permission_remove(struct fs *fs, struct caller *c, const struct ns_inode *dir, const struct ns_inode *in,
		      bool unseals);

/* The owner, or a caller with CAP_FOWNER. */
bool permission_owner(struct caller *c, const struct ns_inode *in);
/* May the caller administer the store as a whole? Root and the user that runs the mount. */
bool permission_operator(const struct cred *cred);
/* Is the caller known to be a member? */
bool permission_in_group(struct caller *c, uint32_t gid);
bool permission_capable(struct caller *c, unsigned capability); /* CAP_* of <linux/capability.h> */
