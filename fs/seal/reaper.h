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
void reaper_wake(struct reaper *r); /* there may be a tree to erase */
/*
 * The caller's transaction, under fs.names, is about to remove a tree with files of this user only, or of any
 * (REAPER_ANY). If it fails, reaper_has_trees() is true a little longer.
 */
#define REAPER_ANY UINT32_MAX
void reaper_add_tree(struct reaper *r, uint32_t uid);
/* The owner of a file with several names changes. NULL is fine. */
void reaper_chowned(struct reaper *r);
/* There may be another file to erase, at the latest when the caller has released fs.names. NULL is fine. */
void reaper_wake_for_file(struct reaper *r);
/*
 * false: every name of every removed checkpoint that a file of this user may have is erased, as seen under fs.names. May
 * briefly be true without a tree. NULL is fine.
 */
bool reaper_has_trees(struct reaper *r, uint32_t uid);
/* Wait until neither trees nor files are left, the last attempt has failed, or `goes_on` returns false. NULL is fine. */
void reaper_wait(struct reaper *r, bool (*goes_on)(void *userdata), void *userdata);

/*
 * `fn` is called when a file of a tree has lost a name but has others: its link count and flags have changed. `fn` must
 * not block. NULL: unset.
 */
typedef void reaper_changed_fn(void *userdata, uint64_t ino);
void reaper_set_changed(struct reaper *r, reaper_changed_fn *fn, void *userdata);
