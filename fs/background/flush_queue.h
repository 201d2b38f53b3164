/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The sealed directories of a store, and the order in which they are flushed to a tier. Users take turns: the next
 * directory is one of the user whose last turn is longest ago, so users who seal often, or unseal what is being
 * flushed, delay another user by one flush each. Of a user's directories the newest one is first, except that those
 * whose flush the tier has refused come last.
 *
 * A directory may be delayed, because it cannot be read or has changed. The delay belongs to the inode: sealing it
 * again does not end it.
 *
 * The caller holds a lock. Times are monotonic unless noted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flush_seal {
	uint64_t ino; /* first: search_u64() */
	int64_t sealed_ns; /* since 1970 */
	uint64_t bytes;
	uint32_t user; /* fs/subuids.h */
	bool is_compared; /* with the manifests in the tier, on this connection */
	bool is_in_tier;
	bool is_removed; /* from the tier, by retention there: it is not flushed again */
	bool is_away; /* it was dropped here: it cannot be flushed again */
	int error; /* of the last attempt to read it */
	uint64_t turn; /* the last one of its user: the same in all seals of a user */
	uint64_t failed_turn; /* its last turn, if the tier has failed in it; 0: none */
};

struct flush_delay {
	uint64_t ino; /* first: search_u64() */
	uint64_t until_ns, delay_ns;
};

struct flush_queue {
	struct flush_seal *v; /* by inode */
	size_t nr;
	uint64_t turn; /* number of turns so far */
	struct flush_delay *delays; /* by inode */
	size_t nr_delays, delays_room;
	uint64_t current; /* inode of the one being flushed; 0: none */
	uint64_t current_bytes; /* flushed of it */
};

void flush_queue_release(struct flush_queue *q);
/* Takes a new list, sorted by inode, whose state and turns are set from the previous one. */
void flush_queue_replace(struct flush_queue *q, struct flush_seal *v, size_t nr);
struct flush_seal *flush_queue_find(const struct flush_queue *q, uint64_t ino); /* NULL: not sealed */

/* Gives the next user a turn. false: no seal is due before *ret_due; UINT64_MAX: none waits. */
bool flush_queue_take(struct flush_queue *q, uint64_t now, struct flush_seal *ret, uint64_t *ret_due);
/* The seal of that turn is in the tier: marks it, if it is still listed, and ends its delay. */
void flush_queue_done(struct flush_queue *q, const struct flush_seal *s);
/* The tier has failed in that turn. */
void flush_queue_failed(struct flush_queue *q, const struct flush_seal *s);
/* Delays an inode: for `first`, doubled up to `last` each time it is delayed again soon after. -ENOMEM. */
int flush_queue_delay(struct flush_queue *q, uint64_t ino, uint64_t now, uint64_t first, uint64_t last);

uint64_t flush_queue_bytes_left(const struct flush_queue *q, const struct flush_seal *s);
/*
 * Estimates the bytes to be flushed until this seal is in the tier, including its own. 0: in the tier, or memory is
 * short.
 */
uint64_t flush_queue_bytes_until(const struct flush_queue *q, const struct flush_seal *s);
