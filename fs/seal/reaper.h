/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Erases in the background what has no name any more: the directory trees of removed checkpoints (seal_remove()), and
 * large files that nothing refers to. Uses short transactions, with memory and descriptors that do not grow with the
 * depth of the tree or the size of the file. After a crash the next mount continues.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fs;
struct reaper;

/* Starts the thread, which first erases what earlier mounts have left. Borrows `fs`. */
int reaper_new(struct fs *fs, struct reaper **ret);
/* Waits for it to finish, but ends it after the transaction that lasts until two seconds have passed. NULL is fine. */
void reaper_free(struct reaper *r);
void reaper_wake(struct reaper *r); /* there is another tree to erase */
/* There may be another file to erase, at the latest when the caller has released fs.names. NULL is fine. */
void reaper_wake_for_file(struct reaper *r);
/*
 * false: every name of every removed checkpoint is erased, as seen under fs.names. May briefly be true without a tree.
 * NULL is fine.
 */
bool reaper_has_trees(const struct reaper *r);
/* Wait until neither trees nor files are left, the last attempt has failed, or `goes_on` returns false. NULL is fine. */
void reaper_wait(struct reaper *r, bool (*goes_on)(void *userdata), void *userdata);

/*
 * `fn` is called when a file of a tree has lost a name but has others: its link count and flags have changed. `fn` must
 * not block. NULL: unset.
 */
typedef void reaper_changed_fn(void *userdata, uint64_t ino);
void reaper_set_changed(struct reaper *r, reaper_changed_fn *fn, void *userdata);
