/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Threads that receive and serve the requests of a FUSE session. One of them waits for the next request. It starts
 * another thread if all others are busy, up to a limit. Interrupts of the kernel are requests, too, and must not wait for
 * reads of a tier that does not answer.
 */
#pragma once

#include <stdbool.h>

struct fuse_session;
struct tier_loop;

/* `se` must be mounted. Borrows it until tier_loop_free(). */
int tier_loop_start(struct fuse_session *se, struct tier_loop **ret);
int tier_loop_event_fd(const struct tier_loop *l); /* readable when the loop has ended */
bool tier_loop_ended(struct tier_loop *l); /* unmounted, or failed */
/* Receives no more requests, and finishes those in progress. */
void tier_loop_free(struct tier_loop *l); /* NULL is fine */
