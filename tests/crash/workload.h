/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A random but reproducible series of filesystem operations, and what the tree must look like after each of them.
 *
 * Every operation is one step of the engine's log, so a crash leaves the tree as it is after some number of them. Bytes
 * come from a small pool of pages, so that files share much; both threads of a run draw from the same pool.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct engine;

#define WORKLOAD_PATH 32
#define WORK_RANGES 8
#define WORK_RANGES_FROM 300
#define WORK_RANGES_TO 500

enum work_kind {
	WORK_CREATE,
	WORK_MKDIR,
	WORK_SYMLINK,
	WORK_LINK,
	WORK_RENAME,
	WORK_UNLINK,
	WORK_OWNER,
	WORK_XATTR,
	WORK_MTIME,
	WORK_WRITE,
	WORK_APPEND,
	WORK_TRUNCATE,
	WORK_PUNCH,
	WORK_ALLOCATE,
	WORK_CLONE,
	WORK_PATCH, /* WORK_RANGES clones of `len` at once, so far apart there and here */
	WORK_SYNC,
	WORK_COLLECT,
	WORK_COMPACT, /* a file, merged with another */
};

struct work {
	enum work_kind kind;
	char path[WORKLOAD_PATH], other[WORKLOAD_PATH]; /* below the thread's directory */
	uint64_t off, len, other_off, seed;
	uint32_t mode, uid;
	int64_t mtime_ns;
	char value[16]; /* of a symbolic link or an extended attribute; "": remove */
};

struct workload {
	struct work *ops;
	char **lists; /* nr + 1: tree_list() after so many operations */
	size_t nr;
};

int workload_new(uint64_t seed, size_t nr, struct workload **ret);
void workload_free(struct workload *w);
/* Make one operation below directory `top`. Takes its time: the engine's background thread, which writes out the index,
 * snapshots the journal and absorbs fingerprints, looks ten times a second, and shall do so in the middle of it all. */
int work_apply(struct engine *e, const char *top, const struct work *op);
/* The bytes [off, off + len) of a write with this seed. */
void work_bytes(uint64_t seed, uint64_t off, uint64_t len, uint8_t *ret);
struct work_text {
	char s[160];
};
struct work_text work_text(const struct work *op);
