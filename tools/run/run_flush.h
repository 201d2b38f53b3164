/*
 * The sealed directories of a mount, and bringing them elsewhere in the order of what they are worth: the newest first.
 * One thread.
 *
 * Each becomes a directory with the same path below `to`, complete or absent. The order that makes it so:
 *
 *   1. copied into .NAME.ckptfs-SEALED beside it (run_copy.h)   whoever dies leaves it; the next drain of the same seal goes on with it
 *   2. synced, read back and compared, file by file
 *   3. renamed to NAME, never over anything, and that synced     before it nothing, after it everything
 *
 * SEALED is the time of the seal: a directory that was unsealed, changed and sealed again is another one. A NAME that
 * is there and has the names, sizes and times of the sealed directory is taken for it; any other is left alone, and
 * told.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seals;

struct run_flush {
	const char *mountpoint, *to; /* borrowed */
	bool (*go_on)(void *userdata); /* false: stop as soon as it can be gone on with */
	void *userdata;
};

/* 0 all are there; -ETIME stopped; <0 one or more are not, which has been told. */
int run_flush_seals(const struct run_flush *d, const struct seals *e);
