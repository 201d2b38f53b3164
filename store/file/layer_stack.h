/*
 * Recipes of the view, as everybody reads them: what a recipe has of its own, what the layer that it names has, the one
 * below, and so on to the lowest (index/recipes.h). Of what several cover the highest is seen.
 *
 * Layers do not change, and go only when no recipe names them any more (gc_layers.c). So the layers of a recipe are
 * there if they are read in the same pinned state as it was, or while changes or collections are locked out.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "index/recipes.h"

struct db;
struct db_snapshot;
struct segment;

#define STACK_MAX 64u /* layers of a recipe */

struct stack {
	struct stack_part {
		uint64_t layer; /* its number; 0: the recipe's own */
		struct extent *x;
		size_t nr;
	} v[STACK_MAX + 1]; /* the highest first */
	unsigned nr;
};

/* All parts of a recipe of the view, in a pinned state or, NULL, as it is now. -EBADMSG: it does not decode, or a layer
 * is not there, not below the one that names it, or one too many. */
int stack_read(struct db *db, const struct db_snapshot *state, const void *recipe, size_t len, struct stack *ret);
void stack_release(struct stack *s);
/* What is seen of it; caller frees *ret, which is NULL if *ret_nr is 0. Likewise from the recipe at once. */
int stack_merge(const struct stack *s, struct extent **ret, size_t *ret_nr);
int recipe_read(struct db *db, const struct db_snapshot *state, const void *recipe, size_t len, struct extent **ret,
		size_t *ret_nr);
/* A segment that is empty gets it, layer by layer. Takes the extents. -ENOMEM, -EBADMSG: the lowest has none. */
int stack_into_segment(struct stack *s, struct segment *to);
