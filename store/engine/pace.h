/*
 * Whether there is time to compress, found out by trying. While nobody waits there is, for as long as nobody comes to
 * wait. As long as writers wait again and again, stretches with and without compression are timed, and the faster way
 * is kept: where the disk is what is slow it is to compress, where the processors are it is not. Now and then the other
 * way is tried again, the rarer the longer it has been worse.
 *
 * Time is what passes while there is something to do (`busy_ns`): pauses between checkpoints would make both ways look
 * alike. Stretches go on from one checkpoint to the next, so that none is so small that it is never found out which way
 * is faster.
 *
 * Whoever else uses disk and processors may slow down the one way while it is timed, and make the other look better. So
 * compressing begins with no more than a trial, and goes on for twice as long each time that the next trial without it
 * says the same.
 *
 * That nobody waits at this moment tells little: a compressed frame would be what the next one waits for. Hence
 * PACE_CALM_NS.
 *
 * Pure: the caller brings the clocks and the lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/pack/pack.h"

#define PACE_TRIAL ((uint64_t)12 << 20) /* some times what the threads have in their hands */
/* without, before the first trial: one that takes three times as long costs a tenth of that */
#define PACE_FIRST ((uint64_t)256 << 20)
/* without compression until the next trial; then twice as much each time, up to */
#define PACE_PLAIN ((uint64_t)1 << 30)
#define PACE_PLAIN_MAX ((uint64_t)16 << 30)
#define PACE_COMPRESSED PACE_TRIAL /* likewise with: an error in this direction costs more */
#define PACE_COMPRESSED_MAX ((uint64_t)256 << 20)
#define PACE_CALM_NS UINT64_C(200000000) /* without anyone waiting: there is time */
#define PACE_SLOWER_PERCENT 3u /* compressing may be, for what it saves */

/* All zeros at the beginning. */
struct pace {
	bool compresses, tries; /* what is done now, and whether that is a trial */
	bool calm; /* nobody has waited for long enough */
	uint64_t behind_ns; /* when somebody waited last */
	uint64_t goal; /* bytes of this stretch; 0: the very first */
	uint64_t bytes, start_ns; /* of it so far; busy time */
	uint64_t calm_ns; /* busy time when it became calm */
	uint64_t interval; /* between trials */
	uint64_t rate[2]; /* bytes per second, without and with; 0: not known */
};

/* Is there time to compress the next `bytes`? `behind`: others wait. `busy_ns` goes on only while there is something to
 * do. */
enum pack_time pace_step(struct pace *p, bool behind, uint64_t now_ns, uint64_t busy_ns, uint32_t bytes);
/* Somebody waits for what was begun in spare time. */
void pace_disturbed(struct pace *p, uint64_t now_ns, uint64_t busy_ns);
