/*
 * Beginning a journal anew, for fsck: its files are damaged, but the state at commit `number` is known otherwise, from
 * the index. That state becomes the snapshot; the groups after it that are still intact, one after the other, are
 * kept; all else goes. Nothing is given up that a mount could have used: groups behind a damaged one cannot be
 * applied.
 *
 *   1. the groups to keep, into new.tmp with a header block, sync      crash: a stray temporary
 *   2. the snapshot, renamed, the directory synced                     crash: as damaged as before, but for that
 *   3. new.tmp renamed to the segment of number + 1, sync              COMMIT POINT
 *   4. remove every other file                                         crash: covered, removed on open
 *
 * Thread rule: one thread, nobody else has the journal open.
 */
#pragma once

#include <stdint.h>

#include "store/journal/journal.h"

struct journal_remake;

/* Collects what can be kept. *ret_last: the number of the last such group, `number` if there is none. *ret_lost: of the
 * last intact group that cannot be kept, because one before it is damaged; 0: none. Changes nothing that counts. */
int journal_remake_new(int dirfd, const struct journal_conf *conf, uint64_t number, struct journal_remake **ret,
		       uint64_t *ret_last, uint64_t *ret_lost);
/* To be filled with the state as of `number`, and left to the remake. */
struct journal_snapshot *journal_remake_snapshot(struct journal_remake *m);
int journal_remake_commit(struct journal_remake *m); /* frees m either way */
void journal_remake_abort(struct journal_remake *m); /* NULL is fine */
