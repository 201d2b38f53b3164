/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The session loop: threads that read requests from the kernel and dispatch them.
 *
 * It replaces the loop of libfuse because that one lacks the following:
 *   - a request is read to just before the page-aligned part of an engine buffer, so that the payload of a write can be
 *     written to packs without a copy; the engine keeps the buffer, and the thread gets another one;
 *   - requests and flags that libfuse does not support yet are handled (O_TMPFILE, set-id bits to drop), and features
 *     that it does not offer are added to the reply to INIT;
 *   - each kind of request is counted and timed.
 *
 * Why it cannot deadlock: a thread waits for three things only: a request; a buffer at the `dirty` limit (before it
 * reads, or inside a write that has to be copied; no lock of fs/ is held either time); and whatever an operation waits
 * for inside the engine. The engine empties its buffers without needing any request from the kernel, so each of these
 * waits ends after at most one buffer per waiting thread has been written to packs: milliseconds. At worst other
 * requests are delayed by that. Nothing here waits for the page cache or for names: see
 * ops/notify.h, ops/name_drops.h and ops/ops_flush.h. For every thread in a request that may take long (fsync, a read
 * from disk) another thread is started, up to a limit, so that it does not hold up others. Of all fsyncs and
 * synchronous writes at most two occupy a thread while they wait, to run the commit. Requests of unbounded duration may
 * use less than half of these threads: see fs/long_requests.h.
 *
 * The kernel holds the lock of a file during LSEEK, COPY_FILE_RANGE, SETATTR and FALLOCATE, and that of a directory
 * during requests about names; a removal of the file then waits with the lock of its directory. So these requests are
 * not queued behind others: the first two are limited to a part of the work, and look-ups that ask other nodes, and
 * changes of the size of large files, have places of their own (queue_of() in fuse_loop.c).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct engine_buffer;
struct fs;
struct fuse_session;
struct job;
struct loop;
struct long_request;
struct notify;

/* `se` must be mounted. Borrows `se` and `fs` until loop_free(). */
int loop_new(struct fuse_session *se, struct fs *fs, struct loop **ret);
void loop_free(struct loop *l); /* NULL is fine */
int loop_start(struct loop *l);
/* Becomes readable when either of the two below may have changed. */
int loop_event_fd(struct loop *l);
bool loop_answers(struct loop *l); /* the first request of the kernel has been answered */
bool loop_ended(struct loop *l); /* unmounted, or failed */
/* Stop and join all threads; requests in progress are finished. false: some threads are blocked in the kernel, perhaps
 * indefinitely (ops/notify.h). They refer to the loop and the session, which must not be freed, and to nothing else. */
bool loop_stop(struct loop *l);

/* For the request that the calling thread is serving. */
struct engine_buffer **loop_buffer(void); /* contains the request; may be taken, leaving NULL */
struct job **loop_job(void); /* work to do after the reply, see content_write_buffer() */
void loop_run_job(void); /* do or queue that work now: the reply waits for it */
void *loop_read_buffer(void); /* ENGINE_BUFFER_SIZE bytes, page-aligned */
bool loop_kills_setid(void); /* drop set-id bits unless the caller may keep them; false: the kernel says that it may */
struct notify *loop_notify(void);
/*
 * Make the kernel drop a name that the request has created or removed, and afterwards call `done` in another thread
 * (fs/ops/name_drops.h). It replies to the request, unless `is_answered`: the client was killed meanwhile. -ENOMEM.
 */
struct loop_drop {
	void (*done)(struct loop_drop *d, bool is_answered);
	struct loop *loop;
	struct long_request *held;
};
int loop_drop_name(struct loop_drop *d, uint64_t dir, const char *name);
/* Serve the request again after a tree has been thawed (fs/seal/freeze.h), and do not answer it now. `is_interrupted`:
 * its client has already received a signal. false: the request must not wait. */
bool loop_serve_again(bool is_interrupted);
/*
 * A read that waits for a tier needs a place, and is served without one first. loop_may_wait(): it has one.
 * loop_serve_in_place(): serve it again as soon as there is a place, and do not answer it now. false: it has one.
 */
bool loop_may_wait(void);
bool loop_serve_in_place(void);
/* The request is answered by another thread after its function has returned, or shortly before; that thread then calls
 * loop_answered(). */
struct loop_late_reply {
	struct loop *loop;
	uint64_t start_ns;
	uint32_t opcode;
};
void loop_reply_later(struct loop_late_reply *ret);
void loop_answered(struct loop_late_reply *late);
