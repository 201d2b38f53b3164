/*
 * What the store remembers of variables that have been compacted, by their keys: for ckptfs-stat, nothing else needs
 * it. A note in the view, 'M' "variables"; docs/format.md section 5 changes with this.
 */
#pragma once

#include "store/engine/engine.h"

struct buf;

#define VARIABLES_MAX 1000u /* notes; then the one that was compacted longest ago goes */

struct variable_notes {
	struct variable_note *v; /* by key */
	size_t nr;
};

void variable_notes_release(struct variable_notes *n);
/* Adds figures to those of the key; how it was done last counts. -ENOMEM. */
int variable_notes_add(struct variable_notes *n, const struct variable_note *more);

/* buf_error() tells of -ENOMEM. */
void variable_notes_encode(const struct variable_notes *n, struct buf *ret);
/* -EBADMSG, -ENOMEM. */
int variable_notes_decode(const void *p, size_t len, struct variable_notes *ret);

/* From the view, when a store is opened; what cannot be read begins anew. */
int variables_load(struct engine *e);
/* With those of a compaction; whoever compacts has gc.lock. */
int variables_remember(struct engine *e, const struct compact_conf *conf);
