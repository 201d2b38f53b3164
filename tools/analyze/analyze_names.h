/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Finds the numbers in the path of a file, and which of them is the step. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NAME_NUMBERS_MAX 32 /* further numbers are treated as letters */

struct name_number {
	size_t at, len; /* digits, from the start of the path; len 0: none */
};

/* Runs of digits in order. An extension that begins with a letter (.h5) has none. */
size_t name_numbers(const char *path, struct name_number ret[NAME_NUMBERS_MAX]);

/*
 * The number of the step. `varies` has a bit for each number that differs within the family. The first match of:
 *   1. the last varying one after a word such as step, or in a directory such as checkpoint: checkpoint-500/part-1
 *   2. the last one in the file's name that does not follow a word such as rank:             ckpt.RANK.STEP
 *   3. the last one in the directories that does not follow such a word:                     0500/rank3
 */
struct name_number name_step(const char *path, uint32_t varies);

/* The path with # in place of the step, or of every number. The caller frees it; NULL: out of memory. */
char *name_series(const char *path, struct name_number step);
char *name_family(const char *path);

/* Compares numbers of any length: < 0, 0, > 0. */
int number_compare(const char *a, size_t a_len, const char *b, size_t b_len);
