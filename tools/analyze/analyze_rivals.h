/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sizes and CPU times of gzip and zstd with all files as one stream. */
#pragma once

#include "tools/analyze/analyze_files.h"

struct rival {
	const char *name;
	uint64_t coded, ns; /* ns: CPU time */
};
#define NR_RIVALS 3
/* `step` as in analyze_store.h. -ENOMEM; other errors are reported. A file that cannot be read is skipped. */
int rivals_run(const struct files *files, bool (*step)(void *, uint64_t), void *userdata, struct rival ret[NR_RIVALS]);
