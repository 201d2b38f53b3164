/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The store's note about the manifest that it puts, or has put, last. It is durable before the manifest is put. So a
 * tier in which this store has a later manifest, or another one of this number, was written by another machine with a
 * copy of the store, even if it has ended since. docs/format.md changes with this.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "store/tier/tier_flush.h"

struct buf;
struct engine;

#define FLUSH_NOTE_URL_MAX 4095u

struct flush_note {
	char url[FLUSH_NOTE_URL_MAX + 1]; /* of the tier */
	struct tier_written last;
};

void flush_note_encode(const struct flush_note *n, struct buf *ret);
int flush_note_decode(const void *p, size_t len, struct flush_note *ret); /* -EBADMSG */

int flush_note_load(struct engine *e, struct flush_note *ret); /* 1/0/<0 */
int flush_note_save(struct engine *e, const struct flush_note *n); /* durable on success */

/*
 * `last` is in the tier at `url`. Is it the work of this store? `n`: NULL if there is none. -ENOENT: the note does not
 * say, since it is of another tier: it is if that seal is in the store. -ENOTUNIQ: no.
 */
int flush_note_compare(const struct flush_note *n, const char *url, const struct tier_written *last);
