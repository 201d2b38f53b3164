/* From runs of chunks to the tables of a delta object, each in the smallest of the encodings allowed. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "gpu/delta_format.h"

struct buf;

/* A set of encodings. */
#define DELTA_AS(encoding) (1u << (encoding))
#define DELTA_AS_ANY (DELTA_AS(DELTA_BITMAP) | DELTA_AS(DELTA_LIST) | DELTA_AS(DELTA_NODES) | DELTA_AS(DELTA_RUNS))

struct delta_span {
	uint64_t off, len;
};

/* What an object names. Borrows all. Sorted, disjoint, and as long as they go: neighbours that can be joined are. */
struct delta_plan {
	const struct delta_run *first;
	const struct delta_shift *shifted;
	const struct delta_span *literals;
	size_t nr_first, nr_shifted, nr_literals;
	unsigned first_as, shifted_as; /* sets of encodings; where they are equally small runs, nodes, list, bitmap */
};

/* Appends the tables, and sets what `h`, which has chunk_len and content_len, says of them. Failure: buf_error(). */
void delta_tables_encode(struct delta_header *h, const struct delta_plan *plan, struct buf *ret);
