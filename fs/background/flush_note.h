/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A note in the store about its last manifest in the tier. It is durable before the manifest is put. The manifest has
 * that number, or a later one if the number was taken by the fence of a collection. If the tier has another seal at
 * this number or a later one, another machine with a copy of the store put it. Keep docs/format.md in step.
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
 * Did this machine put `last`, the last manifest of the store in the tier at `url`? 0: yes; -ENOTUNIQ: no; -ENOENT: there
 * is no note (`n` is NULL), or it is about another tier. Then the manifest must have a seal that is in the store.
 */
int flush_note_compare(const struct flush_note *n, const char *url, const struct tier_written *last);
