/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Elements of every kind that a coder might trip over, and all ways to code. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/codec/code.h"

enum pattern {
	ZEROS,
	ONES, /* all bits */
	SMOOTH, /* a sine in the type of the elements */
	COUNTING, /* integers that grow, and wrap */
	NANS, /* quiet and signalling, with payloads, of both signs */
	DENORMALS, /* the smallest there are, of both signs */
	EDGES, /* 0, -0, infinities, the largest, in turn */
	SINGLE_BITS,
	NOISE,
	NR_PATTERNS
};

/* len bytes of elements of this type. */
void fill_pattern(enum pattern pattern, struct code_type type, uint8_t *p, size_t len);

/* All combinations of steps that are valid for a type: 1/0. Start with *at = 0. */
int next_spec(struct code_type type, unsigned *at, struct coder_spec *ret);

/* For a test that has so many bytes, of which the first are a struct code_work *. */
int work_rig_new(void **state, size_t size);
int work_rig_free(void **state);

static const struct code_type all_types[] = {
	{ CODE_BYTES, 1, false }, { CODE_INT, 1, false },    { CODE_INT, 2, false },   { CODE_INT, 4, true },
	{ CODE_UINT, 4, false },  { CODE_UINT, 8, false },   { CODE_INT, 8, true },    { CODE_FLOAT, 2, false },
	{ CODE_FLOAT, 2, true },  { CODE_BFLOAT, 2, false }, { CODE_FLOAT, 4, false }, { CODE_FLOAT, 4, true },
	{ CODE_FLOAT, 8, false }, { CODE_FLOAT, 8, true },
};
