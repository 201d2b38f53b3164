/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/format/delta_encode.h"

#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "base/checksum.h"
#include "base/util.h"

/* The highest node that begins with `chunk` and has at most `count` of them: the logarithm of how many. */
static unsigned node_shift(uint32_t chunk, uint32_t count)
{
	unsigned fits = 31 - (unsigned)__builtin_clz(count);

	return chunk == 0 ? fits : MIN(fits, (unsigned)__builtin_ctz(chunk));
}

static uint32_t node_of(uint64_t nr_chunks, uint32_t chunk, unsigned shift)
{
	return (uint32_t)(((UINT64_C(1) << delta_tree_height(nr_chunks)) + chunk) >> shift);
}

static uint64_t count_nodes(uint32_t chunk, uint32_t count)
{
	uint64_t nr = 0;

	for (; count > 0; nr++) {
		uint32_t span = UINT32_C(1) << node_shift(chunk, count);

		chunk += span;
		count -= span;
	}
	return nr;
}

static uint64_t bitmap_size(const struct delta_plan *plan _unused_, uint64_t nr_chunks)
{
	return nr_chunks / 8 + (nr_chunks % 8 != 0);
}

static void bitmap_put(const struct delta_plan *plan, uint64_t nr_chunks, struct buf *ret)
{
	size_t len = (size_t)bitmap_size(plan, nr_chunks);
	uint8_t *bits;

	if (len == 0 || buf_reserve(ret, len) < 0)
		return;
	bits = ret->data + ret->len;
	memset(bits, 0, len);
	for (size_t i = 0; i < plan->nr_first; i++)
		for (uint32_t n = 0; n < plan->first[i].count; n++)
			bits[(plan->first[i].chunk + n) / 8] |= (uint8_t)(1 << (plan->first[i].chunk + n) % 8);
	ret->len += len;
}

static uint64_t list_size(const struct delta_plan *plan, uint64_t nr_chunks _unused_)
{
	uint64_t nr = 0;

	for (size_t i = 0; i < plan->nr_first; i++)
		nr += plan->first[i].count;
	return nr * sizeof(struct le32);
}

static void list_put(const struct delta_plan *plan, uint64_t nr_chunks _unused_, struct buf *ret)
{
	for (size_t i = 0; i < plan->nr_first; i++)
		for (uint32_t n = 0; n < plan->first[i].count; n++)
			buf_add_le32(ret, plan->first[i].chunk + n);
}

static uint64_t nodes_size(const struct delta_plan *plan, uint64_t nr_chunks _unused_)
{
	uint64_t nr = 0;

	for (size_t i = 0; i < plan->nr_first; i++)
		nr += count_nodes(plan->first[i].chunk, plan->first[i].count);
	return nr * sizeof(struct le32);
}

static void nodes_put(const struct delta_plan *plan, uint64_t nr_chunks, struct buf *ret)
{
	for (size_t i = 0; i < plan->nr_first; i++) {
		struct delta_run left = plan->first[i];

		while (left.count > 0) {
			unsigned shift = node_shift(left.chunk, left.count);

			buf_add_le32(ret, node_of(nr_chunks, left.chunk, shift));
			left.chunk += UINT32_C(1) << shift;
			left.count -= UINT32_C(1) << shift;
		}
	}
}

static uint64_t runs_size(const struct delta_plan *plan, uint64_t nr_chunks _unused_)
{
	return plan->nr_first * sizeof(struct delta_run_disk);
}

static void runs_put(const struct delta_plan *plan, uint64_t nr_chunks _unused_, struct buf *ret)
{
	for (size_t i = 0; i < plan->nr_first; i++) {
		buf_add_le32(ret, plan->first[i].chunk);
		buf_add_le32(ret, plan->first[i].count);
	}
}

static uint64_t shifted_list_size(const struct delta_plan *plan, uint64_t nr_chunks _unused_)
{
	uint64_t nr = 0;

	for (size_t i = 0; i < plan->nr_shifted; i++)
		nr += plan->shifted[i].count;
	return nr * sizeof(struct delta_shifted_disk);
}

static void shifted_add(struct buf *ret, uint32_t dst, uint32_t version, uint32_t src)
{
	buf_add_le32(ret, dst);
	buf_add_le32(ret, version);
	buf_add_le32(ret, src);
}

static void shifted_list_put(const struct delta_plan *plan, uint64_t nr_chunks _unused_, struct buf *ret)
{
	for (size_t i = 0; i < plan->nr_shifted; i++) {
		const struct delta_shift *s = &plan->shifted[i];

		for (uint32_t n = 0; n < s->count; n++)
			shifted_add(ret, s->dst + n, s->version, s->repeated ? s->src : s->src + n);
	}
}

