/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ckptfs-stat --variables: results of compaction by variable key. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* For root and the mounting user only. Errors are reported. */
int stat_variables(const char *mountpoint, bool json, FILE *to);
