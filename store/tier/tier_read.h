/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reading a checkpoint of a tier, on a machine that has nothing else: its catalog (store/catalog), and its chunks by
 * fingerprint. Everything is checked: manifest and tables by their digests, chunks by their fingerprints.
 *
 * A reader belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "store/tier/tier_format.h"

struct tier;
struct tier_reader;

/* `name`: of a manifest. -ENOENT: there is none; -EBADMSG: damaged. Gets manifest and key. */
int tier_reader_open(struct tier *t, const char *name, struct tier_reader **ret);
void tier_reader_close(struct tier_reader *r); /* NULL is fine */
void tier_reader_closep(struct tier_reader **r);
const struct tier_manifest *tier_reader_manifest(const struct tier_reader *r);
const struct fp_key *tier_reader_key(const struct tier_reader *r);

/* Receives the bytes of the catalog in order, whole records. A negative result ends it. */
struct tier_sink {
	int (*put)(void *userdata, const void *p, size_t len);
	void *userdata;
};
/*
 * Expand the catalog, as it was when the checkpoint was flushed. Gets the tables of all packs, each once, and keeps
 * them.
 */
int tier_reader_catalog(struct tier_reader *r, const struct tier_sink *to);

/* A chunk, and where its bytes go. */
struct tier_want {
	struct fp fp;
	uint32_t len;
	void *buf;
};
/*
 * Chunks of the catalog, which has been expanded. Those that lie side by side in a pack are read with one request of up
 * to 4 MiB, 16 at once; into the buffers directly if these lie side by side, too. -EBADMSG: one of them is damaged;
 * -EINVAL: is none of the catalog.
 */
int tier_reader_chunks(struct tier_reader *r, const struct tier_want *wants, size_t nr);
/* The tables of pack number i of the manifest. Borrowed until they are dropped or the reader is closed. */
int tier_reader_tables(struct tier_reader *r, uint32_t i, const struct tier_tables **ret);
void tier_reader_drop_tables(struct tier_reader *r, uint32_t i);
