/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/collect/pack_set.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static int compare_packs(const void *a, const void *b)
{
	return memcmp(((const struct set_pack *)a)->id, ((const struct set_pack *)b)->id, TIER_ID_LEN);
}

void pack_set_sort(struct pack_set *s)
{
	size_t nr = 0;

	if (s->nr > s->nr_sorted)
		qsort(s->v, s->nr, sizeof(*s->v), compare_packs);
	for (size_t i = 0; i < s->nr; i++)
		if (nr == 0 || compare_packs(&s->v[nr - 1], &s->v[i]) != 0)
			s->v[nr++] = s->v[i];
	s->nr = s->nr_sorted = nr;
}

int pack_set_add(struct pack_set *s, const uint8_t id[TIER_ID_LEN], uint64_t len)
{
	int r;

	if (s->nr == s->room && s->nr > 2 * s->nr_sorted)
		pack_set_sort(s); /* many manifests name the same packs */
	r = list_grow(&s->v, s->nr, &s->room, sizeof(*s->v));
	if (r < 0)
		return r;
	memcpy(s->v[s->nr].id, id, TIER_ID_LEN);
	s->v[s->nr].len = len;
	s->v[s->nr++].is_listed = false;
	return 0;
}

struct set_pack *pack_set_find(const struct pack_set *s, const uint8_t id[TIER_ID_LEN])
{
	assert(s->nr == s->nr_sorted);
	return s->nr > 0 ? bsearch(id, s->v, s->nr, sizeof(*s->v), compare_packs) : NULL;
}

uint64_t pack_set_bytes(const struct pack_set *s)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < s->nr; i++)
		bytes += s->v[i].len;
	return bytes;
}

int pack_set_add_manifest(struct pack_set *s, const struct tier_manifest *m)
{
	int r = 0;

	for (uint32_t i = 0; i < m->nr_packs && r == 0; i++) {
		struct tier_footer f;

		r = tier_manifest_pack(m, i, &f);
		if (r == 0)
			r = pack_set_add(s, f.id, tier_pack_len(&f));
	}
	return r;
}
