/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The root of a sealed directory: one SHA-256 over all names below it, their attributes and their content, as a Merkle
 * tree (docs/format.md, section 5). Two directories with equal roots are equal.
 *
 * Content is included as the fingerprints of its chunks, so only recipes and tables are read. Hence a root is
 * comparable only within a store, or among stores that share a cluster key, and the same content cut into other chunks
 * has another root. Fingerprints cannot be derived from it.
 */
#pragma once

#include <stdint.h>

#include "base/sha256.h"

struct fs;

/*
 * Root of a directory that cannot change because it is sealed; else -ESTALE or a meaningless digest. Takes no lock for
 * longer than a look-up. Memory: 48 bytes per directory and 32 per name of one directory.
 */
int seal_root(struct fs *fs, uint64_t dir, struct sha256_digest *ret);
