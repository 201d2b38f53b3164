/*
 * Names: every change is one decision under fs.names and one engine transaction, so after a crash it has happened or
 * it has not. What has lost its last name but is still referred to is marked as an orphan in the same
 * transaction; it goes when the kernel forgets it, or at the next mount.
 *
 * The kernel has checked permissions (default_permissions); what is checked here is what must hold for the
 * store to stay sound.
 *
 * Functions that give a `struct stat` count one look-up of the kernel's for that inode.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "index/namespace.h"

struct engine_tx;
struct fs;
struct inode;
struct who;

/* "." and ".." are understood too. -ENOENT: absent. */
int names_lookup(struct fs *fs, uint64_t dir, const char *name, struct stat *ret);
/* The same for an entry just read from `dir`, which the kernel keeps from changing meanwhile. */
int names_enter(struct fs *fs, uint64_t dir, const struct ns_dirent *d, struct stat *ret);

struct names_new {
	uint32_t mode; /* with type */
	uint64_t rdev;
	const char *target; /* symbolic links */
	bool is_opened; /* for writing, by whoever makes it: counted as a writer from the start */
};
/* Make an inode of any type; `name` NULL: without a name (O_TMPFILE). */
int names_make(struct fs *fs, uint64_t dir, const char *name, const struct names_new *n, const struct who *who,
	       struct stat *ret);
int names_link(struct fs *fs, uint64_t ino, uint64_t dir, const char *name, struct stat *ret);
int names_unlink(struct fs *fs, uint64_t dir, const char *name);
int names_rmdir(struct fs *fs, uint64_t dir, const char *name);
/* `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE. */
int names_rename(struct fs *fs, uint64_t from_dir, const char *from, uint64_t to_dir, const char *to, unsigned flags);

/* What the kernel no longer refers to: up to NAMES_FORGET_MAX inodes and counts, and one that a request has done
 * with. */
#define NAMES_FORGET_MAX 64
struct names_forget {
	uint64_t ino, nlookup;
};
void names_forget(struct fs *fs, const struct names_forget *f, size_t n);
void names_put(struct fs *fs, struct inode *i); /* NULL is fine; not under fs.names */
/* At mount: remove orphans of a crash. At unmount: write all read times. */
int names_clear_orphans(struct fs *fs);
int names_finish_all(struct fs *fs);
int names_open_root(struct fs *fs); /* makes it in a new store */

/* Parts shared with rename.c. Under fs.names, exclusive. */
/* For a change of `name` in it, or of none. -ENOENT: removed; -EPERM: sealed; -EROFS: leads to, or is of, another
 * node's */
int names_load_dir(struct fs *fs, uint64_t dir, const char *name, struct ns_inode *ret);
int names_find(struct fs *fs, uint64_t dir, const char *name, struct ns_dirent *ret); /* 1/0/<0, checks the length */
void names_put_entry(struct engine_tx *tx, uint64_t dir, const struct ns_dirent *d, const char *name);
/* To be called for a name that is added at `cookie`: a shared hash is remembered in the root's record. `dir`: a
 * record that is stored afterwards, the root's if it is among those. */
int names_note_hash(struct fs *fs, struct engine_tx *tx, struct ns_inode *dir, uint64_t cookie);
/* One name less: the record, or when none is left an orphan or nothing. Changes *in. */
int names_drop(struct fs *fs, struct engine_tx *tx, struct ns_inode *in, int64_t now);
/* Everything the store holds of an inode. */
int names_erase(struct fs *fs, struct engine_tx *tx, const struct ns_inode *in);
/* Wait until data written to `ino` cannot be overtaken by a change of its name. Not under fs.names. */
int names_settle(struct fs *fs, uint64_t ino);
