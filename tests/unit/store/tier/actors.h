/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Writers, collectors and readers of one tier in memory, each in a thread. One runs at a time, until its next request;
 * the seed decides which one continues. So a run with the same seed is the same, and any order of requests can occur.
 */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/tier/tier.h"
#include "tests/unit/store/tier/checkpoints.h"

#define ACTORS_MAX 8u
#define LATE_MAX 8u

struct memory;
struct world;

enum kill_mode { KILL_BEFORE, KILL_AFTER, KILL_LATE, NR_KILL_MODES };

struct actor {
	struct tier tier; /* its own view of the tier */
	struct world *world;
	void (*run)(struct actor *a);
	void *userdata;
	/* This request (from 1) and all later ones fail: the process has ended. LATE: it takes effect some time later. */
	uint64_t kill_at;
	enum kill_mode kill_mode;
	uint64_t fail_at; /* this request fails; it takes effect or not, or does so later */
	enum kill_mode fail_mode;

	/* Before request `pause_at` the actor pauses for `pause` requests of the others, or until they have ended. */
	uint64_t pause_at, pause;

	/* For an actor without a thread: called before each of its requests. */
	void (*before)(struct actor *a, uint64_t request);

	uint64_t nr_requests;
	bool is_dead, has_ended;
	struct tier_request *pending[32];
	unsigned nr_pending;
	pthread_t thread;
	sem_t go;
};

struct world {
	struct memory *m;
	uint64_t random, nr_steps;
	bool lists_lag; /* a list may lack any names */
	struct actor actors[ACTORS_MAX];
	unsigned nr_actors;
	sem_t back;
	struct late_request {
		struct tier_request q;
		char name[TIER_NAME_MAX + 1];
		void *data;
	} late[LATE_MAX];
	unsigned nr_late;
	void (*check)(struct world *w); /* after each request that changed something */
	const char *failure; /* of a check; NULL: none */
};

uint64_t world_draw(struct world *w);
struct tier *world_tier(struct world *w); /* without faults, for the caller's thread */
struct actor *world_add(struct world *w, void (*run)(struct actor *a), void *userdata);
void world_run(struct world *w); /* until all actors have ended, and late requests have taken effect */
