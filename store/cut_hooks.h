/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Page boundaries of a file, and the hook that moves them. Pure: no I/O, no allocation, no lock.
 *
 * Pages are counted from the start of a file. Some formats place page-aligned data at other offsets, and their headers
 * say where. The write path does not know these formats: it calls engine.cuts with the bytes of the headers, and the
 * hook moves the grid. A page of such data then becomes one chunk whatever comes before it in the file. This affects
 * deduplication only, never the data that is read back. Without a hook (NULL) the pages of all files start at 0.
 *
 *    0         from                              next
 *    | pages   | pages ...                        | pages ...
 *            short one                         short one
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define GRID_NO_END UINT64_MAX
#define GRID_HEAD 88u

struct grid {
	uint64_t from, next; /* from <= next */
	uint64_t wanted; /* the hook needs the bytes at this offset */
	/* state of the hook */
	uint32_t format; /* 0: none found */
	uint32_t nr_head;
	uint8_t head[GRID_HEAD]; /* header bytes received so far */
};

#define GRID_OF_FILE ((struct grid){ .next = GRID_NO_END, .wanted = GRID_NO_END })

struct cut_hooks {
	/* content.lock. Bytes are about to be written at off of a file that has `size` bytes so far and pages of `page`
	 * bytes. Called for the first bytes of a file and for those at `wanted`; a second call for the same bytes
	 * changes nothing. */
	void (*move_grid)(struct grid *g, const uint8_t *p, size_t len, uint64_t off, uint64_t size, uint32_t page);
};

/* Process bytes about to be written, as in move_grid(). Mostly two comparisons. */
static inline void grid_follow(const struct cut_hooks *h, struct grid *g, const uint8_t *p, size_t len, uint64_t off,
			       uint64_t size, uint32_t page)
{
	if (h && (size == 0 || off == g->wanted))
		h->move_grid(g, p, len, off, size, page);
}

/* The start and end of the part of the file that contains the byte at off and shares one page grid. */
static inline void grid_part(const struct grid *g, uint64_t off, uint64_t *ret_start, uint64_t *ret_end)
{
	*ret_start = off < g->from ? 0 : off < g->next ? g->from : g->next;
	*ret_end = off < g->from ? g->from : off < g->next ? g->next : GRID_NO_END;
}
