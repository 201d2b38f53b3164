/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Lists the sealed checkpoints of a mount. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/common/place.h"

/* struct ckptfs_seal without its fixed-size path. */
struct sealed {
	uint64_t inode;
	int64_t sealed_ns;
	uint64_t files, directories, bytes, new_bytes;
	uint32_t uid, facts;
	uint8_t root[32];
	bool is_newest; /* of its owner in its directory; not set by seals_ask() */
	bool is_removed; /* from the tier by retention; set by seals_list() only */
	bool is_in_tier; /* as the next three, set by seals_list() only */
	int tier_error;
	uint64_t flushed_bytes, left_ns;
	char *path; /* relative to the mountpoint; "": the mountpoint, or too long */
};

struct seals {
	struct sealed *v; /* by time of sealing, oldest first */
	struct sealed **by_directory; /* grouped by directory, then in the order of `v`; not set by seals_ask() */
	size_t nr, room;
	bool has_tier; /* set by seals_list() only */
	struct place place; /* paths are relative to it */
};

/* Lists the seals of the filesystem of `fd` that the caller may see. Prints nothing and does not set `place`: paths are
 * relative to the root of the filesystem. 0/<0 */
int seals_ask(int fd, struct seals *ret);
/* Lists the seals of the mount of the directory `path`: those that are visible there and that the caller may see.
 * Prints errors to standard error, prefixed with `tool`. 0/<0 */
int seals_get(const char *tool, const char *path, struct seals *ret);
/* The same; if `path` is in .ckptfs/nodes, lists the seals of the node that it belongs to (CKPTFS_SEAL_REMOTE). */
int seals_get_shown(const char *tool, const char *path, struct seals *ret);
void seals_release(struct seals *s);
/* Its absolute path. Freed by the caller; NULL: no memory. */
char *seals_path(const struct seals *s, const struct sealed *one);
/* The same for the directory that contains it. */
char *seals_directory(const struct seals *s, const struct sealed *one);
/* The number of entries, from by_directory[first] on, that are in the same directory. */
size_t seals_in_directory(const struct seals *s, size_t first);

/* Prints the list as text or as JSON. Errors as of seals_get_shown(). */
int seals_list(const char *tool, const char *path, bool json, FILE *to);
