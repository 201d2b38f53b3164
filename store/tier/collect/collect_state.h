/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A collection. For the files of store/tier/collect alone:
 *   tier_collect.c       why it is safe; opening; requests
 *   collect_manifests.c  1: valid manifests
 *   collect_packs.c      2: packs that no kept manifest names
 *   collect_marks.c      3 and 4: the generation
 *   collect_delete.c     5 to 7: fences, deletions
 */
#pragma once

#include "base/buf.h"
#include "store/tier/collect/pack_set.h"
#include "store/tier/collect/tier_collect.h"
#include "store/tier/collect/tier_log.h"
#include "store/tier/tier.h"

#define COLLECT_IN_FLIGHT 16u

struct collect_store {
	uint8_t id[TIER_ID_LEN];
	uint64_t listed; /* largest number in the list */
	uint64_t base; /* all numbers up to this one have been used */
	struct tier_sealed last; /* its manifest with the largest number */
};

struct tier_collector {
	struct tier *tier;
	struct tier_collect_conf conf;
	struct tier_queue *queue;
	struct tier_log log;
	uint64_t generation; /* that the marks are made from */
	struct buf names; /* of the list of manifests */
	struct collect_store *stores; /* sorted by id */
	size_t nr_stores, stores_room;
	struct tier_sealed *sealed; /* sorted by store and number */
	size_t nr_sealed, sealed_room;
	struct pack_set needed; /* by kept manifests */
	struct pack_set relied; /* by kept ones because of which others are removed */
	struct pack_set removed; /* by those that are not kept */
	struct pack_set dropped, pending;
	struct tier_collect_figures figures;
};

/* Reports progress. false: the collection is cancelled. */
bool collector_step(struct tier_collector *c, const char *what, uint64_t done, uint64_t total);
/* Logs what to do with a manifest that cannot be read, and returns the error. */
int collector_complain(const struct tier_collector *c, const char *name, int r);
int collector_busy(const struct tier_collector *c); /* -EBUSY */
/* Runs the requests, several at a time. The caller evaluates their results. */
int collector_run_all(struct tier_collector *c, struct tier_request *v, size_t nr, const char *what);
/* -ENODATA: a fence. */
int collector_get_manifest(struct tier_collector *c, const uint8_t store[TIER_ID_LEN], uint64_t number,
			   struct buf *bytes, struct tier_manifest *ret);

/* collect_manifests.c: finds the stores, and reads the heads of their valid manifests, and tags. */
int collect_read_manifests(struct tier_collector *c);
int collect_add_store(struct tier_collector *c, const uint8_t id[TIER_ID_LEN]); /* unless there is one */
/* collect_marks.c: puts the marks, and appends the generation to the log. */
int collect_append_generation(struct tier_collector *c);
