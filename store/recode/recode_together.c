/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Codes the steps of a variable against one another.
 *
 * Where the plan lists variables as steps of one, up to 1 + chain of them are coded together, if a sample shows that it
 * pays off. Pages of the same place form rows (recode_steps.h), which become frames, and each version in a frame is
 * coded against a newer one. So the base of a block is in its own frame (store/pack), and neither this code nor the
 * collector has to track it. Chunks coded before are coded again if they complete such a row: recoding each step as it
 * arrives ends with all of them together, at the cost of writing them twice.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/codec/twin.h"
#include "store/recode/recode_job.h"

/* Steps coded against the levels of another one may take this percentage of their size coded by themselves, since
 * reading a step then takes about a tenth longer. */
#define LEVELS_PAY 96u
#define LOOKED_AT 64u /* chunks examined to see whether a step has been coded with others */

/* Repoints; recipes of both variables may have changed. */
static int repoint_all(struct compact *c)
{
	int r = compact_repoint(c, NULL);

	compact_steps_forget(c->steps);
	compact_narrow_forget(c->narrow);
	return r;
}

int compact_emit_row(void *userdata, const struct step_row *row, unsigned nr_versions)
{
	struct compact *c = userdata;
	int r = 0, with_narrow;

	if (!c->is_sample && compact_is_full(c))
		r = repoint_all(c);
	with_narrow = r < 0 ? r : compact_narrow_take(c, row, nr_versions);
	r = with_narrow > 0 ? compact_narrow_move(c, nr_versions) : MIN(with_narrow, 0);
	for (unsigned v = 0; v < nr_versions; v++)
		for (uint32_t i = 0; i < row->nr && r == 0; i++)
			r = compact_move(c, &row->chunk[v * row->max + i]);
	if (r < 0)
		return r;
	/* less than a part would be coded against a part of itself */
	if (nr_versions > 1 && row->nr * row->chunk_len >= PACK_PART_BYTES)
		c->back = with_narrow > 0 ? c->twins.narrow_row : row->nr * row->chunk_len;
	c->nr_row = c->copy.nr_next;
	r = gc_copy_flush(&c->copy);
	c->back = 0;
	c->twins.narrow_len = 0;
	return r;
}

/* 1: this version of the place may be coded with the others. `last`: the previous one, or NULL. */
static int take_version(struct compact *c, const struct compact_chunk *chunk, const struct compact_chunk *last)
{
	const struct pack_chunk_info *info = &chunk->info;
	int r = c->is_sample ? !last || !addr_equal(last->info.start, info->start) : compact_set_seen(c, info->start);

	if (r <= 0)
		return r;
	c->result->plain += c->is_sample ? 0 : info->len;
	if (!info->is_based && compact_may_move(c, info))
		return 1;
	compact_leave(c, info);
	return 0;
}

/* Chunks that are coded by themselves move only if the place has as many versions as can be coded together. */
static unsigned drop_coded(struct compact *c, const struct compact_chunk **chunk, unsigned *step, unsigned nr)
{
	unsigned n = 0;

	if (nr == c->nr_most)
		return nr;
	for (unsigned i = 0; i < nr; i++) {
		if (chunk[i]->info.codec == PACK_CODEC_CODED) {
			compact_leave(c, &chunk[i]->info);
			continue;
		}
		chunk[n] = chunk[i];
		step[n++] = step[i];
	}
	return n;
}

int compact_take_versions(struct compact *c, const struct compact_place *place, unsigned nr_steps,
			  const struct compact_chunk **ret, unsigned *ret_step)
{
	unsigned nr = 0;

	for (unsigned i = nr_steps; i-- > 0;) {
		int r = place->chunk[i] ? take_version(c, place->chunk[i], nr > 0 ? ret[nr - 1] : NULL) : 0;

		if (r < 0)
			return r;
		if (r > 0) {
			ret[nr] = place->chunk[i];
			ret_step[nr++] = i;
		}
	}
	return (int)drop_coded(c, ret, ret_step, nr);
}

