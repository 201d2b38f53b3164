/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A cache of which nodes have which pages: a table of bounded size, in which a page has one of eight places. It grows
 * with its content; at its maximum the least recently used page of a full bucket is evicted, which only costs disk
 * space. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "mpi-agent/popular/popular_merge.h"

struct known;

/* Nodes, ascending, each once; none: unknown. */
struct holders {
	uint32_t nr;
	uint16_t nodes[OWNERS_MAX];
};

/* false: there is no room for more. */
bool holders_add(struct holders *h, uint16_t node);

/* `bytes`: no more than these, and half as much again while it grows; 0: it knows nothing. -ENOMEM */
int known_new(size_t bytes, struct known **ret);
void known_free(struct known *k); /* NULL is fine */
void known_clear(struct known *k);
size_t known_nr(const struct known *k); /* pages */

/* `now` is any time that does not go backwards. */
bool known_find(struct known *k, struct fp fp, uint32_t now, struct holders *ret);
void known_set(struct known *k, struct fp fp, const struct holders *h, uint32_t now); /* these, whatever was known */
/* one more, if there is room; those that it had before */
struct holders known_add(struct known *k, struct fp fp, uint16_t node, uint32_t now);
/* prefetches the place of a page that is about to be looked up, or set */
void known_expect(const struct known *k, struct fp fp);
