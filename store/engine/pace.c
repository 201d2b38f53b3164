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

	p->interval = better == p->compresses ? PACE_FIRST : MIN(2 * p->interval, PACE_LAST);
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
		p->goal = PACE_TRIAL;
		p->interval = PACE_FIRST / 2;
		start(p, now_ns);
	}
	if (!behind) {
		start(p, now_ns); /* only stretches without a break tell what is faster */
		return true;
	}
	if (p->bytes >= p->goal)
		end_of_stretch(p, now_ns);
	p->bytes += bytes;
	return p->compresses;
}
