/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which checkpoint is shown at which path of a mounted tier. Several checkpoints may have one path, or one below that
 * of another.
 *
 * Among the checkpoints of one owner, the newest seal of a path is shown, and those below this path are not.
 * Checkpoints of different owners do not replace or hide each other: the path stays with the owner whose seal of it is
 * the oldest in the tier. So no user can have their data read in place of another user's by sealing the same path, or
 * one above it, later.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct tier_seal;

struct tier_shown {
	char *path; /* from the mountpoint */
	const struct tier_seal *seal;
	size_t checkpoint; /* of the caller, like the next one */
	int kind;
	bool is_shown;
};

/* Sorts by path, each path before those below it, and sets `is_shown`. -ENOMEM */
int tier_paths_choose(struct tier_shown *v, size_t nr);
bool tier_path_is_below(const char *path, const char *above); /* or the same */
