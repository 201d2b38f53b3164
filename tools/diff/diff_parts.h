/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How much each variable of a file differs, or in a process image each kind of memory. ckptfs-classify finds them. One
 * thread.
 */
#pragma once

#include <stdbool.h>

#include "store/classify/typed.h"

struct diff_part {
	const char *key; /* of the variable, or the name of the kind; "": bytes of neither */
	uint64_t size, bytes; /* bytes: that differ */
};

struct diff_parts {
	struct typed typed;
	struct typed_extent *sorted; /* by offset; `variable` is the number of the part */
	struct diff_part *part;
	size_t nr; /* 0: unknown format */
};

/* 1; 0: unknown format; <0: the classifier cannot run, or no memory. Release it only after 1. */
int diff_parts_open(struct diff_parts *p, const char *path);
void diff_parts_release(struct diff_parts *p); /* { 0 } is fine */
/* Adds a range that differs. Bytes beyond the end of the file belong to no variable. */
void diff_parts_add(struct diff_parts *p, uint64_t off, uint64_t len);
