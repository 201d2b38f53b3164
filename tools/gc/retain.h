/*
 * Removing epochs (sealed directories) that a policy does not keep. One thread.
 *
 * One is removed whole: in its directory an empty directory .ckptfs-gc.INODE is made, it is unsealed, renamed to that
 * name, which takes the empty one's place, and what is in it removed. Whatever is cut short, it is sealed and whole, or
 * it is not sealed; and the next time goes on with it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/ioctl.h"
#include "client/keep.h"

struct retain_epoch {
	const char *name; /* in its directory */
	struct ckptfs_seal seal;
	bool is_tagged;
	const char *why; /* it is kept; NULL: it is not */
};

/*
 * What is to become of them, the oldest first. `proven`: the newest that proves itself, which is always kept; nr: there
 * is none, and all are kept. Sets `why`.
 */
void retain_choose(const struct keep_policy *p, int64_t now_ns, struct retain_epoch *v, size_t nr, size_t proven);

struct retain_request {
	const char *tool;
	bool delete; /* else only tell */
	bool verify; /* the newest one proves itself by being read */
	bool json, quiet;
};

/*
 * Of the epochs in `path`, not below; told on standard output. `policy` NULL: as its attribute says. 0; <0, and what is
 * wrong has been told; -ECANCELED: interrupted.
 */
int retain_directory(const struct retain_request *q, const char *path, const struct keep_policy *policy);
/* Of all directories of a mount that have a policy and epochs. */
int retain_mount(const struct retain_request *q, const char *path);
