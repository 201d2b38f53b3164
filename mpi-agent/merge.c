#include "mpi-agent/merge.h"

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
static int cut(const struct merge_conf *conf, struct popular_set *s)
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

static void add_load(uint32_t *load, const struct popular *p)
{
	for (uint32_t i = 0; i < p->nr_owners; i++)
		load[p->owners[i]]++;
}

/* All entries of both, in order. Those of both have no owners yet; all others are counted. */
static size_t join(const struct popular_set *a, const struct popular_set *b, uint32_t *load, struct popular *ret)
{
	size_t i = 0, k = 0, nr = 0;

	while (i < a->nr || k < b->nr) {
		int order = i == a->nr ? 1 : k == b->nr ? -1 : fp_compare(a->v[i].fp, b->v[k].fp);

		if (order == 0) {
			ret[nr++] = (struct popular){ .fp = a->v[i].fp, .count = a->v[i].count + b->v[k].count };
			i++;
			k++;
			continue;
		}
		ret[nr] = order < 0 ? a->v[i++] : b->v[k++];
		add_load(load, &ret[nr++]);
	}
	return nr;
}

/* Of some nodes, ascending, the least loaded on a host that has not been chosen; the lowest of equals. */
static const uint32_t *least_loaded(const struct merge_conf *conf, const uint32_t *load, const uint32_t *nodes, size_t nr,
				    const struct popular *chosen)
{
	const uint32_t *best = NULL;

	for (size_t i = 0; i < nr; i++) {
		bool taken = false;

		for (uint32_t k = 0; k < chosen->nr_owners; k++)
			taken |= conf->hosts[nodes[i]] == conf->hosts[chosen->owners[k]];
		if (!taken && (!best || load[nodes[i]] < load[*best]))
			best = &nodes[i];
	}
	return best;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void choose_owners(const struct merge_conf *conf, uint32_t *load, const struct popular *a, const struct popular *b,
			  struct popular *ret)
{
	uint32_t nodes[2 * OWNERS_MAX];
	size_t nr = a->nr_owners + b->nr_owners;
	const uint32_t *best;

	memcpy(nodes, a->owners, a->nr_owners * sizeof(*nodes));
	memcpy(nodes + a->nr_owners, b->owners, b->nr_owners * sizeof(*nodes));
	qsort(nodes, nr, sizeof(*nodes), by_number);
	while (ret->nr_owners < conf->nr_owners && (best = least_loaded(conf, load, nodes, nr, ret)) != NULL)
		ret->owners[ret->nr_owners++] = *best;
	qsort(ret->owners, ret->nr_owners, sizeof(*ret->owners), by_number);
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
	r = cut(conf, &s);
	if (r < 0)
		return r;
	*ret = s;
	s = (struct popular_set){ 0 };
	return 0;
}
