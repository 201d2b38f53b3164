/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Checkpoints of several stores, a tier in memory, and checks of what collections leave in it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/tier/collect/tier_collect.h"
#include "store/tier/collect/tier_log_format.h"
#include "store/tier/flush/tier_flush.h"
#include "tests/unit/store/tier/actors.h"
#include "tests/unit/store/tier/checkpoints.h"
#include "tests/unit/store/tier/memory.h"

#define STORES 3u
#define PER_WRITER 4u
#define CHECKPOINTS_MAX (ACTORS_MAX * PER_WRITER + STORES)

struct rig {
	struct world w;
	struct pool pool;
	struct checkpoint all[CHECKPOINTS_MAX];
	const struct checkpoint *known[CHECKPOINTS_MAX];
	bool is_acknowledged[CHECKPOINTS_MAX];
	uint8_t store[CHECKPOINTS_MAX];
	unsigned nr;
	struct writer_actor {
		struct rig *rig;
		uint8_t store;
		unsigned first; /* of PER_WRITER checkpoints */
		int store_dirfd; /* -1: without an index */
	} writers[ACTORS_MAX];
	unsigned nr_writers;
	char dir[64]; /* of the indexes */
};

void rig_no_log(void);
struct tier_writer_conf rig_conf(uint8_t store);
/* The marks of the last generation; false: there is none. */
bool rig_last_marks(struct memory *m, struct tier_marks *ret);
bool rig_is_valid(const struct tier_marks *marks, const uint8_t *store, uint64_t number);
void rig_add(struct rig *rig, uint8_t store, bool is_small);
struct rig *rig_new(uint64_t seed);
void rig_free(struct rig *rig);
/* What is shown is there byte for byte. Returns the number of checkpoints. */
unsigned rig_check_content(struct rig *rig);
int rig_collect_with(struct tier *t, unsigned keep, const struct tier_collect_conf *conf);
int rig_collect(struct tier *t, unsigned keep);
/* After the actors have ended. */
void rig_check_end(struct rig *rig);
unsigned rig_remove_one(struct tier *t, uint64_t ino);
int rig_flush(struct rig *rig, struct tier_writer *w, unsigned i);
unsigned rig_nr_packs(const struct memory *m);
size_t rig_nr_objects(struct rig *rig, const char *prefix);
