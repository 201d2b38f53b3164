/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Steps 3 and 4 of a collection (tier_collect.c): puts the marks, and appends the generation to the log. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/collect/collect_state.h"

struct removed_seals {
	struct tier_seal_disk *v;
	size_t nr, room;
};

static int compare_seals(const void *a, const void *b)
{
	const struct tier_seal_disk *x = a, *y = b;
	int64_t s = (int64_t)le64_get(x->sealed_ns), t = (int64_t)le64_get(y->sealed_ns);
	uint64_t i = le64_get(x->ino), k = le64_get(y->ino);

	return s != t ? (s < t ? -1 : 1) : (i > k) - (i < k);
}

/* A seal whose first manifest lacked packs was flushed again, and has two. */
static bool has_kept_twin(const struct tier_collector *c, const struct tier_sealed *removed)
{
	for (const struct tier_sealed *e = c->sealed; e < c->sealed + c->nr_sealed; e++)
		if (!e->is_removed && e->ino == removed->ino && e->sealed_ns == removed->sealed_ns &&
		    memcmp(e->store, removed->store, sizeof(e->store)) == 0)
			return true;
	return false;
}

/* Every reader of the tier reads the removed seals of all stores. A node flushes again what is not recorded. */
static size_t removed_max(const struct tier_collector *c)
{
	return MIN((size_t)TIER_REMOVED_MAX, TIER_REMOVED_ALL_MAX / c->nr_stores);
}

/* Seals removed by earlier generations and by this one: the last ones. */
static int list_removed(struct tier_collector *c, const struct collect_store *s, struct removed_seals *ret)
{
	const struct tier_store_marks *m = tier_marks_store(&c->log.marks, s->id);
	uint32_t nr_before = m ? m->nr_removed : 0;
	size_t nr = 0;
	int r;

	ret->nr = 0;
	for (size_t i = 0; i < nr_before + c->nr_sealed; i++) {
		const struct tier_sealed *e = i < nr_before ? NULL : &c->sealed[i - nr_before];

		if (e && (!e->is_removed || memcmp(e->store, s->id, sizeof(s->id)) != 0 || has_kept_twin(c, e)))
			continue;
		r = list_grow(&ret->v, ret->nr, &ret->room, sizeof(*ret->v));
		if (r < 0)
			return r;
		ret->v[ret->nr++] = e ? (struct tier_seal_disk){ le64_put(e->ino), le64_put((uint64_t)e->sealed_ns) } :
					m->removed[i];
	}
	if (ret->nr > 0)
		qsort(ret->v, ret->nr, sizeof(*ret->v), compare_seals);
	for (size_t i = 0; i < ret->nr; i++)
		if (nr == 0 || compare_seals(&ret->v[nr - 1], &ret->v[i]) != 0)
			ret->v[nr++] = ret->v[i];
	ret->nr = MIN(nr, removed_max(c));
	if (nr > ret->nr)
		memmove(ret->v, ret->v + (nr - ret->nr), ret->nr * sizeof(*ret->v));
	return 0;
}

static int list_kept(const struct tier_collector *c, const struct collect_store *s, struct le64 **ret, uint32_t *ret_nr)
{
	size_t nr = 0, room = 0;
	int r = 0;

	for (size_t i = 0; i < c->nr_sealed && r == 0; i++) {
		const struct tier_sealed *e = &c->sealed[i];

		if (e->is_removed || memcmp(e->store, s->id, sizeof(s->id)) != 0)
			continue;
		r = list_grow(ret, nr, &room, sizeof(**ret));
		if (r == 0)
			(*ret)[nr++] = le64_put(e->number);
	}
	*ret_nr = (uint32_t)nr;
	return r;
}

static int copy_ids(const struct pack_set *s, uint8_t (**ret)[TIER_ID_LEN])
{
	*ret = calloc(MAX(s->nr, (size_t)1), sizeof(**ret));
	for (size_t i = 0; *ret && i < s->nr; i++)
		memcpy((*ret)[i], s->v[i].id, TIER_ID_LEN);
	return *ret ? 0 : -ENOMEM;
}

