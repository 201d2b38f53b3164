/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Scrubbing on request: one scrub at a time, in a thread of its own, started, polled and stopped by ioctl. The result,
 * with the first affected files, stays available until the next one starts.
 */
#pragma once

#include <stdint.h>

#include "fs/background/task.h"
#include "store/engine.h"

struct scrubber;

struct scrubber_status {
	struct task_status task;
	struct scrub_report report;
	uint64_t nr_hits; /* available from scrubber_hit() */
};

/* Unreadable bytes of a file. */
struct scrubber_hit {
	uint64_t ino, off, len;
	char *path; /* from the root; NULL: it has no name */
};

int scrubber_new(struct engine *e, struct scrubber **ret);
void scrubber_free(struct scrubber *s); /* stops a running scrub; NULL is fine */

int scrubber_start(struct scrubber *s, const struct scrub_conf *conf, uint64_t holder); /* -EBUSY: one is running */
void scrubber_release_holder(struct scrubber *s, uint64_t holder); /* as task_release_holder() */
void scrubber_stop(struct scrubber *s); /* soon; does not wait */
void scrubber_status(struct scrubber *s, struct scrubber_status *ret);
/* Hit i of run `run`; ret->path is a copy that the caller frees. -ENOENT: there is none. */
int scrubber_hit(struct scrubber *s, uint64_t run, uint64_t i, struct scrubber_hit *ret);
