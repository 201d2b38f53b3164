/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What callers may expect of every back end: the same tests for each. */
#pragma once

struct tier;

struct contract_back_end {
	const char *name; /* of the group of tests */
	struct tier *(*open)(void); /* an empty tier for each test; lists have pages of a few names */
	void (*close)(struct tier *t);
};

int contract_check(const struct contract_back_end *b); /* the number of tests that failed */
