/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A store with known content, made once and put back as often as wanted.
 *
 * It is made by a workload (tests/crash/workload.h) in a process of its own, closed or killed at the end, and taken
 * into memory. `stamp` writes it out again, byte for byte.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "store/engine.h"
#include "tests/crash/oplog.h"
#include "tests/crash/states.h"
#include "tests/crash/workload.h"

#define RIG_TOP "a" /* the directory of the workload */

struct rig {
	struct workload *work;
	uint64_t acked; /* operations that were acknowledged; all of them if it was closed */
	char base[128]; /* directory that holds the store as it was made, at base/store */
	struct oplog log;
	struct states *states;
	struct state *state;
};

/* killed: the process is gone after the last sync without closing. */
int rig_init(struct rig *rig, const char *scratch, const char *name, uint64_t seed, size_t nr_ops, bool killed);
void rig_release(struct rig *rig);
int rig_stamp(const struct rig *rig, const char *dir); /* dir/store, emptied before */
/* Open with plain settings, and tiny steps (tree_conf()) as well. */
struct engine_conf rig_conf(void);
const char *rig_final(const struct rig *rig); /* the tree at the end */
