/*
 * Elements split by levels (CODE_SPLIT_LEVELS): what is stored of them, in sections one behind the other.
 *
 *	firsts │ over │ low 8 bits of levels │ other bytes of elements, but for the lowest │ what is left of that │ signs
 *
 * The first three are all there is of levels: whoever needs the levels of a base reads no more of its block. Each run of
 * elements has its own first level, as rows of a matrix are larger or smaller than others. What is over is mostly zeros,
 * and of the lowest byte only those bits are stored that are no level's. Pure.
 */
#pragma once

#include "store/code/code_format.h"

#define CODE_LEVELS_NR_SECTIONS 3u /* that levels are in */
/* Memory of code_levels_firsts(). */
#define CODE_LEVELS_ROOM ((1u << CODE_LEVEL_BITS_MAX) * sizeof(uint32_t))

/* Bytes of all sections. */
size_t code_levels_bytes(const struct code_header *h);
/* To the first section at `ret`: what each run begins to count from, above the levels of the base. `counts` is memory of
 * CODE_LEVELS_ROOM bytes. */
void code_levels_firsts(const uint16_t *levels, const uint16_t *base, const struct code_header *h, uint32_t *counts,
			uint8_t *ret);
/* Rotated elements at `a`, which is used up, to the sections behind the first one, which is at `ret` already. */
void code_levels_split(void *a, const uint16_t *base, const struct code_header *h, uint8_t *ret);
/* Back, from sections wherever each lies, to elements as they are in memory. */
void code_levels_join(const uint8_t *const sections[], const uint16_t *base, const struct code_header *h, void *ret);
/* The levels of the first elements, from the sections that they are in. */
void code_levels_get(const uint8_t *const sections[], const struct code_header *h, uint16_t *ret, size_t nr);
