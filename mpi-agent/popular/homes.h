/*
 * The pages that this node is home of (lookups.h), and who has told that it has them.
 *
 * What is told is kept as it came, and *noted*, page by page in a large table, when somebody asks, or when nothing has
 * been told for a while: who tells has just made a checkpoint durable, and others are likely to be still at theirs. For
 * those who ask it makes no difference when it is noted, as all is noted before they have an answer; those who have
 * told the same hear of it then, after some seconds at the latest.
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

#define HOMES_WAITING_MAX ((size_t)16 << 20) /* bytes that wait to be noted: a million pages */

/* `remember`: bytes of the table. -ENOMEM */
int homes_new(size_t remember, uint32_t nr_nodes, struct homes **ret);
void homes_free(struct homes *hs); /* NULL is fine */
void homes_clear(struct homes *hs);

/* That node has these: fingerprints as they are on the wire, in any order. -EBADMSG: they are none; -ENOMEM */
int homes_tell(struct homes *hs, uint32_t node, const void *fps, size_t len, uint64_t now_ns);
/* It is time to note. */
bool homes_due(const struct homes *hs, uint64_t now_ns);

struct homes_noted {
	uint32_t node, nr; /* who has told, and how many */
	uint32_t nr_twice; /* of these, that somebody else had told before */
	const uint32_t *twice; /* by node: how many of them it had told; valid until the next is noted */
};

/* One message of what waits, the oldest. `now` is a time of known.h. 1; 0: nothing waits */
int homes_note(struct homes *hs, uint32_t now, struct homes_noted *ret);
/* Of what was noted. */
bool homes_find(struct homes *hs, struct fp fp, uint32_t now, struct holders *ret);
size_t homes_nr(const struct homes *hs); /* pages that were noted, and not forgotten */
