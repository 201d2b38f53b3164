/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Chooses one of several ways to code a variable: by trying them, remembering the result, and trying again when it
 * stops paying. Pure: the caller reports the results in bytes and nanoseconds.
 *
 *	TRYING ── all candidates reported ──▶ CHOSEN ── one of the first ROUNDS, each on another block,   ──▶ TRYING
 *	                                                 or blocks get larger than in the trial, or slower,
 *	                                                 or MANY have passed, or the last one did not get
 *	                                                 smaller; and trials have been cheap enough
 *
 * One block is not representative: the sizes of the first rounds, each on another block, are added up. The time of a
 * candidate is that of its fastest round: on a busy machine caches are cold after each switch between processes, and
 * the choice must not depend on what else runs.
 *
 * Blocks that no candidate makes smaller are noise. They count neither for nor against a choice. If the chosen candidate
 * did not make a block smaller, all are tried on the next one: it is noise as well, or the data has changed. As long as
 * they find noise, they are tried again after 1, 2, 4, ... more blocks.
 *
 * Among the candidates within the budget the smallest is chosen, or the fastest of those that are nearly as small. If
 * none is within the budget, the fastest is chosen. After the first rounds, trials may use a quarter of the budget, so
 * that a variable that keeps changing is not tried all the time. They count with a fixed time per byte, so that it depends on the data alone
 * which blocks are tried.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CODE_CANDIDATES_MAX 20

struct code_trial {
	uint64_t plain, coded;
	double cost; /* ns per byte, in the fastest round */
};

struct code_choice {
	unsigned nr, trying; /* trying == nr: chosen */
	unsigned chosen, nr_rounds; /* number of rounds summed up in `trial` */
	double budget; /* ns per byte, which is CPU seconds per GB */
	struct code_trial trial[CODE_CANDIDATES_MAX]; /* sums of these rounds */
	struct code_trial round[CODE_CANDIDATES_MAX]; /* the one under way */

	/* of the chosen one: coded / plain in the trial, and recently; ns per byte recently */
	double promised, ratio, cost;
	uint64_t nr_blocks; /* since it was chosen */
	uint64_t wait, last_wait; /* blocks until noise is tried again */
	uint64_t plain, trial_ns; /* totals of all blocks, and of all trials */
	double trial_cost; /* of all trials, at fixed times per byte */
	unsigned nr_trials;
};

/* 1 to CODE_CANDIDATES_MAX candidates; budget <= 0: unlimited. */
void code_choice_init(struct code_choice *c, unsigned nr, double budget);
/* Should the next block, or a part of it, be tried with all candidates? */
bool code_choice_trying(const struct code_choice *c);
/* Next candidate: each in turn while trying, then the chosen one. */
unsigned code_choice_next(const struct code_choice *c);
/* Report the result of code_choice_next(). */
void code_choice_record(struct code_choice *c, uint64_t plain, uint64_t coded, uint64_t ns);
/* Try all again. */
void code_choice_again(struct code_choice *c);
