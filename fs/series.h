/*
 * Which file is likely to hold almost the bytes that are about to be written: the champion.
 *
 * Checkpoints come in series: names in one directory that differ in their numbers (ckpt.0041, ckpt.0042), perhaps
 * written under a temporary suffix first. The champion of a new one is the file of the series that was closed last
 * after writing. A bounded table remembers it; after a mount, the first write into a directory looks through the
 * beginning of the directory once and fills in every series found there.
 *
 * A wrong or missing champion costs look-ups, never correctness.
 */
#pragma once

#include <stdint.h>

struct fs;
struct series;

int series_new(struct series **ret);
void series_free(struct series *s); /* NULL is fine */

/* A number that stands for directory and name without its digits. Never 0. */
uint64_t series_key(const struct fs *fs, uint64_t dir, const char *name);
/* `ino`, of this series, was closed after writing. */
void series_closed(struct fs *fs, uint64_t key, uint64_t ino);
/* `ino` has a new name, and its series with it. */
void series_renamed(struct fs *fs, uint64_t ino, uint64_t dir, const char *name);
/* The inode to compare with, 0: none. `dir` may be 0 if it is not known. */
uint64_t series_champion(struct fs *fs, uint64_t key, uint64_t dir);
