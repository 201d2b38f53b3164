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

static double cost_of(const struct code_trial *t)
{
	return (double)t->ns / (double)MAX(t->plain, UINT64_C(1));
}

static double ratio_of(const struct code_trial *t)
{
	return (double)t->coded / (double)MAX(t->plain, UINT64_C(1));
}

static bool affordable(const struct code_choice *c, const struct code_trial *t)
{
	return c->budget <= 0 || cost_of(t) <= c->budget;
}

static unsigned fastest_below(const struct code_choice *c, double ratio)
{
	unsigned best = c->nr;

	for (unsigned i = 0; i < c->nr; i++)
		if (affordable(c, &c->trial[i]) && ratio_of(&c->trial[i]) <= ratio &&
		    (best == c->nr || cost_of(&c->trial[i]) < cost_of(&c->trial[best])))
			best = i;
	return best;
}

static unsigned fastest(const struct code_choice *c)
{
	unsigned best = 0;

	for (unsigned i = 1; i < c->nr; i++)
		if (cost_of(&c->trial[i]) < cost_of(&c->trial[best]))
			best = i;
	return best;
}

static void choose(struct code_choice *c)
{
	unsigned smallest = c->nr;

	for (unsigned i = 0; i < c->nr; i++)
		if (affordable(c, &c->trial[i]) && (smallest == c->nr || c->trial[i].coded < c->trial[smallest].coded))
			smallest = i;
	c->chosen = smallest < c->nr ? fastest_below(c, ratio_of(&c->trial[smallest]) * NEARLY) : fastest(c);
	c->promised = c->ratio = ratio_of(&c->trial[c->chosen]);
	c->cost = cost_of(&c->trial[c->chosen]);
	c->nr_blocks = 0;
	c->nr_trials++;
}

static bool trial_affordable(const struct code_choice *c)
{
	return c->budget <= 0 || (double)c->trial_ns <= TRIALS * c->budget * (double)c->plain;
}

static bool stopped_paying(const struct code_choice *c)
{
	return c->ratio > c->promised * STOPPED_PAYING || (c->budget > 0 && c->cost > c->budget * TOO_DEAR) ||
	       c->nr_blocks >= MANY;
}

static void record_trial(struct code_choice *c, const struct code_trial *t)
{
	struct code_trial *sum = &c->trial[c->trying++];

	sum->plain += t->plain;
	sum->coded += t->coded;
	sum->ns += t->ns;
	c->trial_ns += t->ns;
	if (code_choice_trying(c))
		return;
	c->nr_rounds++;
	choose(c);
}

void code_choice_record(struct code_choice *c, uint64_t plain, uint64_t coded, uint64_t ns)
{
	struct code_trial t = { .plain = plain, .coded = coded, .ns = ns };

	if (code_choice_trying(c)) {
		record_trial(c, &t);
		return;
	}
	c->nr_blocks++;
	c->plain += plain;
	c->ratio += (ratio_of(&t) - c->ratio) * LATELY;
	c->cost += (cost_of(&t) - c->cost) * LATELY;
	if (!trial_affordable(c))
		return;
	if (c->nr_rounds < ROUNDS)
		c->trying = 0;
	else if (c->nr_blocks >= SETTLED && stopped_paying(c))
		code_choice_again(c);
}

void code_choice_again(struct code_choice *c)
{
	c->trying = c->nr_rounds = 0;
	memset(c->trial, 0, sizeof(c->trial));
}
