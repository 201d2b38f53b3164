/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The steps of coding on an array of elements in native byte order, and their inverses. Pure, and written so that
 * compilers vectorise the loops: arrays have the alignment of their elements, do not overlap, and have at most
 * CODE_PLAIN_MAX bytes.
 *
 * All arithmetic is on unsigned integers that wrap around, so every bit pattern is restored: NaNs with their payload,
 * and -0.
 */
#pragma once

#include "store/codec/code_format.h"

#define CODE_ALIGN 64u
/* Size of an array of the steps: bit planes are rounded up, FPC adds a bit per element for its table, and `over` of
 * levels, up to 6 of 16 bits, temporarily precedes all planes. */
#define CODE_ROOM (CODE_PLAIN_MAX + 8 * 8 + CODE_PLAIN_MAX / 64 + CODE_PLAIN_MAX / 16 * 6 + CODE_ALIGN)
#define CODE_FPC_ENTRIES 4096u /* of each table: both fit into the L2 cache, and are cleared for each block */

struct code_fpc_tables {
	uint64_t fcm[CODE_FPC_ENTRIES], dfcm[CODE_FPC_ENTRIES];
};

/* In place: swap the bytes of nr elements. */
void code_swap(void *a, size_t nr, unsigned width);
void code_map_in(void *a, size_t nr, unsigned width, enum code_map map);
void code_map_out(void *a, size_t nr, unsigned width, enum code_map map);
/* In place: a minus b, or a plus b. */
void code_base_in(void *a, const void *b, size_t nr, unsigned width, enum code_base base);
void code_base_out(void *a, const void *b, size_t nr, unsigned width, enum code_base base);
void code_zigzag_in(void *a, size_t nr, unsigned width);
void code_zigzag_out(void *a, size_t nr, unsigned width);

/* From `a` to `ret`; the inverse in place. */
void code_xor_in(const void *a, void *ret, size_t nr, unsigned width, size_t stride);
void code_xor_out(void *a, size_t nr, unsigned width, size_t stride);
void code_delta_in(const void *a, void *ret, size_t nr, unsigned width, size_t stride);
void code_delta_out(void *a, size_t nr, unsigned width, size_t stride);
/* `which` has (nr + 7) / 8 bytes. */
void code_fpc_in(struct code_fpc_tables *t, const uint64_t *a, uint64_t *ret, size_t nr, uint8_t *which);
void code_fpc_out(struct code_fpc_tables *t, uint64_t *a, size_t nr, const uint8_t *which);

/* Split into consecutive planes, the first with the highest byte of each element; bit planes have 8 * ((nr + 7) / 8)
 * bytes for each byte of an element. The inverse accepts byte planes at any address. */
void code_bytes_in(const void *a, uint8_t *ret, size_t nr, unsigned width);
void code_bytes_out(const uint8_t *const planes[], void *ret, size_t nr, unsigned width);
void code_bits_in(const void *a, uint8_t *ret, size_t nr, unsigned width);
void code_bits_out(const uint8_t *planes, void *ret, size_t nr, unsigned width);

/* Levels of rotated elements of at least 2 bytes: their highest `bits`. */
void code_levels_of(const void *a, uint16_t *ret, size_t nr, unsigned width, unsigned bits);
/* In place: replace each level by its difference to the level of the base and `first`, and move the low 8 bits to the
 * top of the element and the others to its bottom; and the inverse. */
void code_levels_in(void *a, const uint16_t *base, size_t nr, unsigned width, unsigned bits, unsigned first);
void code_levels_out(void *a, const uint16_t *base, size_t nr, unsigned width, unsigned bits, unsigned first);
