/*
 * The inodes that the kernel or an open file refers to.
 *
 * An entry is small, since the kernel may refer to millions: attributes stay in the view and are read from there.
 * Here is only what the view does not have: counts, the open content, a read time not yet written, and flags.
 *
 * An entry lives while the kernel knows it (nlookup), somebody works with it (pins), or it has unfinished business
 * (a read time to write, an inode without a name to remove), which inodes_take_idle() hands out.
 *
 * Thread rule: all functions from any thread. Fields of struct inode belong to the table's lock unless marked.
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
	_Atomic int64_t atime_ns; /* 0: not looked at yet; newer than the view's while `atime_dirty` */
	uint32_t pins, nr_content;
	uint32_t nr_writers; /* who may change its content */
	_Atomic uint32_t nr_cached; /* open files that use the page cache */
	atomic_bool atime_dirty;
	atomic_bool orphan; /* has no name */
	atomic_bool privileged; /* set-id bits or file capabilities, to be dropped by a write; may be set in vain */
};

int inodes_new(struct engine *e, struct inodes **ret);
void inodes_free(struct inodes *t); /* NULL is fine */
uint64_t inodes_count(struct inodes *t);

/* Pin the entry of `ino`, making it if needed. */
int inode_get(struct inodes *t, uint64_t ino, struct inode **ret);
/* Pin it if it is there, else NULL. */
struct inode *inode_find(struct inodes *t, uint64_t ino);
/* The same and count one look-up of the kernel's. */
int inode_get_lookup(struct inodes *t, uint64_t ino, struct inode **ret);
/* Unpin. true: it is idle now and has unfinished business, so inodes_take_idle() is due. */
bool inode_put(struct inodes *t, struct inode *i);
/* The kernel takes `n` look-ups back. As inode_put(). */
bool inode_forget(struct inodes *t, uint64_t ino, uint64_t n);

/* What others leave to be known by number, without pinning: nothing happens, or false, where there is no entry. */
bool inodes_atime(struct inodes *t, uint64_t ino, int64_t *ret_ns); /* true: a read time newer than the view's */
void inodes_written(struct inodes *t, uint64_t ino); /* the view has all attributes again */
bool inodes_set_orphan(struct inodes *t, uint64_t ino, bool orphan);
void inodes_set_privileged(struct inodes *t, uint64_t ino);

/*
 * Whoever is going to change the content of a pinned inode counts, and has found under fs.names, shared, that it is not
 * sealed; who is to seal looks under fs.names, exclusive. `by` is 1 or -1. Before he goes a writer has seen to it that
 * all he wrote is in the engine's log.
 */
void inode_count_writer(struct inodes *t, struct inode *i, int by);
bool inodes_has_writers(struct inodes *t, uint64_t ino);

/* What an idle entry leaves to be done. */
struct inode_rest {
	uint64_t ino;
	int64_t atime_ns;
	bool orphan, atime_dirty;
};
/* If `ino` is idle, remove its entry. true: there was one, and *ret says what is left to do. Under fs.names. */
bool inodes_take_idle(struct inodes *t, uint64_t ino, struct inode_rest *ret);
/* Any entry, idle or not, when no request can come any more. false: none left. */
bool inodes_take_any(struct inodes *t, struct inode_rest *ret);

/*
 * The content of a pinned inode: opened by the first user and closed by the last. inode_content() gives it only if it
 * is open already, else NULL.
 */
int inode_content_open(struct inodes *t, struct inode *i, struct content **ret);
struct content *inode_content(struct inodes *t, struct inode *i);
void inode_content_close(struct inodes *t, struct inode *i);