/* A repeated chunk is named leaf by leaf: the source of a node advances. */
static uint64_t shifted_nodes_size(const struct delta_plan *plan, uint64_t nr_chunks _unused_)
{
	uint64_t nr = 0;

	for (size_t i = 0; i < plan->nr_shifted; i++)
		nr += plan->shifted[i].repeated ? plan->shifted[i].count :
						  count_nodes(plan->shifted[i].dst, plan->shifted[i].count);
	return nr * sizeof(struct delta_shifted_disk);
}

static void shifted_nodes_put(const struct delta_plan *plan, uint64_t nr_chunks, struct buf *ret)
{
	for (size_t i = 0; i < plan->nr_shifted; i++) {
		struct delta_shift left = plan->shifted[i];

		while (left.count > 0) {
			unsigned shift = left.repeated ? 0 : node_shift(left.dst, left.count);

			shifted_add(ret, node_of(nr_chunks, left.dst, shift), left.version, left.src);
			left.dst += UINT32_C(1) << shift;
			left.src += left.repeated ? 0 : UINT32_C(1) << shift;
			left.count -= UINT32_C(1) << shift;
		}
	}
}

static uint64_t shifted_runs_size(const struct delta_plan *plan, uint64_t nr_chunks _unused_)
{
	return plan->nr_shifted * sizeof(struct delta_shifted_run_disk);
}

static void shifted_runs_put(const struct delta_plan *plan, uint64_t nr_chunks _unused_, struct buf *ret)
{
	for (size_t i = 0; i < plan->nr_shifted; i++) {
		const struct delta_shift *s = &plan->shifted[i];

		buf_add_le32(ret, s->dst);
		buf_add_le32(ret, s->count);
		buf_add_le32(ret, s->version);
		buf_add_le32(ret, s->repeated ? s->src | DELTA_SRC_REPEATED : s->src);
	}
}

struct encoder {
	enum delta_encoding encoding;
	uint64_t (*size)(const struct delta_plan *plan, uint64_t nr_chunks);
	void (*put)(const struct delta_plan *plan, uint64_t nr_chunks, struct buf *ret);
};

/* Of those equally small the first one is taken. */
static const struct encoder first_encoders[] = {
	{ DELTA_RUNS, runs_size, runs_put },
	{ DELTA_NODES, nodes_size, nodes_put },
	{ DELTA_LIST, list_size, list_put },
	{ DELTA_BITMAP, bitmap_size, bitmap_put },
};
static const struct encoder shifted_encoders[] = {
	{ DELTA_RUNS, shifted_runs_size, shifted_runs_put },
	{ DELTA_NODES, shifted_nodes_size, shifted_nodes_put },
	{ DELTA_LIST, shifted_list_size, shifted_list_put },
};

static const struct encoder *smallest(const struct encoder *encoders, size_t nr, const struct delta_plan *plan,
				      unsigned allowed, uint64_t nr_chunks, uint64_t *ret_size)
{
	const struct encoder *best = NULL;

	for (size_t i = 0; i < nr; i++) {
		uint64_t size;

		if (!(allowed & DELTA_AS(encoders[i].encoding)))
			continue;
		size = encoders[i].size(plan, nr_chunks);
		if (best && size >= *ret_size)
			continue;
		best = &encoders[i];
		*ret_size = size;
	}
	assert(best);
	return best;
}

void delta_tables_encode(struct delta_header *h, const struct delta_plan *plan, struct buf *ret)
{
	const struct encoder *first, *shifted;
	uint64_t nr_chunks = delta_nr_chunks(h);
	size_t start = ret->len;

	first = smallest(first_encoders, ARRAY_SIZE(first_encoders), plan, plan->first_as, nr_chunks, &h->first_len);
	shifted = smallest(shifted_encoders, ARRAY_SIZE(shifted_encoders), plan, plan->shifted_as, nr_chunks,
			   &h->shifted_len);
	h->first_encoding = first->encoding;
	h->shifted_encoding = shifted->encoding;
	h->literals_len = plan->nr_literals * sizeof(struct delta_literal_disk);
	if (buf_reserve(ret, (size_t)delta_tables_len(h)) < 0)
		return;
	first->put(plan, nr_chunks, ret);
	shifted->put(plan, nr_chunks, ret);
	for (size_t i = 0; i < plan->nr_literals; i++) {
		buf_add_le64(ret, plan->literals[i].off);
		buf_add_le64(ret, plan->literals[i].len);
	}
	assert(ret->len - start == delta_tables_len(h));
	h->tables_crc = crc32c(ret->len > start ? ret->data + start : NULL, ret->len - start);
}
