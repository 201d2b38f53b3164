/*
 * Do the files of a step become smaller as a whole than variable by variable? They do where variables repeat one
 * another. The planner has some of the files coded both ways, without the step before.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct set;

struct compact_trial {
	uint64_t block; /* bytes that take turns */
	double budget; /* CPU seconds per GB */
};

/* -ENOMEM and others; a file that cannot be read has been complained about. */
int compact_trial_run(const struct compact_trial *t, const struct set *set, bool *ret_whole);
