/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Latency histograms cheap enough for every request: power-of-two buckets of nanoseconds, each
 * split in four, updated with relaxed atomics.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define HIST_BUCKETS 160

struct hist {
	_Atomic uint64_t nr, sum_ns, max_ns;
	_Atomic uint64_t bucket[HIST_BUCKETS];
};

void hist_add(struct hist *h, uint64_t ns);
/* The number of values below `ns`, a power of two from 4 on. */
uint64_t hist_nr_below(const struct hist *h, uint64_t ns);
/* Upper bound of the bucket that holds the given share (0.5, 0.99 ...); 0 when empty. */
uint64_t hist_quantile_ns(const struct hist *h, double share);
