/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Champions: the few files likely to hold the same bytes at the same offsets as the data being written, usually
 * previous versions.
 *
 * Only the data shows which of them is right: `ckpt-3.0042` may resemble `ckpt-3.0041` or `ckpt-2.0042`. Each job tries
 * them in turn until one matches more than half of it; that one comes first for the next job. A champion that has never
 * matched is tried only now and then, because a lookup may read a pack table from disk.
 */
#include "store/dedup/champions.h"

#include <stdlib.h>

#include "base/util.h"
#include "store/dedup/champions_state.h"
#include "store/dedup/domains.h"
#include "store/dedup/shifted.h"
#include "store/file/content.h"

#define USELESS_MAX 8u /* lookups without a match before it is tried less often */
#define RETRY_EACH 16u /* from then on, try it at every so many lookups */

struct champions *champions_new(struct content *of)
{
	struct champions *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->of = of;
	mutex_init(&p->lock);
	mutex_init(&p->map_lock);
	return p;
}

void champions_free(struct champions *p)
{
	if (!p)
		return;
	shifted_unmap(p);
	mutex_release(&p->map_lock);
	mutex_release(&p->lock);
	free(p);
}

void content_set_champions(struct content *c, const uint64_t *inos, unsigned n)
{
	struct champion now[CHAMPIONS_MAX], old[CHAMPIONS_MAX];
	struct champions *p = content_champions(c);
	unsigned nr = 0, nr_old;

	for (unsigned i = 0; i < n && nr < CHAMPIONS_MAX; i++) {
		now[nr] = (struct champion){ 0 };
		if (inos[i] == content_ino(c) || content_open(content_engine(c), inos[i], &now[nr].c) < 0)
			continue; /* without it, lookups only take longer */
		atomic_fetch_add(&content_champions(now[nr++].c)->nr_challengers, 1);
	}
	mutex_lock(&p->lock);
	nr_old = p->nr;
	for (unsigned i = 0; i < nr_old; i++)
		old[i] = p->v[i];
	for (unsigned i = 0; i < nr; i++)
		p->v[i] = now[i];
	p->nr = nr;
	mutex_unlock(&p->lock);
	for (unsigned i = 0; i < nr_old; i++) {
		struct champions *its = content_champions(old[i].c);

		if (atomic_fetch_sub(&its->nr_challengers, 1) == 1)
			shifted_unmap(its);
		content_close(old[i].c);
	}
}

unsigned champions_get(struct content *c, bool even_useless, struct content **ret)
{
	struct champions *p = content_champions(c);
	unsigned n = 0, same = 0;

	mutex_lock(&p->lock);
	p->nr_lookups += !even_useless;
	for (unsigned i = 0; i < p->nr; i++)
		if (even_useless || p->v[i].is_useful || p->v[i].nr_useless < USELESS_MAX ||
		    p->nr_lookups % RETRY_EACH == 0)
			ret[n++] = content_ref(p->v[i].c);
	mutex_unlock(&p->lock);
	for (unsigned i = 0; i < n; i++)
		if (content_same_domain(c, ret[i]) > 0)
			ret[same++] = ret[i];
		else
			content_close(ret[i]); /* another domain: shifted.c would share its bytes */
	return same;
}

bool champion_is_useful(struct content *c, const struct content *champion)
{
	struct champions *p = content_champions(c);
	bool is = false;

	mutex_lock(&p->lock);
	for (unsigned i = 0; i < p->nr; i++)
		is = is || (p->v[i].c == champion && p->v[i].is_useful);
	mutex_unlock(&p->lock);
	return is;
}

void champion_knew(struct content *c, const struct content *champion, unsigned pages, unsigned of_pages)
{
	struct champions *p = content_champions(c);

	mutex_lock(&p->lock);
	for (unsigned i = 0; i < p->nr; i++) {
		struct champion it = p->v[i];

		if (it.c != champion)
			continue;
		if (pages > 0)
			it.is_useful = true;
		else if (!it.is_useful)
			it.nr_useless = MIN(it.nr_useless + 1, USELESS_MAX);
		p->v[i] = it;
		if (pages > of_pages / 2) {
			p->v[i] = p->v[0];
			p->v[0] = it;
		}
	}
	mutex_unlock(&p->lock);
}
