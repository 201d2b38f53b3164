/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/remote/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/dedup/dedup_tables.h"
#include "store/superblock.h"

/* --- cutting the view --- */

static void cut_begin(struct engine *e)
{
	atomic_store(&e->shares->paused, true);
}

static void cut_lock(struct engine *e) NO_THREAD_SAFETY_ANALYSIS /* returns with it held */
{
	mutex_lock(&e->shares->lock);
}

static void cut_end(struct engine *e) NO_THREAD_SAFETY_ANALYSIS /* releases it */
{
	mutex_unlock(&e->shares->lock);
	atomic_store(&e->shares->paused, false);
}

/* --- the store as a whole --- */

static bool any(struct engine *e)
{
	return atomic_load(&e->shares->any);
}

static void stats(struct engine *e, struct engine_stats *ret)
{
	struct shares *s = e->shares;

	mutex_lock(&s->lock);
	ret->remote_bytes = s->totals.remote_bytes;
	ret->pinned_bytes = s->totals.pinned_bytes;
	mutex_unlock(&s->lock);
	ret->fetched_bytes = atomic_load_explicit(&s->fetched, memory_order_relaxed);
	ret->nr_rounds = atomic_load_explicit(&s->nr_rounds, memory_order_relaxed);
	dedup_lock(e);
	ret->pending_bytes = s->nr_deferred * PACK_FRAME_BYTES;
	dedup_unlock(e);
}

static void release(struct engine *e)
{
	struct shares *s = TAKE(e->shares);

	e->remote = NULL;
	free(s->nodes);
	buf_release(&s->waiting);
	cond_release(&s->settled);
	mutex_release(&s->lock);
	free(s);
}

static const struct remote_hooks hooks = {
	.chunk_is_usable = remote_chunk_is_usable,
	.any_unusable = remote_any_unusable,
	.is_deferring = remote_is_deferring,
	.defer = remote_defer,
	.append_begin = remote_append_begin,
	.append_end = remote_append_end,
	.request_round = remote_request_round,
	.sync_room = remote_sync_room,
	.sync_begin = remote_sync_begin,
	.sync_frames = remote_sync_frames,
	.committed = remote_committed,
	.announce = remote_announce,
	.cut_begin = cut_begin,
	.cut_lock = cut_lock,
	.cut_end = cut_end,
	.fate = remote_fate,
	.fetch = remote_fetch,
	.any = any,
	.mark_pinned = remote_mark_pinned,
	.has_pack = remote_has_pack,
	.is_settling = remote_is_settling,
	.free_chunks = remote_free_chunks,
	.carry = remote_carry,
	.moved = remote_moved,
	.nr_spare = remote_nr_spare,
	.stats = stats,
	.abandon_frames = remote_abandon_frames,
	.free = release,
};

/* A store that was made without cluster= has a random key: no other store has the same fingerprints. */
int remote_open(struct engine *e, const struct pack_marks *marks)
{
	struct shares *s;

	if (!(e->dirs.sb.flags & SUPERBLOCK_CLUSTER))
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	mutex_init(&s->lock);
	cond_init(&s->settled);
	s->opened = *marks;
	e->shares = s;
	e->remote = &hooks; /* engine_free() frees it, also if loading fails */
	return shares_load(e, marks);
}

int remote_check_repair(const char *path, const struct superblock *sb)
{
	(void)path;
	(void)sb;
	return 0;
}

int engine_cluster_identity(const struct engine *e, struct cluster_identity *ret)
{
	const struct superblock *sb = &e->dirs.sb;

	if (!(sb->flags & SUPERBLOCK_CLUSTER))
		return 0;
	*ret = (struct cluster_identity){ .hash = sb->hash, .incompat = sb->incompat };
	memcpy(ret->id, sb->store_id, sizeof(ret->id));
	fp_derive("ckptfs cluster proof", sb->secret, ret->proof_key);
	return 1;
}
