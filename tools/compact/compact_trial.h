/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Finds out whether the files of a step get smaller as a whole than variable by variable, as they do where variables
 * repeat one another. Codes some of the files both ways, without the step before.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct set;

struct compact_trial {
	uint64_t block; /* bytes of each rank in turn */
	double budget; /* CPU seconds per GB */
};

/* -ENOMEM and others; a file that cannot be read is reported. */
int compact_trial_run(const struct compact_trial *t, const struct set *set, bool *ret_whole);
