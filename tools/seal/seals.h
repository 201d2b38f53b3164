/* The sealed directories of a mount: epochs. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "client/ioctl.h"
#include "tools/common/place.h"

struct seals {
	struct ckptfs_seal *v; /* the first sealed first */
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
char *seals_path(const struct seals *s, const struct ckptfs_seal *one);
/* Is there none behind it in the directory that it lies in? */
bool seals_is_newest(const struct seals *s, const struct ckptfs_seal *one);

/* All of them, for people and for machines. As seals_get_shown(). */
int seals_list(const char *tool, const char *path, bool json, FILE *to);
