/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/popular/popular_merge.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

void popular_set_release(struct popular_set *s)
{
	free(s->v);
	*s = (struct popular_set){ 0 };
}

static int by_fp(const void *a, const void *b)
{
	return fp_compare(((const struct popular *)a)->fp, ((const struct popular *)b)->fp);
}

/* Only the most frequent stay. Counts are at most nr_nodes. */
static int keep_most_frequent(const struct merge_conf *conf, struct popular_set *s)
{
	_cleanup_(freep) size_t *with = NULL; /* how many have this count */
	size_t above = 0, left, kept = 0;
	uint32_t least = conf->nr_nodes;

	if (s->nr <= conf->max)
		return 0;
	with = calloc((size_t)conf->nr_nodes + 1, sizeof(*with));
	if (!with)
		return -ENOMEM;
	for (size_t i = 0; i < s->nr; i++)
		with[s->v[i].count]++;
	while (above + with[least] < conf->max)
		above += with[least--];
	left = conf->max - above; /* of those that have just `least` */
	for (size_t i = 0; i < s->nr; i++) {
		if (s->v[i].count < least || (s->v[i].count == least && left == 0))
			continue;
		if (s->v[i].count == least)
			left--;
		s->v[kept++] = s->v[i];
	}
	s->nr = kept;
	return 0;
}

int popular_of_node(const struct merge_conf *conf, uint32_t node, const struct fp *pages, size_t nr,
		    struct popular_set *ret)
{
	struct popular_set s = { .v = malloc(MAX(nr, (size_t)1) * sizeof(*s.v)) };
	size_t kept = 0;

	assert(node < conf->nr_nodes && conf->nr_owners >= 1 && conf->nr_owners <= OWNERS_MAX);
	if (!s.v)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++)
		s.v[i] = (struct popular){ .fp = pages[i], .count = 1, .nr_owners = 1, .owners = { node } };
	qsort(s.v, nr, sizeof(*s.v), by_fp);
	for (size_t i = 0; i < nr; i++)
		if (kept == 0 || fp_compare(s.v[kept - 1].fp, s.v[i].fp) != 0)
			s.v[kept++] = s.v[i];
	s.nr = MIN(kept, conf->max); /* all are as frequent: the lowest */
	*ret = s;
	return 0;
}

/* --- merging --- */

/* Owners that have it already need not store it, so they have no load. */
static void add_load(uint32_t *load, const struct popular *p)
{
	for (uint32_t i = 0; i < p->nr_owners; i++)
		load[p->owners[i]] += !(p->has >> i & 1);
}

/* All entries of both, in order. Those of both have neither count nor owners yet; the load of all others is. */
static size_t join(const struct popular_set *a, const struct popular_set *b, uint32_t *load, struct popular *ret)
{
	size_t i = 0, k = 0, nr = 0;

	while (i < a->nr || k < b->nr) {
		int order = i == a->nr ? 1 : k == b->nr ? -1 : fp_compare(a->v[i].fp, b->v[k].fp);

		if (order == 0) {
			ret[nr++] = (struct popular){ .fp = a->v[i].fp };
			i++;
			k++;
			continue;
		}
		ret[nr] = order < 0 ? a->v[i++] : b->v[k++];
		add_load(load, &ret[nr++]);
	}
	return nr;
}

struct candidate {
	uint32_t node;
	bool has; /* it already */
};

/* Those that have it come first; then the least loaded; the lowest of equals. */
static bool is_better(const struct candidate *a, const struct candidate *b, const uint32_t *load)
{
	return a->has != b->has ? a->has : !a->has && load && load[a->node] < load[b->node];
}

/* Of some nodes, ascending, the best one on a host that has not been chosen. */
static const struct candidate *best_of(const struct merge_conf *conf, const uint32_t *load, const struct candidate *v,
				       size_t nr, const struct popular *chosen)
{
	const struct candidate *best = NULL;

	for (size_t i = 0; i < nr; i++) {
		bool taken = false;

		for (uint32_t k = 0; k < chosen->nr_owners; k++)
			taken |= conf->hosts[v[i].node] == conf->hosts[chosen->owners[k]];
		if (!taken && (!best || is_better(&v[i], best, load)))
			best = &v[i];
	}
	return best;
}

