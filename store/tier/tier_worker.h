/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Runs a writer (tier_flush.h) in a thread of its own, so that the caller can end while the back end hangs. A thread that
 * waits for a filesystem cannot always be interrupted.
 *
 *	thread of the caller                                  thread of the worker
 *	tier_worker_open() ─────────────────────────────────▶ opens and probes the tier, opens a writer
 *	tier_worker_flush() ────────────────────────────────▶ tier_flush()
 *	  catalog() and read() of the checkpoint ◀──────────▶   requests records and chunks
 *	tier_worker_follow() ───────────────────────────────▶ tier_writer_follow()
 *	tier_worker_end(), _free(): wait a while, then
 *	  leave the worker behind
 *
 * Only the caller's thread uses the source, and only the worker's thread uses the back end. A worker that is left behind
 * uses only memory of its own. It ends when the back end answers, or with the process, which must then call _exit(2)
 * instead of exit(3). As after a crash, objects in the tier are whole, and a manifest is complete or absent.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/tier/flush/tier_flush.h"
#include "store/tier/tier_probe.h"

struct tier;
struct tier_worker;

struct tier_worker_conf {
	const char *url, *config_file; /* copied; the latter of tier_open(), or NULL */
	unsigned nr_in_flight; /* of tier_open() */
	/* In the thread of the worker. NULL: tier_open() with the URL. */
	int (*open)(const char *url, struct tier **ret);
	struct tier_writer_conf writer; /* its descriptor is duplicated */
};

/* Starts the thread. One thread, the caller, calls all functions below, except where noted. */
int tier_worker_new(const struct tier_worker_conf *conf, struct tier_worker **ret);
/*
 * Opens the tier and a writer, with a probe between them if `probe` is set. -EOPNOTSUPP: refused by the probe. `reason`
 * has the cause of a failure, for a message.
 */
int tier_worker_open(struct tier_worker *w, bool probe, char reason[TIER_PROBE_REASON_MAX]);
/* As of the writer; after a successful tier_worker_open(). */
void tier_worker_last(const struct tier_worker *w, struct tier_written *ret);
bool tier_worker_has(const struct tier_worker *w, uint64_t ino, int64_t sealed_ns);
bool tier_worker_was_removed(const struct tier_worker *w, uint64_t ino, int64_t sealed_ns);
/* tier_writer_follow() and tier_writer_generation() */
int tier_worker_follow(struct tier_worker *w);
uint64_t tier_worker_generation(const struct tier_worker *w);
/* tier_flush() */
int tier_worker_flush(struct tier_worker *w, const struct tier_checkpoint *c, struct tier_flushed *ret);
bool tier_worker_has_failed(const struct tier_worker *w); /* as of the writer */
/* Any thread: a call that waits for the worker now or later fails with -ECANCELED. */
void tier_worker_cancel(struct tier_worker *w);
/* tier_repeated_bytes(); also in read() of a checkpoint. */
uint64_t tier_worker_repeated_bytes(const struct tier_worker *w);
/* Any thread. How long a call has been waiting for the back end; 0: no call waits. */
uint64_t tier_worker_waits_ns(struct tier_worker *w);
/*
 * Ends the worker, which closes the writer and the tier, and waits for it: without a limit, or for patience_ns after a
 * cancellation. false: the worker has not ended.
 */
bool tier_worker_end(struct tier_worker *w, uint64_t patience_ns);
/* After tier_worker_end(). A worker that has not ended is left behind. NULL is fine. */
void tier_worker_free(struct tier_worker *w);
