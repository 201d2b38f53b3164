/* What ckptfs-stat --watch adds: rates between two readings of a mount, and drawing over what was drawn before. */
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
	uint64_t cut; /* bytes that were cut into chunks: more than written where chunks were filled bit by bit */
	uint64_t fresh; /* of these: not seen before */
	uint64_t shrunk; /* what compression has taken off */
};

struct stat_reading stat_reading_of(const struct json_flat *mount);
/* `before` of another daemon, or not taken: says that rates need two readings. */
void stat_show_rates(FILE *to, const struct stat_reading *before, const struct stat_reading *now);

/* As many lines and columns of `text`, which is escaped, as fit (0: all), drawn from the upper left corner over what was
 * there. */
void stat_draw(FILE *to, const char *text, size_t len, unsigned rows, unsigned columns);
