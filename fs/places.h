/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A limited number of places that users share: one user cannot take all of them, and some are reserved for root (or the
 * mounting user).
 */
#pragma once

#include <stdbool.h>

struct places {
	unsigned all;
	unsigned reserved; /* of these, reserved for root */
	unsigned per_user; /* limit for an ordinary user */
};

/* May one more be taken, where `nr` are taken, `nr_own` of them by the same user? */
static inline bool places_has_room(const struct places *p, unsigned nr, unsigned nr_own, bool is_root)
{
	return is_root ? nr < p->all : nr + p->reserved < p->all && nr_own < p->per_user;
}
