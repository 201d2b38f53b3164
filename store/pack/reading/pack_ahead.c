/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/pack/reading/pack_ahead.h"

#include <string.h>

#include "base/util.h"
#include "store/pack/packs_impl.h"

#define LEN_MIN PACK_PART_BYTES /* of a stretch: shorter reads are random access */
#define NEAR PACK_PART_BYTES /* tolerated gap: shared pages are stored apart from their neighbours */

void pack_ahead_init(struct pack_ahead *a)
{
	*a = (struct pack_ahead){ 0 };
	mutex_init(&a->lock);
	cond_init(&a->done);
}

void pack_ahead_release(struct pack_ahead *a)
{
	cond_release(&a->done);
	mutex_release(&a->lock);
}

static void count_open(struct pack_ahead *a) REQUIRES(a->lock)
{
	atomic_store(&a->nr_open, a->nr_wishes + a->busy);
}

static bool overlap(const struct pack_stretch *x, const struct pack_stretch *y)
{
	return x->pack == y->pack && x->from < y->to && y->from < x->to;
}

bool pack_trail_goes_on(const struct pack_trail *t, const struct pack_stretch *s)
{
	return s->pack == t->last.pack && s->from + NEAR >= t->next && s->from <= t->next + NEAR && s->to > t->last.to;
}

static void drop_wish(struct pack_ahead *a, unsigned i) REQUIRES(a->lock)
{
	a->nr_wishes--;
	memmove(&a->wishes[i], &a->wishes[i + 1], (a->nr_wishes - i) * sizeof(a->wishes[i]));
}

static void drop_wishes_in(struct pack_ahead *a, const struct pack_stretch *s) REQUIRES(a->lock)
{
	for (unsigned i = a->nr_wishes; i-- > 0;)
		if (overlap(&a->wishes[i], s))
			drop_wish(a, i);
}

static void add_wish(struct pack_ahead *a, const struct pack_trail *t) REQUIRES(a->lock)
{
	uint64_t len = MIN(t->last.to - t->last.from, (uint64_t)PACK_FRAME_BYTES);
	struct pack_stretch wish = { t->last.pack, t->next, t->next + len };

	drop_wishes_in(a, &wish);
	if (a->nr_wishes == PACK_AHEAD_NR)
		drop_wish(a, 0);
	a->wishes[a->nr_wishes++] = wish;
}

void pack_ahead_read(struct pack_ahead *a, const struct pack_trail *t)
{
	struct pack_trail now = *t;
	unsigned i = 0;

	if (t->last.to - t->last.from < LEN_MIN)
		return;
	mutex_lock(&a->lock);
	while (i < a->nr_trails && !pack_trail_goes_on(&a->trails[i], &t->last))
		i++;
	if (i < a->nr_trails)
		now.nr_files += a->trails[i].nr_files;
	else
		i = a->nr_trails < PACK_AHEAD_NR ? a->nr_trails++ : PACK_AHEAD_NR - 1;
	memmove(&a->trails[1], &a->trails[0], i * sizeof(a->trails[0]));
	a->trails[0] = now;
	if (t->nr_files > 0 && now.nr_files > 1 && atomic_load(&a->nr_readers) == 1)
		add_wish(a, &now);
	count_open(a);
	mutex_unlock(&a->lock);
}

void pack_ahead_claim(struct pack_ahead *a, const struct pack_stretch *s)
{
	uint32_t frame = (uint32_t)(s->from / PACK_FRAME_BYTES);

	if (atomic_load(&a->nr_open) == 0)
		return;
	mutex_lock(&a->lock);
	drop_wishes_in(a, s);
	count_open(a);
	while (a->busy && a->pack == s->pack && a->frame == frame)
		cond_wait(&a->done, &a->lock);
	mutex_unlock(&a->lock);
}

bool pack_ahead_take(struct pack_ahead *a, struct pack_stretch *ret)
{
	bool found;

	if (atomic_load(&a->nr_open) == 0)
		return false;
	mutex_lock(&a->lock);
	found = !a->busy && a->nr_wishes > 0;
	if (found) {
		struct pack_stretch *w = &a->wishes[0];

		a->pack = w->pack;
		a->frame = (uint32_t)(w->from / PACK_FRAME_BYTES);
		*ret = (struct pack_stretch){ w->pack, w->from, MIN(w->to, pack_stretch_at(a->frame + 1, 0)) };
		w->from = ret->to;
		if (w->from == w->to)
			drop_wish(a, 0);
		a->busy = true;
		count_open(a);
	}
	mutex_unlock(&a->lock);
	return found;
}

