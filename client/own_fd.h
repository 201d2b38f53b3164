/*
 * Descriptors of libckptfs, in a process that is not its own. Programs close what they have not opened (daemons, before
 * they begin), put files on numbers of their choice (shells), and write to 1 and 2 whatever is there: so ours have high
 * numbers, and interpose_descriptors.c keeps close(2) and dup2(2) from them.
 */
#pragma once

#include <stdbool.h>

#define OWN_FD_MAX 16

/* under another number, which is ours from now on; errors (< 0) are passed on; errno stays. -EMFILE: it is closed */
int own_fd(int fd);
void own_fd_closep(int *fd); /* closes *fd if >= 0; also one that is not ours */
bool own_fd_has(int fd);
int own_fd_next(int from); /* the lowest of ours at or above it; -1: none */
