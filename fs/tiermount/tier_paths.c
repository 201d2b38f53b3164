/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/tiermount/tier_paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "fs/tiermount/tier_view.h"

/* All seals of one owner at one path. */
struct claim {
	struct tier_shown *newest;
	int64_t since_ns; /* the oldest seal */
	struct claim *above; /* the nearest preceding one of this path or of a path above it; NULL: none */
	bool is_accepted;
};

bool tier_path_is_below(const char *path, const char *above)
{
	size_t n = strlen(above);

	return strncmp(path, above, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* Each path before the paths below it. */
static int compare_paths(const char *a, const char *b)
{
	const unsigned char *p = (const unsigned char *)a, *q = (const unsigned char *)b;

	while (*p && *p == *q) {
		p++;
		q++;
	}
	if (*p == *q)
		return 0;
	return !*p ? -1 : !*q ? 1 : *p == '/' ? -1 : *q == '/' ? 1 : *p < *q ? -1 : 1;
}

/* By path and owner, then the newest first. */
static int compare_shown(const void *a, const void *b)
{
	const struct tier_shown *x = a, *y = b;
	const struct tier_seal *s = x->seal, *t = y->seal;
	int k = compare_paths(x->path, y->path);

	if (k != 0)
		return k;
	if (s->uid != t->uid)
		return s->uid < t->uid ? -1 : 1;
	if (s->sealed_ns != t->sealed_ns)
		return s->sealed_ns > t->sealed_ns ? -1 : 1;
	if (s->number != t->number)
		return s->number > t->number ? -1 : 1;
	return memcmp(s->store, t->store, TIER_ID_LEN);
}

/* The oldest first. */
static int compare_claims(const void *a, const void *b)
{
	const struct claim *x = *(struct claim *const *)a, *y = *(struct claim *const *)b;

	return x->since_ns != y->since_ns ? (x->since_ns < y->since_ns ? -1 : 1) : (x > y) - (x < y);
}

static size_t make_claims(struct tier_shown *v, size_t nr, struct claim *claims)
{
	size_t used = 0;

	for (size_t i = 0; i < nr; i++) {
		struct claim *last = used > 0 ? &claims[used - 1] : NULL, *above = last;

		if (last && last->newest->seal->uid == v[i].seal->uid && strcmp(last->newest->path, v[i].path) == 0) {
			last->since_ns = v[i].seal->sealed_ns;
			continue;
		}
		while (above && !tier_path_is_below(v[i].path, above->newest->path))
			above = above->above;
		claims[used++] = (struct claim){ .newest = &v[i], .since_ns = v[i].seal->sealed_ns, .above = above };
	}
	return used;
}

static bool is_of_other(const struct claim *x, const struct claim *y)
{
	return x->is_accepted && x->newest->seal->uid != y->newest->seal->uid;
}

/* Has a claim of another owner been accepted for this path, or one above or below it? */
static bool is_taken(const struct claim *c, const struct claim *end)
{
	for (const struct claim *above = c->above; above; above = above->above)
		if (is_of_other(above, c))
			return true;
	for (const struct claim *below = c + 1; below < end && tier_path_is_below(below->newest->path, c->newest->path);
	     below++)
		if (is_of_other(below, c))
			return true;
	return false;
}

int tier_paths_choose(struct tier_shown *v, size_t nr)
{
	_cleanup_(freep) struct claim *claims = calloc(MAX(nr, (size_t)1), sizeof(*claims));
	_cleanup_(freep) struct claim **by_age = calloc(MAX(nr, (size_t)1), sizeof(struct claim *));
	const char *last = NULL;
	size_t nr_claims;

	if (!claims || !by_age)
		return -ENOMEM;
	if (nr > 0)
		qsort(v, nr, sizeof(*v), compare_shown);
	nr_claims = make_claims(v, nr, claims);
	for (size_t i = 0; i < nr_claims; i++)
		by_age[i] = &claims[i];
	if (nr_claims > 0)
		qsort(by_age, nr_claims, sizeof(struct claim *), compare_claims);
	for (size_t i = 0; i < nr_claims; i++)
		by_age[i]->is_accepted = !is_taken(by_age[i], claims + nr_claims);
	for (size_t i = 0; i < nr; i++)
		v[i].is_shown = false;
	for (size_t i = 0; i < nr_claims; i++) {
		struct tier_shown *s = claims[i].newest;

		if (!claims[i].is_accepted || (last && tier_path_is_below(s->path, last)))
			continue;
		last = s->path;
		s->is_shown = true;
	}
	return 0;
}
