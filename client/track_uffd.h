/*
 * Tracking by userfaultfd(2): write protection that needs no signals, so that system calls which write to a closed page
 * wait, too, instead of failing. Two kinds. Where the program and the writer of a checkpoint meet, a thread of ours is
 * told of each write and answers it. In CKPTFS_MODE_SYNC they do not meet, and the kernel notes by itself what was
 * written to (UFFD_FEATURE_WP_ASYNC); that is asked for at the next checkpoint (PAGEMAP_SCAN).
 */
#pragma once

#include <stdbool.h>

struct track;

extern const struct track track_uffd, track_uffd_noted;

/* `noted`: the second kind. -EOPNOTSUPP, -EPERM, ...: the kernel does not have it, or not for us; *why says what. */
int track_uffd_start(bool noted, const char **why);
void track_uffd_stop(void);
void track_uffd_forget(void); /* in a child of fork(2): what it would speak of is the parent's memory */
/* What the kernel has noted is dirty; with client.lock. */
int track_uffd_collect(void);
