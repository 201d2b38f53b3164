/* What gzip and zstd, as on the command line, make of all files as one stream. */
#pragma once

#include "tools/analyze/analyze_files.h"

struct rival {
	const char *name;
	uint64_t coded, ns; /* ns: CPU time */
};
#define NR_RIVALS 3
/* `step` as in analyze_store.h. -ENOMEM, or another after a complaint; a file that cannot be read is left out. */
int rivals_run(const struct files *files, bool (*step)(void *, uint64_t), void *userdata, struct rival ret[NR_RIVALS]);
