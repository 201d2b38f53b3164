/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/file/extents/layer_set.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

#define SIZE_FIRST 256u

/* The slot of the word, or the free slot for it. There is always a free one. */
static struct layer_word *word_at(const struct layer_set *s, uint64_t number)
{
	size_t i = (size_t)(number * 0x9e3779b97f4a7c15u >> 20) & (s->size - 1);

	while (s->v[i].number != 0 && s->v[i].number != number)
		i = (i + 1) & (s->size - 1);
	return &s->v[i];
}

static int grow(struct layer_set *s)
{
	struct layer_set larger = { .nr = s->nr, .size = MAX(2 * s->size, (size_t)SIZE_FIRST) };

	larger.v = calloc(larger.size, sizeof(*larger.v));
	if (!larger.v)
		return -ENOMEM;
	for (size_t i = 0; i < s->size; i++)
		if (s->v[i].number != 0)
			*word_at(&larger, s->v[i].number) = s->v[i];
	free(s->v);
	*s = larger;
	return 0;
}

int layer_set_add(struct layer_set *s, uint64_t layer)
{
	uint64_t number = layer / 64 + 1;
	struct layer_word *w;
	int r = 2 * s->nr >= s->size ? grow(s) : 0;

	if (r < 0)
		return r;
	w = word_at(s, number);
	s->nr += w->number == 0;
	w->number = number;
	w->bits |= UINT64_C(1) << layer % 64;
	return 0;
}

bool layer_set_has(const struct layer_set *s, uint64_t layer)
{
	return s->size > 0 && word_at(s, layer / 64 + 1)->bits >> layer % 64 & 1;
}

void layer_set_release(struct layer_set *s)
{
	free(s->v);
	*s = (struct layer_set){ 0 };
}
