/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A note in the store about its last manifest in the tier. It is durable before the manifest is put. The manifest has
 * that number, or a later one if the number was taken by the fence of a collection. If the tier has another seal at
 * this number or a later one, another machine with a copy of the store put it. Keep docs/format.md in step.
 *
 * A put whose answer was lost may take effect much later. The number is free until then, and the next attempt may put
 * another seal there. So the note has all seals that were tried since a manifest of an earlier number was found in the
 * tier. When the number is taken, the other puts find that, and have no effect.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "store/tier/flush/tier_flush.h"

struct buf;
struct engine;

#define FLUSH_NOTE_URL_MAX 4095u
#define FLUSH_NOTE_SEALS_MAX 64u

struct flush_note {
	char url[FLUSH_NOTE_URL_MAX + 1]; /* of the tier */
	uint64_t number;
	unsigned nr_seals; /* at least 1; the last one tried last */
	struct flush_note_seal {
		uint64_t ino;
		int64_t sealed_ns;
	} seals[FLUSH_NOTE_SEALS_MAX];
};

/*
 * Before a seal is tried; `number` is that of the last manifest of this store in the tier. If the note is full, the
 * seal that was tried first is dropped. Should its put still take effect after 64 others have failed, it is taken for
 * one of another machine, and flushing stops. A note without seals (`*n` is zeroed) becomes one about this tier.
 */
void flush_note_add(struct flush_note *n, const char *url, uint64_t number, uint64_t ino, int64_t sealed_ns);

void flush_note_encode(const struct flush_note *n, struct buf *ret);
int flush_note_decode(const void *p, size_t len, struct flush_note *ret); /* -EBADMSG */

int flush_note_load(struct engine *e, struct flush_note *ret); /* 1/0/<0 */
int flush_note_save(struct engine *e, const struct flush_note *n); /* durable on success */

/*
 * Did this machine put `last`, the last manifest of the store in the tier at `url`? 0: yes; -ENOTUNIQ: no; -ENOENT:
 * there is no note (`n` is NULL), or it is about another tier. Then the manifest must have a seal that is in the store.
 */
int flush_note_compare(const struct flush_note *n, const char *url, const struct tier_written *last);
