/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Requests that may take seconds, such as a seal or a clone of a large file. A limited number of them runs at a time,
 * with a limit per user, places reserved for root, and some for users that have none (fs/places.h); the others
 * are queued here, as bytes, and occupy no thread. The thread that finishes a request runs the next one that may run.
 * So there are always threads for other requests, and no request changes threads while places are free. Users with
 * queued requests take turns.
 *
 * A request may run for hours, and is not stopped for another. So that no user waits for the requests of others, the
 * first one of a user runs at once while fewer than 42 other users have one running, and root's always, up to two. Only
 * users beyond these wait until one ends.
 *
 * Requests that wait for the outcome of a seal (fs/seal/freeze.h) are queued in the same way. After a thaw one thread
 * serves them again; most are short, so they need no place.
 *
 * A request is cancelled when its client is killed or the daemon ends: a queued one is answered at once with EINTR, a
 * running one sees it in cancel_check() (base/cancel.h). The kernel sends one INTERRUPT for the first signal of any
 * kind. A signal with a handler is no reason to fail, so the client's pending signals decide: the kernel adds SIGKILL
 * to them for every signal that ends the process.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"

struct fuse_in_header;
struct long_requests;

struct long_request {
	uint64_t start_ns; /* when it was read */
	const void *bytes; /* a copy of what was read from the kernel */
	size_t len;
	struct cancel cancel; /* to be set while it runs */
};

struct long_requests_conf {
	unsigned per_user; /* running requests of one user; of all users twice as many, and those described above */
	unsigned queued; /* requests of one user */
};
/* `fd`: where requests are answered; borrowed. */
int long_requests_new(int fd, const struct long_requests_conf *conf, struct long_requests **ret);
void long_requests_free(struct long_requests *l); /* none is left; NULL is fine */
unsigned long_requests_nr_places(const struct long_requests *l); /* the most that run at a time */

/*
 * true: run it now, and end *ret afterwards; false: a copy is queued, or it was answered: EAGAIN, too many requests of
 * this user are queued; EINTR, the daemon is ending; ENOMEM.
 */
bool long_request_begin(struct long_requests *l, const struct fuse_in_header *in, size_t len, struct long_request **ret);
/* Returns the next one, which the calling thread runs now; NULL: none, or it was one of long_request_take_thawed(). */
struct long_request *long_request_end(struct long_requests *l, struct long_request *r);

/* Keep a copy until the next thaw, or answer it on failure. `nr_thaws`: number of thaws before it was served. */
void long_request_park(struct long_requests *l, const struct fuse_in_header *in, size_t len, uint64_t nr_thaws,
		       bool is_interrupted);
uint64_t long_requests_nr_thaws(struct long_requests *l);
void long_requests_thaw(struct long_requests *l); /* those that are parked may be served again */
/* Waits for one that may be served again; NULL: the daemon is ending. */
struct long_request *long_request_take_thawed(struct long_requests *l);

/*
 * The work of a request is done, and another thread will answer it. NULL: no memory. Its client may be killed meanwhile:
 * then it is answered here, and long_request_release(), which ends it, returns true.
 */
struct long_request *long_request_hold(struct long_requests *l, const struct fuse_in_header *in);
bool long_request_release(struct long_requests *l, struct long_request *r);

bool long_requests_interrupt(struct long_requests *l, uint64_t unique); /* false: it is none of these */
void long_requests_stop(struct long_requests *l); /* the daemon is ending: answer queued ones, cancel running ones */
