/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What tests of deltas share: bytes that follow from a seed, a key, fingerprints of bytes in memory, stored inputs. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "base/buf.h"
#include "gpu/format/delta_format.h"
#include "gpu/format/leaf_hash.h"

extern const uint8_t rig_key[LEAF_KEY_LEN]; /* 00 01 ... 1f */

uint64_t rig_random(uint64_t *seed);
void rig_noise(uint64_t *seed, uint8_t *p, size_t len);
struct digest rig_fingerprint(const struct leaf_key *k, const void *p, size_t len, uint32_t chunk_len);

#define assert_digest_equal(a, b)                    \
	do {                                         \
		struct digest _a = (a), _b = (b);    \
		assert_int_equal(_a.lo, _b.lo);      \
		assert_int_equal(_a.hi, _b.hi);      \
	} while (0)

/* A stored object, and what must come of it. */
struct rig_input {
	char expect[16]; /* an errno's name, "ok", or nothing */
	struct buf object, regions; /* regions: a line each, as rig_region() makes them */
};

void rig_input_load(struct rig_input *in, const char *path);
void rig_input_release(struct rig_input *in);
/* Adds a line for it: its kind, where it is, and where its bytes come from. */
void rig_region(struct buf *lines, const struct delta_region *r);
