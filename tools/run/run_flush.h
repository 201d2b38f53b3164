/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Copies the sealed checkpoints of a mount to another filesystem, the newest first. One thread.
 *
 * Each becomes a directory with the same path below `to`, complete or absent:
 *
 *   1. copy to .NAME.ckptfs-SEALED beside it (run_copy.h)   crash: left there; the next flush of this seal resumes it
 *   2. sync, read back and compare each file
 *   3. rename to NAME, never replacing anything, and sync   COMMIT POINT
 *
 * SEALED is the time of the seal: a directory that was unsealed, changed and sealed again is a different one. What a
 * flush of the former one has left stays: nothing tells it from the copy of another mount with this destination. An
 * existing NAME with the names, sizes and times of the sealed directory counts as its copy; any other is left alone and
 * reported.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seals;

struct run_flush {
	const char *mountpoint, *to; /* borrowed */
	bool (*go_on)(void *userdata); /* false: stop where the copy can be resumed */
	void *userdata;
};

/* 0: all are copied; -ETIME: stopped; <0: some are not. Errors are reported. */
int run_flush_seals(const struct run_flush *d, const struct seals *e);
