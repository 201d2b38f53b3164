/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Records every change below one directory, whichever library makes it: interpose.c stands in front of libc, so that a
 * library's own calls (RocksDB's) are seen as well as ours. An executable that links record.c and interpose.c has it.
 *
 * Calls on watched files are made one at a time, so that the log has them in the order in which they took effect.
 * Not seen: stdio and writable mappings. RocksDB writes its info log (LOG, LOG.old.*) by stdio; those are left out.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "tests/crash/oplog.h"

/* Watch `dir` (absolute, without symbolic links). What lies there enters the log as created, written and synced. */
int record_start(const char *dir);
void record_mark(uint64_t a, uint64_t b);
size_t record_length(void); /* operations so far */
/* Stop. *ret belongs to the caller. -ENOMEM: the log is incomplete. */
int record_stop(struct oplog *ret);

/*
 * Asked before each watched call: 0 lets it happen, an errno (positive) is what it fails with. `path` is relative to
 * the watched directory. Called with calls on watched files held up; must not make one itself. NULL: none.
 */
typedef int (*record_fault)(void *userdata, enum op_kind kind, const char *path);
void record_set_fault(record_fault fault, void *userdata);

/*
 * For a fault that is about to fail a sync: the drive drops its cache. Bytes that were written below the directories
 * `under` (of paths below the watched one, NULL at the end) and that no sync of their own file has made durable are as
 * before. Sizes and names stay: they are the filesystem's, which has a journal.
 */
void record_drop_unsynced(const char *const *under);

/* Let statvfs() and fstatvfs() say that nothing is free. */
void record_set_full(bool on);
/* Let posix_fallocate() only extend the file: in memory, blocks that are never written cost time for nothing. */
void record_set_sparse(bool on);

/* For interpose.c. begin: false: not watched, nothing to end. Else the caller makes the call, unless error is set. */
struct record_call {
	enum op_kind kind;
	int error; /* injected */
	uint32_t obj, dir, new_dir;
	bool present, new_present; /* the names */
	char name[256], new_name[256];
	uint64_t off;
};
bool record_begin(struct record_call *c, enum op_kind kind, int fd);
bool record_begin_name(struct record_call *c, enum op_kind kind, int dirfd, const char *path);
bool record_begin_names(struct record_call *c, enum op_kind kind, int dirfd, const char *path, int new_dirfd,
			const char *new_path);
void record_end(struct record_call *c, bool ok, uint64_t off, uint64_t len);
void record_end_write(struct record_call *c, int64_t result, uint64_t off, const struct iovec *iov, int iovcnt);
void record_end_open(struct record_call *c, int fd, int flags);
void record_forget(int fd); /* closed */
bool record_is_sparse(void);
bool record_is_full(void);
