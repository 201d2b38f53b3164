/*
 * Grace periods: waiting until everyone who may still use something has let go of it.
 *
 * Whoever uses what others take away enters before he looks for it and leaves when he is done with it. Whoever takes
 * something away first makes sure that newcomers do not find it, then waits: when epoch_wait() returns, everyone who
 * had entered before it was called has left. Those who enter meanwhile are not waited for, so a wait ends.
 *
 * Entering and leaving cost an atomic addition each and never wait. Tickets may be handed to another thread.
 * Thread rule: any thread; whoever waits must not be inside.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/mutex.h"

struct epoch {
	_Atomic uint64_t number; /* of the current period */
	_Atomic uint64_t nr_inside[2]; /* who entered in an even or an odd one and has not left */
	struct mutex waiting; /* one at a time */
};

void epoch_init(struct epoch *e);
void epoch_release(struct epoch *e);
unsigned epoch_enter(struct epoch *e); /* a ticket */
void epoch_leave(struct epoch *e, unsigned ticket);
void epoch_wait(struct epoch *e);
