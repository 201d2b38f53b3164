/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Results of an analysis, as text and as JSON. */
#pragma once

#include "tools/analyze/analyze_images.h"
#include "tools/analyze/analyze_rivals.h"
#include "tools/analyze/analyze_store.h"

struct report {
	const struct files *files;
	const struct stores *stores;
	enum fp_domain_kind dedup;
	bool fsync; /* each file was synced */
	bool variables; /* show the result of compaction for each */
	const struct rival *rivals; /* NULL: none */
	const struct images *images; /* NULL: not analyzed */
};

/* Values of the mount option dedup=. */
extern const char *const dedup_names[NR_FP_DOMAIN_KINDS];

#define REPORT_WHY "The smallest of the measured stores, or within 1 % of it for less CPU time."

void report_text(const struct report *r);
void report_json(const struct report *r);
