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

#include "base/util.h"
#include "store/engine_state.h"
#include "store/dedup/domains.h"
#include "store/dedup/shifted.h"
#include "store/file/content.h"

#define USELESS_MAX 8u /* jobs without a match before it is tried less often */
#define RETRY_EACH 16u /* from then on, try every so many jobs */

void content_set_champions(struct content *c, const uint64_t *inos, unsigned n)
{
	struct champion now[CHAMPIONS_MAX], old[CHAMPIONS_MAX];
	unsigned nr = 0, nr_old;

	for (unsigned i = 0; i < n && nr < CHAMPIONS_MAX; i++) {
		now[nr] = (struct champion){ 0 };
		if (inos[i] == c->ino || content_open(c->e, inos[i], &now[nr].c) < 0)
			continue; /* without it, lookups only take longer */
		atomic_fetch_add(&now[nr++].c->nr_challengers, 1);
	}
	mutex_lock(&c->lock);
	nr_old = c->nr_champions;
	for (unsigned i = 0; i < nr_old; i++)
		old[i] = c->champions[i];
	for (unsigned i = 0; i < nr; i++)
		c->champions[i] = now[i];
	c->nr_champions = nr;
	mutex_unlock(&c->lock);
	for (unsigned i = 0; i < nr_old; i++) {
		if (atomic_fetch_sub(&old[i].c->nr_challengers, 1) == 1)
			shifted_unmap(old[i].c);
		content_close(old[i].c);
	}
}

unsigned champions_get(struct content *c, bool even_useless, struct content **ret)
{
	unsigned n = 0, same = 0;

	mutex_lock(&c->lock);
	for (unsigned i = 0; i < c->nr_champions; i++)
		if (even_useless || c->champions[i].is_useful || c->champions[i].nr_useless < USELESS_MAX ||
		    c->nr_submitted % RETRY_EACH == 0)
			ret[n++] = content_ref(c->champions[i].c);
	mutex_unlock(&c->lock);
	for (unsigned i = 0; i < n; i++)
		if (content_same_domain(c, ret[i]) > 0)
			ret[same++] = ret[i];
		else
			content_close(ret[i]); /* another domain: shifted.c would share its bytes */
	return same;
}

bool champion_is_useful(struct content *c, const struct content *champion)
{
	bool is = false;

	mutex_lock(&c->lock);
	for (unsigned i = 0; i < c->nr_champions; i++)
		is = is || (c->champions[i].c == champion && c->champions[i].is_useful);
	mutex_unlock(&c->lock);
	return is;
}

void champion_knew(struct content *c, const struct content *champion, unsigned pages, unsigned of_pages)
{
	mutex_lock(&c->lock);
	for (unsigned i = 0; i < c->nr_champions; i++) {
		struct champion it = c->champions[i];

		if (it.c != champion)
			continue;
		if (pages > 0)
			it.is_useful = true;
		else if (!it.is_useful)
			it.nr_useless = MIN(it.nr_useless + 1, USELESS_MAX);
		c->champions[i] = it;
		if (pages > of_pages / 2) {
			c->champions[i] = c->champions[0];
			c->champions[0] = it;
		}
	}
	mutex_unlock(&c->lock);
}
