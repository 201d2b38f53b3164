/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Keeps the back-reference table (index/backref_table.h) in step with the recipes of the view.
 *
 * Code that puts a recipe into the view adds its new references to the table in the same batch; code that drops a file
 * deletes its entries. So at any time, and after any crash, everything that a recipe of the view refers to is in the
 * table. Entries of overwritten data stay until the file is dropped, or until their pack is removed and RocksDB
 * compaction drops them: more precision would require the recipes of the whole group, under a lock that all changes
 * wait for.
 *
 * `complete` says whether the table covers all recipes; in the view it is a commit number beside the view's own
 * (complete if 'M' backrefs = 'M' commit). An incomplete table is built when it is first needed, concurrent with all
 * other work: changes made meanwhile follow the rule above, so a recipe is either still to be read or already in the
 * table.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/recipes.h"
#include "index/backref_table.h"
#include "store/pack/pack.h"

struct db;
struct db_batch;
struct engine;

/* A frame as a sortable number, and a group of frames likewise. */
typedef uint64_t frame_id;
typedef uint64_t frames_id;
static inline frame_id frame_id_of(uint32_t pack, uint32_t frame)
{
	return (uint64_t)pack << 32 | frame;
}
static inline uint32_t frame_id_pack(frame_id id)
{
	return (uint32_t)(id >> 32);
}
static inline uint32_t frame_id_frame(frame_id id)
{
	return (uint32_t)id;
}
static inline frames_id frames_id_of(frame_id id)
{
	return frame_id_of(frame_id_pack(id), frame_id_frame(id) / BACKREF_FRAMES);
}

/* The frame of an extent, and the offset of its data in the frame. false: not in a frame of this store. */
bool frame_of_extent(const struct extent *x, frame_id *ret, uint32_t *ret_off);

/* Groups of frames, sorted and unique. All zeros is an empty set. */
struct frames_set {
	frames_id *v;
	size_t nr, size;
};
int frames_set_of(const struct extent *x, size_t nr, struct frames_set *ret); /* replaces the old content; -ENOMEM */
void frames_set_trim(struct frames_set *s); /* frees unused memory */
void frames_set_release(struct frames_set *s);

#define BACKREFS_SEEN 64u
/* Entries of one inode to be put into a batch, each once. All zeros is an empty set. */
struct backrefs {
	uint64_t ino;
	struct backref_pair {
		frames_id frames;
		uint64_t segments;
	} * v;
	size_t nr, size;
	struct backref_pair seen[BACKREFS_SEEN];
};
/* Adds the references of a segment. Those in `known` (NULL: none) are in the table already, for all segments of its
 * group. -ENOMEM */
int backrefs_add(struct backrefs *r, uint64_t segment, const struct extent *x, size_t nr,
		  const struct frames_set *known);
int backrefs_add_frames(struct backrefs *r, uint64_t segment, const struct frames_set *frames,
			 const struct frames_set *known);
/* The same for a recipe of the view and for all extents of its layers, visible or not. -EBADMSG: the recipe does not
 * decode, or a layer is missing. */
int backrefs_add_recipe(struct backrefs *r, struct db *db, uint64_t segment, const void *recipe, size_t len);
void backrefs_put(struct backrefs *r, struct db_batch *batch); /* empties `r` */
void backrefs_del(struct backrefs *r, struct db_batch *batch);
void backrefs_release(struct backrefs *r);

/* State of the table of a store. */
struct backref_state *backref_state_new(void); /* NULL: -ENOMEM */
void backref_state_free(struct backref_state *b); /* NULL is fine */
bool backrefs_are_complete(struct engine *e); /* the table covers all recipes of the view */
void backrefs_set_complete(struct engine *e, bool complete); /* at open */
/* Builds the table unless it is complete. Calls `step` now and then with the recipes read so far; false: stop,
 * -ECANCELED. */
int backrefs_build(struct engine *e, bool (*step)(void *userdata, uint64_t nr_recipes), void *userdata);
/* Is this an entry of the view about a removed pack? */
bool backrefs_is_stale(void *engine, const void *key, size_t key_len, const void *value, size_t value_len);
