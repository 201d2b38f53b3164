/*
 * The session loop: threads that read requests from the kernel and have them answered.
 *
 * It is our own because of what libfuse's does not do:
 *   - a request is read to just before an engine buffer's page-aligned part, so that the payload of a write lies
 *     where the packs can take it from without a copy; the buffer goes to the engine and the thread gets another;
 *   - requests and flags that libfuse does not know yet are answered (O_TMPFILE) or looked up (set-id bits to drop),
 *     and features it does not offer are added to the answer to INIT;
 *   - each kind of request is counted and timed.
 *
 * Why it cannot get stuck. A thread waits for three things: a request, a buffer at the `dirty` limit (before it
 * reads, or inside a write that has to be copied; no lock of fs/ is held either time), and what an operation waits
 * for inside the engine. The engine empties its buffers without any help of the kernel's requests, so each of these
 * waits ends after at most one buffer per waiting thread has gone to the packs: milliseconds. Other requests are
 * delayed by that at worst. Nothing here waits for the page cache: see ops/notify.h. For every thread in a request
 * that may take long (fsync, a read from disk) another is started, up to a limit, so that it does not hold up others.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct engine_buffer;
struct fs;
struct fuse_session;
struct job;
struct loop;
struct notify;

/* `se` must be mounted. Borrows both until loop_free(). */
int loop_new(struct fuse_session *se, struct fs *fs, struct loop **ret);
void loop_free(struct loop *l); /* NULL is fine */
int loop_start(struct loop *l);
/* Readable: something happened, ask the two below. */
int loop_event_fd(struct loop *l);
bool loop_answers(struct loop *l); /* the kernel has had the answer to its first request */
bool loop_ended(struct loop *l); /* unmounted, or cannot go on */
/* End and join all threads; requests begun are finished. */
void loop_stop(struct loop *l);

/* For the request that the calling thread is working on. */
struct engine_buffer **loop_buffer(void); /* holds the request; may be taken, leaving NULL */
struct job **loop_later(void); /* what is to be run after the answer, see content_write_buffer() */
void *loop_read_buffer(void); /* ENGINE_BUFFER_SIZE bytes, page-aligned */
bool loop_kills_setid(void); /* the kernel says that set-id bits must go */
struct notify *loop_notify(void);
/* It is answered when its function has returned, or shortly before, by any thread: that one then calls
 * loop_answered(). */
struct loop_later {
	struct loop *loop;
	uint64_t start_ns;
	uint32_t opcode;
};
void loop_answer_later(struct loop_later *ret);
void loop_answered(struct loop_later *later);