static int code_steps(struct compact *c, const struct compact_variable *const *v, unsigned nr, uint64_t block)
{
	_cleanup_(step_rows_release) struct step_rows rows = { .emit = compact_emit_row,
							       .userdata = c,
							       .is_wide = c->narrow };
	_cleanup_(step_rows_release) struct step_rows apart = { .emit = compact_emit_row, .userdata = c };
	_cleanup_(compact_steps_release) struct compact_steps steps = { 0 };
	const struct compact_chunk *chunk[STEPS_MAX];
	struct compact_place place;
	unsigned step[STEPS_MAX];
	bool fits;
	int r;

	c->steps = &steps;
	r = compact_steps_init(&steps, c->g.e, v, nr, c->conf->inos, block);
	while (r >= 0 && (!c->is_sample || c->sampled < COMPACT_SAMPLE) && gc_goes_on(&c->g) &&
	       (r = compact_steps_next(&steps, &place)) > 0) {
		r = compact_take_versions(c, &place, nr, chunk, step);
		if (r <= 0)
			continue;
		fits = !c->narrow || !compact_narrow_is_behind(c->narrow, chunk[0]->at);
		r = step_rows_add(fits ? &rows : &apart, chunk, step, (unsigned)r);
	}
	if (r >= 0)
		r = step_rows_flush(&rows);
	if (r == 0)
		r = step_rows_flush(&apart);
	if (r == 0 && c->narrow)
		r = compact_narrow_rest(c);
	c->steps = NULL;
	return r;
}

/* With the variable that was rounded from it, if there is one. */
static int code_with_narrow(struct compact *c, const struct compact_variable *const *v,
			    const struct compact_variable *const *narrow, unsigned nr, uint64_t block)
{
	int r = narrow[0] ? compact_narrow_new(c, narrow, v[0], nr, block, &c->narrow) : 0;

	if (r == 0)
		r = code_steps(c, v, nr, block);
	compact_narrow_free(TAKE(c->narrow));
	return r;
}

/* Sum over the first `nr` versions of a row. */
static struct compact_sample sum_of(const struct compact *c, unsigned nr)
{
	struct compact_sample sum = { 0 };

	for (unsigned i = 0; i < nr; i++) {
		sum.plain += c->of_version[i].plain;
		sum.coded += c->of_version[i].coded;
		sum.alone += c->of_version[i].alone;
	}
	return sum;
}

/* How many versions of a row can be read without reading more bytes than one has plain? Reading a version reads all
 * before it. If coding together halves the size or better, all of them: that is worth slower reads. */
static unsigned nr_readable(const struct compact *c, unsigned nr)
{
	struct compact_sample all = sum_of(c, nr);
	double read = 0;
	unsigned v = 0;

	if (2 * all.coded <= all.alone)
		return nr;
	for (; v < nr && read <= 1; v++) {
		const struct compact_sample *s = &c->of_version[v];

		read += s->plain > 0 ? (double)s->coded / (double)s->plain : 0;
	}
	return read > 1 ? v - 1 : v;
}

/* The same by levels: reading a version reads only the levels of the newest in addition. */
static unsigned nr_readable_by_levels(const struct compact *c, unsigned nr)
{
	unsigned v = 1;

	while (v < nr && c->of_version[v].coded + c->of_version[0].levels <= c->of_version[v].plain)
		v++;
	return v;
}

static int sample_steps(struct compact *c, const struct compact_variable *const *v, unsigned nr, uint64_t block)
{
	int r;

	compact_begin_sample(c);
	r = code_steps(c, v, nr, block);
	c->is_sample = false;
	return r;
}

/* Number of steps to code against the levels of the newest; 1: none; <0. */
static int steps_that_pay_by_levels(struct compact *c, const struct compact_variable *const *v, unsigned nr,
				    uint64_t block)
{
	enum code_class class = v[0]->shape.type.class;
	struct compact_sample sum;
	unsigned most;
	int r;

	if (class != CODE_FLOAT && class != CODE_BFLOAT)
		return 1;
	c->levels = coding_by_levels(v[0]->shape.type);
	c->by_levels = true;
	r = sample_steps(c, v, nr, block);
	if (r < 0)
		return r;
	most = nr_readable_by_levels(c, nr);
	sum = sum_of(c, most);
	c->by_levels = most > 1 && sum.coded * 100 <= sum.alone * LEVELS_PAY;
	return c->by_levels ? (int)most : 1;
}

/* Number of steps to code against one another: as many as are smaller so than each by itself, and fast enough to read;
 * 1: none; <0. */
static int steps_that_pay(struct compact *c, const struct compact_variable *const *v, bool has_narrow, unsigned nr,
			  uint64_t block)
{
	struct compact_sample sum;
	int r, most;

	r = sample_steps(c, v, nr, block);
	if (r < 0)
		return r;
	most = c->conf->chain_forced ? (int)nr : (int)nr_readable(c, nr);
	sum = sum_of(c, (unsigned)most);
	if (sum.alone == 0 || !pack_is_worth_it(sum.coded, sum.alone)) {
		/* with a rounded variable, reading would need still more: levels are not tried */
		r = c->conf->chain_forced || has_narrow ? 1 : steps_that_pay_by_levels(c, v, nr, block);
		if (r != 1)
			most = r;
	}
	if (most > 0 && (unsigned)most < nr)
		c->nr_most = (unsigned)most;
	return r == 0 ? most : r;
}

