/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/gc/exclusive_marks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static struct gc_bits gone_chunks(const struct pack_frame_rec *rec)
{
	struct gc_bits gone = { 0 };

	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		if (fp_is_none(rec->fps[i]))
			gc_set_bit(&gone, i);
	return gone;
}

int marked_init(struct marked *m, frame_id id, const struct pack_frame_rec *rec)
{
	*m = (struct marked){ .id = id };
	if (!rec)
		return 0;
	if (rec->chunk_len == PACK_VARIED) {
		m->ends = malloc(rec->nr_chunks * sizeof(*m->ends));
		if (!m->ends)
			return -ENOMEM;
		memcpy(m->ends, rec->ends, rec->nr_chunks * sizeof(*m->ends));
	}
	m->chunk_len = rec->chunk_len;
	m->nr_chunks = rec->nr_chunks;
	m->others = gone_chunks(rec);
	return 0;
}

void marked_release(struct marked *m)
{
	free(TAKE(m->ends));
}

static uint32_t end_of(const struct marked *m, uint32_t chunk)
{
	return m->ends ? m->ends[chunk] : (chunk + 1) * m->chunk_len;
}

uint32_t marked_chunk_len(const struct marked *m, uint32_t chunk)
{
	return end_of(m, chunk) - (chunk > 0 ? end_of(m, chunk - 1) : 0);
}

/* The first chunk that ends after `off`. */
static uint32_t chunk_at(const struct marked *m, uint32_t off)
{
	uint32_t low = 0, high = m->nr_chunks;

	if (!m->ends)
		return m->nr_chunks > 0 ? off / m->chunk_len : 0;
	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (m->ends[middle] <= off)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void marked_set(const struct marked *m, struct gc_bits *bits, uint32_t off, uint32_t len)
{
	for (uint32_t i = chunk_at(m, off); i < m->nr_chunks; i++) {
		gc_set_bit(bits, i);
		if (end_of(m, i) >= off + len)
			break;
	}
}

struct gc_bits marked_alone(const struct marked *m)
{
	struct gc_bits b = m->own;

	for (unsigned i = 0; i < PACK_GONE_WORDS; i++)
		b.w[i] &= ~m->others.w[i];
	return b;
}

bool marked_is_shared(const struct marked *m)
{
	struct gc_bits left = marked_alone(m);

	return gc_count(&left) == 0;
}
