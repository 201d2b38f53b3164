/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/code_choice.h"

#include <assert.h>
#include <string.h>

#include "base/util.h"

#define NEARLY 1.01 /* times the smallest: as good, if it is faster */
#define STOPPED_PAYING 1.10 /* times the ratio of the trial */
#define TOO_DEAR 1.5 /* times the budget: a single slow block does not count */
#define SETTLED 8 /* blocks before it is judged */
#define MANY 4096 /* blocks, 1 GiB of full ones: another candidate may be better by now */
#define LATELY (1.0 / 8) /* weight of the newest block in the running average */
#define TRIALS (1.0 / 4) /* of the budget */
#define TRIAL_COST 4.0 /* ns per byte and candidate, about the mean of all on a Neoverse V1 */
#define NOISE_COST 0.5
#define ROUNDS 4

void code_choice_init(struct code_choice *c, unsigned nr, double budget)
{
	assert(nr > 0 && nr <= CODE_CANDIDATES_MAX);
	*c = (struct code_choice){ .nr = nr, .budget = budget };
}

bool code_choice_trying(const struct code_choice *c)
{
	return c->trying < c->nr;
}

unsigned code_choice_next(const struct code_choice *c)
{
	return code_choice_trying(c) ? c->trying : c->chosen;
}

static double ratio_of(const struct code_trial *t)
{
	return (double)t->coded / (double)MAX(t->plain, UINT64_C(1));
}

static bool affordable(const struct code_choice *c, const struct code_trial *t)
{
	return c->budget <= 0 || t->cost <= c->budget;
}

static unsigned fastest_below(const struct code_choice *c, double ratio)
{
	unsigned best = c->nr;

	for (unsigned i = 0; i < c->nr; i++)
		if (affordable(c, &c->trial[i]) && ratio_of(&c->trial[i]) <= ratio &&
		    (best == c->nr || c->trial[i].cost < c->trial[best].cost))
			best = i;
	return best;
}

static unsigned fastest(const struct code_choice *c)
{
	unsigned best = 0;

	for (unsigned i = 1; i < c->nr; i++)
		if (c->trial[i].cost < c->trial[best].cost)
			best = i;
	return best;
}

static void choose_smallest(struct code_choice *c)
{
	unsigned smallest = c->nr;

	for (unsigned i = 0; i < c->nr; i++)
		if (affordable(c, &c->trial[i]) && (smallest == c->nr || c->trial[i].coded < c->trial[smallest].coded))
			smallest = i;
	c->chosen = smallest < c->nr ? fastest_below(c, ratio_of(&c->trial[smallest]) * NEARLY) : fastest(c);
	c->promised = c->ratio = ratio_of(&c->trial[c->chosen]);
	c->cost = c->trial[c->chosen].cost;
	c->nr_blocks = 0;
	c->nr_trials++;
}

static bool trial_affordable(const struct code_choice *c)
{
	return c->budget <= 0 || c->trial_cost <= TRIALS * c->budget * (double)c->plain;
}

static bool stopped_paying(const struct code_choice *c)
{
	return c->ratio > c->promised * STOPPED_PAYING || (c->budget > 0 && c->cost > c->budget * TOO_DEAR) ||
	       c->nr_blocks >= MANY;
}

static bool is_smaller(const struct code_trial *t)
{
	return t->coded < t->plain;
}

static bool is_noise(const struct code_choice *c)
{
	for (unsigned i = 0; i < c->nr; i++)
		if (is_smaller(&c->round[i]))
			return false;
	return true;
}

static void forget_rounds(struct code_choice *c)
{
	c->nr_rounds = 0;
	memset(c->trial, 0, sizeof(c->trial));
}

static void add_round(struct code_choice *c)
{
	for (unsigned i = 0; i < c->nr; i++) {
		struct code_trial *sum = &c->trial[i];

		sum->cost = sum->plain > 0 ? MIN(sum->cost, c->round[i].cost) : c->round[i].cost;
		sum->plain += c->round[i].plain;
		sum->coded += c->round[i].coded;
	}
	c->nr_rounds++;
	choose_smallest(c);
}

static void end_round(struct code_choice *c)
{
	bool noise = is_noise(c);

	c->trial_cost += (noise ? NOISE_COST : TRIAL_COST) * (double)c->nr * (double)c->round[0].plain;
	if (noise) {
		c->last_wait = MIN(2 * c->last_wait + 1, (uint64_t)MANY);
		c->wait = c->last_wait;
		return;
	}
	c->wait = c->last_wait = 0;
	if (c->nr_rounds >= ROUNDS && is_smaller(&c->round[c->chosen]))
		return; /* noise has ended, and the data is as before */
	if (c->nr_rounds >= ROUNDS)
		forget_rounds(c);
	add_round(c);
}

void code_choice_record(struct code_choice *c, uint64_t plain, uint64_t coded, uint64_t ns)
{
	struct code_trial t = { .plain = plain,
				.coded = coded,
				.cost = (double)ns / (double)MAX(plain, UINT64_C(1)) };

	if (code_choice_trying(c)) {
		c->trial_ns += ns;
		c->round[c->trying++] = t;
		if (!code_choice_trying(c))
			end_round(c);
		return;
	}
	c->nr_blocks++;
	c->plain += plain;
	c->cost += (t.cost - c->cost) * LATELY;
	if (is_smaller(&t)) {
		c->ratio += (ratio_of(&t) - c->ratio) * LATELY;
		c->wait = c->last_wait = 0;
	}
	c->wait -= c->wait > 0;
	if (c->wait > 0 || (c->nr_rounds >= ROUNDS && !trial_affordable(c)))
		return;
	if (c->nr_rounds < ROUNDS || !is_smaller(&t))
		c->trying = 0;
	else if (c->nr_blocks >= SETTLED && stopped_paying(c))
		code_choice_again(c);
}

void code_choice_again(struct code_choice *c)
{
	c->trying = 0;
	forget_rounds(c);
}
