/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Tries whether a back end does what tier.h demands, before anything relies on it. Object stores exist that answer
 * several racing conditional puts with success, or ignore the condition or the range of a request.
 */
#pragma once

#define TIER_PROBE_REASON_MAX 200

struct tier;

/*
 * Writes objects below "probe/" and deletes them. Takes about 70 round trips. -EOPNOTSUPP: the back end must not be
 * used; ret_reason says which property it lacks, and is logged. Other errors: it could not be tried. Probes of several
 * machines do not disturb each other.
 */
int tier_probe(struct tier *t, char ret_reason[TIER_PROBE_REASON_MAX]);
