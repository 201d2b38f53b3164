/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/background/compact_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define PARTS_MAX 2u /* of an element: real and imaginary */

void compact_plan_release(struct compact_plan *p)
{
	for (size_t i = 0; i < p->nr_variables; i++)
		free((char *)p->variable[i].key);
	free(p->inos);
	free(p->variable);
	free(p->extent);
	*p = (struct compact_plan){ 0 };
}

/* Ensure room for one more element. */
static int make_room(void **array, size_t nr, size_t *room, size_t size, size_t max)
{
	size_t twice = MAX(2 * *room, (size_t)64), more = MIN(twice, max);
	void *grown;

	if (nr < *room)
		return 0;
	if (nr >= max)
		return -E2BIG;
	grown = reallocarray(*array, more, size);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*room = more;
	return 0;
}

int compact_plan_add_file(struct compact_plan *p, uint64_t ino, uint32_t *ret)
{
	int r = make_room((void **)&p->inos, p->nr_files, &p->room_files, sizeof(*p->inos), COMPACT_FILES_MAX);

	if (r < 0)
		return r;
	*ret = (uint32_t)p->nr_files;
	p->inos[p->nr_files++] = ino;
	return 0;
}

static int begin_variable(struct compact_plan *p, const struct ckptfs_compact_add *a)
{
	struct compact_variable v = { .shape = { .parts = a->parts, .row = a->row, .plane = a->plane } };
	int r;

	if (a->type > UINT8_MAX || code_type_decode((uint8_t)a->type, &v.shape.type) < 0 || a->parts > PARTS_MAX ||
	    strnlen(a->key, sizeof(a->key)) > VARIABLE_KEY_MAX || a->before > p->nr_variables)
		return -EINVAL;
	r = make_room((void **)&p->variable, p->nr_variables, &p->room_variables, sizeof(*p->variable),
		      COMPACT_VARIABLES_MAX);
	if (r < 0)
		return r;
	*(a->flags & CKPTFS_COMPACT_ROUNDED ? &v.wide : &v.before) = a->before;
	v.key = strdup(a->key);
	if (!v.key)
		return -ENOMEM;
	p->variable[p->nr_variables++] = v;
	return 0;
}

static bool is_sound(const struct compact_plan *p, const struct ckptfs_compact_extent *x)
{
	return x->file < p->nr_files && x->reserved == 0 && x->len > 0 && x->len <= INT64_MAX &&
	       x->off <= INT64_MAX - x->len;
}

int compact_plan_add(struct compact_plan *p, const struct ckptfs_compact_add *a)
{
	bool begins = a->flags & CKPTFS_COMPACT_BEGINS;
	int r = 0;

	if (a->flags & ~(CKPTFS_COMPACT_BEGINS | CKPTFS_COMPACT_ROUNDED) || a->nr > CKPTFS_COMPACT_EXTENTS ||
	    (!begins && p->nr_variables == 0))
		return -EINVAL;
	for (uint32_t i = 0; i < a->nr; i++)
		if (!is_sound(p, &a->extent[i]))
			return -EINVAL;
	if (begins)
		r = begin_variable(p, a);
	for (uint32_t i = 0; i < a->nr && r == 0; i++) {
		r = make_room((void **)&p->extent, p->nr_extents, &p->room_extents, sizeof(*p->extent),
			      COMPACT_EXTENTS_MAX);
		if (r < 0)
			break;
		p->extent[p->nr_extents++] =
			(struct compact_extent){ a->extent[i].file, a->extent[i].off, a->extent[i].len };
		p->variable[p->nr_variables - 1].nr_extents++;
	}
	return r;
}

void compact_plan_finish(struct compact_plan *p)
{
	size_t at = 0;

	for (size_t i = 0; i < p->nr_variables; at += p->variable[i++].nr_extents)
		p->variable[i].extent = p->variable[i].nr_extents > 0 ? p->extent + at : NULL;
}
