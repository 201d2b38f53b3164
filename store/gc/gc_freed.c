/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Freed and gc-pending chunks, as the read and write paths look them up. gc.c describes the protocol. */
#include "store/gc/gc_freed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/fingerprints.h"
#include "store/engine_state.h"
#include "store/gc/gc_state.h"
#include "store/gc/gc_window.h"
#include "store/remote_hooks.h"

static int add_pack(uint32_t **ids, size_t *nr, size_t *size, uint32_t pack)
{
	if (*nr == *size) {
		size_t more = MAX(2 * *size, (size_t)64);
		uint32_t *p = realloc(*ids, more * sizeof(*p));

		if (!p)
			return -ENOMEM;
		*ids = p;
		*size = more;
	}
	(*ids)[(*nr)++] = pack;
	return 0;
}

int freed_load(struct engine *e, uint32_t **ret_removed, size_t *ret_nr)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	_cleanup_(freep) uint32_t *removed = NULL;
	struct ns_key prefix = freed_key_totals();
	const void *key, *value;
	size_t key_len, value_len, nr = 0, size = 0;
	uint32_t pack, frame;
	int r;

	r = freed_get_totals(e->db, &e->gc->totals);
	if (r <= 0)
		return r; /* no totals: nothing was ever freed */
	atomic_store(&e->gc->any, true);
	r = db_iter_new(e->db, NULL, prefix.b, prefix.len, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		r = freed_key_decode(key, key_len, &pack, &frame);
		if (r < 0)
			return log_errno(r, "index: an entry of freed chunks is damaged");
		if (pack != 0 && frame == UINT32_MAX)
			r = add_pack(&removed, &nr, &size, pack);
	}
	if (r < 0)
		return r;
	*ret_removed = TAKE(removed);
	*ret_nr = nr;
	return 0;
}

int freed_unpunched(struct engine *e, uint32_t **ret, size_t *ret_nr)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	_cleanup_(freep) uint32_t *packs = NULL;
	struct ns_key prefix = freed_key_totals();
	const void *key, *value;
	size_t key_len, value_len, nr = 0, size = 0;
	struct freed_frame f;
	uint32_t pack, frame;
	int r = 0;

	if (atomic_load(&e->gc->unpunched))
		r = db_iter_new(e->db, NULL, prefix.b, prefix.len, NULL, 0, &it);
	while (it && r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		r = freed_key_decode(key, key_len, &pack, &frame);
		if (r < 0 || frame == UINT32_MAX)
			continue;
		r = freed_frame_decode(value, value_len, &f);
		if (r == 0 && !f.punched && (nr == 0 || packs[nr - 1] != pack))
			r = add_pack(&packs, &nr, &size, pack);
	}
	if (r < 0)
		return log_errno(r, "index: cannot read the entries of freed chunks");
	if (nr == 0)
		atomic_store(&e->gc->unpunched, false);
	*ret = TAKE(packs);
	*ret_nr = nr;
	return 0;
}

int freed_fate(void *engine, uint32_t pack, uint32_t frame, struct pack_fate *ret)
{
	struct engine *e = engine;
	struct freed_frame f;
	int r, shared;

	r = shared = e->remote ? e->remote->fate(e, pack, frame, ret) : 0;
	if (r < 0 || !atomic_load(&e->gc->any))
		return r;
	r = freed_get(e->db, pack, frame, &f);
	for (unsigned i = 0; r > 0 && i < PACK_GONE_WORDS; i++)
		ret->gone[i] |= f.gone[i];
	if (r == 0) {
		/* The record of a removed pack replaces those of its frames, some time before the pack is unlinked. */
		r = freed_get_pack(e->db, pack);
		for (unsigned i = 0; r > 0 && i < PACK_GONE_WORDS; i++)
			ret->gone[i] = UINT64_MAX;
	}
	return r < 0 ? r : r > 0 ? shared | PACK_GONE : shared;
}

void freed_put_frame(struct engine_tx *tx, uint32_t pack, uint32_t frame, const struct freed_frame *f)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	freed_frame_encode(f, &value);
	tx->records.failed |= buf_error(&value) < 0;
	engine_tx_put(tx, freed_key(pack, frame), value.data, value.len);
}

bool freed_is_stale(void *engine, const void *key, size_t key_len, const void *value, size_t len)
{
	struct engine *e = engine;
	uint32_t pack = fingerprint_pack(value, len);

	(void)key;
	(void)key_len;
	return pack == 0 || packs_is_removed(e->packs, pack);
}

void freed_so_far(struct engine *e, struct freed_totals *ret)
{
	mutex_lock(&e->gc->totals_lock);
	*ret = e->gc->totals;
	mutex_unlock(&e->gc->totals_lock);
}

static void put_totals(struct engine_tx *tx, const struct freed_totals *t)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	freed_totals_encode(t, &value);
	tx->records.failed |= buf_error(&value) < 0;
	engine_tx_put(tx, freed_key_totals(), value.data, value.len);
}

int freed_apply(struct engine *e, struct engine_tx *tx, const struct freed_totals *t, const struct remote_freed *shared,
		size_t nr)
{
	int r;

	put_totals(tx, t);
	r = shared ? e->remote->free_chunks(e, tx, shared, nr) : engine_tx_apply(e, tx);
	if (r < 0)
		return r;
	mutex_lock(&e->gc->totals_lock);
	e->gc->totals = *t;
	mutex_unlock(&e->gc->totals_lock);
	return 0;
}

bool freed_is_gc_pending(struct engine *e, struct addr a)
{
	struct gc_window *w = atomic_load(&e->gc->window);

	return w && gc_window_refuses(w, a);
}

void freed_referred(struct engine *e, const struct extent *x, size_t nr)
{
	struct gc_window *w = atomic_load(&e->gc->window);

	if (w)
		gc_window_mark(w, x, nr);
}
