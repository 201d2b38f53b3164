/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Flushing to a tier in memory, for the tests of this folder. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/tier/flush/tier_flush.h"
#include "store/tier/tier.h"
#include "tests/unit/store/tier/checkpoints.h"
#include "tests/unit/store/tier/memory.h"

extern char flush_logged[1000]; /* the last line, after flush_rig_log() */
void flush_rig_log(void); /* from here on lines of the log go there */

struct tier_writer_conf flush_conf(void);
/* One writer's life. */
int flush_once(struct tier *t, const struct checkpoint *c, struct tier_flushed *ret);
/* How many of the two are complete. Fails if one is neither complete nor absent. */
unsigned flush_check(struct memory *m, const struct checkpoint *a, const struct checkpoint *b);
size_t flush_nr_packs(const struct memory *m);
bool flush_has_manifest(const struct memory *m, uint64_t number);

void memory_replace(struct memory *m, const char *name, const void *data, size_t len);
void memory_delete_all(struct memory *m, const char *prefix);
