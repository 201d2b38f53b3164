/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Queries the state of sealed directories in the tier (tier=), and waits until they are flushed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ckptfs_tier;

/* `fd`: any descriptor of the mount. `ino`: of a sealed directory, or 0. -EOPNOTSUPP: no tier. */
int seal_tier_get(int fd, uint64_t ino, struct ckptfs_tier *ret);

struct seal_tier_wait {
	const char *tool, *path; /* for messages */
	uint64_t ino; /* 0: wait for all sealed directories of the mount */
	uint64_t timeout_ns; /* 0: none */
	bool quiet; /* show no progress, and no message about retries */
};
/*
 * Waits until the directory is in the tier. Shows progress, and prints the first cause of a delay. -ETIMEDOUT: not in
 * this time; -EOPNOTSUPP: no tier; -ESHUTDOWN: flushing has stopped; -EFBIG: its manifest is too large; other errors
 * are of the ioctl. *ret: the last state received.
 */
int seal_tier_wait(int fd, const struct seal_tier_wait *how, struct ckptfs_tier *ret);
