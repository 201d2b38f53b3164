/*
 * What stores take on the disk with each combination of mount options, before and after ckptfs-compact, and which of
 * them takes the least. The files are written into scratch stores, one after the other, in the order in which they were
 * modified, and compacted by the planner of ckptfs-compact.
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
	uint64_t limit; /* bytes of files to measure at most: the newest steps of all series */
	/* mount options; chunking and compress are names, NULL: all that are considered */
	const char *chunking, *compress;
	uint32_t page;
	struct cdc_params cdc;
	enum fp_domain_kind dedup;
	bool fsync; /* each file is synced when it is complete */
	bool no_compact;
	const struct compact_planner *planner; /* how to compact: the caller's part of it */
	/* now and then, with the work that has been done, out of the size of all files; false: stop */
	bool (*step)(void *userdata, uint64_t bytes);
	void *userdata;
};

struct store_figure {
	const char *chunking, *compress; /* as the mount options */
	char options[96]; /* all, for -o */
	uint64_t bytes, compacted; /* on the disk, all of the store; compacted: after ckptfs-compact */
	struct scratch_figures all, *file; /* of each file, by its number in struct files */
};

struct stores {
	struct store_figure figure[NR_STORES];
	size_t nr; /* complete ones */
	bool *is_measured; /* by the number of the file */
	uint64_t measured; /* bytes of files that were written */
	size_t nr_files; /* number of those files */
	bool compacted;
	struct compact_rows rows; /* what compacting did in the store that is the smallest after it: */
	size_t rows_of;
	bool complete; /* all of them, and all files */
};

/* `files` are arranged and examined; a file that cannot be read gets its `error`. 0, also when stopped; a negative
 * errno, reported. */
int stores_run(struct stores *s, const struct stores_conf *conf, struct files *files);
void stores_release(struct stores *s);

/* The smallest, or one that takes at most 1 % more with less work. There is at least one. */
struct store_choice {
	size_t figure;
	bool compact;
	uint64_t bytes;
};
struct store_choice stores_choose(const struct stores *s);
