/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The largest files of a report, with what they share. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tools/stat/report_walk.h"

struct report_files {
	struct report_share {
		bool is_known;
		uint64_t distinct, exclusive; /* bytes: each chunk once; of these, those that no other file refers to */
	} v[WALK_LARGEST]; /* of walk.largest */
};

/* Prints errors to standard error; those files are not known. -EINTR: interrupted. */
int report_files_get(const char *mountpoint, const struct walk *w, struct report_files *ret);
