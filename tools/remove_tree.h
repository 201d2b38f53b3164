/* Removing a directory with all that is in it, when others may be at it, too. */
#pragma once

#include <sys/types.h>

/*
 * The name `name` in the directory `dirfd`. Nothing is followed that leads elsewhere, whoever changes names meanwhile,
 * and nothing of another filesystem is removed (-EXDEV). Takes a descriptor for each level. -ECANCELED: interrupted.
 * If `uid` is not root it is for this user, by whoever runs: nothing goes that is in a directory of others (-EPERM).
 */
int remove_tree(int dirfd, const char *name, uid_t uid);
