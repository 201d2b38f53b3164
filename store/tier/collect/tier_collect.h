/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Removes checkpoints from a tier, and packs that no checkpoint needs. Any machine may flush, read or collect at the
 * same time, and the process may end after any request. tier_collect.c says why this is safe.
 *
 * The packs of a removed checkpoint are deleted by the next collection.
 *
 * A collector belongs to one thread, which waits for the back end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/tier/tier_format.h"

struct tier;
struct tier_collector;

struct tier_collect_conf {
	bool read_tags; /* set tier_sealed.is_tagged: reads whole manifests */
	/* Continue without manifests that are missing: their checkpoints are removed. */
	bool forget_missing;
	/* Called between requests. false: the call returns -ECANCELED. NULL: not called. */
	bool (*step)(void *userdata, const char *what, uint64_t done, uint64_t total);
	void *userdata;
};

/* A checkpoint in the tier. */
struct tier_sealed {
	uint8_t store[TIER_ID_LEN];
	uint64_t number, ino;
	int64_t sealed_ns;
	uint64_t bytes; /* of its files */
	uint32_t uid; /* owner of its directory */
	char *path; /* from the root of the store */
	bool is_tagged; /* its directory has the attribute user.tag */
	/* Set by the caller between tier_collector_open() and tier_collector_mark(): */
	bool is_removed;
	bool is_relied_on; /* others are removed because this one is kept: all of its packs must be whole */
};

struct tier_collect_figures {
	uint64_t nr_kept, nr_removed; /* checkpoints */
	uint64_t nr_packs, pack_bytes; /* needed by those that are kept */
	uint64_t nr_pending, pending_bytes; /* needed by none: the next collection may delete them */
	uint64_t nr_dropped, dropped_bytes; /* needed by none, as in the collection before: deleted by this one */
	uint64_t nr_deleted, deleted_bytes; /* packs */
	uint64_t nr_fences;
};

/* Lists the checkpoints. Changes nothing. -EBADMSG: a manifest or the log is damaged or missing, which is logged. */
int tier_collector_open(struct tier *t, const struct tier_collect_conf *conf, struct tier_collector **ret);
void tier_collector_close(struct tier_collector *c); /* NULL is fine */
void tier_collector_closep(struct tier_collector **c);
/* By store, and by number. Owned by the collector. */
struct tier_sealed *tier_collector_sealed(struct tier_collector *c, size_t *ret_nr);
/*
 * Finds the packs that no kept checkpoint needs. Changes nothing. -EBADMSG: one that a kept checkpoint needs is
 * missing, or one of a checkpoint that is relied on is damaged.
 */
int tier_collector_mark(struct tier_collector *c);
/*
 * After tier_collector_mark(): removes checkpoints, and deletes packs. -EBUSY: another collection has begun since this
 * one was opened; perhaps nothing was done.
 */
int tier_collector_delete(struct tier_collector *c);
void tier_collector_figures(const struct tier_collector *c, struct tier_collect_figures *ret);
