/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A writer (tier_flush.h) in a thread of its own, for a caller that must be able to end while the back end hangs. A
 * thread that waits for a filesystem cannot always be interrupted.
 *
 *	thread of the caller                                  thread of the worker
 *	tier_worker_open() ─────────────────────────────────▶ opens and probes the tier, opens a writer
 *	tier_worker_flush() ────────────────────────────────▶ tier_flush()
 *	  catalog() and read() of the checkpoint ◀──────────▶   asks for records, and for chunks
 *	tier_worker_end(), _free(): waits a while, then
 *	  leaves it behind
 *
 * The source is used by the thread of the caller only, and the back end by that of the worker only. One that is left
 * behind has memory of its own only; it ends when the back end answers, or with the process, which must then not run
 * what exit(3) runs. What it had put by then is whole, and a manifest is complete or absent, as after a crash.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/tier/tier_flush.h"
#include "store/tier/tier_probe.h"

struct tier;
struct tier_worker;

struct tier_worker_conf {
	const char *url, *config_file; /* copied; the latter of tier_open(), or NULL */
	/* In the thread of the worker. NULL: tier_open() with the URL. */
	int (*open)(const char *url, struct tier **ret);
	struct tier_writer_conf writer;
};

/* Starts the thread. All of the following but tier_worker_cancel() belong to one thread, the caller's. */
int tier_worker_new(const struct tier_worker_conf *conf, struct tier_worker **ret);
/*
 * Opens the tier and a writer, with a probe between them if `probe` is set. -EOPNOTSUPP: refused by the probe. `reason`
 * says for a person why it failed.
 */
int tier_worker_open(struct tier_worker *w, bool probe, char reason[TIER_PROBE_REASON_MAX]);
/* As of the writer; after a successful tier_worker_open(). */
void tier_worker_last(const struct tier_worker *w, struct tier_written *ret);
bool tier_worker_has(const struct tier_worker *w, uint64_t ino, int64_t sealed_ns);
/* tier_flush() */
int tier_worker_flush(struct tier_worker *w, const struct tier_checkpoint *c, struct tier_flushed *ret);
/* Any thread: a call that waits for the worker now or later fails with -ECANCELED. */
void tier_worker_cancel(struct tier_worker *w);
/* Any thread. For how long a call has been waiting for the back end; 0: none does. */
uint64_t tier_worker_waits_ns(struct tier_worker *w);
/*
 * Has the worker close everything, and waits until it has; once it is cancelled, for patience_ns more. false: it has not
 * ended.
 */
bool tier_worker_end(struct tier_worker *w, uint64_t patience_ns);
/* After tier_worker_end(). Leaves the worker behind if it has not ended. NULL is fine. */
void tier_worker_free(struct tier_worker *w);
