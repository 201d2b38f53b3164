/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Detects sequential writes and predicts the pages that will be written next. A program may have several streams at
 * once, one for each of its arrays and threads. Page numbers are addresses divided by the page size, so that ranges of
 * long streams are aligned to huge pages and the kernel need not split them.
 */
#pragma once

#include <stdint.h>

#define STREAMS_NR 64u /* streams tracked at once */
#define STREAMS_MIN 8u /* pages from which on a stream is used for prediction */
#define STREAMS_MAX 512u /* pages of a range: a huge page of 2 MiB */

struct stream {
	uint64_t up, down; /* pages that would continue it; UINT64_MAX: it runs in the other direction */
	uint64_t len; /* pages so far; 0: unused */
	uint64_t used; /* number of its last touch */
};

/* Zeroed. */
struct streams {
	struct stream stream[STREAMS_NR];
	uint64_t nr_touches;
};

struct streams_range {
	uint64_t first, nr;
};

/*
 * Records a write to a closed page. Returns the range to open: the page and, if it continues a stream, the pages that
 * follow, half as many as the stream has had. All are at least `low` and below `high`, as `page` is.
 */
struct streams_range streams_touch(struct streams *s, uint64_t page, uint64_t low, uint64_t high);
