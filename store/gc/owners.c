/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sums over all inodes by user or group. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cancel.h"
#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/engine_state.h"
#include "store/gc/owners.h"

bool owner_has(const struct fp_domain *owner, const struct ns_inode *in)
{
	return S_ISREG(in->mode) && owner->id == (owner->kind == FP_OF_USER ? in->uid : in->gid);
}

int owners_iter_new(struct db *db, const struct db_snapshot *state, struct db_iter **ret)
{
	static const uint8_t prefix = VIEW_INODE;

	return db_iter_new(db, state, &prefix, sizeof(prefix), NULL, 0, ret);
}

int owners_next(struct db_iter *it, struct ns_inode *ret)
{
	const void *key, *value;
	size_t key_len, len;
	int r = db_iter_next(it, &key, &key_len, &value, &len);

	if (r <= 0)
		return r;
	r = key_len == 9 ? ns_inode_decode(be64_get((const uint8_t *)key + 1), value, len, ret) : -EBADMSG;
	return r < 0 ? log_errno(r, "index: an inode is damaged: run fsck.ckptfs") : 1;
}

/* Finds the entry of an owner, or inserts it; NULL: it sorts after the last one that fits. */
static struct engine_owner *find_or_insert_owner(uint32_t id, struct engine_owner *v, size_t max, size_t *nr)
{
	size_t low = 0, high = *nr;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (v[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < *nr && v[low].id == id)
		return &v[low];
	if (low == max)
		return NULL;
	*nr = MIN(*nr + 1, max);
	memmove(&v[low + 1], &v[low], (*nr - 1 - low) * sizeof(*v));
	v[low] = (struct engine_owner){ .id = id };
	return &v[low];
}

int engine_owners(struct engine *e, enum fp_domain_kind kind, uint64_t from, struct engine_owner *v, size_t max,
		  size_t *ret_nr)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_inode in;
	size_t nr = 0;
	int r = owners_iter_new(e->db, NULL, &it);

	while (r == 0 && (r = cancel_check()) == 0 && (r = owners_next(it, &in)) > 0) {
		uint32_t id = kind == FP_OF_USER ? in.uid : in.gid;
		struct engine_owner *o = S_ISREG(in.mode) && id >= from ? find_or_insert_owner(id, v, max, &nr) : NULL;
		struct ns_content c;

		r = o ? content_peek(e, in.ino, &c) : 0;
		if (!o || r < 0)
			continue;
		o->nr_files++;
		o->size += c.size;
		o->mapped += c.mapped;
		r = 0;
	}
	if (r == 0)
		*ret_nr = nr;
	return r;
}
