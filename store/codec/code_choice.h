/*
 * Which of several ways to code a variable: found by trying, remembered, found anew when it stops paying. Pure: who
 * codes tells what came of it, in bytes and nanoseconds.
 *
 *	TRYING ── every candidate told ──▶ CHOSEN ── this was one of the first ROUNDS on other blocks, ──▶ TRYING
 *	                                              or blocks get larger than promised, or dearer,
 *	                                              or MANY have passed; and trials have been cheap enough
 *
 * One block is not a variable: the first rounds are added up, each is on another block.
 *
 * Of all that are within the budget the smallest is chosen, and the fastest of those that are nearly as small. If none
 * is, the fastest. Trials themselves get a quarter of the budget: a variable that changes its nature all the time is
 * not tried all the time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CODE_CANDIDATES_MAX 20

struct code_trial {
	uint64_t plain, coded, ns;
};

struct code_choice {
	unsigned nr, trying; /* trying == nr: chosen */
	unsigned chosen, nr_rounds; /* rounds that `trial` is the sum of */
	double budget; /* ns per byte, which is CPU seconds per GB */
	struct code_trial trial[CODE_CANDIDATES_MAX];

	/* of the chosen one: coded / plain in the trial, and lately; ns per byte lately */
	double promised, ratio, cost;
	uint64_t nr_blocks; /* since it was chosen */
	uint64_t plain, trial_ns; /* of all blocks, and of all trials */
	unsigned nr_trials;
};

/* 1 to CODE_CANDIDATES_MAX candidates; budget <= 0: none. */
void code_choice_init(struct code_choice *c, unsigned nr, double budget);
/* Is the next block, or a part of it, to be tried with all candidates? */
bool code_choice_trying(const struct code_choice *c);
/* Which candidate is next: one after the other while trying, then the chosen one. */
unsigned code_choice_next(const struct code_choice *c);
/* What came of code_choice_next(). */
void code_choice_tell(struct code_choice *c, uint64_t plain, uint64_t coded, uint64_t ns);
/* Try all again. */
void code_choice_again(struct code_choice *c);
