/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/format/delta_table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

#define SLOTS_MIN 64u

static uint64_t entries_max(uint64_t nr_slots)
{
	return nr_slots - nr_slots / 8 - (nr_slots > 0); /* one stays empty however few there are */
}

void delta_table_init(struct delta_table *t, uint64_t limit_bytes)
{
	/* The largest table takes two thirds, and the half as large one that it replaces the rest. */
	*t = (struct delta_table){ .nr_slots_max = limit_bytes / 3 * 2 / sizeof(struct delta_entry) };
}

void delta_table_release(struct delta_table *t)
{
	free(t->slots);
	*t = (struct delta_table){ 0 };
}

/* The home slot of a digest. Digests are keyed, so content cannot be chosen to make them collide. */
static uint64_t home_of(const struct delta_table *t, struct digest d)
{
	return (uint64_t)(((unsigned __int128)d.lo * t->nr_slots) >> 64);
}

static uint64_t slot_after(const struct delta_table *t, uint64_t i)
{
	return i + 1 == t->nr_slots ? 0 : i + 1;
}

/* The slot that has the digest, or the empty one where it would go. */
static uint64_t slot_of(const struct delta_table *t, struct digest d)
{
	uint64_t i = home_of(t, d);

	while (t->slots[i].version != 0 && !digest_equal(t->slots[i].digest, d))
		i = slot_after(t, i);
	return i;
}

const struct delta_entry *delta_table_find(const struct delta_table *t, struct digest d)
{
	const struct delta_entry *e;

	if (t->nr_used == 0)
		return NULL;
	e = &t->slots[slot_of(t, d)];
	return e->version != 0 ? e : NULL;
}

uint64_t delta_table_room(const struct delta_table *t)
{
	return entries_max(t->nr_slots_max) - t->nr_used;
}

static int table_grow(struct delta_table *t)
{
	struct delta_table larger = *t;

	/* Of the sizes that doubling takes to the largest one, the next. */
	larger.nr_slots = t->nr_slots_max;
	while (larger.nr_slots / 2 > MAX(t->nr_slots, (uint64_t)SLOTS_MIN))
		larger.nr_slots /= 2;
	larger.slots = calloc(larger.nr_slots, sizeof(*larger.slots));
	if (!larger.slots)
		return -ENOMEM;
	for (uint64_t i = 0; i < t->nr_slots; i++)
		if (t->slots[i].version != 0)
			larger.slots[slot_of(&larger, t->slots[i].digest)] = t->slots[i];
	free(t->slots);
	*t = larger;
	return 0;
}

int delta_table_enter(struct delta_table *t, struct digest d, uint32_t version, uint32_t chunk)
{
	uint64_t i;
	int r;

	assert(version != 0 && delta_table_room(t) > 0);
	if (t->nr_used == entries_max(t->nr_slots)) {
		r = table_grow(t);
		if (r < 0)
			return r;
	}
	i = slot_of(t, d);
	assert(t->slots[i].version == 0);
	t->slots[i] = (struct delta_entry){ .digest = d, .version = version, .chunk = chunk };
	t->nr_used++;
	return 0;
}

/* Empties a slot; those behind that would no longer be found move up. */
static void slot_clear(struct delta_table *t, uint64_t hole)
{
	for (uint64_t i = slot_after(t, hole); t->slots[i].version != 0; i = slot_after(t, i)) {
		uint64_t home = home_of(t, t->slots[i].digest);
		uint64_t from_home = i >= home ? i - home : i + t->nr_slots - home;
		uint64_t from_hole = i >= hole ? i - hole : i + t->nr_slots - hole;

		if (from_home < from_hole)
			continue; /* its home is behind the hole */
		t->slots[hole] = t->slots[i];
		hole = i;
	}
	t->slots[hole].version = 0;
	t->nr_used--;
}

/* slot_clear() moves entries to the current slot or behind it, or entries that were visited before wrapping around. */
void delta_table_sweep(struct delta_table *t, delta_keep_fn *keep, void *userdata)
{
	for (uint64_t i = 0; i < t->nr_slots; i++)
		while (t->slots[i].version != 0 && !keep(userdata, &t->slots[i]))
			slot_clear(t, i);
}
