/*
 * What a mount tells about itself (the JSON in user.ckptfs.stat, parsed), and the same in the text exposition format of
 * Prometheus: one table for ckptfs-stat and for the daemon, so that both say the same.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json_flat;

#define FIGURES_NAME_MAX 64

/* Is `path` "requests.NAME.count"? Then NAME. */
bool figures_request_name(const char *path, char name[FIGURES_NAME_MAX]);
uint64_t figures_request_u64(const struct json_flat *j, const char *name, const char *what);

/* All mounts at once: a metric is introduced once. */
void figures_print_metrics(FILE *to, const struct json_flat *mounts, size_t nr);
