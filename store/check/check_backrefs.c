/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Checks back-references against the recipes: every reference of a recipe must be in the table. Stale entries do no
 * harm. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/conf.h"
#include "index/backref_table.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/check/check_internal.h"
#include "store/file/extents/layer_stack.h"
#include "store/gc/backrefs.h"

#define ENTRIES_PER_STEP 4096u

static int each_by_itself(struct check *k)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = backref_prefix();
	const void *key, *value;
	size_t key_len, value_len;
	uint64_t nr = 0;
	int r;

	r = db_iter_new(k->db, NULL, prefix.b, prefix.len, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		(void)check_entry_alone(k, key, key_len, value, value_len);
		r = ++nr % ENTRIES_PER_STEP == 0 ? check_step(k, "references", nr, 0, false) : 0;
	}
	return r;
}

/* Counts the references of a recipe that are missing in the table. */
static int look_for(struct check *k, uint64_t ino, uint64_t segment, const struct frames_set *set, uint64_t *nr_missing)
{
	int r = 0;

	for (size_t i = 0; i < set->nr && r >= 0; i++) {
		struct backref ref = {
			.pack = frame_id_pack(set->v[i]),
			.frames = frame_id_frame(set->v[i]),
			.ino = ino,
			.segments = segment / BACKREF_SEGMENTS,
		};
		struct ns_key key = backref_key(&ref);

		r = db_get(k->db, DB_VIEW, key.b, key.len, NULL);
		*nr_missing += r == 0 && !check_is_removed(k, ref.pack); /* entries are dropped with their pack */
	}
	return MIN(r, 0);
}

/* Recipes that do not decode have been reported before. */
static int check_recipe(struct check *k, const void *key, size_t key_len, const void *value, size_t len,
			uint64_t *nr_missing)
{
	_cleanup_(frames_set_release) struct frames_set set = { 0 };
	_cleanup_(freep) struct extent *x = NULL;
	uint64_t ino, segment;
	size_t nr;
	int r;

	if (recipe_key_decode(key, key_len, &ino, &segment) < 0)
		return 0;
	r = recipe_read(k->db, NULL, value, len, &x, &nr);
	if (r == 0)
		r = frames_set_of(x, nr, &set);
	if (r < 0)
		return r == -EBADMSG ? 0 : r;
	return look_for(k, ino, segment, &set, nr_missing);
}

int check_backrefs(struct check *k)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const uint8_t prefix = VIEW_RECIPE;
	const void *key, *value;
	size_t key_len, value_len;
	uint64_t nr = 0, nr_missing = 0;
	char text[CHECK_TEXT];
	int r;

	r = each_by_itself(k);
	if (r < 0 || k->meta.backrefs != k->meta.commit)
		return r; /* incomplete and marked as such: a mount builds it when needed */
	r = db_iter_new(k->db, NULL, &prefix, 1, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		r = check_recipe(k, key, key_len, value, value_len, &nr_missing);
		if (r == 0 && ++nr % ENTRIES_PER_STEP == 0)
			r = check_step(k, "references", nr, 0, false);
	}
	if (r < 0 || nr_missing == 0)
		return r;
	snprintf(text, sizeof(text), "index: the back-reference table lacks %s of recipes",
		 human_nr(nr_missing, "reference").s);
	check_found_in_view(k, CHECK_INDEX, text);
	return 0;
}
