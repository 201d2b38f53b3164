/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Elements split by levels (CODE_SPLIT_LEVELS), in consecutive sections:
 *
 *	firsts │ over │ low 8 bits of levels │ other bytes of elements but the lowest │ remaining bits of that │ signs
 *
 * The first three sections contain the levels completely: to get the levels of a base, no more of its block is read.
 * Each run of elements has its own first level, since some rows of a matrix are larger than others. `over` (the bits
 * above the low 8) is mostly zeros. Of the lowest byte only the bits that do not belong to a level are stored. Pure.
 */
#pragma once

#include "store/codec/code_format.h"

#define CODE_LEVELS_NR_SECTIONS 3u /* that contain the levels */
/* Memory for code_levels_firsts(). */
#define CODE_LEVELS_ROOM ((1u << CODE_LEVEL_BITS_MAX) * sizeof(uint32_t))

/* Bytes of all sections. */
size_t code_levels_bytes(const struct code_header *h);
/* Write the first section to `ret`: the level that each run counts from, relative to the levels of the base. `counts`
 * is memory of CODE_LEVELS_ROOM bytes. */
void code_levels_firsts(const uint16_t *levels, const uint16_t *base, const struct code_header *h, uint32_t *counts,
			uint8_t *ret);
/* Split rotated elements at `a`, which is overwritten, into the sections behind the first; `ret` has that one. */
void code_levels_split(void *a, const uint16_t *base, const struct code_header *h, uint8_t *ret);
/* Join sections, each at any address, to elements in memory order. */
void code_levels_join(const uint8_t *const sections[], const uint16_t *base, const struct code_header *h, void *ret);
/* Levels of the first `nr` elements, from the sections that contain them. */
void code_levels_get(const uint8_t *const sections[], const struct code_header *h, uint16_t *ret, size_t nr);
