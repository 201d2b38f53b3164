/* SPDX-License-Identifier: GPL-3.0-or-later */
#pragma once

/* As openat(2) of an existing file. Reading it changes no access time if the caller is its owner or privileged. */
int openat_noatime(int dirfd, const char *path, int flags);
