/*
 * An analysis: every file is read once, from its beginning to its end, and cut in several ways at the same time, each
 * way in a thread of its own. Memory does not depend on the size of files.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/analyze_cutting.h"
#include "tools/analyze_files.h"

struct analyze_conf {
	uint32_t page; /* besides 4 KiB; 0 or 4096: none */
	struct cdc_params cdc;
	uint64_t memory; /* for fingerprints, of all ways together */

	/* Called now and then with the bytes that have been looked at; false: stop. */
	bool (*step)(void *userdata, uint64_t bytes);
	void *userdata;
};

#define ANALYZE_MEMORY_MIN (NR_CUTTINGS_MAX * DISTINCT_MEMORY_MIN)

struct analysis {
	struct analyze_conf conf;
	struct cutting cutting[NR_CUTTINGS_MAX]; /* pages of 4 KiB first, by content last */
	size_t nr_cuttings;
	struct figures total[NR_CUTTINGS_MAX];
	uint64_t size, holes;
	uint64_t looked_at;
	bool complete;
};

int analysis_init(struct analysis *a, const struct analyze_conf *conf);
void analysis_release(struct analysis *a);
/*
 * Read all files; their figures, and a->total, are there afterwards. A file that cannot be read has been complained
 * about, and says so in its `error`. 0, also when stopped (a->complete is false then); -ENOMEM, -EIO.
 */
int analysis_run(struct analysis *a, struct files *files);
/* Or is any figure an estimate? */
bool analysis_is_exact(const struct analysis *a);
