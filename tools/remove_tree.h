/* Removing a directory with all that is in it, when others may be at it, too. */
#pragma once

/*
 * The name `name` in the directory `dirfd`. Nothing is followed that leads elsewhere, whoever changes names meanwhile,
 * and nothing of another filesystem is removed (-EXDEV). Takes a descriptor for each level. -ECANCELED: interrupted.
 */
int remove_tree(int dirfd, const char *name);
