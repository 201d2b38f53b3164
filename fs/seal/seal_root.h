/*
 * The root of a sealed directory: one SHA-256 over all names below it, their attributes and their content, as a Merkle
 * tree (docs/format.md, section 5). Two directories of equal roots are equal.
 *
 * Content goes in as the fingerprints of its chunks, so nothing is read but recipes and tables. Hence the root is the
 * store's own, or of all stores that have the same cluster's key, and content that was cut in another way has another
 * one. Fingerprints are not to be seen in it.
 */
#pragma once

#include <stdint.h>

#include "base/sha256.h"

struct fs;

/*
 * Of a directory in which nothing changes, since it is sealed; else -ESTALE, or something without a meaning. Takes no
 * lock for longer than a look-up; memory for 48 bytes per directory and 32 per name of one directory.
 */
int seal_root(struct fs *fs, uint64_t dir, struct sha256_digest *ret);
