/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A tier in memory, with faults. Requests take effect one at a time when a queue waits, in an order that the seed
 * decides: so a caller that relies on the order in which it started them is found out, and each run is the same. It
 * belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tier;
struct memory; /* the objects: they outlive the tiers opened on them */

struct memory_faults {
	uint64_t seed;
	/* The request of this number (from 1, as they take effect) and all later ones fail: the process has ended. */
	uint64_t kill_at;
	bool kill_after; /* that one takes effect all the same; of the others in flight, some */
	uint64_t fail_at; /* this one fails with fail_with */
	int fail_with;
	bool fail_after; /* but takes effect */
	/* Properties that a back end must not have: */
	bool puts_are_not_conditional; /* put new replaces */
	bool races_have_two_winners; /* put new succeeds for all that are in flight together */
	bool new_objects_are_late; /* the first get of an object finds none */
	bool ranges_are_ignored; /* gets begin at 0 */
	bool ranges_are_cut; /* gets return one byte less */
	bool deletes_are_ignored;
	bool lists_are_late; /* lists miss the last object put */
	size_t page; /* names in a list; 0: 3 */
};

struct memory *memory_new(void);
void memory_free(struct memory *m);
/* Faults may be changed while no request is in flight. One tier at a time. */
struct tier *memory_open(struct memory *m, const struct memory_faults *faults);
uint64_t memory_nr_requests(const struct memory *m); /* that took effect or failed, since memory_open() */
uint64_t memory_got_bytes(const struct memory *m); /* since memory_open() */
unsigned memory_in_flight_max(const struct memory *m); /* since memory_open() */

/* The objects, sorted by name. */
size_t memory_nr(const struct memory *m);
const char *memory_name(const struct memory *m, size_t i);
const void *memory_data(const struct memory *m, size_t i, size_t *ret_len);
const void *memory_find(const struct memory *m, const char *name, size_t *ret_len); /* NULL: none */
/* Removes the objects of puts that took effect but never returned, unless a later put new has found them. */
void memory_lose_power(struct memory *m);
void memory_damage(struct memory *m, const char *name, size_t at); /* flips a bit */
/*
 * For tests that end a process at each request: the number of states to try at least, TIER_KILL_STATES of the
 * environment or `otherwise`, and the first seed, TEST_SEED or 1.
 */
uint64_t kill_states_wanted(uint64_t otherwise);
uint64_t kill_first_seed(void);
/* Of a manifest, with a checksum that is right. */
void memory_set_version(struct memory *m, const char *name, uint32_t version);
