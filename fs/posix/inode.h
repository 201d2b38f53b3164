/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Table of the inodes that the kernel or an open file refers to.
 *
 * The kernel may refer to millions of inodes, so an entry is small: attributes stay in the view and are read from
 * there. An entry holds only what is not in the view: reference counts, the open content, a read time not yet written,
 * and flags.
 *
 * An entry lives while the kernel refers to it (nlookup), the daemon uses it (pins), or it has unfinished work (a read
 * time to write, an inode without a name to remove). inodes_take_idle() returns such work.
 *
 * Thread rule: all functions from any thread. The fields of struct inode are protected by the table's lock unless
 * marked.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct content;
struct engine;
struct inodes;

struct inode {
	struct inode *next; /* in the table's chain */
	uint64_t ino; /* constant */
	uint64_t nlookup;
	struct content *content; /* open while nr_content > 0 */
	_Atomic int64_t atime_ns; /* 0: not loaded yet; newer than the view's while `atime_dirty` */
	uint32_t pins, nr_content;
	uint32_t nr_writers; /* users that may change the content */
	/*
	 * See file.h: open files that use the page cache; number of such opens so far; how many of those left no pages
	 * in it.
	 */
	_Atomic uint32_t nr_cached, cached_opens, dropped_opens;
	atomic_int write_error; /* error of kernel write-back, until a request reports it; 0: none */
	atomic_int last_write_error; /* the last of them; each file open at that time reports it at its next write(2) */
	_Atomic uint32_t nr_write_errors;
	_Atomic uint32_t xattr_bytes; /* at most this many in extended attributes, names and values, plus 1; 0: unknown */
	atomic_bool atime_dirty;
	atomic_bool orphan; /* has no name */
	atomic_bool privileged; /* may have set-id bits or file capabilities for a write to drop */
};

int inodes_new(struct engine *e, struct inodes **ret);
void inodes_free(struct inodes *t); /* NULL is fine */
uint64_t inodes_count(struct inodes *t);

/* Pin the entry of `ino`, creating it if needed. */
int inode_get(struct inodes *t, uint64_t ino, struct inode **ret);
/* Pin the entry if it exists, else return NULL. */
struct inode *inode_find(struct inodes *t, uint64_t ino);
/* As inode_get(), and count one kernel look-up. */
int inode_get_lookup(struct inodes *t, uint64_t ino, struct inode **ret);
/* Unpin. true: the entry is idle and has unfinished work; call inodes_take_idle(). */
bool inode_put(struct inodes *t, struct inode *i);
/* The kernel drops `n` look-ups. Returns as inode_put(). */
bool inode_forget(struct inodes *t, uint64_t ino, uint64_t n);

/* Access by number, without pinning. Without an entry they do nothing or return false. */
bool inodes_atime(struct inodes *t, uint64_t ino, int64_t *ret_ns); /* true: a read time newer than the view's */
void inodes_written(struct inodes *t, uint64_t ino); /* the view has all attributes again */
bool inodes_has(struct inodes *t, uint64_t ino);
bool inodes_set_orphan(struct inodes *t, uint64_t ino, bool orphan);
void inodes_set_privileged(struct inodes *t, uint64_t ino);

/*
 * Count a writer of a pinned inode (`by` is 1 or -1). Before counting, a writer checks under fs.names, shared, that the
 * inode is not sealed; sealing checks for writers under fs.names, exclusive. All data of a writer is in the engine's
 * log before it is counted out.
 */
void inode_count_writer(struct inodes *t, struct inode *i, int by);
bool inodes_has_writers(struct inodes *t, uint64_t ino);
/* List all inodes with writers. The caller frees *ret. Scans the whole table. */
int inodes_with_writers(struct inodes *t, uint64_t **ret, size_t *ret_nr);

/* Work left by an idle entry. */
struct inode_rest {
	uint64_t ino;
	int64_t atime_ns;
	bool orphan, atime_dirty;
};
/* If `ino` is idle, remove its entry. true: removed, and *ret describes the work left. Call under fs.names. */
bool inodes_take_idle(struct inodes *t, uint64_t ino, struct inode_rest *ret);
/* Remove any entry, idle or not, after the last request. false: none left. */
bool inodes_take_any(struct inodes *t, struct inode_rest *ret);

/*
 * The content of a pinned inode: the first user opens it, the last one closes it. inode_content() returns NULL unless
 * it is already open.
 */
int inode_content_open(struct inodes *t, struct inode *i, struct content **ret);
struct content *inode_content(struct inodes *t, struct inode *i);
void inode_content_close(struct inodes *t, struct inode *i);
