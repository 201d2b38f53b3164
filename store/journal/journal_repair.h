/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Rebuilding a journal, for fsck: its files are damaged, but the state at commit `number` is known from the index. That
 * state becomes the snapshot. The consecutive intact groups after it are kept; everything else is removed. Nothing is
 * lost that a mount could have used: groups behind a damaged one cannot be applied.
 *
 *   1. the groups to keep, into new.tmp with a header block, sync      crash: a stray temporary
 *   2. the snapshot, renamed, the directory synced                     crash: as damaged as before, but for that
 *   3. new.tmp renamed to the segment of number + 1, sync              COMMIT POINT
 *   4. remove every other file                                         crash: covered, removed on open
 *
 * Thread rule: one thread, while no other has the journal open.
 */
#pragma once

#include <stdint.h>

#include "store/journal/journal.h"

struct journal_remake;

/* Gather the groups that can be kept. *ret_last: number of the last one, `number` if there is none. *ret_lost: number
 * of the last intact group that cannot be kept because one before it is damaged; 0: none. Writes temporaries only. */
int journal_remake_new(int dirfd, const struct journal_conf *conf, uint64_t number, struct journal_remake **ret,
		       uint64_t *ret_last, uint64_t *ret_lost);
/* The caller fills the snapshot with the state as of `number`; the remake commits or aborts it. */
struct journal_snapshot *journal_remake_snapshot(struct journal_remake *m);
int journal_remake_commit(struct journal_remake *m); /* frees m either way */
void journal_remake_abort(struct journal_remake *m); /* NULL is fine */
