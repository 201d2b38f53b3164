/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What nodes hold in common: the reduction of a round. Each node brings the pages it is about to store; sets are merged
 * two by two, in any order and in a tree of any shape, until one is left that says which pages are the most frequent
 * and which nodes are to store each of them. After Nicolae (IPDPS'13), HASH_MERGER, with several owners for a page.
 * Pure.
 *
 * What holds, for any order of merging:
 *   - owners of a page are nodes that hold it, each once, on different hosts: as many as asked for, or as there are
 *     hosts that hold it if these are fewer;
 *   - a page's count is that of the nodes that hold it, as long as no set on the way was cut; else it is not higher;
 *   - a set has at most `max` pages, and none that is left out has a higher count than one that is in it. Of equally
 *     frequent ones those with the lowest fingerprints stay, on all nodes alike: what is cut off first is a part of all
 *     pages, chosen by chance, and not a part of the popular ones on one node and another part on the next.
 * A page may already be stored durably on some node, for others to refer to: an offer lists the nodes that *have* it.
 * Such a node stays an owner, before any that would have to store the page, and adds no load. It counts as a holder of
 * the page; if one half of a merge lists it and the other half has dropped it from its holders, it counts twice.
 *
 * Not guaranteed: the same owners for another order of merging (so one result is computed, and sent to all), and
 * optimally even loads. Pages without a choice are counted first, and then each goes to its least loaded holder; the
 * choices of a merge do not consider those in other branches.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"

#define OWNERS_MAX 4

struct popular {
	struct fp fp;
	uint32_t count; /* nodes that hold it */
	uint32_t nr_owners;
	uint32_t owners[OWNERS_MAX]; /* nodes, by their number in this round, ascending */
	uint32_t has; /* bit i: owners[i] has it already */
};

/* By fingerprint, each once. */
struct popular_set {
	struct popular *v;
	size_t nr;
};

void popular_set_release(struct popular_set *s); /* leaves it empty */

struct merge_conf {
	size_t max; /* pages in a set */
	uint32_t nr_owners; /* for each page; at most OWNERS_MAX */
	uint32_t nr_nodes;
	const uint32_t *hosts; /* of each node: nodes with the same number here are lost together */
};

/* A node's own pages, in any order, some perhaps twice. -ENOMEM. */
int popular_of_node(const struct merge_conf *conf, uint32_t node, const struct fp *pages, size_t nr,
		    struct popular_set *ret);
/* The same page, which other nodes have already: `p` is one of popular_of_node()'s. */
void popular_is_had(const struct merge_conf *conf, const uint16_t *nodes, uint32_t nr, struct popular *p);
/* Of sets of different nodes. It makes no difference which is which. Time: linear in both. -ENOMEM. */
int popular_merge(const struct merge_conf *conf, const struct popular_set *a, const struct popular_set *b,
		  struct popular_set *ret);
