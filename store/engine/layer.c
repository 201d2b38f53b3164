#include "store/engine/layer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/engine/segment.h"

static uint64_t bytes_of(const struct layer *l)
{
	return sizeof(*l) + l->nr * sizeof(*l->x);
}

static struct layer *layer_alloc(size_t nr_own, struct layer *below, _Atomic uint64_t *memory)
{
	struct layer *l = malloc(sizeof(*l) + nr_own * sizeof(*l->own));

	if (l)
		*l = (struct layer){ .refs = 1, .memory = memory, .below = below, .depth = 1 + (below ? below->depth : 0) };
	return l;
}

int layer_new(struct extent_list *list, _Atomic uint64_t *memory, struct layer **ret)
{
	struct layer *l = layer_alloc(0, NULL, memory);
	struct extent *x = l ? realloc(list->x, list->nr * sizeof(*x)) : NULL;

	assert(list->nr > 0);
	if (!x) {
		free(l);
		return -ENOMEM;
	}
	l->x = x;
	l->nr = l->nr_most = (uint32_t)list->nr;
	for (uint32_t i = 0; i < l->nr; i++)
		l->mapped += x[i].len;
	l->is_dense = l->mapped == x[l->nr - 1].off + x[l->nr - 1].len;
	if (memory)
		atomic_fetch_add(memory, bytes_of(l));
	*list = (struct extent_list){ 0 };
	*ret = l;
	return 0;
}

int layer_on(struct layer *below, uint32_t off, const struct extent *x, size_t nr, struct layer **ret)
{
	struct layer *l = layer_alloc(nr, below, below->memory);

	if (!l)
		return -ENOMEM;
	l->x = l->own;
	l->nr = (uint32_t)nr;
	l->nr_most = below->nr_most + 2 * l->nr; /* each may cut one in two */
	l->mapped = below->mapped;
	l->is_dense = below->is_dense;
	for (size_t i = 0; i < nr; i++)
		l->x[i] = (struct extent){ off + x[i].off, x[i].len, x[i].addr };
	if (l->memory)
		atomic_fetch_add(l->memory, bytes_of(l));
	*ret = l;
	return 0;
}

struct layer *layer_get(struct layer *l)
{
	atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
	return l;
}

void layer_put(struct layer *l)
{
	while (l && atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1) {
		struct layer *below = l->below;

		if (l->memory)
			atomic_fetch_sub(l->memory, bytes_of(l));
		if (l->x != l->own)
			free(l->x);
		free(l);
		l = below;
	}
}

/* Some layers one above the other, the lowest first, as one. Halves of about the same size: each extent is looked at as
 * often as the number of layers can be halved. */
static int merge(const struct layer *const *layers, size_t nr, struct extent_list *ret)
{
	struct extent_list lower = { 0 }, upper = { 0 };
	size_t half = nr / 2;
	int r;

	if (nr == 1)
		return extent_list_append(ret, layers[0]->x, layers[0]->nr, 0);
	if (nr == 2)
		return extent_list_lay_over(layers[0]->x, layers[0]->nr, layers[1]->x, layers[1]->nr, ret);
	r = merge(layers, half, &lower);
	if (r == 0)
		r = merge(layers + half, nr - half, &upper);
	if (r == 0)
		r = extent_list_lay_over(lower.x, lower.nr, upper.x, upper.nr, ret);
	extent_list_release(&lower);
	extent_list_release(&upper);
	return r;
}

/* The lowest is most of it, and so comes last. */
int layer_merge(const struct layer *top, struct extent_list *ret)
{
	const struct layer **layers, *lowest = top;
	struct extent_list patches = { 0 };
	int r;

	if (top->depth == 1)
		return merge(&top, 1, ret);
	layers = calloc(top->depth, sizeof(*layers));
	if (!layers)
		return -ENOMEM;
	for (unsigned i = top->depth; i-- > 0; lowest = lowest->below ? lowest->below : lowest)
		layers[i] = lowest;
	r = merge(layers + 1, top->depth - 1, &patches);
	if (r == 0)
		r = extent_list_lay_over(lowest->x, lowest->nr, patches.x, patches.nr, ret);
	extent_list_release(&patches);
	free(layers);
	return r;
}
