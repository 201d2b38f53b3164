/*
 * How much of what differs in a file is which variable, or in an image of a process which kind of memory. What the file
 * says of itself is asked of ckptfs-classify. One thread.
 */
#pragma once

#include <stdbool.h>

#include "store/classify/typed.h"

struct diff_part {
	const char *key; /* of the variable, or the name of the kind; "" is what is none */
	uint64_t size, bytes; /* that differ */
};

struct diff_parts {
	struct typed typed;
	struct typed_extent *sorted; /* by where they are; variable is the number of the part */
	struct diff_part *part;
	size_t nr; /* 0: nothing is known of the file */
};

/* 1 it is known, 0 it is not, <0 the classifier cannot be asked, or there is no memory. Release it only after 1. */
int diff_parts_open(struct diff_parts *p, const char *path);
void diff_parts_release(struct diff_parts *p); /* { 0 } is fine */
/* Bytes that differ; what lies behind the end of the file counts as part of none. */
void diff_parts_add(struct diff_parts *p, uint64_t off, uint64_t len);
