/*
 * Where the pages of a file begin. Pure: no I/O, no allocation, no lock.
 *
 * Pages are counted from the beginning of a file, but for images of processes whose format puts memory elsewhere: their
 * headers say where it begins, and come before it. So a page of memory is a page here, whatever stands before it in the
 * file, and is the same chunk in every image, and in the file that was mapped there.
 *
 *    0         from                              next
 *    | pages   | pages ...                        | pages ...
 *            short one                         short one
 *
 * Followed while a file is written in order; told are ELF core files (gdb's gcore writes the 64 bytes of the ELF header
 * last, what it says of segments first) and DMTCP's images. All other files, and those that lie, are pages from 0 on,
 * or from where they were told to be last: that decides what is found again, never what is read.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define GRID_NO_END UINT64_MAX

enum grid_format { GRID_PLAIN, GRID_CORE, GRID_DMTCP_HEADERS, GRID_DMTCP_AREAS };

#define GRID_HEAD 88u /* bytes of an area's header in an image of DMTCP that matter here */

struct grid {
	enum grid_format format;
	uint64_t from, next; /* from <= next; what follows `next` is told by the bytes there, or by none */
	uint8_t head[GRID_HEAD]; /* these, as far as they have come */
	uint32_t nr_head;
};

#define GRID_OF_FILE ((struct grid){ .next = GRID_NO_END })

/* These bytes are about to be written at off of a file that has `size` so far, and is cut into such pages. */
void grid_follow(struct grid *g, const uint8_t *p, size_t len, uint64_t off, uint64_t size, uint32_t page);

/* Where the part of the file begins, and ends, whose pages a byte is counted with. */
void grid_part(const struct grid *g, uint64_t off, uint64_t *ret_start, uint64_t *ret_end);
