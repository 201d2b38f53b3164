/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Decides which files and variables are compacted together. The planner classifies one set of files of one step after
 * the other, and makes plans that a target runs: a mount (ckptfs-compact) or a scratch store (ckptfs-analyze). A plan
 * has as many sets as its limits allow: each plan costs a pass over all recipes, and steps that are coded against each
 * other must be in the same plan.
 */
#pragma once

#include "store/codec/coding.h"
#include "tools/compact/compact_sets.h"

/* How checkpoints are merged before they are coded. AUTO: for each variable the scheme with the smallest result; or
 * whole files, if they get smaller than all of their variables. */
enum scheme { SCHEME_AUTO, SCHEME_AGNOSTIC, SCHEME_AGNOSTIC_BLOCK, SCHEME_AWARE, SCHEME_AWARE_BLOCK, NR_SCHEMES };

struct compact_planner;

/* Unless noted, these return 0 or a negative errno, which ends the planning. */
struct compact_target {
	/* Called before each set; `bytes` of files are planned or done. false: stop. */
	bool (*goes_on)(void *userdata, uint64_t bytes);
	int (*check)(void *userdata, const struct set *set); /* <0: cannot be compacted with the others */
	int (*begin)(void *userdata); /* starts a plan; then, for each set, its files, */
	int (*file)(void *userdata, const struct set_member *m, uint32_t *ret);
	/* its variables as in client/ioctl.h, and the extents of each */
	int (*variable)(void *userdata, const char *key, const struct coding_shape *shape, uint32_t before, bool rounded);
	int (*extent)(void *userdata, uint32_t file, uint64_t off, uint64_t len);
	int (*run)(void *userdata, const struct compact_planner *p); /* the plan */
	void (*end)(void *userdata); /* ends the plan, run or not */
	int (*report_error)(void *userdata, int error); /* a set could not be added; returns `error` */
};

struct compact_planned {
	char *key;
	struct code_type type;
};

struct compact_planner {
	/* Set by the caller. */
	enum scheme scheme;
	uint64_t group; /* ranks; 0: all */
	unsigned chain; /* steps that are coded against each other */
	bool chain_forced; /* regardless of the cost of reading them */
	uint64_t block;
	double budget;
	const char *helper, *names; /* as of classify_conf */
	const struct compact_target *target;
	void *userdata;

	/* Results. */
	bool any_aware; /* some set was split into variables */
	bool incomplete; /* something could not be read */
	bool stopped;

	/* The current plan. */
	bool is_aware; /* the current set is split into variables */
	bool has_plan;
	struct compact_planned *planned;
	size_t nr_planned, room_planned;
	/* variables of the last set, without those rounded from them */
	size_t last_set, last_end;
	unsigned nr_steps; /* consecutive steps in the plan */
	uint64_t plan_bytes, plan_files, plan_extents;
	uint64_t done; /* bytes of files with completed plans */
};

/* `files` must be arranged. */
int compact_planner_run(struct compact_planner *p, struct files *files);
void compact_planner_release(struct compact_planner *p);
