/*
 * Which files are likely to hold almost the bytes that are about to be written: the champions.
 *
 * Checkpoints come in series: names that differ in their numbers, perhaps written under a temporary suffix first. Which
 * number is the step and which the rank nobody tells us, so a name belongs to several series, and has a champion in
 * each: the file of it that was closed last after writing. The data shows which is the right one
 * (store/engine/champions.c).
 *
 *   ckpt-3.0042          ckpt-3.#   the last number        ckpt-#.0042   the first
 *                        ckpt-#.#   all of them            and, of three or more, all but the last
 *   step-42/rank-3.bin   step-#/rank-3.bin   the same name in directories that differ in their last number
 *
 * A bounded table remembers them; after a mount, the first write into a directory looks once through the beginning of
 * the directory, and of the latest one of its own series, and fills in what it finds.
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

/* The inode was looked up or made under this name. Remembered for a while: bounded memory, for any number of inodes. */
void series_named(struct fs *fs, uint64_t ino, bool is_dir, uint64_t dir, const char *name);
/* It was closed after writing. */
void series_closed(struct fs *fs, uint64_t ino);
/* It has a new name, and its series with it. */
void series_renamed(struct fs *fs, uint64_t ino, uint64_t dir, const char *name);
/* The inodes to compare with; how many, at most SERIES_MAX. `dir` may be 0 if it is not known. */
unsigned series_champions(struct fs *fs, uint64_t ino, uint64_t dir, uint64_t *ret);
