/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions and their places in the file. A region has the same pages of the file for its lifetime, so that unchanged
 * pages are equal to the last checkpoint at the same offset. The pages of a removed region are reused by the next
 * region that fits. Page numbers are those of the file: page 0 is its header and belongs to no region.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/util.h"
#include "client/lib/client.h"
#include "client/lib/mapping.h"

#define COPIES_MIN 16u /* slots, if copies are enabled */

/* --- look-ups --- */

/* The number of regions in the table that begin at or before `key`. */
static uint32_t count_upto(struct region *const *table, uintptr_t key, bool by_address)
{
	uint32_t low = 0, high = client.nr_regions;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		uintptr_t begin = by_address ? (uintptr_t)table[middle]->p : table[middle]->slot;

		if (begin <= key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct region *region_of_address(uintptr_t address)
{
	uint32_t n = count_upto(client.by_address, address, true);
	struct region *r = n > 0 ? client.by_address[n - 1] : NULL;

	if (!r || r->gone || address < (uintptr_t)r->start ||
	    address - (uintptr_t)r->start >= (size_t)r->nr_pages * client.page_size)
		return NULL;
	return r;
}

uintptr_t region_next_address(uintptr_t address)
{
	uint32_t n = count_upto(client.by_address, address, true);

	/* The one before may have its first whole page behind it. */
	if (n > 0 && (uintptr_t)client.by_address[n - 1]->start > address)
		return (uintptr_t)client.by_address[n - 1]->start;
	return n < client.nr_regions ? (uintptr_t)client.by_address[n]->start : UINTPTR_MAX;
}

struct region *region_of_page(uint32_t page)
{
	uint32_t n = count_upto(client.by_slot, page, false);
	struct region *r = n > 0 ? client.by_slot[n - 1] : NULL;

	return r && page >= r->first && page - r->first < r->nr_pages ? r : NULL;
}

struct region *region_by_name(const char *name)
{
	for (uint32_t i = 0; i < client.nr_regions; i++)
		if (!client.by_address[i]->gone && strcmp(client.by_address[i]->name, name) == 0)
			return client.by_address[i];
	return NULL;
}

struct region *region_at(const void *p)
{
	uint32_t n = count_upto(client.by_address, (uintptr_t)p, true);

	return n > 0 && client.by_address[n - 1]->p == p && !client.by_address[n - 1]->gone ? client.by_address[n - 1] :
											      NULL;
}

bool region_overlaps(const void *p, size_t len)
{
	uint32_t n = count_upto(client.by_address, (uintptr_t)p + len - 1, true);

	while (n > 0 && client.by_address[n - 1]->gone)
		n--;
	return n > 0 && client.by_address[n - 1]->p + client.by_address[n - 1]->len > (const uint8_t *)p;
}

uint64_t region_bytes(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < client.nr_regions; i++)
		sum += client.by_address[i]->gone ? 0 : client.by_address[i]->len;
	return sum;
}

/* --- page tables --- */

static uint64_t tracked_pages(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < client.nr_regions; i++)
		sum += client.by_slot[i]->nr_pages;
	return sum;
}

static uint32_t slots_wanted(void)
{
	uint64_t pages = tracked_pages(), slots;

	if (client.options.mode == CKPTFS_MODE_SYNC || client.options.cow_bytes == CKPTFS_COW_NONE)
		return 0;
	if (client.cow_percent > 0)
		slots = MAX(pages * client.cow_percent / 100, (uint64_t)COPIES_MIN);
	else
		slots = client.options.cow_bytes / client.page_size;
	pages = MAX(pages, (uint64_t)COPIES_MIN);
	return (uint32_t)MIN(slots, pages);
}

