/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics of a mount (the parsed JSON of user.ckptfs.stat) in the text exposition format of Prometheus. ckptfs-stat
 * and the daemon share one table of metrics. Values of labels are as in text: \ooo for what base/text.h escapes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json_flat;

#define FIGURES_NAME_MAX 64

/* true: `path` is "requests.NAME.count"; `name` is set. */
bool figures_request_name(const char *path, char name[FIGURES_NAME_MAX]);
uint64_t figures_request_u64(const struct json_flat *j, const char *name, const char *what);

/* Takes all mounts at once, because each metric must be introduced only once. */
void figures_print_metrics(FILE *to, const struct json_flat *mounts, size_t nr);
