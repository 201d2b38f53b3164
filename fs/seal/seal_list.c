/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Listing sealed directories, and checking one against its root. A user sees the seals of own directories; the operator
 * sees all. The seals of other users are skipped, and their number is not up to the caller.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/log.h"
#include "fs/away/dropped.h"
#include "fs/fs.h"
#include "fs/posix/attr.h"
#include "fs/posix/permission.h"
#include "fs/seal/dir_path.h"
#include "fs/seal/seal.h"
#include "fs/seal/seal_root.h"

#define PATH_ATTEMPTS 8u /* attempts to look up a path while users rename its directories */

static bool may_know(uint32_t uid, const struct ns_inode *in)
{
	return permission_operator(&(struct cred){ .uid = uid }) || uid == in->uid;
}

int seal_check(struct fs *fs, uint64_t dir, uint32_t uid, struct ns_seal *ret, uint8_t root[NS_SEAL_ROOT_LEN])
{
	struct sha256_digest now;
	struct ns_seal seal, then;
	struct ns_away at;
	struct ns_inode in;
	int r = attr_load(fs, dir, &in);

	if (r > 0)
		r = may_know(uid, &in) ? ns_get_seal(fs->db, dir, &seal) : -EPERM;
	if (r <= 0 || !seal.is_complete)
		return r < 0 ? r : -ENODATA;
	r = engine_expects_away(fs->engine) ? ns_get_away(fs->db, dir, &at) : 0;
	if (r == 0)
		r = seal_root(fs, dir, &now);
	if (r > 0 || (r == -EREMOTE && ns_get_away(fs->db, dir, &at) > 0)) /* it may be dropped meanwhile */
		r = away_root(fs, dir, &at, &seal, now.b);
	if (ns_get_seal(fs->db, dir, &then) <= 0 || then.sealed_ns != seal.sealed_ns)
		return -ESTALE;
	if (r < 0)
		return r;
	*ret = seal;
	memcpy(root, now.b, sizeof(now.b));
	return 0;
}

/*
 * May the user know of this seal, which was just read? 1, 0, <0. Without fs.names, which changes of names would have to
 * wait for, and for longer if this thread lost its processor: the directory may be removed meanwhile, and its seal with
 * it or before.
 */
static int is_visible(struct fs *fs, uint32_t uid, uint64_t dir, const struct ns_seal *seal)
{
	struct ns_seal again;
	struct ns_inode in;
	int r = attr_load(fs, dir, &in);

	if (r == 0 && ns_get_seal(fs->db, dir, &again) == 0)
		return 0;
	if (r <= 0)
		return r < 0 ? r : log_errno(-EBADMSG, "inode %" PRIu64 ": sealed but has no record", dir);
	return seal->is_complete && may_know(uid, &in);
}

/* 1; 0: no path short enough, no longer sealed, or moved repeatedly meanwhile; <0. */
static int find_path(struct fs *fs, uint64_t dir, struct buf *path)
{
	struct ns_seal seal;
	struct ns_inode in;
	int r = attr_load(fs, dir, &in);

	if (r > 0)
		r = dir_path_check_depth(fs, &in); /* first, because looking up names takes longer */
	if (r < 0)
		return r == -ENAMETOOLONG || r == -ENOENT ? 0 : r;
	r = -ENOENT;
	for (unsigned attempt = 0; attempt < PATH_ATTEMPTS && r == -ENOENT; attempt++) {
		buf_clear(path);
		r = dir_path_prepend(fs, dir, path);
		if (r == 0) {
			rwlock_lock_shared(&fs->names);
			r = dir_path_check(fs, path, dir);
			rwlock_unlock_shared(&fs->names);
		}
		if (r == -ENOENT && ns_get_seal(fs->db, dir, &seal) == 0)
			break;
	}
	if (r < 0)
		buf_clear(path);
	return r == 0 ? 1 : r == -ELOOP || r == -ENOENT ? 0 : r;
}

int seal_next(struct fs *fs, uint64_t after, uint32_t uid, uint64_t *ret_ino, struct ns_seal *ret, struct buf *path)
{
	int r;

	do {
		r = ns_next_seal(fs->db, after, &after, ret);
		if (r <= 0)
			break;
		r = is_visible(fs, uid, after, ret);
		if (r > 0)
			r = find_path(fs, after, path);
		if (r == 0)
			r = cancel_check();
	} while (r == 0);
	*ret_ino = after;
	return r;
}
