/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Statistics of recoded variables, by key: used by ckptfs-stat only. Stored as one record of the view, 'M' "variables";
 * docs/format.md section 5 changes with this.
 */
#pragma once

#include "store/engine.h"

struct buf;
struct variables;

#define VARIABLES_MAX 1000u /* beyond this, the entry recoded longest ago is dropped */

struct variable_notes {
	struct variable_note *v; /* sorted by key */
	size_t nr;
};

void variable_notes_release(struct variable_notes *n);

/* -ENOMEM is reported by buf_error(). */
void variable_notes_encode(const struct variable_notes *n, struct buf *ret);
/* -EBADMSG, -ENOMEM. */
int variable_notes_decode(const void *p, size_t len, struct variable_notes *ret);

struct variables *variables_new(void); /* NULL: -ENOMEM */
void variables_free(struct variables *v); /* NULL is fine */
/* Loads the record when a store is opened; an unreadable one is replaced by an empty one. */
int variables_load(struct engine *e);
/* Adds the results of a recoding run, which holds gc_lock. */
int variables_remember(struct engine *e, const struct compact_conf *conf);
