/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Verifies checkpoints of a tier: manifest and key, the tables of all packs, the root of the seal, and every chunk.
 * Chunks that several checkpoints share are read once, within the bound of tier_verified.h.
 */
#pragma once

#include <stdbool.h>

#include "tools/tier/tier_access.h"

/*
 * `names`: as users name checkpoints; none: all. Prints a line for each one, and for each damaged file and pack.
 * -EBADMSG: one is damaged; others: one cannot be read.
 */
int tier_verify(struct tier_access *a, char *names[], int nr, bool json, bool quiet);
