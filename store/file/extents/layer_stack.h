/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Recipes as stored in the view: a recipe's own extents, those of the layer that it names, those of the layer below,
 * and so on to the bottom (index/recipes.h). Where several cover a byte, the topmost is visible.
 *
 * Layers are immutable and are removed only when no recipe names them any more (gc_layers.c). The layers of a recipe
 * therefore exist if they are read from the same pinned state as the recipe, or while changes or collections are locked
 * out.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "index/recipes.h"

struct db;
struct db_snapshot;
struct segment;

#define STACK_MAX 64u /* maximum number of layers of a recipe */

struct stack {
	struct stack_part {
		uint64_t layer; /* its number; 0: the recipe's own */
		struct extent *x;
		size_t nr;
	} v[STACK_MAX + 1]; /* topmost first */
	unsigned nr;
};

/* Read all parts of a recipe of the view, in a pinned state or, if NULL, the current one. -EBADMSG: it does not decode,
 * or a layer is missing, not below the one that names it, or exceeds STACK_MAX. */
int stack_read(struct db *db, const struct db_snapshot *state, const void *recipe, size_t len, struct stack *ret);
void stack_release(struct stack *s);
/* The visible extents; the caller frees *ret, which is NULL if *ret_nr is 0. recipe_read() does both steps. */
int stack_merge(const struct stack *s, struct extent **ret, size_t *ret_nr);
int recipe_read(struct db *db, const struct db_snapshot *state, const void *recipe, size_t len, struct extent **ret,
		size_t *ret_nr);
/* Fill an empty segment, layer by layer. Takes the extents. -ENOMEM, -EBADMSG: a layer has no extents. */
int stack_into_segment(struct stack *s, struct segment *to);
