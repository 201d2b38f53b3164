/* The sealed directories of a mount: epochs. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/common/place.h"

/* As struct ckptfs_seal, without room for the longest path. */
struct sealed {
	uint64_t inode;
	int64_t sealed_ns;
	uint64_t files, directories, bytes, new_bytes;
	uint32_t uid, facts;
	uint8_t root[32];
	bool is_newest; /* of its directory; not set by seals_ask() */
	char *path; /* relative to the mountpoint; "": the mountpoint, or too long */
};

struct seals {
	struct sealed *v; /* the first sealed first */
	struct sealed **by_directory; /* those in one directory together, in the order of `v`; not set by seals_ask() */
	size_t nr, room;
	struct place place; /* what paths are from */
};

/* Of the filesystem that `fd` is on: those that the caller may know of. Tells nothing, and leaves the place alone:
 * paths are from the root of the filesystem. 0/<0 */
int seals_ask(int fd, struct seals *ret);
/* Of the mount that `path`, a directory of it, lies on: those to be seen there that the caller may know of. What is
 * wrong is told on standard error, in the name of `tool`. 0/<0 */
int seals_get(const char *tool, const char *path, struct seals *ret);
/* The same; if `path` lies in .ckptfs/nodes, what the node has sealed that it belongs to (CKPTFS_SEAL_REMOTE). */
int seals_get_shown(const char *tool, const char *path, struct seals *ret);
void seals_release(struct seals *s);
/* Where one is. Freed by the caller; NULL: no memory. */
char *seals_path(const struct seals *s, const struct sealed *one);
/* The same of the directory that contains it. */
char *seals_directory(const struct seals *s, const struct sealed *one);
/* How many from by_directory[first] on are in the same directory. */
size_t seals_in_directory(const struct seals *s, size_t first);

/* All of them, for people and for machines. As seals_get_shown(). */
int seals_list(const char *tool, const char *path, bool json, FILE *to);
