/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Tries whether a back end does what tier.h demands, before anything relies on it. Object stores exist that answer
 * several racing conditional puts with success, or ignore the condition or the range of a request.
 */
#pragma once

#include <stdbool.h>

#define TIER_PROBE_REASON_MAX 200

struct tier;

/*
 * Writes objects below "probe/" and deletes them. Takes about 70 round trips. -EOPNOTSUPP: the back end must not be
 * used; ret_reason says which property it lacks, and is logged. Other errors: it could not be tried. Probes of several
 * machines do not disturb each other.
 */
int tier_probe(struct tier *t, char ret_reason[TIER_PROBE_REASON_MAX]);

/* What a back end promises, in the order in which it is tried. The first broken promise ends the probe. */
enum tier_promise {
	TIER_PROMISE_CREATE,
	TIER_PROMISE_FOUND,
	TIER_PROMISE_KEPT,
	TIER_PROMISE_RANGES,
	TIER_PROMISE_DELETED,
	TIER_NR_PROMISES,
};
struct tier_promise_result {
	unsigned nr_held; /* how often it was tried with success */
	bool is_broken;
};
const char *tier_promise_text(enum tier_promise p); /* a sentence without a period */
/* The same with the result of each promise, also after an error. */
int tier_probe_each(struct tier *t, char ret_reason[TIER_PROBE_REASON_MAX],
		    struct tier_promise_result ret[TIER_NR_PROMISES]);
