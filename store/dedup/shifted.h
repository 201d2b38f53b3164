/* SPDX-License-Identifier: GPL-3.0-or-later */
#pragma once

#include "store/file/extents/segment.h"
#include "store/dedup/shift.h"

struct champions;
struct content;
struct job;
struct searches;

/* Bytes of a job that also occur in a champion. */
struct shifted {
	struct extent_list extents; /* relative to the job, in order; none where the champion has a hole */
	struct shift_range found[SHIFT_MATCHES_MAX]; /* the ranges found, in order */
	unsigned nr_found;
};
void shifted_free(struct shifted *s); /* NULL is fine */

/* Search the champions, at any offset, for the runs of the job that the other lookups did not find. 1: some were found,
 * *ret is the caller's; 0: none; <0. Call inside e->users. */
int shifted_find(struct content *c, const struct job *j, const struct shift_range *runs, unsigned nr,
		 struct shifted **ret);
/* Previous jobs had moved bytes: search for these first. */
bool shifted_is_likely(struct content *c);
void shifted_unmap(struct champions *its); /* unless the file is still a champion of some file */
/* Memory of searches and maps. */
struct searches *searches_new(void); /* NULL: -ENOMEM */
void searches_free(struct searches *s); /* NULL is fine */
