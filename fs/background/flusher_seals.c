/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The seals of the store, in the queue of the flusher, and which of them are in the tier. */
#include <stdlib.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/away/dropped.h"
#include "fs/background/flush_queue.h"
#include "fs/background/flusher_state.h"
#include "fs/fs.h"
#include "fs/subuids.h"
#include "index/namespace_table.h"
#include "store/tier/tier_worker.h"

struct seal_list {
	struct flush_seal *v;
	size_t nr, room;
};

static void seal_list_release(struct seal_list *l)
{
	free(l->v);
}

static int list_seals(struct flusher *f, struct seal_list *ret)
{
	uint32_t uid = 0, user = 0; /* of the seal before: most follow one of the same user */
	struct ns_seal seal;
	uint64_t ino = 0;
	int r;

	while ((r = ns_next_seal(f->fs->db, ino, &ino, &seal)) > 0) {
		if (!seal.is_complete)
			continue;
		if (seal.uid != uid)
			user = subuids_user(seal.uid);
		uid = seal.uid;
		r = list_grow(&ret->v, ret->nr, &ret->room, sizeof(*ret->v));
		if (r < 0)
			return r;
		r = away_is_dropped(f->fs, ino);
		if (r < 0)
			return r;
		ret->v[ret->nr++] = (struct flush_seal){
			.ino = ino, .sealed_ns = seal.sealed_ns, .bytes = seal.bytes, .user = user, .is_away = r > 0
		};
	}
	return r;
}

void flusher_mark_uncompared(struct flusher *f) REQUIRES(f->lock)
{
	for (size_t i = 0; i < f->queue.nr; i++)
		f->queue.v[i].is_compared = false;
}

/* Compares the seals with the manifests in the tier. */
static void compare_seals(struct flusher *f, const struct tier_worker *idle) REQUIRES(f->lock)
{
	for (size_t i = 0; i < f->queue.nr; i++) {
		struct flush_seal *s = &f->queue.v[i];

		if (s->is_compared)
			continue;
		s->is_in_tier = tier_worker_has(idle, s->ino, s->sealed_ns);
		s->is_removed = tier_worker_was_removed(idle, s->ino, s->sealed_ns) || (s->is_away && !s->is_in_tier);
		s->is_compared = true;
	}
	f->status.is_known = true;
}

int flusher_update_seals(struct flusher *f, const struct tier_worker *idle)
{
	_cleanup_(seal_list_release) struct seal_list l = { 0 };
	uint64_t nr_changes;
	int r;

	mutex_lock(&f->lock);
	nr_changes = f->nr_changes;
	mutex_unlock(&f->lock);
	r = list_seals(f, &l);
	if (r < 0)
		return log_errno(r, "sealed directories: cannot list");
	mutex_lock(&f->lock);
	if (nr_changes >= f->nr_listed) { /* else another thread has a newer list */
		flush_queue_replace(&f->queue, TAKE(l.v), l.nr);
		f->nr_listed = nr_changes;
	}
	if (idle)
		compare_seals(f, idle);
	mutex_unlock(&f->lock);
	return 0;
}

int flusher_update_own_seals(struct flusher *f)
{
	struct tier_worker *idle;

	mutex_lock(&f->lock);
	f->nr_seen = f->nr_changes;
	idle = f->worker;
	if (idle && tier_worker_generation(idle) != f->generation) { /* it may have removed some */
		f->generation = tier_worker_generation(idle);
		flusher_mark_uncompared(f);
	}
	mutex_unlock(&f->lock);
	return flusher_update_seals(f, idle);
}

bool flusher_has_seal(struct flusher *f, uint64_t ino, int64_t sealed_ns)
{
	const struct flush_seal *s;
	bool has;

	mutex_lock(&f->lock);
	s = flush_queue_find(&f->queue, ino);
	has = s && s->sealed_ns == sealed_ns;
	mutex_unlock(&f->lock);
	return has;
}
