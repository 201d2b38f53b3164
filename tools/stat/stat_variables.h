/* ckptfs-stat --variables: what became of variables that were compacted, by their keys. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* For root and the mounting user. Errors are printed. */
int stat_variables(const char *mountpoint, bool json, FILE *to);
