/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sealed directories in the tier beneath a mount (tier=): asks the daemon, and waits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ckptfs_tier;

/* On any descriptor of the mount. ino: 0, or of a sealed directory. -EOPNOTSUPP: no tier. */
int seal_tier_ask(int fd, uint64_t ino, struct ckptfs_tier *ret);

struct seal_tier_wait {
	const char *tool, *path; /* for messages */
	uint64_t ino; /* 0: wait for all sealed directories of the mount */
	uint64_t timeout_ns; /* 0: none */
	bool quiet; /* no progress, and no message while it is retried */
};
/*
 * Waits until it is in the tier. Shows progress, and prints the first reason why it does not go on. 0; -ETIMEDOUT: not
 * in this time; -EOPNOTSUPP: no tier; -ESHUTDOWN: flushing has stopped; else the ioctl failed. *ret is the last answer,
 * if there was one.
 */
int seal_tier_wait(int fd, const struct seal_tier_wait *how, struct ckptfs_tier *ret);
