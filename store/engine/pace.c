#include "store/engine/pace.h"

#include "base/util.h"

static void start(struct pace *p, uint64_t now_ns)
{
	p->bytes = 0;
	p->start_ns = now_ns;
}

static void end_of_trial(struct pace *p)
{
	bool better = p->rate[1] * 100 >= p->rate[0] * (100 - PACE_SLOWER_PERCENT);

	if (better == p->compresses) /* the trial has shown something new */
		p->interval = better ? PACE_COMPRESSED : PACE_PLAIN;
	else
		p->interval = MIN(2 * p->interval, better ? PACE_COMPRESSED_MAX : PACE_PLAIN_MAX);
	p->compresses = better;
	p->goal = p->interval;
	p->tries = false;
}

static void end_of_stretch(struct pace *p, uint64_t now_ns)
{
	p->rate[p->compresses] = p->bytes * 1000000000 / MAX(now_ns - p->start_ns, (uint64_t)1);
	if (p->tries) {
		end_of_trial(p);
	} else {
		p->compresses = !p->compresses;
		p->goal = PACE_TRIAL;
		p->tries = true;
	}
	start(p, now_ns);
}

bool pace_step(struct pace *p, bool behind, uint64_t now_ns, uint32_t bytes)
{
	if (p->goal == 0) {
		p->goal = PACE_FIRST;
		p->interval = PACE_PLAIN / 2;
		p->calm = true;
	}
	if (behind)
		p->behind_ns = now_ns;
	else if (now_ns - p->behind_ns > PACE_CALM_NS)
		p->calm = true;
	if (!behind && p->calm)
		return true;
	if (p->calm)
		start(p, now_ns); /* only stretches without a break tell what is faster */
	p->calm = false;
	if (p->bytes >= p->goal)
		end_of_stretch(p, now_ns);
	p->bytes += bytes;
	return p->compresses;
}
