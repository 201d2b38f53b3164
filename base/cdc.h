/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Content-defined chunks: where bytes are cut depends on the bytes alone, so that data which has moved is
 * cut at the same places again. Pure: no I/O, no allocation, no lock, no state between calls.
 *
 * A position is a place to cut if two functions of the bytes before it say so, the first cheap enough for
 * 16 or 32 positions at once (docs/decisions/chunking.md, "Content-defined cuts at many positions at once").
 * The cuts are part of no format, but stores share less where they change: tests pin them, equal on every
 * architecture.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In bytes. No chunk is shorter than min, save the last of a stream, or longer than max. */
struct cdc_params {
	uint32_t min, avg, max;
};

#define CDC_PARAMS_DEFAULT ((struct cdc_params){ .min = 512, .avg = 4096, .max = 32768 })

/* 256 <= min, 2 min <= avg, 2 avg <= max <= 1 MiB. */
bool cdc_params_valid(const struct cdc_params *p);
/* The same; logs and returns -EINVAL otherwise. */
int cdc_params_check(const struct cdc_params *p);

/* Immutable once initialised, shared by all threads. */
struct cdc {
	struct cdc_params params;
	/* Criteria for a cut, which depend on the length of the chunk: cdc_scan.h. */
	uint32_t easy_from, any_from;
	uint32_t hard_below, easy_below;
	int8_t mark_above;
	size_t (*scan)(const struct cdc *c, const uint8_t *p, size_t end);
};

/* The params have been checked. Chooses the fastest code for this processor; all give the same cuts. */
void cdc_init(struct cdc *c, const struct cdc_params *p);

/*
 * Length of the first chunk of p, which begins behind a cut; 0 if more bytes are needed, which never happens with len
 * >= max. To cut a stream, use a buffer of at least max bytes: on 0 append more and call again (the same bytes are
 * scanned again), and at the end of the stream the rest is the last chunk. A cut does not depend on bytes behind it:
 * after a change, recutting starts with the chunk of the first changed byte, and may end at the first old cut behind
 * the last one.
 */
size_t cdc_cut(const struct cdc *c, const void *p, size_t len);
