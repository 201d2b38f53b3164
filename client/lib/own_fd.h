/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors of libckptfs in the program's process. Programs close descriptors that they have not opened (daemons, at
 * startup), duplicate files to chosen numbers (shells), and write to 1 and 2 whatever they refer to. Therefore
 * descriptors of libckptfs have high numbers, and interpose_descriptors.c protects them from close(2) and dup2(2).
 */
#pragma once

#include <stdbool.h>

#define OWN_FD_MAX 16

/* Moves a descriptor to a high number and registers it. Errors (< 0) are passed through; errno is unchanged. -EMFILE:
 * `fd` was closed. */
int own_fd(int fd);
void own_fd_closep(int *fd); /* closes *fd if >= 0, registered or not */
bool own_fd_has(int fd);
int own_fd_next(int from); /* the lowest registered one at or above `from`; -1: none */
