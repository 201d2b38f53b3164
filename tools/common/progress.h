/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Progress bar for long work: amount done, rate, time left. Prints nothing if standard error is not a terminal, or
 * during the first half second. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool on; /* standard error is a terminal */
	bool shown; /* the bar must be cleared before other output */
	char what[40];
	uint64_t start_ns, last_ns;
	uint64_t start_done;
};

void progress_init(struct progress *p);
/* `done` of `all`; all = 0: unknown. `what` is escaped, so may be a file name. Cheap: call it for every small step. */
void progress_show(struct progress *p, const char *what, uint64_t done, uint64_t all, bool bytes);
void progress_clear(struct progress *p); /* before other output, and at the end */
