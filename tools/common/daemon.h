/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Shared by commands that have the daemon of a mount do long work. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

bool is_store(const char *path); /* a directory with a superblock */
/* The text of a negative errno of a file; says what to do if the daemon of its mount has died. */
const char *path_error_text(int r);
/* Prints to standard error why the daemon refused. `work` as in "a collection", `verb` as in "collect". */
void report_refusal(const char *tool, const char *path, const char *work, const char *verb, int r);
/* Prints why the directory could not be opened; `wanted` is the operand that the tool expects. */
void report_unopened(const char *tool, const char *path, const char *wanted, int r);

/* A task of the daemon, run by an ioctl whose argument begins with size, version and command (client/ioctl.h). */
struct daemon_task {
	int fd;
	unsigned long request; /* CKPTFS_IOC_GC, ... */
	void *arg; /* filled in for the start, except these three */
	const uint32_t *running; /* in arg, as is `error`, an errno */
	const int32_t *error;
	uint32_t start, status, stop; /* commands */
	void (*show)(void *userdata, const void *arg); /* progress */
	void *userdata;
};

/* Sends one command: 0 or a negative errno. */
int daemon_command(int fd, unsigned long request, void *arg, uint32_t command);
/* Starts the task and waits for its end; an interrupt (tools/common/interrupt.h) stops it. 0, or the error of the task
 * or of an ioctl. */
int daemon_run(const struct daemon_task *t);
