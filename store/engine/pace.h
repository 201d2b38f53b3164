/*
 * Whether compressing makes writers slower, found out by trying. Data that nobody waits for is compressed. As long as
 * writers wait again and again, stretches with and without compression are timed, and the faster way is kept: where
 * the disk is what is slow it is to compress, where the processors are it is not. Now and then the other way is tried
 * again, the rarer the longer it has been worse: a trial of PACE_TRIAL bytes in PACE_PLAIN is what trying can cost.
 *
 * That nobody waits at this moment tells little: a compressed frame would be what the next one waits for. Hence
 * PACE_CALM_NS.
 *
 * Pure: the caller brings the clock and the lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define PACE_TRIAL ((uint64_t)12 << 20) /* some times what the threads have in their hands */
#define PACE_FIRST ((uint64_t)64 << 20) /* without, before the first trial */
/* without compression until the next trial; then twice as much each time, up to */
#define PACE_PLAIN ((uint64_t)1 << 30)
#define PACE_PLAIN_MAX ((uint64_t)16 << 30)
#define PACE_COMPRESSED ((uint64_t)128 << 20) /* likewise with: an error in this direction costs more */
#define PACE_COMPRESSED_MAX ((uint64_t)1 << 30)
#define PACE_CALM_NS UINT64_C(200000000) /* without anyone waiting: there is time */
#define PACE_SLOWER_PERCENT 3u /* compressing may be, for what it saves */

/* All zeros at the beginning. */
struct pace {
	bool compresses, tries; /* what is done now, and whether that is a trial */
	bool calm; /* nobody has waited for long enough */
	uint64_t behind_ns; /* when somebody waited last */
	uint64_t goal; /* bytes of this stretch; 0: the very first */
	uint64_t bytes, start_ns; /* of it so far */
	uint64_t interval; /* between trials */
	uint64_t rate[2]; /* bytes per second, without and with; 0: not known */
};

/* Shall the next `bytes` be compressed? `behind`: others wait. */
bool pace_step(struct pace *p, bool behind, uint64_t now_ns, uint32_t bytes);
