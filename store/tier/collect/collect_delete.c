/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Steps 5 to 7 of a collection (tier_collect.c): puts a fence for each store, reads the log again, and deletes. The
 * order is that of tier_collector_delete().
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/collect/collect_state.h"

/* The number is taken. 0: by a manifest, or an older fence; 1: by a fence of this generation or a later one. */
static int read_taken(struct tier_collector *c, const struct collect_store *s, uint64_t number)
{
	_cleanup_(buf_release) struct buf bytes = BUF_EMPTY;
	struct tier_manifest m;
	struct tier_fence fence;
	int r = collector_get_manifest(c, s->id, number, &bytes, &m);

	if (r == -ENOENT)
		return collector_busy(c);
	if (r == 0)
		return pack_set_add_manifest(&c->needed, &m);
	if (r != -ENODATA)
		return r;
	r = tier_fence_decode(bytes.data, bytes.len, &fence);
	return r < 0 ? collector_complain(c, tier_manifest_name(s->id, number).s, r) : fence.generation >= c->generation;
}

static int put_fence(struct tier_collector *c, const struct collect_store *s)
{
	struct tier_fence fence = { .number = s->base, .generation = c->generation };
	struct tier_fence_disk d;
	int r;

	memcpy(fence.store, s->id, sizeof(fence.store));
	do {
		fence.number++;
		tier_fence_encode(&fence, &d);
		r = tier_put_new(c->tier, tier_manifest_name(s->id, fence.number).s, &d, sizeof(d));
		if (r == 0)
			c->figures.nr_fences++;
		r = r == -EEXIST ? read_taken(c, s, fence.number) : r == 0 ? 1 : r;
	} while (r == 0);
	return MIN(r, 0);
}

static int put_fences(struct tier_collector *c)
{
	int r = 0;

	for (size_t i = 0; i < c->nr_stores && r == 0; i++) {
		r = put_fence(c, &c->stores[i]);
		if (r == 0 && !collector_step(c, "putting fences", i + 1, c->nr_stores))
			r = -ECANCELED;
	}
	pack_set_sort(&c->needed);
	return r;
}

/* --- deletions --- */

static int delete_objects(struct tier_collector *c, const struct tier_object_name *names, size_t nr, const char *what)
{
	struct tier_request q[COLLECT_IN_FLIGHT];
	int r = 0;

	for (size_t i = 0, n; i < nr && r == 0; i += n) {
		n = MIN(nr - i, (size_t)COLLECT_IN_FLIGHT);
		for (size_t k = 0; k < n; k++)
			q[k] = (struct tier_request){ .op = TIER_DELETE, .name = names[i + k].s };
		r = collector_run_all(c, q, n, what);
		for (size_t k = 0; k < n && r == 0; k++)
			r = q[k].result;
	}
	return r;
}

struct name_list {
	struct tier_object_name *v;
	size_t nr, room;
};

static void name_list_release(struct name_list *l)
{
	free(l->v);
}

static int name_list_add(struct name_list *l, const struct tier_object_name *name)
{
	int r = list_grow(&l->v, l->nr, &l->room, sizeof(*l->v));

	if (r == 0)
		l->v[l->nr++] = *name;
	return r;
}

/* Manifests that are not valid, and fences at numbers up to the base of their store. */
static int delete_numbers(struct tier_collector *c)
{
	_cleanup_(name_list_release) struct name_list l = { 0 };
	int r = 0;

	for (size_t at = 0; at < c->names.len && r == 0; at += strlen((const char *)c->names.data + at) + 1) {
		struct tier_object_name name;
		uint8_t store[TIER_ID_LEN];
		uint64_t number;

		if (!tier_manifest_name_parse((const char *)c->names.data + at, store, &number) ||
		    tier_log_keeps(&c->log, store, number))
			continue;
		name = tier_manifest_name(store, number);
		r = name_list_add(&l, &name);
	}
	return r < 0 ? r : delete_objects(c, l.v, l.nr, "deleting manifests");
}

static int delete_packs(struct tier_collector *c)
{
	int r = 0;

	for (size_t i = 0; i < c->dropped.nr && r == 0;) {
		struct tier_object_name names[COLLECT_IN_FLIGHT];
		uint64_t bytes = 0;
		size_t nr = 0;

		for (; i < c->dropped.nr && nr < COLLECT_IN_FLIGHT; i++) {
			if (pack_set_find(&c->needed, c->dropped.v[i].id))
				continue;
			names[nr++] = tier_pack_name(c->dropped.v[i].id);
			bytes += c->dropped.v[i].len;
		}
		r = delete_objects(c, names, nr, "deleting packs");
		if (r == 0) {
			c->figures.nr_deleted += nr;
			c->figures.deleted_bytes += bytes;
		}
	}
	return r;
}

/* Marks older than the previous generation, and those of collections that ended before they appended an entry. */
static int delete_marks(struct tier_collector *c)
{
	_cleanup_(name_list_release) struct name_list l = { 0 };
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	const struct tier_marks *m = &c->log.marks;
	int r = tier_list_all(c->tier, TIER_MARKS_PREFIX, &names);

	for (size_t at = 0; at < names.len && r == 0; at += strlen((const char *)names.data + at) + 1) {
		struct tier_object_name name;
		uint8_t id[TIER_ID_LEN];
		uint64_t number;

		if (!tier_marks_name_parse((const char *)names.data + at, &number, id) || number > m->number)
			continue;
		if ((number == m->number && memcmp(id, c->log.marks_id, sizeof(id)) == 0) ||
		    (number == m->previous && memcmp(id, m->previous_id, sizeof(id)) == 0))
			continue;
		name = tier_marks_name(number, id);
		r = name_list_add(&l, &name);
	}
	return r < 0 ? r : delete_objects(c, l.v, l.nr, "deleting marks");
}

/* After packs were deleted: a temporary may be another name of one. */
static int sweep_temporaries(struct tier_collector *c)
{
	static const char *const prefixes[] = {
		TIER_PACKS_PREFIX, TIER_SEALED_PREFIX, TIER_LOG_PREFIX, TIER_MARKS_PREFIX, "keys/", "probe/",
	};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(prefixes) && r == 0; i++)
		r = tier_sweep(c->tier, prefixes[i]);
	return r;
}

int tier_collector_delete(struct tier_collector *c)
{
	int r = 0;

	for (size_t i = 0; i < c->nr_stores && r == 0; i++) /* found in the list only */
		r = tier_log_join(&c->log, c->stores[i].id);
	if (r == 0)
		r = collect_append_generation(c);
	else if (r == -ESTALE)
		r = collector_busy(c);
	if (r == 0)
		r = put_fences(c);
	if (r == 0)
		r = tier_log_follow(&c->log, NULL, NULL);
	if (r == -ESTALE || (r == 0 && c->log.generation != c->generation))
		r = collector_busy(c);
	if (r == 0)
		r = delete_numbers(c);
	if (r == 0)
		r = delete_packs(c);
	if (r == 0)
		r = delete_marks(c);
	if (r == 0)
		r = sweep_temporaries(c);
	return r;
}
