/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Space that deleting files and directories would free, as computed by the daemon. One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ckptfs_exclusive;

/* For all files of a user or group; fd: any directory of the mount. Prints progress only. */
int stat_exclusive_owner(int fd, uint32_t kind, uint32_t id, struct ckptfs_exclusive *ret);
/*
 * For all paths together, which must be on one mount; directories include everything below them. Prints progress and
 * errors. -EINTR: interrupted.
 */
int stat_exclusive(char *const paths[], size_t nr, struct ckptfs_exclusive *ret);
