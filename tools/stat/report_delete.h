/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What to delete first: sealed checkpoints and directories by the bytes that nothing else refers to. Left out are the
 * newest sealed checkpoint of each owner in a directory, which a restart needs, and directories that contain or are within sealed
 * ones. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/stat/report_seals.h"
#include "tools/stat/report_walk.h"

#define REPORT_DELETE_MAX 10u

struct report_candidate {
	char *name; /* below the mountpoint */
	bool is_sealed;
	uint64_t exclusive; /* bytes that only it refers to; not 0 */
	uint64_t stored; /* disk space that deleting it alone would free */
};

struct report_delete {
	struct report_candidate v[REPORT_DELETE_MAX]; /* most disk space first */
	size_t nr;
	bool has_together;
	uint64_t together; /* disk space that deleting all of them would free */
};

/* Prints errors to standard error, and goes on without what could not be examined. -EINTR: interrupted. */
int report_delete_get(const char *mountpoint, const struct walk *w, const struct report_seals *s,
		      struct report_delete *ret);
void report_delete_release(struct report_delete *d);
