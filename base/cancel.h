/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Cancels work after its client has gone. A thread that works for a client sets a token. Functions that may take long
 * call cancel_check() every few milliseconds, where they can return an error cleanly, and return its result. A thread
 * without a token is never cancelled.
 *
 * A request whose work grows with a file, a directory or the store holds view_lock or fs.names for at most a few
 * milliseconds at a time, and calls cancel_check() in between, where it holds no lock. Truncating and punching do so
 * after every 256 MiB of data.
 */
#pragma once

#include <stdbool.h>

struct cancel {
	bool (*is_cancelled)(void *userdata); /* cheap: called for each step */
	void *userdata;
};

void cancel_set(const struct cancel *c); /* of the calling thread; borrowed until the next call. NULL: none */
int cancel_check(void); /* 0, or -EINTR: return soon */
