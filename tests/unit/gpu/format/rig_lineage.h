/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A lineage in memory: a record, and the versions that its objects made, each reconstructed from the object and
 * compared byte by byte when it is taken. Reading a version that was deleted is a failure.
 */
#pragma once

#include "gpu/format/delta_record.h"
#include "tests/unit/gpu/format/rig.h"

#define LINEAGE_VERSIONS 64

struct lineage {
	struct delta_record *rec;
	struct leaf_key key;
	uint32_t last; /* number of the newest */
	struct buf versions[LINEAGE_VERSIONS]; /* by number */
	bool deleted[LINEAGE_VERSIONS];
	struct buf object; /* of the newest */
	uint64_t nr_regions[4]; /* of the newest, by kind */
};

extern const uint8_t lineage_id[DELTA_LINEAGE_LEN];

#define LINEAGE_NO_LIMIT UINT64_MAX
void lineage_init(struct lineage *l, uint32_t chunk_len, uint64_t table_limit);
void lineage_release(struct lineage *l);
/* The next version: taken, reconstructed, compared, and by the second one committed. `take` needs no number. */
void lineage_take(struct lineage *l, const struct delta_take *take, const void *data, size_t len);
void lineage_checkpoint(struct lineage *l, const struct delta_take *take, const void *data, size_t len);
void lineage_delete(struct lineage *l, uint32_t number);

/* Changes that applications make. */
enum pattern {
	PATTERN_NONE,
	PATTERN_SPARSE, /* single chunks */
	PATTERN_RUNS, /* some long stretches */
	PATTERN_MOVED, /* by a multiple of the chunk */
	PATTERN_MOVED_UNALIGNED, /* by any number of bytes */
	PATTERN_SWAPPED, /* two stretches */
	PATTERN_ZEROS, /* single chunks become zeros */
	PATTERN_CONSTANT, /* a stretch of one byte */
	PATTERN_PERIODIC, /* a stretch repeats what is before it */
	PATTERN_OLD, /* a stretch as it was in an older version, perhaps at another place */
	PATTERN_GROWN,
	PATTERN_GROWN_ZEROS,
	PATTERN_SHRUNK,
	PATTERN_ALL,
	NR_PATTERNS,
};
/* Changes `b`, a copy of the newest version, which has at most `max` bytes afterwards. */
void lineage_change(const struct lineage *l, enum pattern pattern, uint32_t chunk_len, size_t max, uint64_t *seed,
		    struct buf *b);
