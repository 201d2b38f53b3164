/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/compact/compact_sets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tools/analyze/analyze_names.h"
#include "tools/analyze/analyze_twins.h"

#define SMALL KiB(128) /* a frame costs 4 KiB for its table, and on average 2 KiB of its last block */

static const struct coding_shape bytes_shape = { .type = { CODE_BYTES, 1, false } };

static int by_key_and_member(const void *left, const void *right)
{
	const struct compact_piece *a = left, *b = right;
	int r = strcmp(a->key, b->key);

	if (r == 0)
		r = (a->member > b->member) - (a->member < b->member);
	/* by offset: small variables of a file share the empty key */
	return r ? r :
		   (a->nr_extents && b->nr_extents ?
			    (a->extent->off > b->extent->off) - (a->extent->off < b->extent->off) :
			    0);
}

static void sort_pieces(struct compact_pieces *p)
{
	qsort(p->piece, p->nr, sizeof(*p->piece), by_key_and_member);
}

static void add_piece(struct compact_pieces *p, struct compact_piece piece)
{
	for (size_t i = 0; i < piece.nr_extents; i++)
		piece.len += piece.extent[i].len;
	if (piece.len == 0)
		return;
	p->piece[p->nr++] = piece;
	p->nr_extents += piece.nr_extents;
}

static const char *wide_of(const struct twins *t, const struct set_member *m, uint32_t variable)
{
	uint32_t wide;

	return twins_of(t, variable, &wide) ? m->typed.variable[wide].key : NULL;
}

/* Extents are grouped by variable. */
static int add_member(struct compact_pieces *p, const struct set_member *m, size_t number)
{
	const struct typed_extent *x = m->typed.extent, *end = x + m->typed.nr_extents;
	struct twins twins = { 0 };
	int r = twins_find(&twins, m);

	while (x < end && r == 0) {
		const struct typed_extent *first = x;

		while (x < end && x->variable == first->variable)
			x++;
		add_piece(p, (struct compact_piece){ .key = m->typed.variable[first->variable].key,
						     .shape = &m->typed.variable[first->variable].shape,
						     .wide = wide_of(&twins, m, first->variable),
						     .member = number,
						     .extent = first,
						     .nr_extents = (size_t)(x - first) });
	}
	add_piece(p, (struct compact_piece){ .key = "",
					     .shape = &bytes_shape,
					     .member = number,
					     .extent = m->rest,
					     .nr_extents = m->nr_rest });
	twins_release(&twins);
	return r;
}

/* Adds a whole file as plain bytes; `room` is for its extent. */
static void add_whole(struct compact_pieces *p, const struct set_member *m, size_t number, struct typed_extent *room)
{
	*room = (struct typed_extent){ .len = m->typed.size };
	add_piece(p, (struct compact_piece){
			     .key = "", .shape = &bytes_shape, .member = number, .extent = room, .nr_extents = 1 });
}

static void drop_small(struct compact_pieces *p)
{
	for (size_t i = 0, end; i < p->nr; i = end) {
		uint64_t len = 0;

		for (end = i; end < p->nr && strcmp(p->piece[end].key, p->piece[i].key) == 0; end++)
			len += p->piece[end].len;
		for (; len < SMALL && i < end; i++) {
			p->piece[i].key = "";
			p->piece[i].shape = &bytes_shape;
			p->piece[i].wide = NULL;
		}
	}
}

/* Drops `wide` unless it is the same in all files. */
static void drop_doubtful(struct compact_pieces *p)
{
	for (size_t i = 0, end; i < p->nr; i = end) {
		bool same = true;

		for (end = i; end < p->nr && strcmp(p->piece[end].key, p->piece[i].key) == 0; end++)
			same &= p->piece[end].wide && p->piece[i].wide &&
				strcmp(p->piece[end].wide, p->piece[i].wide) == 0;
		for (size_t k = i; k < end && !same; k++)
			p->piece[k].wide = NULL;
	}
}

int compact_pieces_init(struct compact_pieces *p, const struct set *set, bool aware)
{
	size_t most = 2 * set->nr + 1;
	int r = 0;

	for (size_t i = 0; i < set->nr; i++)
		most += set->member[i].typed.nr_variables;
	/* followed by an extent for each file */
	*p = (struct compact_pieces){ .piece = malloc(most * sizeof(*p->piece) + set->nr * sizeof(struct typed_extent)) };
	if (!p->piece)
		return -ENOMEM;
	for (size_t i = 0; i < set->nr && r == 0; i++)
		if (aware)
			r = add_member(p, &set->member[i], i);
		else
			add_whole(p, &set->member[i], i, (struct typed_extent *)(p->piece + most) + i);
	sort_pieces(p);
	drop_small(p);
	sort_pieces(p);
	drop_doubtful(p);
	return r;
}

void compact_pieces_release(struct compact_pieces *p)
{
	free(p->piece);
	*p = (struct compact_pieces){ 0 };
}

/* --- sets --- */

static int compare_steps(const struct file *a, const struct file *b)
{
	return number_compare(a->path + a->step_at, a->step_len, b->path + b->step_at, b->step_len);
}

/* Sort order: family, group of ranks, step, rank. Series of a family are numbered consecutively, since the files were
 * arranged. */
struct placed {
	struct file *file;
	uint32_t group;
};

static int by_set(const void *left, const void *right)
{
	const struct placed *a = left, *b = right;

	if (a->file->family != b->file->family)
		return a->file->family < b->file->family ? -1 : 1;
	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	return compare_steps(a->file, b->file);
}

static int by_set_and_rank(const void *left, const void *right)
{
	const struct file *a = ((const struct placed *)left)->file, *b = ((const struct placed *)right)->file;
	int r = by_set(left, right);

	if (r == 0)
		r = (a->series > b->series) - (a->series < b->series);
	if (r == 0)
		r = strcmp(a->path, b->path);
	return r ? r : strcmp(a->from ? a->from : "", b->from ? b->from : ""); /* the same rank of several nodes */
}

int compact_sets_each(struct files *files, unsigned group,
		      int (*f)(void *userdata, struct file **file, size_t nr, bool follows), void *userdata)
{
	_cleanup_(freep) struct placed *list = reallocarray(NULL, files->nr + 1, sizeof(*list));
	_cleanup_(freep) struct file **set = reallocarray(NULL, files->nr + 1, sizeof(*set));
	uint32_t first = 0; /* first series of the family */
	int r = 0;

	if (!list || !set)
		return -ENOMEM;
	for (size_t i = 0; i < files->nr; i++) {
		struct file *file = &files->file[i];

		if (i == 0 || file->family != files->file[i - 1].family)
			first = file->series;
		list[i] = (struct placed){ file, group > 0 ? (file->series - first) / group : 0 };
	}
	qsort(list, files->nr, sizeof(*list), by_set_and_rank);
	for (size_t i = 0, nr; i < files->nr && r == 0; i += nr) {
		bool follows =
			i > 0 && list[i].file->family == list[i - 1].file->family && list[i].group == list[i - 1].group;

		for (nr = 0; i + nr < files->nr && by_set(&list[i], &list[i + nr]) == 0; nr++)
			set[nr] = list[i + nr].file;
		r = f(userdata, set, nr, follows);
	}
	return r;
}
