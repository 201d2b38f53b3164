/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Recodes variables together with those that they were rounded from: 16-bit weights beside the 32-bit ones that
 * training continues with. If both are in one frame, only the bits that were rounded off are stored of the wide ones
 * (store/codec/twin.h). A row of the wide variable is preceded by half as many pages of the narrow one.
 *
 * A row gets the narrow page that its first wide element was rounded to, and as many following pages as it needs. If
 * both variables begin at different offsets of a page, the last wide elements have their rounded ones in a page of the
 * next row: these are coded as if they had none. Narrow pages without a row are stored by themselves. So is a wide page
 * that begins before all remaining narrow ones: the first of a variable, so that the pages after it match.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/recode/recode_job.h"

struct compact_narrow {
	struct compact_steps steps;
	unsigned nr_steps;
	struct compact_place place; /* the next one, */
	bool has; /* if there is one */
	struct step_rows rows; /* pages stored by themselves */
	struct coding coding, against; /* for those */
	struct compact_twin_coding twins; /* for frames with both variables */
	bool is_apart; /* a row stored by itself is being emitted */
	struct step_row row; /* narrow row for the current wide row */
	int64_t first; /* its offset in the narrow variable */
	struct code_type type, wide;
};

static void swap(struct coding *a, struct coding *b)
{
	struct coding was = *a;

	*a = *b;
	*b = was;
}

/* Swaps result and codings, so that work on the narrow variable is counted and learned as its own. */
static void change_sides(struct compact *c)
{
	struct compact_result *was = c->result;

	c->result = c->narrow_result;
	c->narrow_result = was;
	swap(&c->coding, &c->narrow->coding);
	swap(&c->against, &c->narrow->against);
}

/* Rows stored by themselves have no narrow row in turn. */
static int emit_row(void *userdata, const struct step_row *row, unsigned nr_versions)
{
	struct compact *c = userdata;
	int r;

	c->narrow->is_apart = true;
	change_sides(c);
	r = compact_emit_row(c, row, nr_versions);
	change_sides(c);
	c->narrow->is_apart = false;
	return r;
}

/* Offset of the next place in the narrow variable. */
static int64_t next_at(const struct compact_narrow *n)
{
	for (unsigned i = 0; i < n->nr_steps; i++)
		if (n->place.chunk[i])
			return n->place.chunk[i]->at;
	return INT64_MAX / 2;
}

static int advance(struct compact_narrow *n)
{
	int r = compact_steps_next(&n->steps, &n->place);

	n->has = r > 0;
	return MIN(r, 0);
}

enum { BY_ITSELF, AGAINST, TWIN_BY_ITSELF, TWIN_AGAINST, WIDENED, NR_CODINGS };

static struct coding *coding_of(struct compact_narrow *n, unsigned i)
{
	struct compact_twin_coding *t = &n->twins;

	return (struct coding *[]){ &n->coding, &n->against, &t->narrow, &t->against, &t->widened }[i];
}

int compact_narrow_new(struct compact *c, const struct compact_variable *const *v, const struct compact_variable *wide,
		       unsigned nr, uint64_t block, struct compact_narrow **ret)
{
	struct compact_narrow *n = calloc(1, sizeof(*n));
	int r = n ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	n->rows = (struct step_rows){ .emit = emit_row, .userdata = c };
	n->nr_steps = nr;
	n->type = v[0]->shape.type;
	n->wide = wide->shape.type;
	n->row.chunk = calloc(PACK_FRAME_BLOCKS, sizeof(*n->row.chunk));
	r = n->row.chunk ? 0 : -ENOMEM;
	for (unsigned i = 0; i < NR_CODINGS && r == 0; i++)
		r = coding_init(coding_of(n, i), c->work, i == WIDENED ? &wide->shape : &v[0]->shape,
				i != BY_ITSELF && i != TWIN_BY_ITSELF, c->conf->budget, NULL);
	if (r == 0)
		r = compact_steps_init(&n->steps, c->g.e, v, nr, c->conf->inos, block / 2);
	if (r == 0)
		r = advance(n);
	if (r < 0) {
		compact_narrow_free(n);
		return r;
	}
	c->twin_coding = &n->twins;
	*ret = n;
	return 0;
}

void compact_narrow_free(struct compact_narrow *n)
{
	if (!n)
		return;
	compact_steps_release(&n->steps);
	step_rows_release(&n->rows);
	for (unsigned i = 0; i < NR_CODINGS; i++)
		coding_release(coding_of(n, i));
	free(n->row.chunk);
	free(n);
}

void compact_narrow_forget(struct compact_narrow *n)
{
	if (n)
		compact_steps_forget(&n->steps);
}

/* Takes the versions of the next place, counted for the narrow variable. */
static int take_versions(struct compact *c, const struct compact_chunk **ret, unsigned *ret_step)
{
	int r;

	change_sides(c);
	r = compact_take_versions(c, &c->narrow->place, c->narrow->nr_steps, ret, ret_step);
	change_sides(c);
	return r;
}

