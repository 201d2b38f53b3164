/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Pinned and remote chunks in a local collection.
 *
 * A pinned chunk is live, whether a local file refers to it or not. A remote chunk is dead when no file refers to it,
 * like any other. When it is freed, its pin record is deleted and the totals are reduced in the same group of the
 * journal: this node does not refer to it any more. Pin records are not in the log, so this group is written beside it.
 * The deletions that made these chunks dead are durable before.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "store/gc/gc_window.h"
#include "store/remote/remote.h"

/* --- marking --- */

static void mark_frame(struct gc_window *w, const struct pack_frame_rec *rec, const struct share_frame *f)
{
	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		if (share_bit(f->pinned, i)) {
			struct extent x = { .len = pack_rec_len(rec, i), .addr = pack_rec_addr(rec, i) };

			gc_window_mark_bytes(w, &x, 1);
		}
}

int remote_mark_pinned(struct engine *e, struct db_snapshot *state, struct gc_window *w)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	_cleanup_(freep) struct share_frame *f = malloc(sizeof(*f));
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = share_key_totals();
	const void *key, *value;
	size_t key_len, value_len;
	uint32_t pack, frame;
	int r;

	if (!rec || !f)
		return -ENOMEM;
	r = db_iter_new(e->db, state, prefix.b, prefix.len, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		r = share_key_decode(key, key_len, &pack, &frame);
		if (r == 0 && pack > 0)
			r = share_frame_decode(value, value_len, f);
		if (r < 0)
			return log_errno(r, "index: a pin record is damaged: run fsck.ckptfs");
		if (pack == 0 || !share_any(f->pinned))
			continue;
		r = packs_frame_rec(e->packs, pack, frame, rec);
		if (r > 0 && !rec->damaged)
			mark_frame(w, rec, f);
	}
	return r;
}

bool remote_has_pack(struct engine *e, uint32_t pack)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = share_key_pack(pack);
	const void *key, *value;
	size_t key_len, value_len;

	if (!atomic_load(&e->shares->any))
		return false;
	/* if the records cannot be read, the pack is not moved */
	return db_iter_new(e->db, NULL, prefix.b, prefix.len, NULL, 0, &it) < 0 ||
	       db_iter_next(it, &key, &key_len, &value, &value_len) != 0;
}

/* --- freeing --- */

int remote_is_settling(struct engine *e, uint32_t pack, uint32_t frame)
{
	struct share_frame f;
	int r;

	if (!atomic_load(&e->shares->any))
		return 0;
	r = share_get(e->db, pack, frame, &f);
	return r <= 0 ? r : !f.settled && !pack_marks_cover(&e->shares->opened, pack, frame);
}

static void count_less(uint64_t *nr, uint64_t *bytes, uint32_t len)
{
	*nr -= MIN(*nr, UINT64_C(1));
	*bytes -= MIN(*bytes, (uint64_t)len);
}

/* A freed chunk is neither remote nor pinned. If its frame table cannot be read, its length counts as 0. */
static void uncount_chunks(struct engine *e, uint32_t pack, uint32_t frame, const uint64_t gone[PACK_GONE_WORDS],
			   struct share_frame *f) REQUIRES(e->shares->lock)
{
	struct share_totals *t = &e->shares->totals;
	struct pack_frame_rec rec;
	bool is_known = packs_frame_rec(e->packs, pack, frame, &rec) > 0 && !rec.damaged;

	for (uint32_t i = 0; i < SHARE_CHUNKS; i++) {
		uint32_t len = is_known && i < rec.nr_chunks ? pack_rec_len(&rec, i) : 0;

		if (!share_bit(gone, i))
			continue;
		if (share_bit(f->remote, i) && f->settled)
			count_less(&t->nr_remote, &t->remote_bytes, len);
		if (share_bit(f->pinned, i))
			count_less(&t->nr_pinned, &t->pinned_bytes, len);
		share_unset(f->remote, i);
		share_unset(f->pinned, i);
	}
}

static int free_in_frame(struct engine *e, const struct remote_freed *g, struct buf *records) REQUIRES(e->shares->lock)
{
	_cleanup_(freep) struct share_frame *f = malloc(sizeof(*f));
	int r = f ? share_get(e->db, g->pack, g->frame, f) : -ENOMEM;

	if (r <= 0)
		return r;
	uncount_chunks(e, g->pack, g->frame, g->gone, f);
	if (!share_any(f->remote) && !share_any(f->pinned))
		shares_del(g->pack, g->frame, records);
	else
		shares_put(f, g->pack, g->frame, records);
	return 0;
}

static int free_pack(struct engine *e, uint32_t pack, struct engine_tx *tx) REQUIRES(e->shares->lock)
{
	static const uint64_t all[PACK_GONE_WORDS] = { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX };
	_cleanup_(freep) struct share_frame *f = malloc(sizeof(*f));
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = share_key_pack(pack);
	const void *key, *value;
	size_t key_len, value_len;
	uint32_t frame;
	int r = f ? db_iter_new(e->db, NULL, prefix.b, prefix.len, NULL, 0, &it) : -ENOMEM;

	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		r = share_key_decode(key, key_len, &pack, &frame);
		if (r == 0)
			r = share_frame_decode(value, value_len, f);
		if (r == 0)
			uncount_chunks(e, pack, frame, all, f);
	}
	engine_tx_del_prefix(tx, prefix);
	return r;
}

int remote_free_chunks(struct engine *e, struct engine_tx *tx, const struct remote_freed *gone, size_t nr)
{
	struct share_totals before;
	int r = 0;

	mutex_lock(&e->shares->lock);
	before = e->shares->totals;
	for (size_t i = 0; i < nr && r == 0; i++)
		r = gone[i].frame == UINT32_MAX ? free_pack(e, gone[i].pack, tx) :
						  free_in_frame(e, &gone[i], &tx->records);
	if (r == 0)
		r = shares_commit(e, NULL, &tx->records);
	if (r < 0)
		e->shares->totals = before;
	mutex_unlock(&e->shares->lock);
	buf_clear(&tx->records);
	return r;
}
