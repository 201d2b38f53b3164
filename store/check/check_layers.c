/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Checks layers of the view: each by itself, and that the layer below it exists. Whether recipes have their layers is
 * checked where recipes are read. A layer that no recipe needs does no harm: deleting a file leaves it until the next
 * collection (gc_layers.c). Such layers are counted.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "index/db.h"
#include "index/index_format.h"
#include "store/check/check_internal.h"

#define ENTRIES_PER_STEP 4096u

static void report_layer(struct check *k, uint64_t layer, const char *what)
{
	char text[CHECK_TEXT];

	snprintf(text, sizeof(text), "index: layer %" PRIu64 ": %s", layer, what);
	check_found_in_view(k, CHECK_INDEX, text);
}

static int check_below(struct check *k, uint64_t layer, const void *value, size_t len)
{
	_cleanup_(freep) struct extent *x = NULL;
	struct ns_key key;
	uint64_t below;
	size_t nr;
	int r = recipe_decode_over(value, len, &below, &x, &nr);

	if (r < 0 || below == 0)
		return r == -EBADMSG ? 0 : r;
	key = layer_key(below);
	r = db_get(k->db, DB_VIEW, key.b, key.len, NULL);
	if (r == 0)
		report_layer(k, layer, "its base is missing");
	return MIN(r, 0);
}

int check_layers(struct check *k, const struct layer_set *in_use)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = layer_prefix();
	const void *key, *value;
	size_t key_len, value_len;
	uint64_t layer;
	int r;

	k->res.nr_layers = k->res.nr_unused_layers = 0;
	r = db_iter_new(k->db, NULL, prefix.b, prefix.len, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		if (check_entry_alone(k, key, key_len, value, value_len) == 0)
			continue;
		layer_key_decode(key, key_len, &layer);
		if (layer >= k->meta.layers)
			report_layer(k, layer, "has a number that was never issued");
		k->res.nr_unused_layers += !layer_set_has(in_use, layer);
		r = check_below(k, layer, value, value_len);
		if (r == 0 && ++k->res.nr_layers % ENTRIES_PER_STEP == 0)
			r = check_step(k, "layers", k->res.nr_layers, 0, false);
	}
	return r;
}
