/*
 * Removing epochs (sealed directories) that a policy does not keep. One thread.
 *
 * A policy counts the checkpoints of each owner separately, and removes only those that its author could have removed:
 * those of the owner of the directory, or of all users in a directory of root. The daemon removes each atomically
 * (CKPTFS_SEAL_REMOVE).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/retention.h"
#include "tools/seal/seals.h"

struct retain_seal {
	const char *name; /* in its directory */
	struct sealed seal;
	bool is_tagged;
	uint32_t uid; /* its owner */
	bool is_gone; /* removed or unsealed by another process */
	const char *why; /* it is kept; NULL: it is not */
};

/*
 * What is to become of them, the oldest first. `proven`: the newest that proves itself, which is always kept; nr: there
 * is none, and all are kept. Sets `why`.
 */
void retain_choose(const struct keep_policy *p, int64_t now_ns, struct retain_seal *v, size_t nr, size_t proven);

struct retain_request {
	const char *tool;
	bool delete; /* else only tell */
	bool verify; /* the newest one proves itself by being read */
	bool json, quiet;
};

/*
 * Of the epochs in `path`, not below; told on standard output. 0; <0, and what is wrong has been told; -ECANCELED:
 * interrupted.
 */
int retain_directory(const struct retain_request *q, const char *path, const struct keep_policy *policy);
/*
 * Of all directories of a mount that have a policy and epochs. The time grows with the number of epochs of all users:
 * they are listed once, and of a directory without a policy only that is read.
 */
int retain_mount(const struct retain_request *q, const char *path);
