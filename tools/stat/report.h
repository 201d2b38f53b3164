/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-stat --html: a self-contained report on one mount.
 *
 * The daemon provides the figures of the mount, and ckptfs-doctor judges them (report_health.c). Directories,
 * fragmentation and ages come from a walk over all files (report_walk.h), the history from readings stored in the page
 * (report_record.h).
 */
#pragma once

#include "tools/stat/report_delete.h"
#include "tools/stat/report_files.h"
#include "tools/stat/report_record.h"
#include "tools/stat/report_seals.h"
#include "tools/stat/report_walk.h"

struct json_flat;

struct report {
	const struct json_flat *mount;
	const struct walk *walk;
	const struct record *record;
	const struct report_seals *seals;
	const struct report_delete *delete;
	const struct report_files *files;
	uint64_t available, size; /* of the disk under the store; size 0: unknown */
};

void report_print(FILE *to, const struct report *r);
/*
 * Writes or replaces the report atomically. Does not overwrite a file that is not a report of this store. Errors are
 * reported; -EINVAL: not possible with this path or file; -EINTR.
 */
int report_write(const char *file, const char *mountpoint);
