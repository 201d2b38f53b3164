/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * From a log of operations to what a disk may hold after a crash.
 *
 * A crash point says how many operations had been made. What was synced by then is there. Everything else may be
 * there, be missing, or be there in part; a state is one choice:
 *   bytes: each file's writes, resizes, allocations and punches since its last sync: kept, dropped, all but some
 *     dropped, later ones kept and earlier ones dropped, cut at a sector, a sector missing, only the size grown;
 *   names: each directory's creates, renames, links and unlinks since its last sync: kept, dropped, some kept. A name
 *     is not made durable by syncing the file, only by syncing the directory: no filesystem promises more.
 * Under a directory named `ordered`, whose files are another library's, changes are lost from the end only: bytes per
 * file, names per directory.
 *
 * Variants below STATES_FIXED are the extreme ones; those above are drawn by (seed, point, variant), so a state can be
 * made again from these three and the log.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/crash/oplog.h"

#define STATES_FIXED 10

struct state;
struct states;

/* `log` is borrowed until states_free(). */
int states_new(const struct oplog *log, const char *ordered, struct states **ret);
void states_free(struct states *s);
static inline void states_freep(struct states **s)
{
	states_free(*s);
}
/* Go to the crash after the first `point` operations. Forward is cheap, backward starts over. */
int states_seek(struct states *s, size_t point);
size_t states_nr_pending(const struct states *s); /* operations that may be lost here; 0: all variants are the same */
/* The numbers of the last mark; zeros before the first. */
void states_mark(const struct states *s, uint64_t *ret_a, uint64_t *ret_b);

/* Borrows from s until the next seek. */
int states_make(struct states *s, uint64_t seed, unsigned variant, struct state **ret);
void state_free(struct state *st);
static inline void state_freep(struct state **st)
{
	state_free(*st);
}
uint64_t state_hash(const struct state *st); /* equal for equal trees */
int state_store(const struct state *st, const char *dir); /* into an empty directory */
void state_describe(const struct state *st, FILE *to); /* what became of each operation that could be lost */
