/*
 * Cancels work after its client has gone. A thread that works for a client sets a token. Functions that may take long
 * call cancel_check() every few milliseconds, where they can return an error cleanly, and return its result. A thread
 * without a token is never cancelled.
 */
#pragma once

#include <stdbool.h>

struct cancel {
	bool (*is_cancelled)(void *userdata); /* cheap: called for each step */
	void *userdata;
};

void cancel_set(const struct cancel *c); /* of the calling thread; borrowed until the next call. NULL: none */
int cancel_check(void); /* 0, or -EINTR: return soon */
