/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ckptfs-stat --watch: rates between two readings of a mount, and redrawing a terminal. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json_flat;

/* Counters of a mount at one moment. */
struct stat_reading {
	bool taken;
	uint64_t pid, uptime_ns; /* of the daemon: counters restart with each */
	uint64_t written, read, commits;
	uint64_t cut; /* bytes cut into chunks: more than written if chunks were written in parts */
	uint64_t fresh; /* of these, new */
	uint64_t shrunk; /* bytes saved by compression */
};

struct stat_reading stat_reading_of(const struct json_flat *mount);
/* Prints that rates need two readings if `before` is missing or of another daemon. */
void stat_show_rates(FILE *to, const struct stat_reading *before, const struct stat_reading *now);

/* Redraws the terminal from the upper left corner with as many lines and columns of `text`, which is escaped, as fit
 * (0: all). */
void stat_draw(FILE *to, const char *text, size_t len, unsigned rows, unsigned columns);
