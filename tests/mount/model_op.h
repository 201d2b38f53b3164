/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the operations of the random tester share. Each operation (`op_*`, one at a time on a tree) is chosen at random,
 * applied to the model, so that the log knows it before the daemon does, done on the mount, and its result compared. It
 * opens what it needs and closes it again, so its changes are in the daemon's hands, in order, when it has ended; only
 * op_held() keeps files open.
 */
#pragma once

#include <errno.h>
#include <setjmp.h>
#include <string.h>

#include "model.h"

#define MAX_DEPTH 4
#define PATH_SIZE 2048

/* Chance, from the worker's seed. */
uint64_t roll(struct worker *w, uint64_t n); /* 0 to n - 1 */
size_t random_len(struct worker *w, size_t max);
uint64_t random_off(struct worker *w, uint64_t size);
void random_data(struct worker *w, uint8_t *p, uint64_t off, size_t len);
void random_name(struct worker *w, char *ret);
int random_dent(struct worker *w, unsigned types); /* of A(FILE) | ...; -1: none */
int random_dir(struct worker *w);
bool random_file(struct worker *w, int *ret_node, char *path);
#define A(type) (1u << NODE_##type)
#define ANY (A(FILE) | A(DIR) | A(SYMLINK) | A(FIFO))

/*
 * Results. Where the mount does otherwise than the model differs() says so and ends the process, unless the mount has
 * died as it may: then OP_DEAD is passed up. The macros want `w` and `path` in scope.
 */
__attribute__((format(printf, 3, 4))) int differs(struct worker *w, int line, const char *format, ...);
int same_bytes(struct worker *w, const char *path, const uint8_t *got, const uint8_t *want, uint64_t off, size_t len);
#define DO(expr)                                                                                    \
	do {                                                                                        \
		if ((expr) < 0)                                                                     \
			return differs(w, __LINE__, "%s (%s): %s", #expr, path, strerror(errno));   \
	} while (0)
#define FAILS(error, expr)                                                                          \
	do {                                                                                        \
		if ((expr) >= 0 || errno != (error))                                                \
			return differs(w, __LINE__, "%s (%s): %s, expected %s", #expr, path,        \
				       strerror(errno), strerror(error));                           \
	} while (0)
#define IS(expr, value)                                                                             \
	do {                                                                                        \
		int64_t is_ = (expr), want_ = (value);                                              \
		if (is_ != want_)                                                                   \
			return differs(w, __LINE__, "%s (%s): %lld, expected %lld (%s)", #expr,     \
				       path, (long long)is_, (long long)want_, strerror(errno));    \
	} while (0)
#define DONE(call)                                                                                  \
	do {                                                                                        \
		int done_ = (call);                                                                 \
		if (done_ != OP_OK)                                                                 \
			return done_;                                                               \
	} while (0)

void dent_path(struct worker *w, int d, char *path);
extern sigjmp_buf bus_jump; /* where a SIGBUS goes after catch_bus() */
void catch_bus(void);

/* Parts of operations: something new in the model, its inode number, bytes in the model, an acknowledged sync. */
int add_new(struct worker *w, enum node_type type, uint32_t mode, int dir, const char *name, const char *op);
int learn(struct worker *w, int n, const char *path);
void put_bytes(struct worker *w, int n, const uint8_t *p, uint64_t off, size_t len, const char *op);
int write_once(struct worker *w, int fd, int n, const char *path, bool append, bool direct);
void acknowledged(struct worker *w);

int op_attributes(struct worker *w);
int op_clone(struct worker *w);
int op_create(struct worker *w);
int op_exchange(struct worker *w);
int op_fallocate(struct worker *w);
int op_fsync(struct worker *w);
int op_held(struct worker *w);
int op_link(struct worker *w);
int op_mkdir(struct worker *w);
int op_mmap(struct worker *w);
int op_orphan(struct worker *w);
int op_read(struct worker *w);
int op_readdir(struct worker *w);
int op_rename(struct worker *w);
int op_replace(struct worker *w);
int op_seek(struct worker *w);
int op_special(struct worker *w);
int op_stat(struct worker *w);
int op_tmpfile(struct worker *w);
int op_truncate(struct worker *w);
int op_unlink(struct worker *w);
int op_write(struct worker *w);
int op_xattr(struct worker *w);
