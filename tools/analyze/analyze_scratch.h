/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A scratch store: an engine with a store in a temporary directory, which is removed with it. It does everything that
 * a mount does to data, with the memory of a mount with cache=64M,dirty=64M.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "store/engine.h"

struct scratch {
	char path[PATH_MAX];
	struct engine_conf conf;
	bool fsync; /* sync each file */
	struct engine *e;
};

/* Bytes written, by result of deduplication. The rest is zeros. */
struct scratch_figures {
	uint64_t previous; /* found in the previous version of the file */
	uint64_t known; /* found elsewhere: in other files, or earlier in this one */
	uint64_t new; /* stored */
};
void scratch_figures_add(struct scratch_figures *to, const struct scratch_figures *f);

/* A file to write: its owner, and a range of an existing file as content. */
struct scratch_file {
	uint64_t ino, previous; /* previous: inode of the previous version; 0: none */
	uid_t uid;
	gid_t gid;
	const char *path; /* for messages */
	int fd; /* borrowed */
	uint64_t off, len; /* range in `fd`; holes are skipped */
};

/* -ENOSPC: not enough free space at `where`. Errors are reported. */
int scratch_check_room(const char *where, uint64_t bytes);
/* Creates the store in a new directory below `where`. Errors are reported. */
int scratch_open(struct scratch *s, const char *where, const struct engine_conf *conf);
/*
 * Writes a file in pieces. `step` is called before each piece with the bytes written, and returns false to stop.
 * Returns 0, also if stopped, or an error of the store; *ret_error is an error of the source. Errors are reported.
 */
int scratch_write(struct scratch *s, const struct scratch_file *f, bool (*step)(void *userdata, uint64_t done),
		  void *userdata, struct scratch_figures *ret, int *ret_error);
/* Closes the store, counts its blocks as du(1) does, and reopens it. Errors are reported. */
int scratch_measure(struct scratch *s, uint64_t *ret);
void scratch_remove(struct scratch *s); /* an empty one is fine */
