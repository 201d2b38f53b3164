/*
 * The steps of coding on an array of elements in the machine's order, and back. Pure, and written so that compilers
 * make vector code of the loops: arrays are aligned as elements are, do not overlap, and have no more than CODE_PLAIN_MAX
 * bytes.
 *
 * All arithmetic is of unsigned integers that wrap, so every pattern of bits comes back: a NaN with its payload as well
 * as -0.
 */
#pragma once

#include "store/code/code_format.h"

#define CODE_ALIGN 64u
/* Bytes that an array of steps has room for: planes of bits are rounded up, FPC says which table was right, and what is
 * over of levels, up to 6 bits of 16, lies before all planes for a while. */
#define CODE_ROOM (CODE_PLAIN_MAX + 8 * 8 + CODE_PLAIN_MAX / 64 + CODE_PLAIN_MAX / 16 * 6 + CODE_ALIGN)
#define CODE_FPC_ENTRIES 4096u /* of each table: both fit into the second cache, and are cleared for each block */

struct code_fpc_tables {
	uint64_t fcm[CODE_FPC_ENTRIES], dfcm[CODE_FPC_ENTRIES];
};

/* In place: the order of bytes of nr elements. */
void code_swap(void *a, size_t nr, unsigned width);
void code_map_in(void *a, size_t nr, unsigned width, enum code_map map);
void code_map_out(void *a, size_t nr, unsigned width, enum code_map map);
/* In place: a minus b, or a plus b. */
void code_base_in(void *a, const void *b, size_t nr, unsigned width, enum code_base base);
void code_base_out(void *a, const void *b, size_t nr, unsigned width, enum code_base base);
void code_zigzag_in(void *a, size_t nr, unsigned width);
void code_zigzag_out(void *a, size_t nr, unsigned width);

/* From `a` to `ret`; and in place. */
void code_xor_in(const void *a, void *ret, size_t nr, unsigned width, size_t stride);
void code_xor_out(void *a, size_t nr, unsigned width, size_t stride);
void code_delta_in(const void *a, void *ret, size_t nr, unsigned width, size_t stride);
void code_delta_out(void *a, size_t nr, unsigned width, size_t stride);
/* `which` has (nr + 7) / 8 bytes. */
void code_fpc_in(struct code_fpc_tables *t, const uint64_t *a, uint64_t *ret, size_t nr, uint8_t *which);
void code_fpc_out(struct code_fpc_tables *t, uint64_t *a, size_t nr, const uint8_t *which);

/* To planes one behind the other, the first with the highest byte of each element; planes of bits have 8 * ((nr + 7) /
 * 8) bytes for each byte of an element. And from there; from planes of bytes wherever each lies. */
void code_bytes_in(const void *a, uint8_t *ret, size_t nr, unsigned width);
void code_bytes_out(const uint8_t *const planes[], void *ret, size_t nr, unsigned width);
void code_bits_in(const void *a, uint8_t *ret, size_t nr, unsigned width);
void code_bits_out(const uint8_t *planes, void *ret, size_t nr, unsigned width);

/* The levels of rotated elements of 2 bytes or more: their highest `bits`. */
void code_levels_of(const void *a, uint16_t *ret, size_t nr, unsigned width, unsigned bits);
/* In place: each level as how far it is above the base's and `first`, its low 8 bits above all others of the element and
 * the others below them; and back. */
void code_levels_in(void *a, const uint16_t *base, size_t nr, unsigned width, unsigned bits, unsigned first);
void code_levels_out(void *a, const uint16_t *base, size_t nr, unsigned width, unsigned bits, unsigned first);
