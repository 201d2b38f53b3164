/* What programs share that have a mount's daemon do long work. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

bool is_store(const char *path); /* a directory that has a superblock */
/* Why the daemon did not do it, on standard error. `work` as in "a collection", `verb` as in "collect". */
void report_refusal(const char *tool, const char *path, const char *work, const char *verb, int r);
/* Why the directory could not be opened; `wanted` is what the tool is given. */
void report_unopened(const char *tool, const char *path, const char *wanted, int r);

/* Work that the daemon does, by an ioctl whose argument begins with size, version and command (client/ioctl.h). */
struct daemon_task {
	int fd;
	unsigned long request; /* CKPTFS_IOC_GC, ... */
	void *arg; /* with everything set that starting needs, except those three */
	const uint32_t *running; /* in arg, as is error: an errno */
	const int32_t *error;
	uint32_t start, status, stop; /* commands */
	void (*show)(void *userdata, const void *arg); /* progress */
	void *userdata;
};

/* One command: 0 or a negative errno. */
int daemon_command(int fd, unsigned long request, void *arg, uint32_t command);
/* Starts the work and waits for its end; an interrupt (tools/common/interrupt.h) stops it. 0, the error of the daemon's
 * work, or of asking it. */
int daemon_run(const struct daemon_task *t);
