/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Step 2 of a collection (tier_collect.c): lists the packs, and finds those that no kept manifest names. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/collect/collect_state.h"

static int mark_manifests(struct tier_collector *c)
{
	_cleanup_(buf_release) struct buf bytes = BUF_EMPTY;
	int r = 0;

	for (size_t i = 0; i < c->nr_sealed && r == 0; i++) {
		const struct tier_sealed *e = &c->sealed[i];
		struct tier_manifest m;

		r = collector_get_manifest(c, e->store, e->number, &bytes, &m);
		if (r == -ENOENT || r == -ENODATA)
			return collector_busy(c);
		if (r == 0)
			r = pack_set_add_manifest(e->is_removed ? &c->removed : &c->needed, &m);
		if (r == 0 && e->is_relied_on)
			r = pack_set_add_manifest(&c->relied, &m);
		if (r == 0 && !collector_step(c, "reading manifests", i + 1, c->nr_sealed))
			r = -ECANCELED;
		c->figures.nr_kept += !e->is_removed;
		c->figures.nr_removed += e->is_removed;
	}
	pack_set_sort(&c->needed);
	pack_set_sort(&c->relied);
	pack_set_sort(&c->removed);
	return r;
}

static int sort_packs(struct tier_collector *c, const struct buf *names)
{
	const struct tier_marks *m = &c->log.marks;
	int r = 0;

	for (size_t at = 0; at < names->len && r == 0; at += strlen((const char *)names->data + at) + 1) {
		struct set_pack *of_removed, *needed;
		uint8_t id[TIER_ID_LEN];
		bool is_dropped;

		if (!tier_pack_name_parse((const char *)names->data + at, id))
			continue;
		needed = pack_set_find(&c->needed, id);
		if (needed) {
			needed->is_listed = true;
			continue;
		}
		of_removed = pack_set_find(&c->removed, id);
		/* A dropped pack may have been needed again, by a manifest that is removed now. */
		is_dropped = !of_removed && (tier_id_is_in(m->pending, m->nr_pending, id) ||
					     tier_id_is_in(m->dropped, m->nr_dropped, id));
		r = pack_set_add(is_dropped ? &c->dropped : &c->pending, id, of_removed ? of_removed->len : 0);
	}
	pack_set_sort(&c->dropped);
	pack_set_sort(&c->pending);
	return r;
}

/*
 * Do all packs that kept checkpoints need exist? Retention must not remove a complete checkpoint because an incomplete
 * one is kept. If one pack is missing, more may be, so nothing is deleted from an incomplete tier. A list may lack a
 * pack that is there.
 */
static int check_needed(struct tier_collector *c)
{
	for (size_t i = 0; i < c->needed.nr; i++) {
		const struct set_pack *p = &c->needed.v[i];
		struct tier_object_name name = tier_pack_name(p->id);
		uint8_t byte;
		struct tier_request q = { .op = TIER_GET, .name = name.s, .buf = &byte, .len = sizeof(byte) };
		int r = p->is_listed ? 0 : tier_call(c->tier, &q);

		if (r == -ENOENT)
			return log_errno(
				-EBADMSG,
				"tier %s: %s: is missing, and a checkpoint that would be kept needs it: nothing is "
				"deleted. ckptfs tier verify names the checkpoint. To drop it, delete its manifest, "
				"and collect with --forget-missing",
				tier_where(c->tier), name.s);
		if (r < 0)
			return r;
	}
	return 0;
}

static int check_footer(const struct tier_collector *c, const struct tier_request *q, const struct set_pack *p)
{
	struct tier_footer f;
	int r = q->result;

	if (r == 0)
		r = tier_footer_decode(q->buf, q->got, &f);
	if (r == 0 && (memcmp(f.id, p->id, sizeof(f.id)) != 0 || tier_pack_len(&f) != p->len || q->size != p->len))
		r = -EBADMSG;
	if (r == -EBADMSG || r == -ENOENT)
		return log_errno(-EBADMSG,
				 "tier %s: %s: is missing, cut off or damaged, and the newest checkpoint of a directory "
				 "needs it: nothing is deleted. ckptfs tier verify names the checkpoint",
				 tier_where(c->tier), q->name);
	return r;
}

/*
 * Checks that the packs are complete which belong to checkpoints that are kept while others are removed. Retention in a
 * store verifies the newest checkpoint as well. This reads the end of each pack, and neither tables nor chunks.
 */
static int check_relied(struct tier_collector *c)
{
	struct tier_footer_disk bytes[COLLECT_IN_FLIGHT];
	struct tier_object_name names[COLLECT_IN_FLIGHT];
	struct tier_request q[COLLECT_IN_FLIGHT];
	int r = 0;

	for (size_t i = 0, nr; i < c->relied.nr && r == 0; i += nr) {
		const struct set_pack *p = &c->relied.v[i];

		nr = MIN(c->relied.nr - i, (size_t)COLLECT_IN_FLIGHT);
		for (size_t k = 0; k < nr; k++) {
			names[k] = tier_pack_name(p[k].id);
			q[k] = (struct tier_request){
				.op = TIER_GET,
				.name = names[k].s,
				.off = p[k].len - sizeof(bytes[k]),
				.buf = &bytes[k],
				.len = sizeof(bytes[k]),
			};
		}
		r = collector_run_all(c, q, nr, "reading packs");
		for (size_t k = 0; k < nr && r == 0; k++)
			r = check_footer(c, &q[k], &p[k]);
	}
	return r;
}

/* Of packs that no manifest names, as of interrupted flushes: no manifest has their size. */
static int find_sizes(struct tier_collector *c, struct pack_set *s)
{
	struct tier_object_name names[COLLECT_IN_FLIGHT];
	struct tier_request q[COLLECT_IN_FLIGHT];
	struct set_pack *of[COLLECT_IN_FLIGHT];
	uint8_t bytes[COLLECT_IN_FLIGHT];
	int r = 0;

	for (size_t i = 0, nr; i < s->nr && r == 0;) {
		for (nr = 0; i < s->nr && nr < COLLECT_IN_FLIGHT; i++) {
			if (s->v[i].len > 0)
				continue;
			of[nr] = &s->v[i];
			names[nr] = tier_pack_name(s->v[i].id);
			q[nr] = (struct tier_request){ .op = TIER_GET, .name = names[nr].s, .buf = &bytes[nr], .len = 1 };
			nr++;
		}
		r = collector_run_all(c, q, nr, "reading sizes");
		for (size_t k = 0; k < nr && r == 0; k++)
			if (q[k].result == 0)
				of[k]->len = q[k].size;
			else if (q[k].result != -ENOENT)
				r = q[k].result;
	}
	return r;
}

int tier_collector_mark(struct tier_collector *c)
{
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	struct tier_collect_figures *f = &c->figures;
	int r = tier_list_all(c->tier, TIER_PACKS_PREFIX, &names);

	if (r == 0)
		r = mark_manifests(c);
	if (r == 0)
		r = sort_packs(c, &names);
	if (r == 0)
		r = check_needed(c);
	if (r == 0)
		r = check_relied(c);
	if (r == 0)
		r = find_sizes(c, &c->pending);
	if (r == 0)
		r = find_sizes(c, &c->dropped);
	f->nr_packs = c->needed.nr;
	f->pack_bytes = pack_set_bytes(&c->needed);
	f->nr_pending = c->pending.nr;
	f->pending_bytes = pack_set_bytes(&c->pending);
	f->nr_dropped = c->dropped.nr;
	f->dropped_bytes = pack_set_bytes(&c->dropped);
	return r;
}
