/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Choice of the previous versions (champions): files likely to contain almost the same bytes as the file being written.
 *
 * Checkpoints come in series: their names differ in numbers, and may carry a temporary suffix at first. A name does not
 * say which number is the step and which the rank. So a name belongs to several series, each with one champion: its
 * file most recently closed after writing. The data decides which champion matches (store/dedup/champions.c).
 *
 *   ckpt-3.0042          ckpt-3.#   the last number        ckpt-#.0042   the first
 *                        ckpt-#.#   all of them            and, of three or more, all but the last
 *   step-42/rank-3.bin   step-#/rank-3.bin   the same name in directories that differ in their last number
 *
 * They are kept in a bounded table. After a mount, the first write into a directory scans its first entries and those
 * of the latest directory of the same series, once, to fill the table.
 *
 * A wrong or missing champion costs look-ups, never correctness.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fs;
struct series;

int series_new(struct series **ret);
void series_free(struct series *s); /* NULL is fine */

#define SERIES_MAX 5u

/*
 * The inode was looked up or created under this name. Kept in a table of bounded size, so entries may be overwritten.
 */
void series_named(struct fs *fs, uint64_t ino, bool is_dir, uint64_t dir, const char *name);
/* The inode was closed after writing. */
void series_closed(struct fs *fs, uint64_t ino);
/* The inode was renamed and changes its series. */
void series_renamed(struct fs *fs, uint64_t ino, uint64_t dir, const char *name);
/* Returns the number of inodes to compare with, at most SERIES_MAX. `dir` may be 0 if unknown. */
unsigned series_champions(struct fs *fs, uint64_t ino, uint64_t dir, uint64_t *ret);
