/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Computes the root of a seal (docs/format.md, section 5) from the manifest of a checkpoint, and tables of its packs. */
#pragma once

#include <stdint.h>

#include "base/sha256.h"

struct tier_source;
struct tier_tree;
struct tier_waiter;

/*
 * `sealed`: the root in the manifest. If `ret` is equal and the chunks match their fingerprints, the checkpoint is what
 * was sealed. Errors as of tier_source_tables().
 */
int tier_root(const struct tier_tree *tree, struct tier_source *source, const uint8_t sealed[SHA256_LEN],
	      const struct tier_waiter *w, uint8_t ret[SHA256_LEN]);
