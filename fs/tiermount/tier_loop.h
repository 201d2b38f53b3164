/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Threads that receive and serve the requests of a FUSE session. One of them waits for the next request. It starts
 * another thread if all others are busy, up to a limit.
 *
 * Every request is served at once from what is in memory. One that needs the back end is not answered then, but served
 * again in a place (fs/long_requests.h), where it may wait. Places are limited for each user, and fewer than threads,
 * so there is always a thread for interrupts, for requests served from memory, and for unmounting, whatever users do
 * while the tier hangs.
 *
 * Requests wait for one of three things, each with places of its own. The kernel holds the lock of a directory while it
 * looks up a name, so a look-up that waits a few seconds for the list must not be queued behind reads that wait for
 * hours.
 */
#pragma once

#include <stdbool.h>

struct fuse_session;
struct tier_loop;

/* `se` must be mounted. Borrows it until tier_loop_free(). */
int tier_loop_start(struct fuse_session *se, struct tier_loop **ret);
int tier_loop_event_fd(const struct tier_loop *l); /* readable when the loop has ended */
bool tier_loop_ended(struct tier_loop *l); /* unmounted, or failed */
/* Receives no more requests, cancels those that wait, and finishes those in progress. */
void tier_loop_free(struct tier_loop *l); /* NULL is fine */

/* --- for the request that the calling thread serves --- */

enum tier_wait {
	TIER_WAITS_FOR_LIST, /* of checkpoints: some seconds */
	TIER_WAITS_FOR_TREE, /* a manifest: until the timeout of the mount */
	TIER_WAITS_FOR_DATA, /* of files, or all tables of a checkpoint: without limit */
	TIER_NR_WAITS
};
/* true: it has a place, so it may wait. false: call tier_loop_serve_again() instead of waiting, and do not reply. */
bool tier_loop_may_wait(enum tier_wait what);
void tier_loop_serve_again(void); /* in a place */
