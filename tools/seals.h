/* The sealed directories of a mount, for people and for machines. One thread. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/*
 * Of the mount that `path`, a directory of it, lies on: those that the caller may know of, the first sealed first. What
 * is wrong is told on standard error, in the name of `tool`. 0/<0
 */
int seals_list(const char *tool, const char *path, bool json, FILE *to);
