/*
 * Page boundaries of a file. Pure: no I/O, no allocation, no lock.
 *
 * Pages are counted from the start of a file, except in process images that place memory at other offsets. Their
 * headers precede the memory and give its offset. A page of memory then becomes one page here whatever comes before it
 * in the file, and is the same chunk in every image and in the file that was mapped there.
 *
 *    0         from                              next
 *    | pages   | pages ...                        | pages ...
 *            short one                         short one
 *
 * The headers are parsed while a file is written sequentially. Recognized are ELF core files (gdb's gcore writes the
 * 64-byte ELF header last and the program headers first) and DMTCP images. Pages of other files start at 0; with wrong
 * headers they start at the last offset given. This affects deduplication only, never the data that is read back.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define GRID_NO_END UINT64_MAX

enum grid_format { GRID_PLAIN, GRID_CORE, GRID_DMTCP_HEADERS, GRID_DMTCP_AREAS };

#define GRID_HEAD 88u /* bytes needed of the area header in a DMTCP image */

struct grid {
	enum grid_format format;
	uint64_t from, next; /* from <= next; the bytes at `next` give what follows, if anything does */
	uint8_t head[GRID_HEAD]; /* header bytes received so far */
	uint32_t nr_head;
};

#define GRID_OF_FILE ((struct grid){ .next = GRID_NO_END })

/* Process bytes about to be written at off of a file that has `size` bytes so far and pages of `page` bytes. */
void grid_follow(struct grid *g, const uint8_t *p, size_t len, uint64_t off, uint64_t size, uint32_t page);

/* The start and end of the part of the file that contains the byte at off and shares one page grid. */
void grid_part(const struct grid *g, uint64_t off, uint64_t *ret_start, uint64_t *ret_end);
