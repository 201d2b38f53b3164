/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Trees that are being sealed or unsealed. That takes many transactions, and the outcome is open until the last one. So
 * all inodes of the tree are frozen first, in memory: a change of a frozen inode neither succeeds nor fails as if it were
 * sealed.
 *
 * An inode is frozen under fs.names, exclusive, and every change checks for that under fs.names. A change therefore
 * either completes before the freeze or finds it. A directory is frozen before its names are read, so the set of names is
 * final when the last inode is frozen.
 *
 * An OPEN, TMPFILE or IOCTL that finds an inode frozen (-EINPROGRESS, attr_sealed()) waits for the outcome: it is queued
 * as bytes, and served again after the next thaw (fs/long_requests.h). It occupies no thread meanwhile. Every other
 * change fails with EBUSY at once, because the kernel holds the lock of its file or directory until it is answered. Then
 * a removal of that inode would wait with the lock of the directory above, and so on up to a directory that other users
 * need.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct freeze;
struct freezes;

int freezes_new(struct freezes **ret);
void freezes_free(struct freezes *all); /* no freeze may be left; NULL is fine */
/* Is `ino` frozen by a freeze other than `except` (NULL: by any)? Costs one atomic load if nothing is frozen. */
bool freezes_has(struct freezes *all, uint64_t ino, const struct freeze *except);
/* Wait until `ino` is not frozen. -EINTR: cancelled (base/cancel.h). Blocks the calling thread. */
int freezes_wait(struct freezes *all, uint64_t ino);
/*
 * `fn` is called after each thaw, in the thread that thaws; NULL: none. On return the previous `fn` is no longer
 * called.
 */
void freezes_set_thawed(struct freezes *all, void (*fn)(void *userdata), void *userdata);

int freeze_new(struct freezes *all, size_t nr_expected, struct freeze **ret);
/* 1: added; 0: already in this freeze; -EBUSY: in another one; -ENOMEM. */
int freeze_add(struct freeze *f, uint64_t ino);
void freeze_end(struct freeze *f); /* thaws all its inodes; NULL is fine */
