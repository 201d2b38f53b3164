/* SPDX-License-Identifier: GPL-3.0-or-later */
#pragma once

/* As openat(2) of an existing file. Reading it changes no access time if the caller is its owner or privileged. */
int openat_noatime(int dirfd, const char *path, int flags);
/*
 * The same of a regular file or a directory; EINVAL: it is neither. For paths that another user can replace at any
 * time: a FIFO would block the caller, and opening a device may have effects.
 */
int open_plain_noatime(int dirfd, const char *path, int flags);
