/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/tier_known.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

#define FIRST_SIZE ((size_t)1024)

/* The slot of a chunk, or a free one for it. Fingerprints are hashes. */
static struct tier_known_slot *slot_of(const struct tier_known_table *k, struct fp fp, uint32_t len)
{
	size_t at = (size_t)fp.lo & (k->size - 1);

	while (!fp_is_none(k->v[at].fp) && !(fp_equal(k->v[at].fp, fp) && k->v[at].len == len))
		at = (at + 1) & (k->size - 1);
	return &k->v[at];
}

static int table_grow(struct tier_known_table *k)
{
	struct tier_known_table more = { .nr = k->nr, .size = MAX(2 * k->size, FIRST_SIZE) };

	more.v = calloc(more.size, sizeof(*more.v));
	if (!more.v)
		return -ENOMEM;
	for (size_t i = 0; i < k->size; i++)
		if (!fp_is_none(k->v[i].fp))
			*slot_of(&more, k->v[i].fp, k->v[i].len) = k->v[i];
	free(k->v);
	*k = more;
	return 0;
}

static int table_add(struct tier_known_table *k, struct fp fp, uint32_t len, struct tier_place place, bool is_saved)
{
	int r = 4 * (k->nr + 1) > 3 * k->size ? table_grow(k) : 0;
	struct tier_known_slot *s;

	if (r < 0)
		return r;
	s = slot_of(k, fp, len);
	if (!fp_is_none(s->fp))
		return 0;
	*s = (struct tier_known_slot){ fp, len, place, is_saved };
	k->nr++;
	return 0;
}

static struct tier_known_slot *table_find(const struct tier_known_table *k, struct fp fp, uint32_t len)
{
	struct tier_known_slot *s = k->size > 0 ? slot_of(k, fp, len) : NULL;

	return s && !fp_is_none(s->fp) ? s : NULL;
}

static bool is_half_full(const struct tier_known *k)
{
	return k->young.nr >= k->max / 2;
}

int tier_known_add(struct tier_known *k, struct fp fp, uint32_t len, struct tier_place place)
{
	return table_find(&k->old, fp, len) ? 0 : table_add(&k->young, fp, len, place, false);
}

int tier_known_add_saved(struct tier_known *k, struct fp fp, uint32_t len, struct tier_place place)
{
	return table_find(&k->old, fp, len) ? 0 : table_add(&k->young, fp, len, place, true);
}

int tier_known_add_older(struct tier_known *k, struct fp fp, uint32_t len, struct tier_place place)
{
	return table_find(&k->young, fp, len) ? 0 :
						table_add(is_half_full(k) ? &k->old : &k->young, fp, len, place, false);
}

bool tier_known_is_full(const struct tier_known *k)
{
	return k->young.nr + k->old.nr >= k->max;
}

const struct tier_place *tier_known_find(const struct tier_known *k, struct fp fp, uint32_t len)
{
	const struct tier_known_slot *s = table_find(&k->young, fp, len);

	s = s ? s : table_find(&k->old, fp, len);
	return s ? &s->place : NULL;
}

int tier_known_use(struct tier_known *k, struct fp fp, uint32_t len)
{
	struct tier_known_slot *s;
	int r;

	if (table_find(&k->young, fp, len))
		return 1;
	s = table_find(&k->old, fp, len);
	if (!s)
		return 0;
	r = table_add(&k->young, fp, len, s->place, s->is_saved);
	s->is_saved |= r == 0; /* with the younger half */
	return r < 0 ? r : 1;
}

/* Frees a slot. Later slots of the chain move up, but not to before the first slot of their hash. */
static void table_remove(struct tier_known_table *k, size_t at)
{
	size_t mask = k->size - 1;

	for (size_t next = (at + 1) & mask; !fp_is_none(k->v[next].fp); next = (next + 1) & mask) {
		size_t home = (size_t)k->v[next].fp.lo & mask;

		if (((next - home) & mask) < ((next - at) & mask))
			continue; /* it would be before its first slot */
		k->v[at] = k->v[next];
		at = next;
	}
	k->v[at] = (struct tier_known_slot){ 0 };
	k->nr--;
}

static void table_forget(struct tier_known_table *k, const bool *is_gone)
{
	for (size_t i = 0; i < k->size;) {
		if (!fp_is_none(k->v[i].fp) && is_gone[k->v[i].place.pack])
			table_remove(k, i); /* another chunk may be in the slot now */
		else
			i++;
	}
}

void tier_known_forget(struct tier_known *k, const bool *is_gone)
{
	table_forget(&k->young, is_gone);
	table_forget(&k->old, is_gone);
}

bool tier_known_is_due(const struct tier_known *k)
{
	return is_half_full(k);
}

struct tier_known_slot *tier_known_unsaved_next(struct tier_known *k, bool older_only, size_t *at)
{
	size_t size = k->old.size + (older_only ? 0 : k->young.size);

	while (*at < size) {
		size_t i = (*at)++;
		struct tier_known_slot *s = i < k->old.size ? &k->old.v[i] : &k->young.v[i - k->old.size];

		if (!fp_is_none(s->fp) && !s->is_saved)
			return s;
	}
	return NULL;
}

void tier_known_trim(struct tier_known *k)
{
	if (!is_half_full(k))
		return;
	free(k->old.v);
	k->old = k->young;
	k->young = (struct tier_known_table){ 0 };
}

void tier_known_release(struct tier_known *k)
{
	free(k->young.v);
	free(k->old.v);
	*k = (struct tier_known){ 0 };
}
