/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Removing sealed checkpoints by a retention policy. One thread.
 *
 * A policy counts the checkpoints of each owner separately. It removes only checkpoints that its author could have
 * removed: those of the owner of the directory, or of all users in a directory of root. The daemon removes each
 * atomically (CKPTFS_SEAL_REMOVE). Instead it can drop the bytes in the store (CKPTFS_SEAL_DROP).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/retention.h"
#include "tools/seal/seals.h"

struct retain_seal {
	const char *name; /* in the directory */
	struct sealed seal;
	bool is_tagged;
	uint32_t uid; /* owner */
	bool is_gone; /* removed or unsealed by another process */
	int refused; /* why it was not dropped; 0: it was, or was not tried */
	const char *why; /* reason for keeping it; NULL: to be removed */
};

/*
 * Sets `why` of checkpoints, oldest first. `proven` is the newest valid one, which is always kept; nr: none is valid,
 * and all are kept.
 */
void retain_choose(const struct keep_policy *p, int64_t now_ns, struct retain_seal *v, size_t nr, size_t proven);

struct retain_request {
	const char *tool;
	bool delete; /* else only list, unless `drop` is set */
	bool drop; /* erase their bytes in the store instead, after a check that the tier beneath it has them */
	bool verify; /* verify the newest checkpoint by reading its data */
	bool collects; /* the caller frees the space of what was removed */
	bool json, quiet;
};

/*
 * Applies a policy to the sealed checkpoints directly in `path`, and lists them on standard output. <0: failed,
 * reported; -ECANCELED: interrupted.
 */
int retain_directory(const struct retain_request *q, const char *path, const struct keep_policy *policy);
/*
 * Applies the policies of all directories of a mount that have one. The time grows with the number of sealed
 * checkpoints of all users: they are listed once, and directories without a policy cost one read.
 */
int retain_mount(const struct retain_request *q, const char *path);
