/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names. Every change is decided under fs.names and applied as one engine transaction, so it is atomic across a crash.
 * An inode that loses its last name while still referenced, or a large file, is marked as an orphan in the same
 * transaction; it is removed when the kernel forgets it, by the reaper, or at the next mount.
 *
 * The kernel has checked permissions (default_permissions, see permission.c). The checks here protect the consistency
 * of the store.
 *
 * Functions that return a `struct stat` count one kernel look-up of that inode.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "index/namespace_table.h"

struct caller;
struct engine_tx;
struct fs;
struct inode;
struct cred;

/* Handles "." and ".." too. -ENOENT: absent. */
int names_lookup(struct fs *fs, uint64_t dir, const char *name, struct stat *ret);
/* The same for an entry just read from `dir`; the kernel locks the directory against changes meanwhile. */
int names_enter(struct fs *fs, uint64_t dir, const struct ns_dirent *d, struct stat *ret);

struct names_new {
	uint32_t mode; /* including the file type */
	uint64_t rdev;
	const char *target; /* of a symbolic link */
	uint64_t like; /* 0, or an inode to copy owner, group, mode and extended attributes from */
	bool is_opened; /* for writing, by its creator: counted as a writer from the start */
};
/* Create an inode of any type; `name` NULL: without a name (O_TMPFILE). */
int names_make(struct fs *fs, uint64_t dir, const char *name, const struct names_new *n, const struct cred *cred,
	       struct stat *ret);
/* `caller`: checked with permission_create() when the name is created; NULL: the kernel has checked. */
int names_link(struct fs *fs, uint64_t ino, uint64_t dir, const char *name, struct caller *caller, struct stat *ret);
int names_unlink(struct fs *fs, uint64_t dir, const char *name);
int names_rmdir(struct fs *fs, uint64_t dir, const char *name);
/* `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE. */
int names_rename(struct fs *fs, uint64_t from_dir, const char *from, uint64_t to_dir, const char *to, unsigned flags);

/*
 * Drop references: up to NAMES_FORGET_MAX inodes that the kernel forgets, each with a count; or the pin of one request.
 */
#define NAMES_FORGET_MAX 64
struct names_forget {
	uint64_t ino, nlookup;
};
void names_forget(struct fs *fs, const struct names_forget *f, size_t n);
void names_put(struct fs *fs, struct inode *i); /* NULL is fine; not under fs.names */
/* At mount: remove orphans left by a crash. At unmount: write all read times. */
int names_clear_orphans(struct fs *fs);
int names_finish_all(struct fs *fs);
int names_open_root(struct fs *fs); /* creates it in a new store */

/*
 * Shared with rename.c. Whether a directory is empty is found out before fs.names is taken: RocksDB searches through
 * names that were removed, and their number is up to users.
 */
struct names_emptiness {
	uint64_t ino; /* of the directory; 0: the name is none */
	int64_t ctime_ns; /* when it was examined */
	bool is_empty, is_stale;
};
int names_examine(struct fs *fs, uint64_t dir, const char *name, struct names_emptiness *ret); /* not under fs.names */
/*
 * Under fs.names: 0 empty; -ENOTEMPTY; -EAGAIN: `e` is about another directory or an earlier state, and is_stale is
 * set. The kernel locks the directory, so that is rare: only the daemon itself can have changed it.
 */
int names_check_empty(const struct ns_inode *in, struct names_emptiness *e);
#define NAMES_EXAMINATIONS_MAX 8

/* Shared with rename.c. Call under fs.names, exclusive. */
/*
 * Load a directory for a change of the entry `name`, or of none. -ENOENT: removed; -EROFS: part of a replica or of the
 * node directory view; else as attr_sealed().
 */
int names_load_dir(struct fs *fs, uint64_t dir, const char *name, struct ns_inode *ret);
int names_find(struct fs *fs, uint64_t dir, const char *name, struct ns_dirent *ret); /* 1/0/<0; checks the length */
void names_put_entry(struct engine_tx *tx, uint64_t dir, const struct ns_dirent *d, const char *name);
/*
 * Call for a name added at `cookie`: a shared hash is recorded in the root's record. `dir` is a record that the caller
 * stores afterwards; it must be the root's if the root is among those.
 */
int names_note_hash(struct fs *fs, struct engine_tx *tx, struct ns_inode *dir, uint64_t cookie);
/* Remove one name: store the record; without names left, mark an orphan or erase the inode. Changes *in. */
int names_drop(struct fs *fs, struct engine_tx *tx, struct ns_inode *in, int64_t now);
/* 1/0/<0: does its content take long to erase? Then fs/seal/reaper.c does that, outside of fs.names. */
int names_is_large(struct fs *fs, const struct ns_inode *in);
/* Delete everything the store holds of an inode. */
int names_erase(struct fs *fs, struct engine_tx *tx, const struct ns_inode *in);
/* Wait until a change of the name cannot overtake data written to `ino`. Not under fs.names. */
int names_settle(struct fs *fs, uint64_t ino);