static void add_owner(struct popular *p, const struct candidate *c)
{
	uint32_t at = 0;

	while (at < p->nr_owners && p->owners[at] < c->node)
		at++;
	memmove(&p->owners[at + 1], &p->owners[at], (p->nr_owners - at) * sizeof(*p->owners));
	p->has = (p->has & ((1u << at) - 1)) | (p->has >> at << (at + 1)) | (uint32_t)c->has << at;
	p->owners[at] = c->node;
	p->nr_owners++;
}

/* `load` may be NULL: there is none. */
static void choose(const struct merge_conf *conf, const uint32_t *load, const struct candidate *v, size_t nr,
		   struct popular *ret)
{
	const struct candidate *best;

	while (ret->nr_owners < conf->nr_owners && (best = best_of(conf, load, v, nr, ret)) != NULL)
		add_owner(ret, best);
}

/* One more, each node once, ascending. 1: it was there. */
static uint32_t add_candidate(struct candidate *v, size_t *nr, uint32_t node, bool has)
{
	size_t at = 0;

	while (at < *nr && v[at].node < node)
		at++;
	if (at < *nr && v[at].node == node) {
		v[at].has |= has;
		return 1;
	}
	memmove(&v[at + 1], &v[at], (*nr - at) * sizeof(*v));
	v[at] = (struct candidate){ node, has };
	(*nr)++;
	return 0;
}

void popular_is_had(const struct merge_conf *conf, const uint16_t *nodes, uint32_t nr, struct popular *p)
{
	struct candidate v[2 * OWNERS_MAX];
	uint32_t self = p->owners[0];
	size_t n = 0;

	assert(p->nr_owners == 1 && nr <= OWNERS_MAX);
	add_candidate(v, &n, self, false);
	for (uint32_t i = 0; i < nr; i++)
		add_candidate(v, &n, nodes[i], true);
	p->count = (uint32_t)n;
	p->nr_owners = 0;
	choose(conf, NULL, v, n, p);
}

static void choose_owners(const struct merge_conf *conf, uint32_t *load, const struct popular *a,
			  const struct popular *b, struct popular *ret)
{
	struct candidate v[2 * OWNERS_MAX];
	uint32_t twice = 0;
	size_t nr = 0;

	for (uint32_t i = 0; i < a->nr_owners; i++)
		add_candidate(v, &nr, a->owners[i], a->has >> i & 1);
	for (uint32_t i = 0; i < b->nr_owners; i++)
		twice += add_candidate(v, &nr, b->owners[i], b->has >> i & 1);
	ret->count = MIN(a->count + b->count - twice, conf->nr_nodes);
	choose(conf, load, v, nr, ret);
	add_load(load, ret);
}

int popular_merge(const struct merge_conf *conf, const struct popular_set *a, const struct popular_set *b,
		  struct popular_set *ret)
{
	_cleanup_(popular_set_release) struct popular_set s = { .v = malloc(MAX(a->nr + b->nr, (size_t)1) * sizeof(*s.v)) };
	_cleanup_(freep) uint32_t *load = calloc(conf->nr_nodes, sizeof(*load));
	size_t i = 0, k = 0;
	int r;

	assert(conf->nr_owners >= 1 && conf->nr_owners <= OWNERS_MAX);
	if (!s.v || !load)
		return -ENOMEM;
	s.nr = join(a, b, load, s.v);
	for (size_t n = 0; n < s.nr; n++) {
		while (i < a->nr && fp_compare(a->v[i].fp, s.v[n].fp) < 0)
			i++;
		while (k < b->nr && fp_compare(b->v[k].fp, s.v[n].fp) < 0)
			k++;
		if (s.v[n].nr_owners == 0)
			choose_owners(conf, load, &a->v[i], &b->v[k], &s.v[n]);
	}
	r = keep_most_frequent(conf, &s);
	if (r < 0)
		return r;
	*ret = s;
	s = (struct popular_set){ 0 };
	return 0;
}
