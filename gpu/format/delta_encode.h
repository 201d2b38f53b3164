/* SPDX-License-Identifier: BSD-3-Clause */
/* Encodes runs of chunks as the tables of a delta object, each in the smallest allowed encoding. Pure functions. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "gpu/format/delta_format.h"

struct buf;

/* A set of encodings. */
#define DELTA_AS(encoding) (1u << (encoding))
#define DELTA_AS_ANY (DELTA_AS(DELTA_BITMAP) | DELTA_AS(DELTA_LIST) | DELTA_AS(DELTA_NODES) | DELTA_AS(DELTA_RUNS))

struct delta_span {
	uint64_t off, len;
};

/* The content of the tables. Borrows all. Sorted, disjoint and maximal: adjacent runs are joined where possible. */
struct delta_plan {
	const struct delta_run *first;
	const struct delta_shift *shifted;
	const struct delta_span *literals;
	size_t nr_first, nr_shifted, nr_literals;
	unsigned first_as, shifted_as; /* sets of encodings; where they are equally small runs, nodes, list, bitmap */
};

/* Appends the tables and sets their fields in `h`; chunk_len and content_len must be set. Failure: buf_error(). */
void delta_tables_encode(struct delta_header *h, const struct delta_plan *plan, struct buf *ret);
