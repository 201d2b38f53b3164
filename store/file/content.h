/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The file contents of a store, for the other folders of store/. engine.h has what applications do with them,
 * file_table.h the set of those in memory. Only the files of store/file see what is inside (content_state.h).
 *
 * Every function takes the locks that it needs.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "store/engine.h"

struct addr;
struct champions;
struct clone;
struct content;
struct db_batch;
struct engine;
struct engine_waiter;
struct extent_list;
struct job;
struct replace;

struct content *content_ref(struct content *c);
struct engine *content_engine(const struct content *c); /* constant, and so is ... */
uint64_t content_ino(const struct content *c);
struct champions *content_champions(const struct content *c);

uint64_t content_logged_size(struct content *c);
/* The extents of [start, *end), at most a segment plus 1 MiB, of the file as it is in the log, with offsets relative to
 * start. *end becomes at most the end of the file. */
int content_logged_extents(struct content *c, uint64_t start, uint64_t *end, struct extent_list *ret);

/* List the extents of the logged file, when nothing is staged and no job under way, up to 1 MiB from `off` on, with
 * offsets relative to off. *ret_end is where to go on: a hole there has been skipped. 1; 0: end of file; <0. */
int content_list_extents(struct content *c, uint64_t off, struct extent_list *ret, uint64_t *ret_end);
/* Log that [off, off+len) consists of these extents, with offsets relative to off; at most 1 MiB unless it is a hole.
 * Extends the file if needed. */
int content_set_extents(struct content *c, uint64_t off, uint64_t len, const struct extent_list *l);
/* Addresses of the bytes at off + at[0], off + at[1] ..., within 1 MiB; ADDR_NONE: not mapped. */
int content_addresses(struct content *c, uint64_t off, const uint32_t *at, unsigned n, struct addr *ret);
/* Read extents of c that start at `off`, with zeros between them. The caller must be inside e->users. */
int extents_read(struct content *c, const struct extent_list *l, void *p, size_t len, uint64_t off);

/* The bytes of a job have been stored, or could not be. Log the finished jobs that no unfinished one precedes. The
 * caller frees these (*ret_logged), and then calls content_flushed() for each waiter of *ret_flushed. */
void content_job_done(struct content *c, struct job *j, struct job **ret_logged, struct engine_waiter **ret_flushed);
/* Read the recipe of a segment into memory, if it can be read. */
void content_load_segment(struct content *c, uint64_t number);
/* Log the extents of a segment again if they have moved (gc/repoint.h); the times stay. Needs view_lock exclusive. */
int content_repoint(struct content *c, uint64_t number);

/* Apply a change, a clone or a drop of the log to memory; a drop also to the view. */
int content_replay(struct content *c, const struct replace *rp);
int content_clone_again(struct content *from, struct content *to, const struct clone *cl);
int content_drop(struct engine *e, uint64_t ino, struct db_batch *batch);
