/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which nodes hold replicas or parity of the directories that a node has sealed: the nodes behind it in the circular
 * order of store ids that run on other hosts. All nodes with the same view of the world reach the same result without
 * communication. Pure.
 */
#pragma once

#include <stdint.h>

struct service_world;

#define PARTNERS_MAX 7u

/*
 * The partner for a directory of node `origin` that this node has, as an index in the world. 0; -EHOSTUNREACH: none.
 */
int partners_first(const struct service_world *w, const uint8_t *origin, uint32_t *ret);
/* protect=xor: up to PARTNERS_MAX partners, each on a host of its own. Returns their number; 0: none. */
uint32_t partners_group(const struct service_world *w, const uint8_t *origin, uint32_t ret[PARTNERS_MAX]);
