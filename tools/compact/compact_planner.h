/*
 * Decides which files and variables are compacted together. The planner classifies sets of files of one step, one
 * after the other, and makes plans that a target runs: a mount (ckptfs-compact) or a scratch store (ckptfs-analyze). A
 * plan holds as many sets as its limits allow: each plan costs a pass over all recipes, and steps that are coded
 * against each other must be in the same plan.
 */
#pragma once

#include "store/codec/coding.h"
#include "tools/compact/compact_sets.h"

/* How checkpoints are merged before they are coded. AUTO: for each variable what makes it the smallest; or files as a
 * whole, if that is smaller than all of their variables. */
enum scheme { SCHEME_AUTO, SCHEME_AGNOSTIC, SCHEME_AGNOSTIC_BLOCK, SCHEME_AWARE, SCHEME_AWARE_BLOCK, NR_SCHEMES };

struct compact_planner;

/* Unless noted, these return 0 or a negative errno, which ends the planning. */
struct compact_target {
	/* Called before each set; `bytes` of files are planned or done. false: stop. */
	bool (*goes_on)(void *userdata, uint64_t bytes);
	int (*check)(void *userdata, const struct set *set); /* may it be compacted with the others? */
	int (*begin)(void *userdata); /* a plan; then, for each set, its files, */
	int (*file)(void *userdata, const struct set_member *m, uint32_t *ret);
	/* its variables as in client/ioctl.h, and of each its extents */
	int (*variable)(void *userdata, const char *key, const struct coding_shape *shape, uint32_t before, bool rounded);
	int (*extent)(void *userdata, uint32_t file, uint64_t off, uint64_t len);
	int (*run)(void *userdata, const struct compact_planner *p); /* the plan */
	void (*end)(void *userdata); /* of the plan, run or not */
	int (*report_error)(void *userdata, int error); /* a set could not be added; returns `error` */
};

/* A variable of the plan. */
struct compact_planned {
	char *key;
	struct code_type type;
};

struct compact_planner {
	/* The caller's. */
	enum scheme scheme;
	uint64_t group; /* ranks; 0: all */
	unsigned chain; /* steps that are coded one against the other */
	bool chain_forced; /* whatever reading them takes */
	uint64_t block;
	double budget;
	const char *helper, *names; /* as of classify_conf */
	const struct compact_target *target;
	void *userdata;

	/* What has been found. */
	bool any_aware; /* variables were looked at in some set */
	bool incomplete; /* something could not be read */
	bool stopped;

	/* The plan that is being filled. */
	bool is_aware; /* the set that is looked at */
	bool has_plan;
	struct compact_planned *planned;
	size_t nr_planned, room_planned;
	/* the variables of the set that was added last, without those that were rounded from them, */
	size_t last_set, last_end;
	unsigned nr_steps; /* which is step so many of those that follow one another in the plan */
	uint64_t plan_bytes, plan_files, plan_extents;
	uint64_t done; /* bytes of files with completed plans */
};

/* `files` are arranged. */
int compact_planner_run(struct compact_planner *p, struct files *files);
void compact_planner_release(struct compact_planner *p);
