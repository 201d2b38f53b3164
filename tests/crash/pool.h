/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Many numbered cases over a few processes. A case that fails, crashes or hangs ends the run and is named; one
 * whose process is killed from outside (SIGKILL) is begun again, once. RocksDB's threads do not survive fork: the
 * caller must not have opened a store before.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define POOL_JOBS_MAX 64

enum pool_verdict { POOL_WRONG, POOL_RIGHT, POOL_ENOUGH /* right, and no more cases are wanted */ };

struct pool {
	const char *scratch; /* directory for notes */
	int jobs;
	bool keep_going; /* after a wrong case */
	uint64_t first, end; /* cases [first, end) */
	/* In worker `me`. What it writes to `to`, and the engine's log, is shown if it fails. */
	enum pool_verdict (*run)(void *userdata, int me, uint64_t nr, FILE *to);
	/* On stdout: what case `nr` is, and how to run it alone. */
	void (*describe)(void *userdata, int me, uint64_t nr);
	void *userdata;
};

bool pool_run(const struct pool *p); /* tells on stdout */
/* Run one function in a process of its own: one that opens stores in a process that must not. */
bool pool_apart(bool (*run)(void *userdata), void *userdata);
int pool_jobs(void); /* one per CPU, at most POOL_JOBS_MAX / 8 */
