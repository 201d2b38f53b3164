/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/dedup/fptable.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

#define SIZE_MIN 16u

/* By the first byte of the key; the hash is keyed, so its bits are as good as random. */
unsigned fptable_part_of(struct fp fp)
{
	return (unsigned)(fp.lo & 0xff) / (256 / FPTABLE_PARTS);
}

/* By the bits behind that byte. */
static size_t slot_of(const struct fptable_part *p, struct fp fp)
{
	return fp.lo >> 8 & (p->size - 1);
}

void fptable_release(struct fptable *t)
{
	for (unsigned i = 0; i < FPTABLE_PARTS; i++)
		free(t->part[i].slots);
	*t = (struct fptable){ 0 };
}

static struct fptable_slot *find_in(const struct fptable_part *p, struct fp fp)
{
	struct fptable_slot *slots = p->slots;
	size_t size = p->size;

	if (!slots)
		return NULL;
	for (size_t i = slot_of(p, fp); slots[i].pack; i = (i + 1) & (size - 1))
		if (slots[i].lo == fp.lo && slots[i].hi == fp.hi)
			return &slots[i];
	return NULL;
}

struct fptable_slot *fptable_find(const struct fptable *t, struct fp fp)
{
	return find_in(&t->part[fptable_part_of(fp)], fp);
}

/* Another thread may be growing the part: then this fetches a place that is not used any more. */
void fptable_prefetch(const struct fptable *t, struct fp fp)
{
	const struct fptable_part *p = &t->part[fptable_part_of(fp)];
	const struct fptable_slot *slots = atomic_load_explicit(&p->slots, memory_order_relaxed);
	size_t size = atomic_load_explicit(&p->size, memory_order_relaxed);

	if (slots)
		__builtin_prefetch(&slots[fp.lo >> 8 & (size - 1)]);
}

static void insert_slot(struct fptable_part *p, struct fptable_slot s)
{
	size_t i = slot_of(p, fptable_slot_fp(&s));

	while (p->slots[i].pack)
		i = (i + 1) & (p->size - 1);
	p->slots[i] = s;
	p->nr++;
}

static size_t capacity(const struct fptable_part *p)
{
	return p->size / 8 * 7;
}

/* To a capacity of `entries` or more. */
static int grow(struct fptable_part *p, size_t entries)
{
	struct fptable_part bigger = { .size = MAX(p->size, (size_t)SIZE_MIN) };

	while (capacity(&bigger) < entries)
		bigger.size *= 2;
	bigger.slots = calloc(bigger.size, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < p->size; i++)
		if (p->slots[i].pack)
			insert_slot(&bigger, p->slots[i]);
	free(p->slots);
	p->slots = bigger.slots;
	p->nr = bigger.nr;
	p->size = bigger.size;
	return 0;
}

int fptable_insert_uncounted(struct fptable *t, struct fp fp, struct addr a, uint8_t number)
{
	struct fptable_part *p = &t->part[fptable_part_of(fp)];

	if (p->nr >= capacity(p)) {
		int r = grow(p, p->nr + 1);

		if (r < 0)
			return r;
	}
	insert_slot(p, (struct fptable_slot){ .lo = fp.lo, .hi = fp.hi, .number = number, .pack = a.pack, .off = a.off });
	return 0;
}

void fptable_count(struct fptable *t, size_t nr)
{
	if (nr > 0)
		atomic_fetch_add_explicit(&t->nr, nr, memory_order_relaxed);
}

int fptable_insert(struct fptable *t, struct fp fp, struct addr a, uint8_t number)
{
	int r = fptable_insert_uncounted(t, fp, a, number);

	if (r == 0)
		fptable_count(t, 1);
	return r;
}

int fptable_reserve(struct fptable *t, const struct fptable *more)
{
	for (unsigned i = 0; i < FPTABLE_PARTS; i++) {
		size_t entries = t->part[i].nr + more->part[i].nr;

		if (entries > capacity(&t->part[i]) && grow(&t->part[i], entries) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Close the gap so that probing needs no tombstones: move back entries that it would otherwise hide. */
void fptable_remove(struct fptable *t, struct fp fp)
{
	struct fptable_part *p = &t->part[fptable_part_of(fp)];
	struct fptable_slot *s = find_in(p, fp);
	size_t gap, i;

	if (!s)
		return;
	gap = (size_t)(s - p->slots);
	p->nr--;
	atomic_fetch_sub_explicit(&t->nr, 1, memory_order_relaxed);
	for (i = (gap + 1) & (p->size - 1); p->slots[i].pack; i = (i + 1) & (p->size - 1)) {
		size_t home = slot_of(p, fptable_slot_fp(&p->slots[i]));

		if (((i - home) & (p->size - 1)) >= ((i - gap) & (p->size - 1))) {
			p->slots[gap] = p->slots[i];
			gap = i;
		}
	}
	p->slots[gap].pack = 0;
}

size_t fptable_memory(const struct fptable *t)
{
	size_t size = 0;

	for (unsigned i = 0; i < FPTABLE_PARTS; i++)
		size += t->part[i].size;
	return size * sizeof(struct fptable_slot);
}
