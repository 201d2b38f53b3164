/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Calls that wait for a FUSE daemon, which may hang. A process that waits for a reply cannot be interrupted, and not
 * always be killed, so a child process makes the call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define APART_MAX 64u

struct apart {
	void (*call)(const void *arg, void *ret); /* in the child process, which has files 0 to 2 only */
	void (*report)(const void *arg); /* in this process, once, if the call takes more than two seconds; NULL: none */
	const void *arg;
	uint64_t until_ns; /* by the monotonic clock; unused with go_on */
	bool (*go_on)(const void *arg); /* NULL, or called every 20 ms meanwhile. false: stop waiting */
};

/* The call fills in `size` bytes of `ret`, at most APART_MAX. 1: it has; 0: not in time; <0: the child process has died
 * or could not be made. One that is late is killed; at the latest it ends with the daemon. One thread. */
int apart_call(const struct apart *a, void *ret, size_t size);
