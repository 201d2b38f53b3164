/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The pages that this node is home of (lookups.h), and the nodes that have announced them.
 *
 * Announcements are queued as received, and *noted*, page by page in a large table, at the next query, or when none has
 * arrived for a while: the sender has just made a checkpoint durable, and other nodes are likely to be still writing
 * theirs. Queries see no difference, as all announcements are noted before an answer; nodes that have announced the
 * same pages are informed then, after some seconds at the latest.
 *
 * One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"

struct holders;
struct homes;

#define HOMES_WAITING_MAX ((size_t)16 << 20) /* bytes of queued announcements: a million pages */

/* `remember`: bytes of the table. -ENOMEM */
int homes_new(size_t remember, uint32_t nr_nodes, struct homes **ret);
void homes_free(struct homes *hs); /* NULL is fine */
void homes_clear(struct homes *hs);

/* Queues an announcement of a node: fingerprints in wire format, in any order. -EBADMSG: malformed; -ENOMEM */
int homes_announce(struct homes *hs, uint32_t node, const void *fps, size_t len, uint64_t now_ns);
/* It is time to note. */
bool homes_due(const struct homes *hs, uint64_t now_ns);

struct homes_noted {
	uint32_t node, nr; /* the announcing node, and the number of pages */
	uint32_t nr_twice; /* of these, announced by another node before */
	const uint32_t *twice; /* by node: how many of them it had announced; valid until the next is noted */
};

/* Notes the oldest queued announcement. `now` is a time of known.h. 1; 0: the queue is empty */
int homes_note(struct homes *hs, uint32_t now, struct homes_noted *ret);
/* Of what was noted. */
bool homes_find(struct homes *hs, struct fp fp, uint32_t now, struct holders *ret);
size_t homes_nr(const struct homes *hs); /* pages that were noted, and not forgotten */
