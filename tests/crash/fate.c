/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/fate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "tests/crash/image.h"
#include "tests/crash/states.h"

/* What happens to the operations of one object together. */
enum plan {
	PLAN_KEEP,
	PLAN_DROP,
	PLAN_SIZE, /* writes grow the file and bring nothing */
	PLAN_DROP_LAST,
	PLAN_KEEP_LAST,
	PLAN_TORN_LAST, /* somehow */
	PLAN_CUT_TAIL, /* the first few are kept, the next is cut, the rest dropped */
	PLAN_EVERY_KTH, /* dropped */
	PLAN_TORN_ONE,
	PLAN_RANDOM,
	NR_PLANS,
};

static const struct {
	enum plan bytes, names;
} fixed[STATES_FIXED] = {
	{ PLAN_KEEP, PLAN_KEEP },      { PLAN_DROP, PLAN_KEEP },      { PLAN_DROP, PLAN_DROP },
	{ PLAN_SIZE, PLAN_KEEP },      { PLAN_KEEP, PLAN_DROP },      { PLAN_DROP_LAST, PLAN_KEEP },
	{ PLAN_KEEP_LAST, PLAN_KEEP }, { PLAN_TORN_LAST, PLAN_KEEP }, { PLAN_CUT_TAIL, PLAN_CUT_TAIL },
	{ PLAN_KEEP, PLAN_DROP_LAST },
};

uint64_t fate_seed(void)
{
	const char *seed = getenv("TEST_SEED");

	return seed && *seed ? strtoull(seed, NULL, 0) : 1;
}

struct fate_rng fate_rng(uint64_t seed, uint64_t point, uint64_t variant)
{
	struct fate_rng r = { seed * 0x9e3779b97f4a7c15 ^ point };

	fate_random(&r, 1);
	r.state ^= variant * 0xd1342543de82ef95;
	fate_random(&r, 1);
	return r;
}

uint64_t fate_random(struct fate_rng *r, uint64_t below) /* splitmix64 */
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % below;
}

static struct fate torn(struct fate_rng *rng)
{
	return (struct fate){
		.kind = FATE_TORN,
		.tear = (enum fate_tear)fate_random(rng, 4),
		.sector = fate_random(rng, 2) ? 512 : 4096,
		.at = fate_random(rng, UINT32_MAX),
		.grown = fate_random(rng, 2),
	};
}

/* Cut so that what is lost is at the end, and the size tells. */
static struct fate cut(struct fate_rng *rng)
{
	struct fate f = torn(rng);

	f.tear = TEAR_CUT;
	f.grown = false;
	return f;
}

static struct fate any(struct fate_rng *rng)
{
	switch (fate_random(rng, 5)) {
	case 0:
	case 1:
		return (struct fate){ .kind = FATE_KEEP };
	case 2:
		return (struct fate){ .kind = FATE_DROP };
	case 3:
		return (struct fate){ .kind = FATE_SIZE };
	default:
		return torn(rng);
	}
}

static enum plan choose_plan(struct fate_rng *rng, unsigned variant, bool is_dir, bool ordered)
{
	enum plan p = (enum plan)fate_random(rng, NR_PLANS);

	if (variant < STATES_FIXED)
		p = is_dir ? fixed[variant].names : fixed[variant].bytes;
	if (ordered && p >= PLAN_SIZE && p != PLAN_DROP_LAST)
		p = PLAN_CUT_TAIL;
	return p;
}

void fate_choose(struct fate_rng *rng, unsigned variant, bool is_dir, bool ordered, const size_t *ops, size_t nr,
		 struct fate *fates)
{
	enum plan plan = choose_plan(rng, variant, is_dir, ordered);
	size_t at = (size_t)fate_random(rng, nr), every = 2 + (size_t)fate_random(rng, 3);

	for (size_t i = 0; i < nr; i++) {
		bool last = i == nr - 1;
		struct fate f = { .kind = FATE_KEEP };

		if (plan == PLAN_DROP || (plan == PLAN_DROP_LAST && last) || (plan == PLAN_KEEP_LAST && !last) ||
		    (plan == PLAN_EVERY_KTH && i % every == at % every) || (plan == PLAN_CUT_TAIL && i > at))
			f.kind = FATE_DROP;
		else if (plan == PLAN_SIZE)
			f.kind = FATE_SIZE;
		else if ((plan == PLAN_TORN_LAST && last) || (plan == PLAN_TORN_ONE && i == at))
			f = torn(rng);
		else if (plan == PLAN_CUT_TAIL && i == at)
			f = cut(rng);
		else if (plan == PLAN_RANDOM)
			f = any(rng);
		if (is_dir && f.kind != FATE_KEEP) /* a name is there or it is not */
			f.kind = FATE_DROP;
		fates[ops[i]] = f;
	}
}

static bool sector_came(const struct fate *f, uint64_t i, uint64_t nr)
{
	struct fate_rng coins = { f->at ^ i << 32 };

	switch (f->tear) {
	case TEAR_CUT:
		return i < f->at % nr;
	case TEAR_TAIL:
		return i >= f->at % nr;
	case TEAR_HOLE:
		return i != f->at % nr;
	default:
		return fate_random(&coins, 2);
	}
}

static int write_torn(const struct fate *f, struct image *m, const uint8_t *data, uint64_t len, uint64_t off)
{
	uint64_t first = round_down(off, f->sector), end = off + len;
	uint64_t nr = (round_up(end, f->sector) - first) / f->sector;

	for (uint64_t i = 0; i < nr; i++) {
		uint64_t from = MAX(first + i * f->sector, off), to = MIN(first + (i + 1) * f->sector, end);
		int r = sector_came(f, i, nr) ? image_write(m, data + (from - off), to - from, from) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

int fate_write(const struct fate *f, struct image *m, const uint8_t *data, uint64_t len, uint64_t off)
{
	int r = 0;

	if (f->kind == FATE_DROP)
		return 0;
	if (f->kind == FATE_KEEP)
		return image_write(m, data, len, off);
	if ((f->kind == FATE_SIZE || f->grown) && off + len > m->size)
		r = image_resize(m, off + len);
	if (r == 0 && f->kind == FATE_TORN)
		r = write_torn(f, m, data, len, off);
	return r;
}

struct fate_text fate_text(const struct fate *f)
{
	static const char *const kinds[] = { "kept", "dropped", "size only", "torn" };
	static const char *const tears[] = { "cut at", "all from", "all but", "some, coins" };
	struct fate_text t;

	snprintf(t.s, sizeof(t.s), "%s", kinds[f->kind]);
	if (f->kind == FATE_TORN)
		snprintf(t.s, sizeof(t.s), "torn: %s %" PRIu64 " of %" PRIu32 "-byte sectors%s", tears[f->tear], f->at,
			 f->sector, f->grown ? ", grown" : "");
	return t;
}
