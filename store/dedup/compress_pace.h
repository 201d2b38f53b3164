/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Decides by experiment whether there is time to compress. While nothing waits there is, until something starts to
 * wait. While writers wait repeatedly, stretches with and without compression are timed, and the faster way is kept:
 * compressing if the disk is the bottleneck, not compressing if the processors are. The other way is tried again from
 * time to time, less often the longer it has been slower.
 *
 * Only time with work to do counts (`busy_ns`): pauses between checkpoints would make both ways look alike. Stretches
 * continue from one checkpoint to the next, so that small checkpoints also reach a result.
 *
 * Other users of disk and processors may slow down one way while it is being timed and make the other look better.
 * Compressing therefore starts with a trial only, and lasts twice as long each time the next trial without it confirms
 * the result.
 *
 * That nothing waits right now means little: the next frame might have to wait for a compressed one. Hence
 * PACE_CALM_NS.
 *
 * Pure: the caller provides clocks and locking.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/pack/pack.h"

#define PACE_TRIAL ((uint64_t)12 << 20) /* several times the data that the threads hold */
/* uncompressed bytes before the first trial: a trial that takes three times as long costs a tenth of that */
#define PACE_FIRST ((uint64_t)256 << 20)
/* uncompressed bytes until the next trial; doubled each time, up to PACE_PLAIN_MAX */
#define PACE_PLAIN ((uint64_t)1 << 30)
#define PACE_PLAIN_MAX ((uint64_t)16 << 30)
#define PACE_COMPRESSED PACE_TRIAL /* the same for compressed bytes: an error in this direction costs more */
#define PACE_COMPRESSED_MAX ((uint64_t)256 << 20)
#define PACE_CALM_NS UINT64_C(200000000) /* without waiting threads for this long: there is time */
#define PACE_SLOWER_PERCENT 3u /* compressing may be this much slower, in return for the space */

/* Initialized with zeros. */
struct pace {
	bool compresses, tries; /* the current way, and whether it is a trial */
	bool calm; /* nothing has waited for PACE_CALM_NS */
	uint64_t behind_ns; /* last time something waited */
	uint64_t goal; /* bytes of this stretch; 0: before the first one */
	uint64_t bytes, start_ns; /* bytes of the stretch so far; busy time at its start */
	uint64_t calm_ns; /* busy time when it became calm */
	uint64_t interval; /* between trials */
	uint64_t rate[2]; /* bytes per second without and with compression; 0: unknown */
};

/* Is there time to compress the next `bytes`? `behind`: other threads wait. `busy_ns` advances only while there is
 * work. */
enum pack_time pace_step(struct pace *p, bool behind, uint64_t now_ns, uint64_t busy_ns, uint32_t bytes);
/* A thread waits for work that was begun in spare time. */
void pace_disturbed(struct pace *p, uint64_t now_ns, uint64_t busy_ns);
