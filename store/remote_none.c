/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * In place of store/remote in a build without the cluster (-Dmpi=disabled). A store that was made with cluster= is
 * opened as a local one while all of its chunks are here and no other node refers to them.
 */
#include <errno.h>
#include <string.h>

#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/engine_state.h"
#include "store/remote_hooks.h"

/* Is there a key with this prefix from `from` on? 1/0/<0 */
static int has_key(struct db *db, uint8_t prefix, const void *from, size_t from_len)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const void *key, *value;
	size_t key_len, value_len;
	int r = db_iter_new(db, NULL, &prefix, 1, from, from_len, &it);

	return r < 0 ? r : db_iter_next(it, &key, &key_len, &value, &value_len);
}

/* Does the store share chunks with other nodes, or has it replicas for them? 1/0/<0 */
static int has_notes(struct db *db)
{
	uint8_t first_frame[5] = { VIEW_SHARE }; /* pack 1; before it are totals and nodes (index/pin_table.h) */
	int r;

	be32_put(first_frame + 1, 1);
	r = has_key(db, VIEW_SHARE, first_frame, sizeof(first_frame));
	return r == 0 ? has_key(db, VIEW_REPLICA, NULL, 0) : r;
}

static int refuse(const char *path)
{
	return log_cause(-EOPNOTSUPP,
			 "store %s: shares chunks with other nodes, and this ckptfs was built without the "
			 "cluster (meson -Dmpi=disabled): use one that was built with it",
			 path);
}

int remote_open(struct engine *e, const struct pack_marks *marks)
{
	int r = e->dirs.sb.flags & SUPERBLOCK_CLUSTER ? has_notes(e->db) : 0;

	(void)marks;
	return r > 0 ? refuse(e->path) : r;
}

int remote_check_repair(const char *path, const struct superblock *sb)
{
	if (!(sb->flags & SUPERBLOCK_CLUSTER))
		return 0;
	return log_cause(-EOPNOTSUPP,
			 "store %s: was made with cluster=, and this ckptfs was built without the cluster (meson "
			 "-Dmpi=disabled): repair it with one that was built with it",
			 path);
}

const struct remote_check *const remote_check;

int remote_check_allowed(const char *path, const struct superblock *sb, struct db *db, bool unapplied)
{
	int r = 0;

	if (!(sb->flags & SUPERBLOCK_CLUSTER))
		return 0;
	if (unapplied)
		return log_cause(-EOPNOTSUPP,
				 "store %s: was made with cluster=, and its last commits are in the journal only; this "
				 "ckptfs was built without the cluster (meson -Dmpi=disabled): check it with one that "
				 "was built with it, or after a mount",
				 path);
	if (db)
		r = has_notes(db);
	return r > 0 ? refuse(path) : r;
}
