/*
 * Rows of writes: what a program that goes through its memory will write to next. It may be in several rows at once,
 * one for each of its arrays and threads. Pure: numbers of pages in, a range of pages out; they are addresses by the
 * size of a page, so that ranges of long rows are whole huge pages, if memory is of such: the kernel need not split
 * them.
 */
#pragma once

#include <stdint.h>

#define STREAMS_NR 64u /* rows that are known at once */
#define STREAMS_MIN 8u /* pages after which it is a row */
#define STREAMS_MAX 512u /* of a range: a huge page of 2 MiB */

struct stream {
	uint64_t up, down; /* pages that would go on with it; UINT64_MAX: it goes the other way */
	uint64_t len; /* pages that it has; 0: there is none */
	uint64_t used; /* touch that was the last of it */
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
 * A write to a page that was closed. What should be opened: that page and, if it goes on with a row, those that will
 * follow, half as many as the row has had. All are at least `low` and below `high`, as `page` is.
 */
struct streams_range streams_touch(struct streams *s, uint64_t page, uint64_t low, uint64_t high);
