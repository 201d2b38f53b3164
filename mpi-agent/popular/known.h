/*
 * Which nodes have which pages, as far as memory goes: a table of bounded size, in which a page has one of eight
 * places. It grows with what is known; if it may not, and all are taken, what has not been asked for for longest goes:
 * forgetting costs space on some disk, and no more. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "mpi-agent/merge.h"

struct known;

/* Nodes, ascending, each once; none: nobody knows. */
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
/* it is about to be asked for, or set: its place may come from memory meanwhile */
void known_expect(const struct known *k, struct fp fp);