static bool go_together(const struct compact_variable *a, const struct compact_variable *b)
{
	return code_type_encode(a->shape.type) == code_type_encode(b->shape.type) && a->shape.parts == b->shape.parts &&
	       a->shape.row == b->shape.row && a->shape.plane == b->shape.plane &&
	       (a->shape.type.width == 1 || compact_same_parts(a, b)); /* bytes may have moved: recode_align.h */
}

/* Finds the variable rounded from each: for all of them, or for none. */
static void find_narrow(const struct compact *c, const size_t *number, unsigned nr, const struct compact_variable **ret)
{
	bool all = true;

	for (unsigned i = 0; i < nr; i++) {
		size_t narrow = c->narrow_of[number[i]];

		ret[i] = narrow > 0 ? &c->conf->variable[narrow - 1] : NULL;
		all = all && ret[i] && go_together(ret[0], ret[i]);
	}
	for (unsigned i = 0; i < nr && !all; i++)
		ret[i] = NULL;
}

/* Each by itself, except for the variable rounded from it. */
static int code_apart(struct compact *c, const struct compact_variable *const *v,
		      const struct compact_variable *const *narrow, unsigned nr, uint64_t block)
{
	int r = 0;

	for (unsigned i = 0; i < nr && r == 0; i++)
		r = narrow[i] ? code_with_narrow(c, &v[i], &narrow[i], 1, block) : compact_code_variable(c, v[i], block);
	return r;
}

/* In groups of c->nr_together; the remainder are the oldest. */
static int code_together(struct compact *c, const struct compact_variable *const *v,
			 const struct compact_variable *const *narrow, unsigned nr, uint64_t block)
{
	unsigned first = nr % c->nr_together;
	int r = 0;

	if (c->nr_together == 1)
		return code_apart(c, v, narrow, nr, block);
	if (first > 0)
		r = code_apart(c, v, narrow, first, block);
	for (unsigned i = first; i < nr && r == 0; i += c->nr_together)
		r = code_with_narrow(c, v + i, narrow + i, c->nr_together, block);
	return r;
}

static int compact_versions(struct compact *c, const size_t *number, unsigned nr)
{
	const struct compact_variable *v[STEPS_MAX], *narrow[STEPS_MAX];
	struct compact_result *narrow_result = NULL;
	uint64_t block;
	int r;

	find_narrow(c, number, nr, narrow);
	for (unsigned i = 0; i < nr; i++) {
		v[i] = &c->conf->variable[number[i]];
		c->conf->result[number[i]] = (struct compact_result){ 0 };
	}
	c->result = &c->conf->result[number[0]];
	if (narrow[0])
		c->narrow_result = narrow_result = &c->conf->result[c->narrow_of[number[0]] - 1];
	r = compact_choose_order(c, v[0], &block);
	c->result->turns = block > 0;
	if (r == 0)
		r = coding_init(&c->against, c->work, &v[0]->shape, true, c->conf->budget, NULL);
	c->nr_most = c->conf->chain + 1;
	c->by_levels = false;
	if (r == 0)
		r = nr > 1 ? steps_that_pay(c, v, narrow[0], nr, block) : 1;
	if (r > 0) {
		c->nr_together = (unsigned)r;
		if (c->by_levels && c->nr_even < nr) { /* steps close to each other have more in common */
			c->nr_took = nr = c->nr_even;
			c->nr_together = c->nr_most = MIN(c->nr_together, nr);
		}
		r = code_together(c, v, narrow, nr, block);
	}
	coding_release(&c->against);
	coding_release(&c->coding);
	compact_add_up(&c->report.sum, TAKE(c->result));
	if (narrow_result)
		compact_add_up(&c->report.sum, TAKE(c->narrow_result));
	c->report.nr_variables += narrow_result ? 2 * nr : nr;
	return r;
}

/* If only some of the steps have a rounded variable, each of these is recoded by itself. */
static int compact_left_over(struct compact *c, const size_t *number, unsigned nr)
{
	const struct compact_variable *narrow[STEPS_MAX];
	int r = 0;

	find_narrow(c, number, nr, narrow);
	for (unsigned i = 0; i < nr && r == 0 && !narrow[0]; i++)
		if (c->narrow_of[number[i]] > 0)
			r = compact_one(c, c->narrow_of[number[i]] - 1);
	return r;
}

