/*
 * Keeping the table of who refers to what (index/referrers.h) up to what the recipes of the view say.
 *
 * Whoever puts a recipe into the view puts what it newly refers to into the table, in the same batch; whoever drops a
 * file takes its entries out. So at every moment, and after every crash, whatever a recipe of the view refers to is in
 * the table. What a file does not refer to any more since it was overwritten stays there until the file is dropped, or
 * until its pack is gone, when RocksDB leaves it out: to know better would take the recipes of the whole group, under
 * a lock that everybody waits for.
 *
 * Stores of before the table have none, or a part of one: `complete` tells, in the view by the commit number that
 * stands beside the view's own ('M' referrers = 'M' commit, else not). It is made when it is first needed, while
 * everything goes on: what is changed meanwhile keeps to the rule above, so a recipe is either still to come or
 * already in it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/recipes.h"
#include "index/referrers.h"
#include "store/pack/pack.h"

struct db;
struct db_batch;
struct engine;

/* A frame as a number that sorts, and a group of frames likewise. */
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
	return frame_id_of(frame_id_pack(id), frame_id_frame(id) / REFERRER_FRAMES);
}

/* The frame of an extent and where its data lie in it. false: in none of this store. */
bool frame_of_extent(const struct extent *x, frame_id *ret, uint32_t *ret_off);

/* Groups of frames, sorted, each once. All zeros is an empty one. */
struct frames_set {
	frames_id *v;
	size_t nr, size;
};
int frames_set_of(const struct extent *x, size_t nr, struct frames_set *ret); /* instead of what it held; -ENOMEM */
void frames_set_trim(struct frames_set *s); /* gives memory back that it does not use */
void frames_set_release(struct frames_set *s);

#define REFERRERS_MET 64u
/* Entries of one inode on their way into a batch, so that each is put once. All zeros is an empty one. */
struct referrers {
	uint64_t ino;
	struct referrer_pair {
		frames_id frames;
		uint64_t segments;
	} * v;
	size_t nr, size;
	struct referrer_pair met[REFERRERS_MET];
};
/* What a segment refers to. What is in `known` (NULL: nothing) is in the table already, for all segments of its group.
 * -ENOMEM */
int referrers_add(struct referrers *r, uint64_t segment, const struct extent *x, size_t nr,
		  const struct frames_set *known);
int referrers_add_frames(struct referrers *r, uint64_t segment, const struct frames_set *frames,
			 const struct frames_set *known);
/* The same for a recipe as the view has it, and for all that its layers have, seen or not. -EBADMSG: it does not
 * decode, or a layer is not there. */
int referrers_add_recipe(struct referrers *r, struct db *db, uint64_t segment, const void *recipe, size_t len);
void referrers_put(struct referrers *r, struct db_batch *batch); /* and empty it */
void referrers_del(struct referrers *r, struct db_batch *batch);
void referrers_release(struct referrers *r);

/* Make the table, unless it is complete. `step` hears of how many recipes now and then; false: stop, -ECANCELED. */
int referrers_build(struct engine *e, bool (*step)(void *userdata, uint64_t nr_recipes), void *userdata);
/* Is this an entry of the view that tells of a pack that is gone? */
bool referrers_is_stale(void *engine, const void *key, size_t key_len, const void *value, size_t value_len);
