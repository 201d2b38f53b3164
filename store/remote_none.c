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

int remote_open(struct engine *e, const struct pack_marks *marks)
{
	uint8_t first_frame[5] = { VIEW_SHARE }; /* pack 1; before it are totals and nodes (index/pin_table.h) */
	int r;

	(void)marks;
	if (!(e->dirs.sb.flags & SUPERBLOCK_CLUSTER))
		return 0;
	be32_put(first_frame + 1, 1);
	r = has_key(e->db, VIEW_SHARE, first_frame, sizeof(first_frame));
	if (r == 0)
		r = has_key(e->db, VIEW_COPY, NULL, 0);
	if (r > 0)
		return log_errno(-EOPNOTSUPP,
				 "store %s: shares chunks with other nodes, and this ckptfs was built without the "
				 "cluster (meson -Dmpi=disabled): use one that was built with it",
				 e->path);
	return r;
}

int remote_check_repair(const char *path, const struct superblock *sb)
{
	if (!(sb->flags & SUPERBLOCK_CLUSTER))
		return 0;
	return log_errno(-EOPNOTSUPP,
			 "store %s: was made with cluster=, and this ckptfs was built without the cluster (meson "
			 "-Dmpi=disabled): repair it with one that was built with it",
			 path);
}
