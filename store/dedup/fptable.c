/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/dedup/fptable.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

static size_t slot_of(const struct fptable *t, struct fp fp)
{
	return fp.lo & (t->size - 1); /* the hash is keyed: its bits are as good as random */
}

int fptable_init(struct fptable *t, size_t entries)
{
	size_t size = 64;

	while (size / 8 * 7 < entries)
		size *= 2;
	t->slots = calloc(size, sizeof(*t->slots));
	if (!t->slots)
		return -ENOMEM;
	t->size = size;
	t->nr = 0;
	return 0;
}

void fptable_release(struct fptable *t)
{
	free(t->slots);
	*t = (struct fptable){ 0 };
}

struct fptable_slot *fptable_find(const struct fptable *t, struct fp fp)
{
	if (!t->slots)
		return NULL;
	for (size_t i = slot_of(t, fp); t->slots[i].pack; i = (i + 1) & (t->size - 1))
		if (t->slots[i].lo == fp.lo && t->slots[i].hi == fp.hi)
			return &t->slots[i];
	return NULL;
}

void fptable_prefetch(const struct fptable *t, struct fp fp)
{
	if (t->slots)
		__builtin_prefetch(&t->slots[slot_of(t, fp)]);
}

static void insert_slot(struct fptable *t, struct fptable_slot s)
{
	size_t i = slot_of(t, fptable_slot_fp(&s));

	while (t->slots[i].pack)
		i = (i + 1) & (t->size - 1);
	t->slots[i] = s;
	t->nr++;
}

static int grow(struct fptable *t)
{
	struct fptable bigger;
	int r = fptable_init(&bigger, t->size / 8 * 7 + 1);

	if (r < 0)
		return r;
	for (size_t i = 0; i < t->size; i++)
		if (t->slots[i].pack)
			insert_slot(&bigger, t->slots[i]);
	free(t->slots);
	*t = bigger;
	return 0;
}

int fptable_insert(struct fptable *t, struct fp fp, struct addr a, uint8_t number)
{
	if (t->nr >= t->size / 8 * 7) {
		int r = grow(t);

		if (r < 0)
			return r;
	}
	insert_slot(t, (struct fptable_slot){ .lo = fp.lo, .hi = fp.hi, .number = number, .pack = a.pack, .off = a.off });
	return 0;
}

/* Close the gap so that probing needs no tombstones: move back entries that it would otherwise hide. */
void fptable_remove(struct fptable *t, struct fp fp)
{
	struct fptable_slot *s = fptable_find(t, fp);
	size_t gap, i;

	if (!s)
		return;
	gap = (size_t)(s - t->slots);
	t->nr--;
	for (i = (gap + 1) & (t->size - 1); t->slots[i].pack; i = (i + 1) & (t->size - 1)) {
		size_t home = slot_of(t, fptable_slot_fp(&t->slots[i]));

		if (((i - home) & (t->size - 1)) >= ((i - gap) & (t->size - 1))) {
			t->slots[gap] = t->slots[i];
			gap = i;
		}
	}
	t->slots[gap].pack = 0;
}

size_t fptable_memory(const struct fptable *t)
{
	return t->size * sizeof(*t->slots);
}
