/* What would deleting some files and directories free? The daemon counts; this asks it. One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ckptfs_exclusive;

/* Of all files of a user or group, through any directory of the mount. Says nothing but how far it has come. */
int stat_exclusive_owner(int fd, uint32_t kind, uint32_t id, struct ckptfs_exclusive *ret);
/*
 * Of all paths together, of one mount; a directory with all that is below it. Says on standard error why not, and how
 * far it has come if that is a terminal. -EINTR: interrupted.
 */
int stat_exclusive(char *const paths[], size_t nr, struct ckptfs_exclusive *ret);
