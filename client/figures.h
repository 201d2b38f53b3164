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

/* Upper bounds of histograms of requests: 16 us, 131 us, 1 ms, 8.4 ms, 67 ms, 0.5 s, 4.3 s, 34 s. */
#define FIGURES_BOUNDS 8u
static inline uint64_t figures_bound_ns(size_t i)
{
	return UINT64_C(1) << (14 + 3 * i);
}
/* "below_16384_ns": the number of requests that took less. */
void figures_bound_key(size_t i, char ret[FIGURES_NAME_MAX]);

/* Takes all mounts at once, because each metric must be introduced only once. */
void figures_print_metrics(FILE *to, const struct json_flat *mounts, size_t nr);
