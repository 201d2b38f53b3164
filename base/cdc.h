/*
 * Content-defined chunks: where bytes are cut depends on the bytes alone, so that data which has moved is
 * cut at the same places again. Pure: no I/O, no allocation, no lock, no state between calls.
 *
 * A position is a place to cut if two functions of the bytes before it say so, the first cheap enough for
 * 16 or 32 positions at once (docs/decisions/008-cutting-by-content.md). The cuts are part of nobody's
 * format, but stores share less where they change: tests pin them, on every architecture the same.
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
	/* What the scan asks of a place to cut, which depends on how long the chunk would be: cdc_scan.h. */
	uint32_t easy_from, any_from;
	uint32_t hard_below, easy_below;
	int8_t mark_above;
	size_t (*scan)(const struct cdc *c, const uint8_t *p, size_t end);
};

/* The params have been checked. Chooses the fastest code for this processor; all give the same cuts. */
void cdc_init(struct cdc *c, const struct cdc_params *p);

/*
 * Length of the first chunk of p, which begins behind a cut; 0 if the len bytes do not tell. They always
 * tell when len >= max. So a stream is cut with a buffer of max bytes or more: on 0 append more and ask again
 * (what was scanned is scanned again), and at the end of the stream the rest is the last chunk. A cut depends on
 * nothing behind it: where bytes change, cutting anew begins with the chunk that has the first of them, and may end
 * at the first cut behind the last of them that was one before.
 */
size_t cdc_cut(const struct cdc *c, const void *p, size_t len);
/* The same until the bytes do not tell, or `cap` times: where each chunk ends, from p. Returns their number. */
size_t cdc_cut_all(const struct cdc *c, const void *p, size_t len, size_t cap, size_t *ret_ends);