void pack_ahead_done(struct pack_ahead *a)
{
	mutex_lock(&a->lock);
	a->busy = false;
	count_open(a);
	cond_broadcast(&a->done);
	mutex_unlock(&a->lock);
}

/* --- decoding a wish --- */

/* Parts (bit mask) that overlap [in, end) and have a local chunk. */
static uint32_t parts_here(const struct shape *s, uint32_t in, uint32_t end)
{
	uint32_t parts = 0;

	end = MIN(end, pack_cut_total(&s->cuts));
	for (uint32_t i = in < end ? pack_cut_at(&s->cuts, in) : s->cuts.nr_chunks;
	     i < s->cuts.nr_chunks && pack_cut_start(&s->cuts, i) < end; i++) {
		uint32_t first = pack_cut_start(&s->cuts, i) / PACK_PART_BYTES,
			 last = (pack_cut_end(&s->cuts, i) - 1) / PACK_PART_BYTES;

		if (!fp_is_none(s->fps[i]) && !pack_is_remote(s->remote, i))
			parts |= (2u << last) - (1u << first);
	}
	return parts;
}

/* `stored`: `have` bytes that were read with the table. */
static void hold_parts(struct packs *p, struct pack_file *file, uint32_t frame, const struct shape *s, uint32_t parts,
		       struct pack_buffer *stored, uint32_t have)
{
	struct part_read pr = {
		.packs = p,
		.file = file,
		.frame = frame,
		.plain_len = pack_cut_total(&s->cuts),
		.coding = s->coding,
		.stored = stored,
		.have = have,
		.is_alone = true,
	};
	struct pack_buffer *buffer = pack_buffer_get_held(&p->buffers, file->pack, frame, &pr.held);

	if (!buffer)
		return;
	pr.spare = buffer->data;
	for (uint32_t i = 0; i < PACK_PARTS; i++)
		pr.to[i] = parts >> i & 1 ? buffer->data + i * PACK_PART_BYTES : NULL;
	(void)packs_read_parts(&pr); /* the reader will fail in the same way and report it */
	if ((pr.held.whole | pr.held.left) != 0)
		pack_buffer_put_held(&p->buffers, buffer, &pr.held);
	else
		pack_buffer_put(&p->buffers, buffer);
}

/* Bytes [in, end) of a frame. `v`: its table; NULL: not in memory. */
static void read_frame_ahead(struct packs *p, struct pack_file *file, uint32_t frame, uint32_t in, uint32_t end,
			     const struct table_view *v)
{
	static const struct pack_coding plain;
	struct shape s = { .coding = &plain };
	struct pack_buffer *stored = NULL;
	struct pack_table table;
	uint32_t have = 0, parts;

	if (v)
		s = (struct shape){ table_view_cuts(v), &v->coding, v->fps, v->remote };
	else if (packs_find_table(p, file, frame, in, end, &stored, &have, &table) > 0)
		s = (struct shape){ pack_table_cuts(&table), &table.coding, table.fps, table.remote };
	parts = s.coding->codec != PACK_CODEC_NONE ? parts_here(&s, in, end) : 0;
	if (!stored && parts != 0)
		stored = pack_buffer_get(&p->buffers);
	if (stored && parts != 0)
		hold_parts(p, file, frame, &s, parts, stored, have);
	pack_buffer_put(&p->buffers, stored);
}

static void fulfil(struct packs *p, const struct pack_stretch *wish)
{
	uint32_t frame = (uint32_t)(wish->from / PACK_FRAME_BYTES), in = (uint32_t)(wish->from % PACK_FRAME_BYTES),
		 end = in + (uint32_t)(wish->to - wish->from);
	struct pack_file *file;
	struct table_view v;
	bool found;

	if (frame >= packs_nr_frames(p, wish->pack) ||
	    pack_places_has(&p->damaged, wish->pack, pack_table_off(frame)) || packs_file_get(p, wish->pack, &file) <= 0)
		return;
	found = pack_tables_get(p->tables, wish->pack, frame, in, end - in, &v);
	if (!found || (v.error == 0 && !v.frame)) /* neither lost nor being written */
		read_frame_ahead(p, file, frame, in, end, found ? &v : NULL);
	if (found)
		pack_tables_put(p->tables, &v);
	pack_file_put(p->files, file);
}

void packs_read_ahead(struct packs *p)
{
	struct pack_stretch wish;

	while (pack_ahead_take(&p->ahead, &wish)) {
		fulfil(p, &wish);
		pack_ahead_done(&p->ahead);
	}
}
