/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One table of all ioctls. op_ioctl() checks number, size, version, kind of descriptor and permission by it; the list in
 * ioctl_ckptfs(2) and the fuzz target are made from it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/ops/ops.h"

struct file;

enum ioctl_on { IOCTL_ON_ANY, IOCTL_ON_FILE /* else EISDIR */, IOCTL_ON_DIRECTORY /* else ENOTDIR */ };
enum ioctl_access { IOCTL_NO_ACCESS, IOCTL_READ, IOCTL_WRITE }; /* how the file must be open, else EBADF */

/* A bit for each command that only root and the mounting user may give, else EPERM. */
#define IOCTL_COMMAND(n) (UINT32_C(1) << (n))
#define IOCTL_ALL_COMMANDS UINT32_MAX /* also of requests without commands */
#define IOCTL_NR_COMMANDS 31u

struct ioctl_call {
	fuse_req_t req;
	struct fs *fs;
	uint64_t ino;
	struct file *file; /* NULL: a directory */
	uint64_t holder; /* ops_holder() */
};

/*
 * Does the work of an ioctl. `arg` is a copy of the argument. 0: reply with `arg` where the ioctl returns its argument;
 * < 0: reply with this error; IOCTL_REPLIED: the handler has replied, or another thread does.
 */
#define IOCTL_REPLIED 1
typedef int ioctl_handler(const struct ioctl_call *c, void *arg);

struct ioctl_entry {
	const char *name; /* of the number */
	const char *type; /* of the argument */
	unsigned number;
	size_t in, out; /* bytes of the argument that the kernel passes in, and back */
	bool has_head; /* the argument starts with its size and version */
	enum ioctl_on on;
	enum ioctl_access access;
	uint32_t operator_only; /* IOCTL_COMMAND(), IOCTL_ALL_COMMANDS */
	bool is_long; /* its cost is proportional to a file, a directory or the store (fs/long_requests.h) */
	ioctl_handler *handler;
	const char *about; /* for the manual */
	const char *page; /* of the manual that describes it, or NULL */
};

extern const struct ioctl_entry ioctl_table[];
extern const size_t ioctl_table_nr;
const struct ioctl_entry *ioctl_find(unsigned number); /* NULL: there is none */

/*
 * Reply to an ioctl that has created or removed a name, which the kernel may have cached, after the kernel has dropped
 * it. As ops_reply_ioctl(); `arg` is copied.
 */
void ioctl_drop_name_then_reply(const struct ioctl_call *c, uint64_t dir, const char *name, int r, const void *arg,
				size_t len);

ioctl_handler ioctl_handle, ioctl_clone, ioctl_compare, ioctl_stat, ioctl_getflags;
ioctl_handler ioctl_delta_begin, ioctl_delta_commit, ioctl_delta_abort;
ioctl_handler ioctl_gc, ioctl_scrub, ioctl_scrub_hit;
ioctl_handler ioctl_compact, ioctl_compact_file, ioctl_compact_add, ioctl_compact_result, ioctl_variable;
ioctl_handler ioctl_exclusive, ioctl_owners;
ioctl_handler ioctl_seal, ioctl_tier;
ioctl_handler ioctl_mount, ioctl_sync, ioctl_cluster, ioctl_unprotected;
