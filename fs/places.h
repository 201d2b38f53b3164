/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A limited number of places that users share: one user cannot take all of them, some are reserved for root (or the
 * mounting user), and some for users that have none. A user is all user IDs of one owner (fs/subuids.h).
 */
#pragma once

#include <stdbool.h>

struct places {
	unsigned all;
	unsigned reserved; /* of these, reserved for root */
	unsigned per_user; /* limit for an ordinary user */
	unsigned first; /* more than `all`, each for a user that has none */
};

/* May one more be taken, where `nr` are taken, `nr_own` of them by the same user? */
static inline bool places_has_room(const struct places *p, unsigned nr, unsigned nr_own, bool is_root)
{
	if (is_root)
		return nr < p->all + p->first;
	return (nr + p->reserved < p->all && nr_own < p->per_user) ||
	       (nr + p->reserved < p->all + p->first && nr_own == 0);
}
