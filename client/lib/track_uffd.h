/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tracking by userfaultfd(2): write protection without signals, so that system calls which write to a closed page block
 * instead of failing. There are two variants. When a checkpoint is written while the program runs, a thread of
 * libckptfs receives and resolves each write fault. In CKPTFS_MODE_SYNC the program does not run meanwhile: the kernel
 * records which pages were written (UFFD_FEATURE_WP_ASYNC), and the next checkpoint reads that record (PAGEMAP_SCAN).
 */
#pragma once

#include <stdbool.h>

struct track;

extern const struct track track_uffd, track_uffd_async;

/* `async`: the second variant. -EOPNOTSUPP, -EPERM, ...: not available, or not permitted; *why explains it. */
int track_uffd_start(bool async, const char **why);
void track_uffd_stop(void);
void track_uffd_forget(void); /* in a child of fork(2), where the descriptors refer to the parent's memory */
/* Marks the pages dirty that the kernel has recorded as written; with client.lock. */
int track_uffd_collect(void);
