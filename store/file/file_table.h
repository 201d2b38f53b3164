/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The set of files in memory: those that are open, dirty (the view lacks changes of them) or staged, and the memory that
 * they use.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct content;
struct engine;
struct file_table;

struct file_table *file_table_new(void); /* NULL: -ENOMEM */
void file_table_free(struct file_table *t); /* NULL is fine; no content may be left */

/* Keep the recipe in memory for a while after the last reference, because it will be needed again soon. */
void content_keep_warm(struct content *c);
void contents_cool(struct engine *e); /* release all of them */
void contents_release(struct engine *e); /* when closing: also dirty files: the journal has their changes */
/* Free clean segments while all contents together exceed the limit. */
void contents_trim(struct engine *e, uint64_t limit);

uint64_t files_memory(struct engine *e); /* of all segments */
uint64_t files_dirty_memory(struct engine *e); /* of those that the view lacks */
uint64_t files_limit(struct engine *e);
void files_set_limit(struct engine *e, uint64_t bytes); /* for segments; set by absorb_share_memory() */

uint64_t files_logical(struct engine *e); /* mapped bytes of all files */
void files_add_logical(struct engine *e, int64_t bytes);