/* Recodes the first of the steps, or all; *nr: steps left. */
static int compact_together(struct compact *c, size_t *number, unsigned *nr)
{
	int r = 0;

	c->nr_took = *nr;
	if (*nr > 1 || (*nr > 0 && c->narrow_of[number[0]] > 0))
		r = compact_versions(c, number, *nr);
	else if (*nr > 0)
		r = compact_one(c, number[0]);
	if (r == 0)
		r = compact_left_over(c, number, c->nr_took);
	*nr -= c->nr_took;
	memmove(number, number + c->nr_took, *nr * sizeof(*number));
	return r;
}

/* No more steps follow: recodes all. */
static int compact_all_together(struct compact *c, size_t *number, unsigned *nr)
{
	c->nr_even = *nr;
	return compact_together(c, number, nr);
}

/* Is most of its beginning coded with other steps already? 1/0/<0 */
static int is_done(struct compact *c, const struct compact_variable *v)
{
	_cleanup_(compact_walk_release) struct compact_walk w = { 0 };
	struct compact_chunk chunk;
	unsigned nr = 0, nr_done = 0;
	int r = compact_walk_init(&w, c->g.e, v, c->conf->inos, 0);

	for (; r >= 0 && nr < LOOKED_AT && (r = compact_walk_next(&w, &chunk)) > 0; nr++)
		nr_done += chunk.info.is_based;
	return r < 0 ? r : 2 * nr_done > nr;
}

/* Steps per group if the steps from here on are divided into groups of about the same size, without a remainder. */
static unsigned even_groups(const struct compact *c, size_t from)
{
	unsigned most = c->conf->chain + 1, nr = 0, nr_groups;

	for (size_t i = from + 1; i > 0; i = c->next[i - 1])
		nr++;
	nr_groups = (nr + most - 1) / most;
	return (nr + nr_groups - 1) / nr_groups;
}

/* Recodes a variable and all its later steps. */
int compact_chain(struct compact *c, size_t first)
{
	const struct compact_variable *v = c->conf->variable;
	size_t number[STEPS_MAX];
	unsigned nr = 0;
	int r = 0;

	for (size_t i = first + 1; i > 0 && r >= 0 && gc_goes_on(&c->g); i = c->next[i - 1]) {
		if (nr > 0 && !go_together(&v[number[nr - 1]], &v[i - 1])) {
			r = compact_all_together(c, number, &nr);
		} else if (nr == c->conf->chain + 1) {
			c->nr_even = even_groups(c, number[0]);
			r = compact_together(c, number, &nr);
		}
		if (r == 0 && c->next[first] > 0)
			r = is_done(c, &v[i - 1]);
		if (r > 0) { /* processed by itself, and unchanged */
			r = compact_all_together(c, number, &nr);
			number[nr++] = i - 1;
			r = r < 0 ? r : compact_all_together(c, number, &nr);
		} else if (r == 0) {
			number[nr++] = i - 1;
		}
	}
	return r < 0 ? r : compact_all_together(c, number, &nr);
}

static bool is_rounded_from(const struct compact_variable *narrow, const struct compact_variable *wide)
{
	return twin_type_narrow(narrow->shape.type) && twin_type_wide(wide->shape.type) &&
	       compact_half_parts(narrow, wide);
}

/* Links each variable to its next step and to the variable rounded from it. Duplicate, self-referring and impossible
 * entries of the plan are ignored. */
int compact_find_chains(struct compact *c, bool **ret_follows)
{
	const struct compact_variable *v = c->conf->variable;
	size_t nr = c->conf->nr_variables;
	bool *follows = calloc(nr + 1, sizeof(*follows));

	c->next = calloc(nr + 1, sizeof(*c->next));
	c->narrow_of = calloc(nr + 1, sizeof(*c->narrow_of));
	*ret_follows = follows;
	if (!follows || !c->next || !c->narrow_of)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		size_t wide = v[i].wide, before = wide > 0 || c->conf->chain == 0 ? 0 : v[i].before;
		size_t *place = wide > 0 && wide <= i	  ? &c->narrow_of[wide - 1] :
				before > 0 && before <= i ? &c->next[before - 1] :
							    NULL;

		if (!place || *place > 0 ||
		    (wide > 0 && (follows[i] || c->narrow_of[i] > 0 || !is_rounded_from(&v[i], &v[wide - 1]))))
			continue;
		*place = i + 1;
		follows[i] = true;
	}
	return 0;
}