static void *map_table(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Resizes the page tables and the copy buffer; no checkpoint may be in progress. */
static int resize_tables(uint32_t size, uint32_t slots)
{
	size_t len = MAX(pages_room(size, slots), (size_t)1), copies_len = (size_t)slots * client.page_size;
	void *room = map_table(len), *copies = copies_len > 0 ? map_table(copies_len) : NULL;
	void *old_room, *old_copies = client.copies;
	size_t old_len, old_copies_len = client.copies_len;
	struct pages pages;
	sigset_t before;

	if (!room || (copies_len > 0 && !copies)) {
		if (room)
			munmap(room, len);
		return log_errno(-ENOMEM, "checkpoints: page tables of %zu bytes and copy buffer of %zu bytes", len,
				 copies_len);
	}
	siglock_enter(&client.lock, &before);
	old_room = client.pages.page;
	old_len = client.pages_len;
	pages_init(&pages, room, size, slots, old_room ? &client.pages : NULL);
	client.pages = pages;
	client.pages_len = len;
	client.pages_size = size;
	client.copies = copies;
	client.copies_len = copies_len;
	siglock_leave(&client.lock, &before);
	if (old_room)
		munmap(old_room, old_len);
	if (old_copies)
		munmap(old_copies, old_copies_len);
	return 0;
}

uint64_t region_copies_bytes(void)
{
	return (uint64_t)slots_wanted() * client.page_size;
}

int region_size_copies(void)
{
	uint32_t slots = slots_wanted();

	return slots == client.pages.nr_slots ? 0 : resize_tables(client.pages_size, slots);
}

/* --- adding and removing regions --- */

/* The first gap between slots that is large enough; the one behind the last always is. */
static uint64_t find_slot(uint32_t nr)
{
	uint64_t end = 1;

	for (uint32_t i = 0; i < client.nr_regions; i++) {
		if (client.by_slot[i]->slot - end >= nr)
			return end;
		end = client.by_slot[i]->slot + client.by_slot[i]->nr_slot;
	}
	return end;
}

static bool slot_is_free(uint32_t slot, uint32_t nr)
{
	for (uint32_t i = 0; i < client.nr_regions; i++) {
		const struct region *r = client.by_slot[i];

		if (slot < r->slot + r->nr_slot && r->slot < slot + nr)
			return false;
	}
	return true;
}

static void region_set_slot(struct region *r, uint32_t slot)
{
	uintptr_t page = client.page_size, unit = page * r->unit, begin = (uintptr_t)r->p, end = begin + r->len;
	uintptr_t start = round_up(begin, unit), stop = round_down(end, unit);

	r->slot = slot;
	r->nr_slot = (uint32_t)((round_up(end, page) - round_down(begin, page)) / page);
	r->start = (uint8_t *)start;
	r->nr_pages = stop > start ? (uint32_t)((stop - start) / page) : 0;
	r->first = slot + (uint32_t)((start - round_down(begin, page)) / page);
}

/* A huge page can only be protected as a whole. Memory mapped by libckptfs and captured memory have small pages. */
static uint32_t unit_of(const struct region *r)
{
	size_t size = client.page_size;
	FILE *f;

	if (r->ours || r->captured || r->len < 2 * (size_t)client.page_size)
		return 1;
	f = fopen("/proc/self/smaps", "re");
	if (f) {
		size = mapping_page_size(f, (uintptr_t)r->p);
		fclose(f);
	}
	return size > client.page_size ? (uint32_t)(size / client.page_size) : 1;
}

static int grow_tables(uint64_t end)
{
	uint64_t size = MAX(2 * (uint64_t)client.pages_size, (uint64_t)1024);

	if (end <= client.pages_size)
		return 0;
	size = MAX(size, end);
	size = MIN(size, (uint64_t)PAGES_NONE - 1);
	if (end > size)
		return log_errno(-EFBIG, "checkpoints: %" PRIu64 " pages", end);
	writer_wait();
	return resize_tables((uint32_t)size, client.pages.nr_slots);
}

static int grow_index(void)
{
	uint32_t size = MAX(2 * client.regions_size, 64u);
	struct region **by_address, **by_slot, **old_address = client.by_address, **old_slot = client.by_slot;
	sigset_t before;

	if (client.nr_regions < client.regions_size)
		return 0;
	by_address = calloc(size, sizeof(*by_address));
	by_slot = calloc(size, sizeof(*by_slot));
	if (!by_address || !by_slot) {
		free(by_address);
		free(by_slot);
		return -ENOMEM;
	}
	if (client.nr_regions > 0) {
		memcpy(by_address, old_address, client.nr_regions * sizeof(*by_address));
		memcpy(by_slot, old_slot, client.nr_regions * sizeof(*by_slot));
	}
	siglock_enter(&client.lock, &before);
	client.by_address = by_address;
	client.by_slot = by_slot;
	client.regions_size = size;
	siglock_leave(&client.lock, &before);
	free(old_address);
	free(old_slot);
	return 0;
}

static void table_insert(struct region **table, uint32_t at, struct region *r)
{
	memmove(table + at + 1, table + at, (client.nr_regions - at) * sizeof(*table));
	table[at] = r;
}

static void table_remove(struct region **table, const struct region *r)
{
	uint32_t i = 0;

	while (table[i] != r)
		i++;
	memmove(table + i, table + i + 1, (client.nr_regions - i - 1) * sizeof(*table));
}

int region_add(struct region *r, uint32_t slot)
{
	uint32_t at_address, at_slot;
	uint64_t found;
	sigset_t before;
	int error;

	if (r->len / client.page_size >= PAGES_NONE)
		return log_errno(-EFBIG, "region %s: %zu bytes are more than 2^32 pages", r->name, r->len);
	r->unit = unit_of(r);
	region_set_slot(r, 0);
	found = slot != 0 && slot_is_free(slot, r->nr_slot) ? slot : find_slot(r->nr_slot);
	error = found + r->nr_slot < PAGES_NONE ?
			0 :
			log_errno(-EFBIG, "region %s: all regions together exceed 2^32 pages", r->name);
	if (error == 0)
		error = grow_tables(found + r->nr_slot);
	if (error == 0)
		error = grow_index();
	if (error < 0)
		return error;
	region_set_slot(r, (uint32_t)found);
	siglock_enter(&client.lock, &before);
	at_address = count_upto(client.by_address, (uintptr_t)r->p, true);
	at_slot = count_upto(client.by_slot, r->slot, false);
	table_insert(client.by_address, at_address, r);
	table_insert(client.by_slot, at_slot, r);
	client.nr_regions++;
	siglock_leave(&client.lock, &before);
	return 0;
}

void region_remove(struct region *r)
{
	sigset_t before;

	siglock_enter(&client.lock, &before);
	pages_forget(&client.pages, r->first, r->nr_pages);
	table_remove(client.by_address, r);
	table_remove(client.by_slot, r);
	client.nr_regions--;
	siglock_leave(&client.lock, &before);
	client.holes_since = client.number + 1;
}
