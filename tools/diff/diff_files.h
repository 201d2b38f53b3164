/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Where two files differ. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define DIFF_UNIT_MAX (UINT64_C(1) << 20)

/* Receives the ranges that differ, in order and not adjacent, in whole units except at the end of a file. */
struct diff_sink {
	void (*range)(void *userdata, uint64_t off, uint64_t len);
	void *userdata;
};

struct diff_result {
	uint64_t size_a, size_b;
	uint64_t nr_ranges, bytes; /* that differ */
	uint64_t read_bytes; /* of each file; the rest is equal without reading */
	bool by_extents; /* else not on one ckptfs mount, and all was read */
};

/* <0: *culprit is the path that failed; -ECANCELED: interrupted. Neither path may be a symbolic link. `unit` is a power
 * of two up to DIFF_UNIT_MAX. The time grows with the number of extents and the bytes that are not shared. */
int diff_files(const char *a, const char *b, uint64_t unit, const struct diff_sink *to, struct diff_result *ret,
	       const char **culprit);
