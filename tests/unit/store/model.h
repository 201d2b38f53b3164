/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A few files of a store and, beside them, what they should hold, in memory: random changes go to both, and both must
 * always read alike. A test mixes the changes as its subject asks; all of them follow from the seed.
 */
#pragma once

#include "tests/unit/store/rig.h"

#define MODEL_FILES 3u
#define MODEL_SPACE MiB(4) /* a file's size at most */

struct model {
	struct rig *rig;
	uint8_t *bytes[MODEL_FILES];
	size_t size[MODEL_FILES];
	unsigned seed;
};

/* What is written: one of `long_each` pieces is up to 1.5 MB, the others up to `short_max` bytes. */
struct model_writes {
	unsigned long_each, short_max;
	unsigned zeros, copies, others; /* parts of all: holes, bytes that are elsewhere already, one of 50 patterns */
};

void model_start(struct model *m, unsigned seed); /* with empty files */
void model_finish(struct model *m); /* compares all files, and drops them */
unsigned model_some(struct model *m, unsigned below);

uint64_t model_ino(unsigned f);
void model_grow(struct model *m, unsigned f, size_t size); /* in memory only, if it is smaller */
void model_write(struct model *m, unsigned f, struct content *c, const struct model_writes *writes);
void model_truncate(struct model *m, unsigned f, struct content *c, size_t size);
void model_punch(struct model *m, unsigned f, struct content *c, size_t off, size_t len);
void model_check(struct model *m, unsigned f);
