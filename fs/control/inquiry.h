/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Long-running queries: how much space would deleting some names free? A query is begun, filled with names, started,
 * polled and ended by ioctl; each runs in a thread of its own. A query that is not polled for some time is stopped, so
 * the client may die.
 *
 * A query is identified by a number that cannot be guessed: knowing it proves having begun the query.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/engine.h"

struct inquiries;

struct inquiry_status {
	bool running;
	int error; /* after it has ended */
	struct exclusive_report report; /* so far, or final */
};

int inquiries_new(struct engine *e, struct inquiries **ret);
void inquiries_free(struct inquiries *q); /* stops running queries; NULL is fine */

/* The user that runs an inquiry, if not all names are for that user. */
struct inquiry_reader {
	/* 0: may read this file, or list this directory; -ENOENT: it has been removed; <0 */
	int (*check)(struct inquiry_reader *r, uint64_t ino);
	void (*free)(struct inquiry_reader *r);
};

/* -EBUSY: this user has too many queries, or all ordinary users together. */
int inquiry_begin(struct inquiries *q, uint32_t uid, bool is_root, uint64_t *ret);
/*
 * Add all names of a directory (cookie 0), or one. -ESTALE: no such query, or already started. -E2BIG: all queries of
 * this user, or those of all ordinary users together, have too many.
 */
int inquiry_add(struct inquiries *q, uint64_t number, struct exclusive_name name);
/* All files of a user or a group instead; for a query without names. */
int inquiry_add_owner(struct inquiries *q, uint64_t number, struct fp_domain owner);
/* Queries are computed a few at a time. Takes `reader` on success; NULL: reads everything. */
int inquiry_start(struct inquiries *q, uint64_t number, struct inquiry_reader *reader);
int inquiry_status(struct inquiries *q, uint64_t number, struct inquiry_status *ret);
int inquiry_end(struct inquiries *q, uint64_t number); /* does not wait for it */
