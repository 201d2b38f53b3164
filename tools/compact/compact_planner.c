/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/compact/compact_planner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tools/compact/compact_trial.h"

#define CLASSIFY_MS 120000u
#define PLAN_BYTES GiB(4) /* of files in one plan: the daemon moves as many chunks per pass over all recipes */
#define PLAN_FILES 10000u
#define PLAN_EXTENTS 500000u

/* Decides whether files are split into variables. The result for the first step is used for all that follow it. */
static int choose_aware(struct compact_planner *p, const struct set *set, bool follows)
{
	struct compact_trial trial = { .block = p->block, .budget = p->budget };
	bool whole;
	int r;

	if (p->scheme != SCHEME_AUTO)
		p->is_aware = p->scheme != SCHEME_AGNOSTIC && p->scheme != SCHEME_AGNOSTIC_BLOCK;
	if (p->scheme != SCHEME_AUTO || follows)
		return 0;
	r = compact_trial_run(&trial, set, &whole);
	if (r == 0)
		p->is_aware = !whole;
	return r;
}

/* --- a plan --- */

static void forget_plan(struct compact_planner *p)
{
	while (p->nr_planned > 0)
		free(p->planned[--p->nr_planned].key);
	if (p->has_plan)
		p->target->end(p->userdata);
	p->has_plan = false;
	p->nr_steps = 0;
	p->done += p->plan_bytes;
	p->plan_bytes = p->plan_files = p->plan_extents = 0;
}

static int run_plan(struct compact_planner *p)
{
	int r = p->has_plan ? p->target->run(p->userdata, p) : 0;

	forget_plan(p);
	return r;
}

static int note_variable(struct compact_planner *p, const struct compact_piece *x, uint32_t before, bool is_rounded)
{
	struct compact_planned *more;

	if (p->nr_planned == p->room_planned) {
		size_t room = MAX(2 * p->room_planned, (size_t)256);

		more = reallocarray(p->planned, room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		p->planned = more;
		p->room_planned = room;
	}
	more = &p->planned[p->nr_planned];
	*more = (struct compact_planned){ strdup(x->key), x->shape->type };
	if (!more->key)
		return -ENOMEM;
	p->nr_planned++;
	return p->target->variable(p->userdata, x->key, x->shape, before, is_rounded);
}

/* Finds a key among planned variables, in order, from *at to `end`. Returns its number plus 1; 0: not found. */
static uint32_t find_planned(const struct compact_planner *p, const char *key, size_t *at, size_t end)
{
	while (*at < end && strcmp(p->planned[*at].key, key) < 0)
		(*at)++;
	return *at < end && strcmp(p->planned[*at].key, key) == 0 ? (uint32_t)*at + 1 : 0;
}

/* Adds the variables that were rounded from others of the set, or all but these. `from`, `end`: variables to refer to,
 * of the set before, or if `rounded` of this one. */
static int add_some(struct compact_planner *p, const struct compact_pieces *pieces, const uint32_t *file, bool rounded,
		    size_t from, size_t end)
{
	int r = 0;

	for (size_t i = 0; i < pieces->nr && r == 0; i++) {
		const struct compact_piece *x = &pieces->piece[i];
		size_t at = from;

		if ((x->wide != NULL) != rounded)
			continue;
		if (i == 0 || strcmp(x->key, x[-1].key) != 0)
			r = note_variable(p, x, find_planned(p, rounded ? x->wide : x->key, &at, end), rounded);
		if (!rounded)
			from = at;
		for (size_t k = 0; k < x->nr_extents && r == 0; k++)
			r = p->target->extent(p->userdata, file[x->member], x->extent[k].off, x->extent[k].len);
	}
	return r;
}

/* Rounded variables come last, since they refer to others of the set. */
static int add_pieces(struct compact_planner *p, const struct compact_pieces *pieces, const uint32_t *file)
{
	size_t first = p->nr_planned;
	int r = add_some(p, pieces, file, false, p->nr_steps > 0 ? p->last_set : first,
			 p->nr_steps > 0 ? p->last_end : first);

	p->last_set = first;
	p->last_end = p->nr_planned;
	p->nr_steps++;
	return r == 0 ? add_some(p, pieces, file, true, p->last_set, p->last_end) : r;
}

static int add_set(struct compact_planner *p, const struct set *set, const struct compact_pieces *pieces)
{
	_cleanup_(freep) uint32_t *file = calloc(set->nr, sizeof(*file));
	int r = file ? 0 : -ENOMEM;

	if (r == 0 && !p->has_plan) {
		r = p->target->begin(p->userdata);
		p->has_plan = r == 0;
	}
	for (size_t i = 0; i < set->nr && r == 0; i++) {
		r = p->target->file(p->userdata, &set->member[i], &file[i]);
		p->plan_bytes += set->member[i].typed.size;
	}
	if (r == 0)
		r = add_pieces(p, pieces, file);
	p->plan_files += set->nr;
	p->plan_extents += pieces->nr_extents;
	return r < 0 ? p->target->report_error(p->userdata, r) : 0;
}

/* --- sets --- */

/* Steps of one chain stay in one plan even beyond PLAN_BYTES, but not beyond the other limits. */
static bool is_full(const struct compact_planner *p, const struct set *set, const struct compact_pieces *pieces)
{
	bool goes_on = p->nr_steps % (p->chain + 1) != 0;
	uint64_t bytes = 0;

	for (size_t i = 0; i < set->nr; i++)
		bytes += set->member[i].typed.size;
	return p->has_plan && ((p->plan_bytes + bytes > PLAN_BYTES && !goes_on) || p->plan_files + set->nr > PLAN_FILES ||
			       p->plan_extents + pieces->nr_extents > PLAN_EXTENTS);
}

static int plan_set(void *userdata, struct file **file, size_t nr, bool follows)
{
	struct compact_planner *p = userdata;
	struct classify_conf conf = { .helper = p->helper, .limit_ms = CLASSIFY_MS, .names = p->names };
	struct compact_pieces pieces = { 0 };
	struct set set = { 0 };
	int r;

	p->stopped = p->stopped || !p->target->goes_on(p->userdata, p->done + p->plan_bytes);
	if (p->stopped)
		return 0;
	r = set_open(&set, &conf, file, nr);
	p->incomplete |= set.nr < nr;
	if (!follows)
		p->nr_steps = 0;
	if (r == 0)
		r = p->target->check(p->userdata, &set);
	if (r == 0)
		r = choose_aware(p, &set, follows);
	p->any_aware |= p->is_aware;
	if (r == 0)
		r = compact_pieces_init(&pieces, &set, p->is_aware);
	if (r == 0 && is_full(p, &set, &pieces))
		r = run_plan(p);
	if (r == 0 && set.nr > 0)
		r = add_set(p, &set, &pieces);
	compact_pieces_release(&pieces);
	set_close(&set);
	return r;
}

int compact_planner_run(struct compact_planner *p, struct files *files)
{
	int r = compact_sets_each(files, (unsigned)p->group, plan_set, p);

	return r == 0 ? run_plan(p) : r;
}

void compact_planner_release(struct compact_planner *p)
{
	forget_plan(p);
	free(TAKE(p->planned));
}
