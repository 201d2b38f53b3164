/*
 * Whether compressing makes writers slower, found out by trying. Data that nobody waits for is compressed. As long as writers wait,
 * stretches with and without compression are timed, and the faster way is kept: where the disk is what is slow it is to
 * compress, where the processors are it is not. Now and then the other way is tried again, the rarer the longer it has been worse:
 * a trial of PACE_TRIAL bytes in PACE_FIRST is what a wrong way can cost.
 *
 * Pure: the caller brings the clock and the lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define PACE_TRIAL ((uint64_t)24 << 20)
#define PACE_FIRST ((uint64_t)1 << 30) /* until the next trial; then twice as much each time, up to */
#define PACE_LAST ((uint64_t)16 << 30)
#define PACE_SLOWER_PERCENT 3u /* compressing may be, for what it saves */

/* All zeros at the beginning. */
struct pace {
	bool compresses, tries; /* what is done now, and whether that is a trial */
	uint64_t goal; /* bytes of this stretch; 0: the very first */
	uint64_t bytes, start_ns; /* of it so far */
	uint64_t interval;
	uint64_t rate[2]; /* bytes per second, without and with; 0: not known */
};

/* Shall the next `bytes` be compressed? `behind`: others wait. */
bool pace_step(struct pace *p, bool behind, uint64_t now_ns, uint32_t bytes);
