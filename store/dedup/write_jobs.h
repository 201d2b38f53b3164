/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Jobs: written data on its way to the packs. engine.h has job_run() and job_queue().
 *
 * No thread waits for a job while it holds view_lock: the job needs it, shared, to finish. content_lock_quiet() waits
 * first and takes the locks afterwards. A request thread with a job to run after its reply queues the job before any
 * wait. A job returns the buffer that it used and needs no second one. It may share a chunk whose frame is not on disk
 * yet: then it waits for that frame (packs_wait()) before it changes the recipe, holding no lock.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/engine.h"
#include "store/file/extents/segment.h"

struct content;
struct engine_buffer;
struct job_queue;

/* Written data on its way to the packs. A job is at most 1 MiB; it starts page-aligned unless chunked by content. */
struct job {
	struct content *c; /* holds a reference */
	struct engine_buffer *b;
	const uint8_t *data;
	uint64_t off;
	uint32_t len; /* data is zero-padded to a whole page */
	uint32_t *cuts; /* chunk ends in data, owned; NULL: fixed-size pages */
	size_t nr_cuts;
	int64_t time_ns;
	struct compress compress;
	bool is_auto; /* chunking=auto: search for moved bytes */
	struct extent_list extents; /* the result, relative to off */
	int error;
	bool done;
	/* in e->users, held from the first lookup of known chunks until their addresses are in the log */
	unsigned ticket;
	struct job *next_in_file;  /* store/file: under the lock of the file */
	struct job *next_in_queue; /* job_queue.lock */
};

struct job_queue *job_queue_new(void); /* NULL: -ENOMEM */
void job_queue_free(struct job_queue *q); /* NULL is fine */
int jobs_start(struct engine *e);
void jobs_stop(struct engine *e);
struct job *job_new(struct content *c, struct engine_buffer *b, const uint8_t *data, uint64_t off, uint32_t len);
void job_begins(struct job *j); /* it has its place in the file's order: count it */
/* Bytes of jobs on their way to the packs. Wait until there are fewer; call with no lock held. */
uint64_t jobs_bytes(struct engine *e);
void jobs_wait_fewer(struct engine *e, uint64_t than);
/* Run a job that waits for a worker, in the calling thread, with no lock held. false: none waits. */
bool jobs_help(struct engine *e);
/* Have an idle worker call packs_sync_early(), or not any more if none has begun. */
void jobs_sync_packs(struct engine *e, bool wanted);
