/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/dedup/compress_pace.h"

#include "base/util.h"

static void end_of_trial(struct pace *p)
{
	bool better = p->rate[1] * 100 >= p->rate[0] * (100 - PACE_SLOWER_PERCENT);

	if (better == p->compresses) /* the trial has changed the result */
		p->interval = better ? PACE_COMPRESSED : PACE_PLAIN;
	else
		p->interval = MIN(2 * p->interval, better ? PACE_COMPRESSED_MAX : PACE_PLAIN_MAX);
	p->compresses = better;
	p->goal = p->interval;
	p->tries = false;
}

static void end_of_stretch(struct pace *p, uint64_t busy_ns)
{
	p->rate[p->compresses] = p->bytes * 1000000000 / MAX(busy_ns - p->start_ns, (uint64_t)1);
	if (p->tries) {
		end_of_trial(p);
	} else {
		p->compresses = !p->compresses;
		p->goal = PACE_TRIAL;
		p->tries = true;
	}
	p->bytes = 0;
	p->start_ns = busy_ns;
}

static void set_calm(struct pace *p, uint64_t busy_ns)
{
	if (!p->calm)
		p->calm_ns = busy_ns;
	p->calm = true;
}

static void set_busy(struct pace *p, uint64_t busy_ns)
{
	if (p->calm)
		p->start_ns += busy_ns - p->calm_ns; /* work done in spare time is not timed */
	p->calm = false;
}

void pace_disturbed(struct pace *p, uint64_t now_ns, uint64_t busy_ns)
{
	p->behind_ns = now_ns;
	set_busy(p, busy_ns);
}

enum pack_time pace_step(struct pace *p, bool behind, uint64_t now_ns, uint64_t busy_ns, uint32_t bytes)
{
	if (p->goal == 0) {
		p->goal = PACE_FIRST;
		p->interval = PACE_PLAIN / 2;
		p->start_ns = busy_ns;
		set_calm(p, busy_ns);
	}
	if (behind)
		p->behind_ns = now_ns;
	else if (now_ns - p->behind_ns > PACE_CALM_NS)
		set_calm(p, busy_ns);
	if (!behind && p->calm)
		return PACK_TIME_SPARE;
	set_busy(p, busy_ns);
	if (p->bytes >= p->goal)
		end_of_stretch(p, busy_ns);
	p->bytes += bytes;
	return p->compresses ? PACK_TIME_ENOUGH : PACK_TIME_NONE;
}
