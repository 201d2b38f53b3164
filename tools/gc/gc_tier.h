/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Retention and garbage collection of a tier (store/tier/collect/tier_collect.h), for ckptfs-gc --tier. One thread. */
#pragma once

#include <stdbool.h>

#include "client/retention.h"

struct gc_tier_request {
	const char *tool, *url;
	const char *config_file; /* for S3; NULL: none */
	struct keep_policy keep; /* empty: remove no checkpoint */
	bool delete; /* else only list */
	bool forget_missing; /* as in struct tier_collect_conf */
	bool json, quiet;
};

/*
 * The policy applies to the checkpoints of each owner, in each directory of each store, separately, and always keeps the
 * newest one.
 * Prints the checkpoints with the decision on each, and figures. <0: failed, which is reported; -ECANCELED:
 * interrupted.
 */
int gc_tier(const struct gc_tier_request *q);