/* Stores the next place by itself. */
static int pass_on(struct compact *c)
{
	struct compact_narrow *n = c->narrow;
	const struct compact_chunk *chunk[STEPS_MAX];
	unsigned step[STEPS_MAX];
	int r = take_versions(c, chunk, step);

	if (r > 0)
		r = step_rows_add(&n->rows, chunk, step, (unsigned)r);
	return r < 0 ? r : advance(n);
}

/* Stores an incomplete narrow row by itself. */
static int store_partial_row(struct compact *c, unsigned nr_versions)
{
	struct compact_narrow *n = c->narrow;
	const struct compact_chunk *chunk[STEPS_MAX];
	unsigned step[STEPS_MAX];
	int r = 0;

	for (uint32_t i = 0; i < n->row.nr && r == 0; i++) {
		for (unsigned v = 0; v < nr_versions; v++) {
			chunk[v] = &n->row.chunk[v * n->row.max + i];
			step[v] = nr_versions - 1 - v;
		}
		r = step_rows_add(&n->rows, chunk, step, nr_versions);
	}
	n->row.nr = 0;
	return r;
}

/* Adds the next place to the narrow row, or stores it by itself if it does not fit. 0/<0 */
static int add_place(struct compact *c, unsigned nr_versions, uint32_t chunk_len)
{
	struct compact_narrow *n = c->narrow;
	const struct compact_chunk *chunk[STEPS_MAX];
	unsigned step[STEPS_MAX];
	bool fits;
	int r = take_versions(c, chunk, step);

	if (r <= 0)
		return r < 0 ? r : advance(n);
	fits = (unsigned)r == nr_versions;
	for (unsigned v = 0; v < nr_versions && fits; v++)
		fits = chunk[v]->info.chunk_len == chunk_len &&
		       chunk[v]->at == n->first + (int64_t)n->row.nr * chunk_len && chunk[v]->phase == chunk[0]->phase;
	if (!fits) {
		r = step_rows_add(&n->rows, chunk, step, (unsigned)r);
		return r < 0 ? r : advance(n);
	}
	for (unsigned v = 0; v < nr_versions; v++)
		n->row.chunk[v * n->row.max + n->row.nr] = *chunk[v];
	n->row.nr++;
	return advance(n);
}

/* Are its pages contiguous in the variable? */
static bool is_whole(const struct step_row *row)
{
	for (uint32_t i = 1; i < row->nr; i++)
		if (row->chunk[i].at != row->chunk[i - 1].at + row->chunk_len)
			return false;
	return row->nr > 0 && row->nr * row->chunk_len % (2 * PACK_PART_BYTES) == 0;
}

bool compact_narrow_is_behind(const struct compact_narrow *n, int64_t wide_at)
{
	return !n->has || 2 * next_at(n) > wide_at;
}

int compact_narrow_take(struct compact *c, const struct step_row *row, unsigned nr_versions)
{
	struct compact_narrow *n = c->narrow;
	int64_t begin = row->chunk[0].at, end = begin + (int64_t)row->nr * row->chunk_len;
	uint32_t bytes = nr_versions * row->nr * row->chunk_len;
	int r = 0;

	if (!n || n->is_apart || nr_versions != n->nr_steps || !is_whole(row) || bytes + bytes / 2 > PACK_FRAME_BYTES)
		return 0;
	while (n->has && r == 0 && 2 * (next_at(n) + (int64_t)row->chunk_len) <= begin)
		r = pass_on(c);
	if (r < 0 || compact_narrow_is_behind(n, begin))
		return r;
	n->first = next_at(n);
	n->row.nr = 0;
	n->row.max = row->nr / 2;
	n->row.chunk_len = row->chunk_len;
	while (n->has && r == 0 && n->row.nr < n->row.max && 2 * next_at(n) < end)
		r = add_place(c, nr_versions, row->chunk_len);
	if (r < 0)
		return r;
	if (n->row.nr < n->row.max)
		return store_partial_row(c, nr_versions);
	c->twins = (struct compact_twins){ .narrow_len = bytes / 2,
					   .wide_row = row->nr * row->chunk_len,
					   .narrow_row = n->row.nr * row->chunk_len,
					   .before = (uint32_t)(begin - 2 * n->first),
					   .wide = n->wide,
					   .narrow = n->type };
	return 1;
}

int compact_narrow_move(struct compact *c, unsigned nr_versions)
{
	const struct step_row *row = &c->narrow->row;
	int r = 0;

	for (unsigned v = 0; v < nr_versions; v++)
		for (uint32_t i = 0; i < row->nr && r == 0; i++)
			r = compact_move(c, &row->chunk[v * row->max + i]);
	return r;
}

int compact_narrow_rest(struct compact *c)
{
	struct compact_narrow *n = c->narrow;
	int r = 0;

	while (n->has && r == 0 && gc_goes_on(&c->g))
		r = pass_on(c);
	return r < 0 ? r : step_rows_flush(&n->rows);
}
