/*
 * A scratch store: a store of the engine in a temporary directory, which is removed with it. What is measured in it
 * includes everything that a mount does to data, since the engine does it. Its memory is that of a mount with
 * cache=64M,dirty=64M.
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
	bool fsync; /* after each file */
	struct engine *e;
};

/* What became of bytes that were written, in chunks. The rest is zeros. */
struct scratch_figures {
	uint64_t previous; /* found in the previous version of the file */
	uint64_t known; /* found elsewhere: in other files, or earlier in this one */
	uint64_t new; /* stored */
};
void scratch_figures_add(struct scratch_figures *to, const struct scratch_figures *f);

/* What to write as a file: bytes of a file that exists, as one that a user owns. */
struct scratch_file {
	uint64_t ino, previous; /* previous: inode of the version before it; 0: none */
	uid_t uid;
	gid_t gid;
	const char *path; /* for messages */
	int fd; /* borrowed */
	uint64_t off, len; /* of what is written, from the beginning of the new file; holes are left out */
};

/* -ENOSPC: there is not so much room at `where`; others. Reported. */
int scratch_check_room(const char *where, uint64_t bytes);
/* In a new directory below `where`. A negative errno, reported. */
int scratch_open(struct scratch *s, const char *where, const struct engine_conf *conf);
/*
 * Writes a file, in pieces; before each, `step` is called with the bytes that have been written, and may stop it by
 * returning false. 0, also if stopped; a negative errno of the store, reported; *ret_error: one of the source,
 * likewise.
 */
int scratch_write(struct scratch *s, const struct scratch_file *f, bool (*step)(void *userdata, uint64_t done),
		  void *userdata, struct scratch_figures *ret, int *ret_error);
/* Closes the store, counts its blocks as du(1) does, and opens it again. A negative errno, reported. */
int scratch_measure(struct scratch *s, uint64_t *ret);
void scratch_remove(struct scratch *s); /* an empty one is fine */
