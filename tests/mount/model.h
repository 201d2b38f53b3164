/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A random tester with a model: every operation is done on the mount and on a tree in memory, and both must agree.
 *
 * A `struct tree` is one directory of the mount that only its owner changes (a worker, or the holder of its lock). It
 * lies in memory shared by all processes of the tester and has no pointers except into itself.
 *
 * While the model changes it keeps a log: steps (one for each call that changes something, in order), each with the
 * values that it gave to keys such as "page 3 of inode 7". A state of the tree is the set of all keys with values, so
 * the log tells every state there ever was, and what is found after a crash can be looked for among them
 * (model_check.c).
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PAGE 4096
#define FILE_MAX_SIZE ((size_t)2 << 20) /* more than one recipe segment */
#define NR_NODES 72
#define NR_DENTS 120
#define NR_XATTRS 4
#define NAME_SIZE 256
#define TARGET_SIZE 512
#define MAX_STEPS 400000
#define MAX_DELTAS 8000000
#define KEPT_BYTES ((uint64_t)64 << 20) /* of the last steps */

enum node_type { NODE_NONE, NODE_FILE, NODE_DIR, NODE_SYMLINK, NODE_FIFO };

struct node {
	enum node_type type;
	uint64_t id;	/* of the model, never used twice */
	uint64_t ino;	/* of the mount; 0: not known yet */
	uint32_t mode, uid, gid, nlink;
	uint64_t size;	/* of files; the data behind it are zeros */
	int64_t mtime_ns;	/* -1: whatever the clock said */
	uint64_t xattr[NR_XATTRS]; /* hash of the value of user.mN, 0: absent */
	bool late_writes;	/* a process holds it open and has written: when that reaches the daemon is open */
	uint64_t attributes;	/* hash of all that stat says, 0: not known; must survive a remount */
	char target[TARGET_SIZE];
};

struct dent {
	int dir, node; /* slots; node -1: free */
	char name[NAME_SIZE];
};

enum key_kind { KEY_DENT = 1, KEY_META, KEY_SIZE, KEY_MTIME, KEY_XATTR, KEY_PAGE };

struct key {
	uint64_t id, sub; /* node, and which of the kind: hash of the name, number of page or xattr */
	enum key_kind kind;
};

struct delta {
	struct key key;
	uint64_t value; /* 0: absent, for KEY_MTIME: any */
};

struct step {
	uint64_t start_ns, end_ns; /* end: when it was in the daemon's log for sure; UINT64_MAX: not known */
	uint32_t first, nr; /* deltas */
	const char *op;
	bool may_tear;	/* more than one request, or more than one chunk: parts may survive */
	struct {
		uint64_t id, page, at;
		uint32_t nr_pages; /* 0: not kept */
	} bytes; /* of what may tear: whole pages as they were, then as they are, at tree->bytes + at */
	bool synced;	/* an fsync that was acknowledged: nothing up to here may be lost */
};

struct tree {
	pthread_mutex_t lock;
	char name[32]; /* of its directory in the mount */
	struct node node[NR_NODES]; /* slot 0: the tree's directory */
	struct dent dent[NR_DENTS];
	uint8_t *data; /* FILE_MAX_SIZE for each slot */
	uint64_t next_id, nr_ops;
	bool logging;
	struct step *steps;
	struct delta *deltas;
	uint32_t nr_steps, nr_deltas, open_op; /* steps from open_op on belong to the operation that is going on */
	struct birth {
		uint64_t ino, id;
	} *births; /* since log_reset(), oldest first */
	uint32_t nr_births;
	uint64_t pending; /* id of a node whose creation has been asked for but not answered */
	uint8_t *bytes; /* of steps that may tear, KEPT_BYTES, the oldest are overwritten */
	uint64_t bytes_end;
};

/* model_tree.c */
uint64_t mix(uint64_t h, uint64_t v);
uint64_t hash(const void *p, size_t len); /* never 0 */
uint64_t now_ns(void);
struct tree *tree_new(const char *name); /* in shared memory; the caller keeps it for ever */
void tree_clear(struct tree *t);
static inline uint8_t *data_of(struct tree *t, int n)
{
	return t->data + (size_t)n * FILE_MAX_SIZE;
}
/* NULL: not there any more */
static inline const uint8_t *kept_bytes(const struct tree *t, const struct step *s)
{
	return s->bytes.nr_pages > 0 && t->bytes_end - s->bytes.at <= KEPT_BYTES ? t->bytes + s->bytes.at % KEPT_BYTES :
										   NULL;
}
int node_new(struct tree *t, enum node_type type, uint32_t mode); /* slot or -1; nlink 0 */
void node_born(struct tree *t, int n, uint64_t ino);
int dent_find(const struct tree *t, int dir, const char *name);
bool dir_is_empty(const struct tree *t, int dir);
int parent_of(const struct tree *t, int dir);
unsigned depth_of(const struct tree *t, int dir);
bool is_below(const struct tree *t, int dir, int above);
void path_of(const struct tree *t, int dir, const char *name, char *ret, size_t size);

/* Changes; each goes into the log. `data` are changed by the caller first, then file_changed() is called. */
void step_begin(struct tree *t, const char *op);
void op_end(struct tree *t); /* all steps of the operation have ended */
bool dent_add(struct tree *t, int dir, const char *name, int node);
void dent_remove(struct tree *t, int d);
void dent_move(struct tree *t, int d, int to_dir, const char *to_name); /* nothing may be there */
void dent_exchange(struct tree *t, int a, int b);
void file_changed(struct tree *t, int n, uint64_t off, uint64_t len, uint64_t size);
void node_changed(struct tree *t, int n);
/* The last step may tear: keep these pages as they are. Called before and after the change. */
void keep_bytes(struct tree *t, int n, uint64_t off, uint64_t len, bool after);
void log_reset(struct tree *t); /* step 0 becomes the state as it is now */

/* model_check.c */
int tree_load(struct tree *from, int dirfd, struct tree *ret);
/* Compare what is on the mount with the model: exactly, or with the states of its log. false: a violation was told. */
bool check_exact(struct tree *t, int rootfd, bool same_attributes);
bool check_survivors(struct tree *const *trees, unsigned nr, int rootfd);

/* model_ops.c */
#define NR_HELD 6

/* A file that a worker keeps open, and perhaps mapped, over many operations. */
struct held {
	struct tree *tree; /* NULL: free */
	uint64_t id;
	int node, fd;
	uint8_t *map;
	size_t map_len;
	bool writable;
};

struct worker {
	struct tree *tree;
	struct held held[NR_HELD];
	int dirfd;
	uint64_t rng;
	bool may_die;	/* the mount may vanish */
	bool no_sync;	/* nothing is synced: only the daemon's own commits make anything durable */
	uint8_t *buf;	/* FILE_MAX_SIZE, aligned */
	uint8_t *buf2;
};
enum { OP_OK, OP_DEAD };
int op_random(struct worker *w); /* exits on a difference */
