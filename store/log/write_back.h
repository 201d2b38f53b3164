/* Writing the changed recipes of a file to the view. */
#pragma once

#include "store/file/content.h"

struct layer;
struct db_batch;

/* Changes to the view, and the layers added by them. */
struct view_batch {
	struct db_batch *db;
	struct layer **layers; /* referenced; already numbered */
	size_t nr, size;
};
int view_batch_init(struct engine *e, struct view_batch *b);
int view_batch_apply(struct view_batch *b); /* all and empties it, or nothing and keeps it */
void view_batch_release(struct view_batch *b); /* unapplied changes are discarded */
/* Write the dirty parts to the view. Nothing may change between the two calls: view_lock is held exclusively, or the
 * lock is held throughout. */
int content_write_back(struct content *c, struct view_batch *batch) REQUIRES(c->lock);
void content_written_back(struct content *c) REQUIRES(c->lock); /* after the batch has been applied */
/* The same for a part, starting at segment *at. 1: more remains; 0: done. The lock may be dropped between calls. */
int content_write_back_slice(struct content *c, struct view_batch *batch, uint64_t *at) REQUIRES(c->lock);
