/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/tier_ids.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define FIRST_SIZE ((size_t)256)

/* The slot of an id, or a free one for it. */
static struct tier_id_slot *slot_of(const struct tier_ids *m, const uint8_t id[TIER_ID_LEN])
{
	uint64_t hash;
	size_t at;

	memcpy(&hash, id, sizeof(hash));
	for (at = (size_t)hash & (m->size - 1); m->v[at].number > 0; at = (at + 1) & (m->size - 1))
		if (memcmp(m->v[at].id, id, TIER_ID_LEN) == 0)
			break;
	return &m->v[at];
}

static int table_grow(struct tier_ids *m)
{
	struct tier_ids more = { .nr = m->nr, .size = MAX(2 * m->size, FIRST_SIZE) };

	more.v = calloc(more.size, sizeof(*more.v));
	if (!more.v)
		return -ENOMEM;
	for (size_t i = 0; i < m->size; i++)
		if (m->v[i].number > 0)
			*slot_of(&more, m->v[i].id) = m->v[i];
	free(m->v);
	*m = more;
	return 0;
}

int tier_ids_add(struct tier_ids *m, const uint8_t id[TIER_ID_LEN], uint32_t number)
{
	int r = 4 * (m->nr + 1) > 3 * m->size ? table_grow(m) : 0;
	struct tier_id_slot *s;

	if (r < 0)
		return r;
	s = slot_of(m, id);
	m->nr += s->number == 0;
	memcpy(s->id, id, sizeof(s->id));
	s->number = number + 1;
	return 0;
}

int tier_ids_find(const struct tier_ids *m, const uint8_t id[TIER_ID_LEN], uint32_t *ret)
{
	const struct tier_id_slot *s = m->size > 0 ? slot_of(m, id) : NULL;

	if (!s || s->number == 0)
		return 0;
	*ret = s->number - 1;
	return 1;
}

void tier_ids_release(struct tier_ids *m)
{
	free(m->v);
	*m = (struct tier_ids){ 0 };
}
