/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Measures the disk space of stores with each combination of mount options, before and after ckptfs-compact, and
 * chooses the best. The files are written into scratch stores, one store after the other, in order of modification
 * time, and compacted with the planner of ckptfs-compact.
 *
 * Only one store exists at a time. It needs at most the size of the files plus 64 MiB.
 */
#pragma once

#include "base/cdc.h"
#include "tools/analyze/analyze_files.h"
#include "tools/analyze/analyze_scratch.h"
#include "tools/compact/compact_planner.h"
#include "tools/compact/compact_report.h"

#define NR_STORES 6 /* at most: page, cdc and auto, each with and without zstd */

struct stores_conf {
	const char *where; /* a directory for scratch stores */
	uint64_t limit; /* most bytes of files to measure; the newest steps of all series are chosen */
	/* mount options; chunking and compress are names, NULL: try all */
	const char *chunking, *compress;
	uint32_t page;
	struct cdc_params cdc;
	enum fp_domain_kind dedup;
	bool fsync; /* each file is synced when it is complete */
	bool no_compact;
	const struct compact_planner *planner; /* the part that the caller sets */
	/* called regularly with the work done, scaled to the size of all files; false: stop */
	bool (*step)(void *userdata, uint64_t bytes);
	void *userdata;
};

struct store_figure {
	const char *chunking, *compress; /* as the mount options */
	char options[96]; /* the argument of -o */
	uint64_t bytes, compacted; /* of the store on disk; compacted: after ckptfs-compact */
	struct scratch_figures all, *file; /* file: by number in struct files */
};

struct stores {
	struct store_figure figure[NR_STORES];
	size_t nr; /* complete stores */
	bool *is_measured; /* by the number of the file */
	uint64_t measured; /* bytes of files that were written */
	size_t nr_files; /* number of those files */
	bool compacted;
	struct compact_rows rows; /* results of compaction in the store that is the smallest after it, */
	size_t rows_of; /* which is this one */
	bool complete; /* all stores, and all files in them */
	bool stopped; /* by `step` */
};

/* `files` must be arranged and examined. Sets `error` of a file that cannot be read. Returns 0, also if stopped, or a
 * negative errno, reported. */
int stores_run(struct stores *s, const struct stores_conf *conf, struct files *files);
void stores_release(struct stores *s);

/* The smallest store, or one that takes at most 1 % more with less work. There must be at least one. */
struct store_choice {
	size_t figure;
	bool compact;
	uint64_t bytes;
};
struct store_choice stores_choose(const struct stores *s);
