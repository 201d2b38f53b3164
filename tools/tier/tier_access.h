/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Access to a tier for a command, without a mount. A shared directory may hang for hours, and a thread that waits for
 * it cannot always be interrupted. So a second thread does the work, and the first one shows progress and waits for
 * Ctrl-C. The threads of a pool read content.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/mutex.h"
#include "base/util.h"
#include "store/tier/reading/tier_cache.h"
#include "tools/common/progress.h"

struct tier;

struct tier_access_conf {
	const char *tool; /* for messages; borrowed, like the next two */
	const char *url;
	const char *config_file; /* NULL: none */
	uint64_t cache; /* bytes of memory for content */
	bool quiet; /* no progress */
};

struct tier_access {
	struct tier_access_conf conf; /* constant */
	struct tier *tier; /* constant while the work runs, like the next two */
	struct tier_pool *pool;
	struct tier_cache *cache;
	atomic_bool is_stopping; /* interrupted: work ends as soon as possible */
	_Atomic uint64_t done, all; /* bytes, for the progress bar; all 0: no bar */
	_Atomic(const char *) what; /* text of the progress bar */
	atomic_bool waits; /* the work calls the back end, and may hang */
	struct mutex lock; /* of output, and of all below; a leaf */
	struct cond changed;
	struct progress progress GUARDED_BY(lock);
	bool has_ended GUARDED_BY(lock);
	int (*work)(void *userdata);
	void *userdata;
	int result GUARDED_BY(lock);
};

/* Checks the URL and the credentials, and reports failures. Sends no request. */
int tier_access_open(const struct tier_access_conf *conf, struct tier_access *ret);
/*
 * Opens the tier and runs the work in another thread, and returns its result. -EINTR: interrupted; *ret_hangs: the
 * thread still waits for the tier, and the caller ends the process with _exit().
 */
int tier_access_run(struct tier_access *a, int (*work)(void *userdata), void *userdata, bool *ret_hangs);
/* false: threads hang in the tier, and the caller ends the process with _exit(). */
bool tier_access_close(struct tier_access *a);

/* --- for the work --- */

/* Calls `one` for each number below `nr`, in order, in several threads, until the first error. -EINTR: interrupted. */
int tier_access_each(struct tier_access *a, size_t nr, int (*one)(void *userdata, size_t i), void *userdata);
struct tier_waiter tier_access_waiter(struct tier_access *a);
/* Between these calls only this thread prints, and there is no progress bar. */
void tier_access_begin_output(struct tier_access *a) ACQUIRE(a->lock);
void tier_access_end_output(struct tier_access *a) RELEASE(a->lock);
/* Prints a message to standard error, with the name of the tool in front and a newline at the end. */
void tier_access_say(struct tier_access *a, const char *fmt, ...) _printf_(2, 3);
