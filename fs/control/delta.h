/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Deltas: make the next version of a lineage from its parent and a delta object.
 *
 * A lineage is a directory; its versions are the files 000001, 000002, ... in it, each of them a complete, ordinary
 * file. A producer creates an unnamed file in that directory (O_TMPFILE), declares which version it will become
 * (delta_begin()), writes the object into it (gpu/format/delta_format.h), and commits. The staging file belongs to the
 * producer: when it is closed, also because the process died, everything written to it is discarded.
 *
 * Committing. Only the order makes it safe:
 *   1. read the header and the tables, check them, find parent and sources      crash or error: nothing has changed
 *   2. a new unnamed file: a clone of the parent, with the regions that the     crash: an orphan, removed at the next
 *      object lists mapped to other data, or written                            mount; error: removed now
 *   3. compare its fingerprint with that of the object, if requested
 *   4. flush it, then give it its name, as link(2) does                         COMMIT POINT
 *   5. the caller syncs, if requested; after an error the version exists, like any file after a failed fsync
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/format/leaf_hash.h"

struct caller;
struct file;
struct fs;

#define DELTA_NAME_LEN 11 /* of the name of a version: ten digits at most, and a NUL */

/*
 * Make `f`, which is open for writing, the staging file of version `number` with parent `parent` (0: none). -EINVAL:
 * the directory it was created in is unknown, or number is not above parent; -ENOENT: no such parent; -EEXIST: the
 * version exists; -EALREADY: already begun; errors of permission_create() for this directory.
 */
int delta_begin(struct fs *fs, struct file *f, uint32_t number, uint32_t parent, struct caller *caller);
/* Undo delta_begin(), and truncate the file. -EINVAL: not begun. */
int delta_abort(struct file *f);

struct delta_commit {
	bool sync; /* the caller syncs afterwards */
	bool verify; /* read all of the new version and compare it with the fingerprint of the object */
	uint8_t key[LEAF_KEY_LEN]; /* of the lineage, for `verify` */
};

struct delta_made {
	uint64_t dir, ino, size;
	char name[DELTA_NAME_LEN];
};

/*
 * -EINVAL: not begun, or the object is for another version or parent; -EALREADY: already committed; -EBUSY: another
 * commit of it is running; -EBADMSG: the object is damaged or inconsistent, or the result does not match its
 * fingerprint; -EOPNOTSUPP: of a later version of the format; -ESTALE: the parent or another version that it refers to
 * is gone or shorter; -EACCES: the caller may not read one of them; -EFBIG: tables of more than DELTA_TABLES_MAX or
 * half of `dirty`, or three quarters of that for an ordinary user; -EEXIST: the version exists by now; errors of
 * permission_create(): the caller may not, or no longer, create a name in the directory. After an error the object may
 * be written again and the commit retried. The version gets the owner, group, mode and extended attributes of the
 * staging file. A commit waits while the tables of this user would exceed three quarters of the memory that those of
 * other users leave.
 */
#define DELTA_TABLES_MAX MiB(256)
int delta_commit(struct fs *fs, struct file *f, const struct delta_commit *how, struct caller *caller,
		 struct delta_made *ret);
void delta_tidy(struct fs *fs, const struct delta_made *made); /* after the reply: work that need not delay it */
