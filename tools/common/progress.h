/*
 * A bar on the terminal for work that takes long: how far, how fast, how long still. Nothing at all where standard
 * error is no terminal, or while there is nothing to wait for. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool on; /* a terminal */
	bool shown; /* there is a line to be wiped */
	char what[40];
	uint64_t start_ns, last_ns;
	uint64_t start_done;
};

void progress_init(struct progress *p);
/* `done` of `all`, 0: unknown; `what` may be a name. Cheap enough to be called for every small step. */
void progress_show(struct progress *p, const char *what, uint64_t done, uint64_t all, bool bytes);
void progress_clear(struct progress *p); /* before something else is printed, and at the end */
