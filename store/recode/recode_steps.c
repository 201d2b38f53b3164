/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/recode/recode_steps.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

/* --- places --- */

static int advance(struct compact_steps *s, unsigned step)
{
	int r = compact_walk_next(&s->walk[step], &s->next[step]);
	int64_t place = s->next[step].at;

	s->has[step] = r > 0;
	if (r <= 0)
		return r;
	for (unsigned i = step; i + 1 < s->nr; i++)
		place = compact_align_place(&s->align[i], place);
	s->is_apart[step] = place < s->place[step];
	s->place[step] = MAX(s->place[step], place);
	return 0;
}

/* Bytes of unknown type may have moved; elements of arrays have not. */
static int align_steps(struct compact_steps *s, struct engine *e, const struct compact_variable *const *v,
		       const uint64_t *inos, uint64_t block)
{
	int r = 0;

	for (unsigned i = 0; i + 1 < s->nr && v[i]->shape.type.width == 1 && r == 0; i++)
		r = compact_align_init(&s->align[i], e, v[i], v[i + 1], inos, block);
	return r;
}

int compact_steps_init(struct compact_steps *s, struct engine *e, const struct compact_variable *const *v, unsigned nr,
		       const uint64_t *inos, uint64_t block)
{
	int r = 0;

	assert(nr <= STEPS_MAX);
	*s = (struct compact_steps){ 0 };
	for (; s->nr < nr && r == 0; s->nr++) {
		r = compact_walk_init(&s->walk[s->nr], e, v[s->nr], inos, block);
		s->place[s->nr] = INT64_MIN;
	}
	if (r == 0)
		r = align_steps(s, e, v, inos, block);
	for (unsigned i = 0; i < nr && r == 0; i++)
		r = advance(s, i);
	return r;
}

void compact_steps_release(struct compact_steps *s)
{
	while (s->nr > 0) {
		compact_walk_release(&s->walk[--s->nr]);
		compact_align_release(&s->align[s->nr]);
	}
}

int compact_steps_next(struct compact_steps *s, struct compact_place *ret)
{
	int64_t at = INT64_MAX;
	unsigned apart = s->nr;
	int r = 0;

	/* those returned by the last call */
	for (unsigned i = 0; i < s->nr && r == 0; i++)
		if (s->returned[i])
			r = advance(s, i);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < s->nr; i++) {
		at = s->has[i] ? MIN(at, s->place[i]) : at;
		apart = s->has[i] && s->is_apart[i] ? i : apart;
	}
	for (unsigned i = 0; i < s->nr; i++) {
		s->returned[i] = apart < s->nr ? i == apart : s->has[i] && s->place[i] == at;
		ret->chunk[i] = s->returned[i] ? &s->next[i] : NULL;
	}
	return at != INT64_MAX;
}

void compact_steps_forget(struct compact_steps *s)
{
	for (unsigned i = 0; i < s->nr; i++)
		compact_walk_forget(&s->walk[i]);
}

/* --- rows --- */

void step_rows_release(struct step_rows *r)
{
	for (size_t i = 0; i < ARRAY_SIZE(r->together); i++)
		free(TAKE(r->together[i].chunk));
	for (size_t i = 0; i < ARRAY_SIZE(r->alone); i++)
		free(TAKE(r->alone[i].chunk));
}

static int emit(struct step_rows *r, struct step_row *row, unsigned nr_versions)
{
	int q = row->nr > 0 ? r->emit(r->userdata, row, nr_versions) : 0;

	row->nr = 0;
	return q;
}

/* Emits a partial row: whole parts of each version first, or pairs of them, and then the rest. Chunks stored alone may
 * have any length and need no whole parts. */
static int emit_short(struct step_rows *r, struct step_row *row, unsigned nr_versions)
{
	bool is_alone = row->nr == 0 || row->max == PACK_FRAME_BLOCKS;
	uint32_t rest = is_alone ? 0 : row->nr % ((r->is_wide ? 2 : 1) * PACK_PART_BYTES / row->chunk_len);
	struct step_row last = *row;
	int q;

	row->nr -= rest;
	last.chunk += row->nr;
	last.nr = rest;
	q = emit(r, row, nr_versions);
	return q == 0 ? emit(r, &last, nr_versions) : q;
}

/* Number of places in a row: whole parts of each version, as many as fit a frame; pairs of parts, if half as much of
 * another variable is stored along. */
static uint32_t places_of(const struct step_rows *r, uint32_t chunk_len, unsigned nr_versions)
{
	uint32_t pairs = r->is_wide ? PACK_PARTS / (3 * nr_versions) : 0;

	return (pairs > 0 ? 2 * pairs : PACK_PARTS / nr_versions) * (PACK_PART_BYTES / chunk_len);
}

static int add_row(struct step_rows *r, struct step_row *row, const struct compact_chunk *const *chunk, unsigned nr,
		   uint32_t max)
{
	uint32_t chunk_len = chunk[0]->info.chunk_len;
	int q = 0;

	if (!row->chunk)
		row->chunk = calloc(PACK_FRAME_BLOCKS, sizeof(*row->chunk));
	if (!row->chunk)
		return -ENOMEM;
	if (row->chunk_len != chunk_len)
		q = emit_short(r, row, nr);
	row->chunk_len = chunk_len;
	row->max = max;
	for (unsigned v = 0; v < nr && q == 0; v++)
		row->chunk[v * max + row->nr] = *chunk[v];
	row->nr++;
	return q == 0 && row->nr == max ? emit(r, row, nr) : q;
}

static bool go_together(const struct step_rows *r, const struct compact_chunk *const *chunk, unsigned nr)
{
	uint32_t chunk_len = chunk[0]->info.chunk_len;

	if ((nr == 1 && !r->is_wide) || chunk_len == PACK_VARIED || PACK_PART_BYTES % chunk_len != 0)
		return false;
	for (unsigned v = 1; v < nr; v++)
		if (chunk[v]->info.chunk_len != chunk_len || chunk[v]->phase != chunk[0]->phase)
			return false;
	return true;
}

int step_rows_add(struct step_rows *r, const struct compact_chunk *const *chunk, const unsigned *step, unsigned nr)
{
	int q = 0;

	if (nr == 0)
		return 0;
	if (go_together(r, chunk, nr))
		return add_row(r, &r->together[nr], chunk, nr, places_of(r, chunk[0]->info.chunk_len, nr));
	for (unsigned v = 0; v < nr && q == 0; v++)
		q = add_row(r, &r->alone[step[v]], &chunk[v], 1, PACK_FRAME_BLOCKS);
	return q;
}

int step_rows_flush(struct step_rows *r)
{
	int q = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(r->together) && q == 0; i++)
		q = emit_short(r, &r->together[i], i);
	for (unsigned i = 0; i < ARRAY_SIZE(r->alone) && q == 0; i++)
		q = emit(r, &r->alone[i], 1);
	return q;
}
