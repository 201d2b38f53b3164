/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What was done to the files under one directory, in order: the input of every crash state.
 *
 * Files and directories are objects with numbers; names are operations of their own, so that a name can be lost
 * while the bytes are there and the other way round. Object 0 is the watched directory itself.
 *
 * A saved log is read by the same program on the same machine: native byte order, checked only for its length.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum op_kind {
	OP_CREATE = 1, /* dir, name -> obj */
	OP_MKDIR, /* dir, name -> obj */
	OP_LINK, /* dir, name -> obj, once more */
	OP_UNLINK, /* dir, name -> obj; directories too */
	OP_RENAME, /* dir, name -> new_dir, new_name; obj is what is renamed */
	OP_WRITE, /* obj, off, len, data */
	OP_TRUNCATE, /* obj, len */
	OP_ALLOCATE, /* obj, off, len: zeros up to off + len where the file was shorter */
	OP_PUNCH, /* obj, off, len; the size stays */
	OP_SYNC, /* obj, a file or a directory */
	OP_MARK, /* the workload's: `off` and `len` are the numbers it gave */
	OP_READ, /* not recorded: these two are only asked about, to let them fail */
	OP_OPEN,
};

struct op {
	enum op_kind kind;
	uint32_t obj, dir, new_dir;
	uint64_t off, len;
	const char *name, *new_name; /* belong to the log */
	const uint8_t *data; /* `len` bytes, belong to the log */
};

struct oplog {
	struct op *ops;
	size_t nr, size;
	void *file; /* names and data of a loaded log; those of a log under recording are allocated one by one */
};

#define OPLOG_EMPTY ((struct oplog){ 0 })

/* Copies names and data. 0 or -ENOMEM. */
int oplog_add(struct oplog *l, const struct op *op);
int oplog_save(const struct oplog *l, const char *path);
int oplog_load(const char *path, struct oplog *ret);
void oplog_release(struct oplog *l);
/* "write 3 off 4096 len 512": one line for people; `names` are not resolved. */
struct op_text {
	char s[320];
};
struct op_text op_text(const struct op *op);
const char *op_verb(enum op_kind kind);
