/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/classify/image_cuts.h"

#include <assert.h>
#include <elf.h>
#include <stdbool.h>
#include <string.h>

#include "base/le.h"
#include "base/util.h"

#define MEMORY_PAGE 4096u /* the smallest page size of memory */
#define ENTRIES_MAX 8u /* program headers before the first one with memory: notes and little else */
#define IMAGE_MAX ((uint64_t)INT64_MAX)

enum grid_format { GRID_PLAIN, GRID_CORE, GRID_DMTCP_HEADERS, GRID_DMTCP_AREAS };

/* --- core files --- */

struct elf_disk {
	uint8_t ident[16];
	struct le16 type, machine;
	struct le32 version;
	struct le64 entry, table, sections;
	struct le32 flags;
	struct le16 size, entry_size, nr_entries, section_size, nr_sections, names;
};
static_assert(sizeof(struct elf_disk) == sizeof(Elf64_Ehdr), "in core files");

struct entry_disk {
	struct le32 type, flags;
	struct le64 off, address, physical, file_bytes, bytes, align;
};
static_assert(sizeof(struct entry_disk) == sizeof(Elf64_Phdr), "in core files");

static bool is_core(const struct elf_disk *d)
{
	return memcmp(d->ident, ELFMAG, SELFMAG) == 0 && d->ident[EI_CLASS] == ELFCLASS64 &&
	       d->ident[EI_DATA] == ELFDATA2LSB && le16_get(d->type) == ET_CORE && le64_get(d->table) == sizeof(*d) &&
	       le16_get(d->entry_size) == sizeof(struct entry_disk);
}

/* Offset of the first memory, from the program headers behind the ELF header; 0: not program headers. */
static uint64_t first_memory(const uint8_t *p, size_t len)
{
	for (unsigned i = 0; i < ENTRIES_MAX && (i + 1) * sizeof(struct entry_disk) <= len; i++) {
		const struct entry_disk *d = (const struct entry_disk *)p + i;
		uint64_t off = le64_get(d->off), bytes = le64_get(d->file_bytes);

		if (off > IMAGE_MAX || (le32_get(d->type) != PT_LOAD && le32_get(d->type) != PT_NOTE))
			return 0;
		if (le32_get(d->type) == PT_NOTE || bytes == 0)
			continue;
		if (off < sizeof(struct elf_disk) + (i + 1) * sizeof(*d) || bytes % MEMORY_PAGE != 0 ||
		    bytes > le64_get(d->bytes) || le64_get(d->address) % MEMORY_PAGE != 0)
			return 0;
		return off;
	}
	return 0;
}

static void core_begins(struct grid *g, const uint8_t *table, size_t len)
{
	uint64_t off = first_memory(table, len);

	if (off > 0)
		*g = (struct grid){ .format = GRID_CORE, .next = off };
}

/* --- DMTCP images: headers of 4096 bytes, then one per area, mostly followed by the area's bytes --- */

#define BLOCK 4096u
#define SIGNATURE_3 "DMTCP_CHECKPOINT_IMAGE_v2.0\n"
#define SIGNATURE_4 "DMTCP_CHECKPOINT_IMAGE_v4.0\n"
#define MEMORY_SIGNATURE "MTCP_HEADER_v2.2\n" /* version 3: the last block before the areas */
#define HEADERS_END (256 * (uint64_t)BLOCK)

enum property { ZERO_PAGES = 1, PARENT = 2, CHILD = 4, PROPERTIES_KNOWN = 7 };

struct area_disk {
	struct le64 start, end, size, file_off, prot, flags, major, minor, inode, file_bytes, properties;
};
static_assert(sizeof(struct area_disk) == GRID_HEAD, "in images");

static bool begins(const uint8_t *p, size_t len, const char *text)
{
	return len >= strlen(text) && memcmp(p, text, strlen(text)) == 0;
}

/* Image bytes taken by the area with this header; 0: not a header, or the last one. */
static uint64_t area_bytes(const struct area_disk *d)
{
	uint64_t size = le64_get(d->size), bytes = le64_get(d->file_bytes), properties = le64_get(d->properties);

	if (le64_get(d->start) == 0)
		return 0;
	if (le64_get(d->end) - le64_get(d->start) != size || size > IMAGE_MAX ||
	    (properties & ~(uint64_t)PROPERTIES_KNOWN))
		return 0;
	if (properties & (ZERO_PAGES | PARENT))
		return BLOCK;
	if ((int64_t)bytes <= 0 || (properties & CHILD)) /* not file-backed */
		bytes = size;
	return bytes <= size ? BLOCK + bytes : 0;
}

/* The page grid that ends at `next` continues there, unless its last page is short. */
static void extend_grid(struct grid *g, uint64_t bytes, uint32_t page)
{
	if ((g->next - g->from) % page != 0)
		g->from = g->next;
	if (bytes == 0 || bytes > IMAGE_MAX || g->next > IMAGE_MAX - bytes) {
		g->format = GRID_PLAIN;
		g->next = GRID_NO_END;
	} else {
		g->next += bytes;
	}
}

static void dmtcp_follow(struct grid *g, const uint8_t *p, size_t len, uint32_t page)
{
	len = MIN(len, (size_t)(GRID_HEAD - g->nr_head));
	memcpy(g->head + g->nr_head, p, len);
	g->nr_head += (uint32_t)len;
	if (g->nr_head < GRID_HEAD)
		return; /* the rest of the header comes with the next bytes */
	g->nr_head = 0;
	if (g->format == GRID_DMTCP_AREAS) {
		extend_grid(g, area_bytes((const struct area_disk *)g->head), page);
		return;
	}
	if (begins(g->head, GRID_HEAD, MEMORY_SIGNATURE))
		g->format = GRID_DMTCP_AREAS;
	extend_grid(g, g->next < HEADERS_END ? BLOCK : 0, page);
}

/* --- both formats --- */

static void file_begins(struct grid *g, const uint8_t *p, size_t len)
{
	if (len >= sizeof(struct elf_disk) && is_core((const struct elf_disk *)p))
		core_begins(g, p + sizeof(struct elf_disk), len - sizeof(struct elf_disk));
	else if (begins(p, len, SIGNATURE_4))
		*g = (struct grid){ .format = GRID_DMTCP_AREAS, .next = 2 * BLOCK };
	else if (begins(p, len, SIGNATURE_3))
		*g = (struct grid){ .format = GRID_DMTCP_HEADERS, .next = BLOCK };
}

static void image_move_grid(struct grid *g, const uint8_t *p, size_t len, uint64_t off, uint64_t size, uint32_t page)
{
	if (size == 0)
		*g = GRID_OF_FILE;
	if (off == 0 && size == 0)
		file_begins(g, p, len);
	else if (off == sizeof(struct elf_disk) && (size == 0 || size == off) && g->format == GRID_PLAIN)
		core_begins(g, p, len);
	else if (off == g->next && g->format == GRID_CORE)
		*g = (struct grid){ .from = off, .next = GRID_NO_END };
	else if (off >= g->next && off - g->next == g->nr_head)
		dmtcp_follow(g, p, len, page);
	g->wanted = g->format == GRID_PLAIN ? sizeof(struct elf_disk) : g->next + g->nr_head;
}

const struct cut_hooks image_cuts = { .move_grid = image_move_grid };
