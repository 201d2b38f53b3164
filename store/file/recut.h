/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A stage that is chunked by content. All calls hold the lock of the file. */
#pragma once

#include "store/file/content_state.h"
#include "store/pack/pack.h"

struct engine_buffer;
struct job;

/* number of bytes at off that it accepts; 0: none */
uint32_t recut_takes(const struct content *c, uint64_t off, size_t len);
bool recut_is_full(const struct content *c, uint64_t off); /* full, and a write at off would continue it */
/* Set c->stage_base, _start and _end for a write at off. No job of c may overlap the RECUT_FRONT bytes before it. */
#define RECUT_FRONT PACK_VARIED_LEN_MAX
void recut_begin(struct content *c, struct engine_buffer *b, uint64_t off) REQUIRES(c->lock);
/* Make a job of its whole chunks, not submitted yet; the rest continues in `b`. NULL: no memory, nothing changed. */
struct job *recut_advance(struct content *c, struct engine_buffer *b) REQUIRES(c->lock);
/* Make a job of all of it, which takes the buffer; c->stage is unchanged. Call recut_wait() first, which may drop the
 * lock. */
void recut_wait(struct content *c) REQUIRES(c->lock);
struct job *recut_finish(struct content *c) REQUIRES(c->lock);
