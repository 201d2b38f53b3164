/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Grace periods, as in epoch-based reclamation: wait until no reader can use an object any more.
 *
 * A reader enters before it looks an object up, and leaves when it does not use it any more. To free an object, first
 * unlink it so that new readers do not find it, then call epoch_wait(): it returns when all readers that had entered
 * before the call have left. Later readers are not waited for, so a wait ends.
 *
 * Entering and leaving cost an atomic addition each and never wait. Tickets may be passed to another thread. All
 * functions may be called from any thread, epoch_wait() only outside of a read section.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/mutex.h"

struct epoch {
	_Atomic uint64_t number; /* of the current period */
	_Atomic uint64_t nr_inside[2]; /* readers that entered in an even, or odd, period and have not left */
	struct mutex waiting; /* one thread at a time; held until readers have left */
};

void epoch_init(struct epoch *e);
void epoch_release(struct epoch *e);
unsigned epoch_enter(struct epoch *e); /* a ticket */
void epoch_leave(struct epoch *e, unsigned ticket);
void epoch_wait(struct epoch *e);
