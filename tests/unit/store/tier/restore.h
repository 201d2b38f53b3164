/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A checkpoint of a tier as the store had it: its catalog (store/catalog), and its chunks by fingerprint. A mounted tier
 * reads it in another way (store/tier/reading), so this is a second reader of the format: tests compare what was flushed
 * with what it finds. Everything is checked: manifest and tables by their digests, chunks by their fingerprints.
 */
#pragma once

#include <stddef.h>

#include "store/tier/flush/tier_flush.h"

struct tier;
struct tier_reader;
struct restore;

/* As tier_reader_open(). */
int restore_open(struct tier *t, const char *name, struct restore **ret);
void restore_close(struct restore *r); /* NULL is fine */
void restore_closep(struct restore **r);
const struct tier_manifest *restore_manifest(const struct restore *r);
struct tier_reader *restore_reader(const struct restore *r);
/*
 * Expand the catalog, as it was when the checkpoint was flushed. Gets the tables of all packs, each once, and keeps
 * them.
 */
int restore_catalog(struct restore *r, const struct tier_sink *to);
/*
 * Chunks of the catalog, which has been expanded. Those that lie side by side in a pack are read with one request of up
 * to 4 MiB, 16 at once; into the buffers directly if these lie side by side, too. -EBADMSG: one of them is damaged;
 * -EINVAL: is none of the catalog.
 */
int restore_chunks(struct restore *r, const struct tier_want *wants, size_t nr);
