/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The manifest of a checkpoint in a tier, its key, and the tables of its packs. Everything is checked: the manifest and
 * tables by their digests.
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

/* The tables of pack number i of the manifest. Borrowed until the reader is closed. */
int tier_reader_tables(struct tier_reader *r, uint32_t i, const struct tier_tables **ret);
