/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Threads that take requests of the kernel from a session and serve them. One of them waits for the next request. It
 * starts another thread if all others are busy, up to a limit: the kernel's interruptions are requests, too, and must
 * not wait behind reads of a tier that does not answer.
 */
#pragma once

#include <stdbool.h>

struct fuse_session;
struct tier_loop;

/* `se` must be mounted. Borrows it until tier_loop_free(). */
int tier_loop_start(struct fuse_session *se, struct tier_loop **ret);
int tier_loop_event_fd(const struct tier_loop *l); /* readable when it has ended */
bool tier_loop_ended(struct tier_loop *l); /* unmounted, or failed */
/* No request is taken any more; those in progress are finished. */
void tier_loop_free(struct tier_loop *l); /* NULL is fine */