static int encode_marks(struct tier_collector *c, uint64_t number, struct buf *ret)
{
	struct tier_store_marks *stores = calloc(MAX(c->nr_stores, (size_t)1), sizeof(*stores));
	struct le64 **kept = calloc(MAX(c->nr_stores, (size_t)1), sizeof(*kept));
	struct removed_seals *removed = calloc(MAX(c->nr_stores, (size_t)1), sizeof(*removed));
	_cleanup_(freep) uint8_t(*dropped)[TIER_ID_LEN] = NULL;
	_cleanup_(freep) uint8_t(*pending)[TIER_ID_LEN] = NULL;
	struct tier_marks m = {
		.number = number,
		.previous = c->log.generation,
		.stores = stores,
		.nr_stores = (uint32_t)c->nr_stores,
		.nr_dropped = (uint32_t)c->dropped.nr,
		.nr_pending = (uint32_t)c->pending.nr,
	};
	int r = stores && kept && removed ? copy_ids(&c->dropped, &dropped) : -ENOMEM;

	if (r == 0)
		r = copy_ids(&c->pending, &pending);
	for (size_t i = 0; i < c->nr_stores && r == 0; i++) {
		const struct collect_store *s = &c->stores[i];

		stores[i] = (struct tier_store_marks){
			.base = s->base,
			.last = s->last.number,
			.last_ino = s->last.ino,
			.last_sealed_ns = s->last.sealed_ns,
		};
		memcpy(stores[i].id, s->id, sizeof(s->id));
		r = list_kept(c, s, &kept[i], &stores[i].nr_kept);
		if (r == 0)
			r = list_removed(c, s, &removed[i]);
		stores[i].kept = kept[i];
		stores[i].removed = removed[i].v;
		stores[i].nr_removed = (uint32_t)removed[i].nr;
	}
	if (r == 0) {
		memcpy(m.previous_id, c->log.marks_id, sizeof(m.previous_id));
		m.dropped = (const void *)dropped;
		m.pending = (const void *)pending;
		tier_marks_encode(&m, ret);
		r = buf_error(ret);
	}
	for (size_t i = 0; i < c->nr_stores; i++) {
		if (kept)
			free(kept[i]);
		if (removed)
			free(removed[i].v);
	}
	free(kept);
	free(removed);
	free(stores);
	return r < 0 ? r : ret->len > TIER_MARKS_MAX ? -EFBIG : 0;
}

/* Stores that have joined since the manifests were read. Their manifests, if any, are read before their fences. */
static int add_joined(struct tier_collector *c)
{
	int r = 0;

	for (size_t i = 0; i < c->log.nr_joined && r == 0; i++)
		r = collect_add_store(c, c->log.joined[i]);
	return r;
}

int collect_append_generation(struct tier_collector *c)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	uint8_t id[TIER_ID_LEN];
	uint64_t number;
	int r;

	do {
		number = c->log.entry + 1;
		if (c->log.generation != c->generation)
			return collector_busy(c);
		buf_clear(&b);
		r = add_joined(c);
		if (r == 0)
			r = encode_marks(c, number, &b);
		if (r < 0)
			return r;
		tier_marks_id(b.data, b.len, id);
		r = tier_put_new(c->tier, tier_marks_name(number, id).s, b.data, b.len);
		if (r < 0 && r != -EEXIST)
			return r;
		r = tier_log_append_generation(&c->log, id, b.len);
		if (r < 0 && r != -EEXIST)
			return r;
		r = tier_log_follow(&c->log, NULL, NULL); /* a store has joined, or the answer to an attempt was lost */
		if (r < 0)
			return r == -ESTALE ? collector_busy(c) : r;
	} while (c->log.generation == c->generation);
	if (c->log.generation != number || memcmp(c->log.marks_id, id, sizeof(id)) != 0)
		return collector_busy(c);
	c->generation = number;
	return 0;
}
