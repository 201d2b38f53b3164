/* ckptfs-stat --variables: what became of variables that were compacted, by their keys. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* For root and who has mounted. Says on standard error why not. */
int stat_variables(const char *mountpoint, bool json, FILE *to);
