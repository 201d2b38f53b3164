/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/pack/pack_places.h"

#include <stdlib.h>

#define FIRST_SLOTS 64u

void pack_places_init(struct pack_places *s)
{
	*s = (struct pack_places){ 0 };
	mutex_init(&s->lock);
}

void pack_places_release(struct pack_places *s)
{
	free(s->slots);
	mutex_release(&s->lock);
}

static uint64_t place_key(uint32_t pack, uint32_t off)
{
	return (uint64_t)pack << 32 | off; /* never 0: packs are numbered from 1 */
}

static size_t home(const struct pack_places *s, uint64_t key)
{
	return (key * 0x9e3779b97f4a7c15 >> 32) & (s->nr_slots - 1);
}

/* Slot that holds the key, or the free slot where it belongs. */
static size_t slot_of(struct pack_places *s, uint64_t key) REQUIRES(s->lock)
{
	size_t i = home(s, key);

	while (s->slots[i] != 0 && s->slots[i] != key)
		i = (i + 1) & (s->nr_slots - 1);
	return i;
}

static bool grow(struct pack_places *s) REQUIRES(s->lock)
{
	size_t nr_old = s->nr_slots, nr = nr_old ? 2 * nr_old : FIRST_SLOTS;
	uint64_t *old = s->slots, *slots = calloc(nr, sizeof(*slots));

	if (!slots)
		return false;
	s->slots = slots;
	s->nr_slots = nr;
	for (size_t i = 0; i < nr_old; i++)
		if (old[i] != 0)
			slots[slot_of(s, old[i])] = old[i];
	free(old);
	return true;
}

bool pack_places_add(struct pack_places *s, uint32_t pack, uint32_t off)
{
	uint64_t key = place_key(pack, off);
	bool is_new = true;
	size_t i;

	mutex_lock(&s->lock);
	if (2 * s->nr < s->nr_slots || grow(s)) {
		i = slot_of(s, key);
		is_new = s->slots[i] == 0;
		s->slots[i] = key;
		s->nr += is_new;
	}
	mutex_unlock(&s->lock);
	return is_new;
}

/* Close the gap: move following keys that could no longer be found into it. */
static void empty_slot(struct pack_places *s, size_t gap) REQUIRES(s->lock)
{
	size_t mask = s->nr_slots - 1;

	for (size_t i = (gap + 1) & mask; s->slots[i] != 0; i = (i + 1) & mask) {
		size_t distance = (i - home(s, s->slots[i])) & mask;

		if (distance >= ((i - gap) & mask)) {
			s->slots[gap] = s->slots[i];
			gap = i;
		}
	}
	s->slots[gap] = 0;
}

bool pack_places_remove(struct pack_places *s, uint32_t pack, uint32_t off)
{
	uint64_t key = place_key(pack, off);
	bool found = false;

	mutex_lock(&s->lock);
	if (s->nr_slots > 0) {
		size_t i = slot_of(s, key);

		found = s->slots[i] == key;
		if (found) {
			empty_slot(s, i);
			s->nr--;
		}
	}
	mutex_unlock(&s->lock);
	return found;
}

bool pack_places_has_slow(struct pack_places *s, uint32_t pack, uint32_t off)
{
	uint64_t key = place_key(pack, off);
	bool found;

	mutex_lock(&s->lock);
	found = s->nr_slots > 0 && s->slots[slot_of(s, key)] == key;
	mutex_unlock(&s->lock);
	return found;
}
