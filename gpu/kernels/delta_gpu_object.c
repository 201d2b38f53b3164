/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The object of a take. The device builds its tables once all chunks are labelled. The object is a list of parts, each
 * where the device wrote it.
 */
#include "gpu/kernels/delta_gpu_record.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"

static_assert(DELTA_METHOD_FULL == 0 && DELTA_METHOD_BASIC == 1 && DELTA_METHOD_LIST == 2, "kernel_tables.cu");
static_assert(DELTA_BITMAP == 1 && DELTA_LIST == 2 && DELTA_NODES == 3 && DELTA_RUNS == 4, "kernel_tables.cu");

/* Encodings of empty tables, and of methods without a choice. */
static const struct {
	enum delta_encoding first, shifted;
} encodings[] = {
	[DELTA_METHOD_FULL] = { DELTA_RUNS, DELTA_RUNS },
	[DELTA_METHOD_BASIC] = { DELTA_BITMAP, DELTA_LIST },
	[DELTA_METHOD_LIST] = { DELTA_LIST, DELTA_LIST },
	[DELTA_METHOD_TREE] = { DELTA_RUNS, DELTA_RUNS },
};

static uint32_t tables_blocks(const struct delta_gpu *g)
{
	return MIN(4 * g->blocks, GPU_BLOCKS_MAX);
}

int delta_gpu_launch_tables(struct delta_gpu *g)
{
	struct gpu_totals all = g->report->upto[g->nr_segments - 1]; /* final only if `whole` */
	uint64_t first = g->whole ? all.pages + all.rest : g->room.nr_changed;
	uint64_t shifted = g->whole ? all.changed - first : g->room.nr_changed;
	struct gpu_room *m = &g->room;
	struct gpu_tables t = {
		.method = g->method,
		.height = delta_tree_height(g->take.nr_chunks),
		.nr_segments = g->nr_segments,
		.run_starts = m->run_starts,
		.run_ends = m->run_ends,
		.runs_room = m->nr_chunks / GPU_GROUP,
		.run_sums = m->run_sums,
		.chunk_sums = m->chunk_sums,
		.node_sums = m->node_sums,
		.shift_run_sums = m->shift_run_sums,
		.shift_node_sums = m->shift_node_sums,
		.names = m->names,
		.names_summary = m->names_summary,
		.starts = m->starts,
		.shift_runs = m->shift_runs,
		.powers = g->gpu_powers,
	};
	int r;

	/* Upper bounds for all encodings that may be chosen. */
	g->shifted_at = round_up(g->method == DELTA_METHOD_LIST ? 4 * first : g->take.nr_groups * 4, 16);
	r = delta_gpu_ensure_tables(g, g->shifted_at + 12 * shifted + 16);
	if (r < 0)
		return r;
	t.first_out = g->tables;
	t.shifted_out = g->tables + g->shifted_at / sizeof(*g->tables);
	return cuda_errno(gpu_tables(&g->take, &t, tables_blocks(g), g->streams[REST]), "tables");
}

/* As content_hash_finish(), from the top of the tree. */
static struct digest fingerprint(const struct delta_gpu *g)
{
	struct digest top = { 0, 0 }; /* of empty content */

	if (g->pending.nr_chunks > 0)
		top = g->report->top;
	return xxh3_short(&g->keys.group, (uint64_t[]){ top.lo, top.hi, g->pending.len, g->params.chunk_len }, 32);
}

/* The payload of a short last chunk ends with the content. */
static uint64_t rest_len(const struct delta_gpu *g)
{
	uint64_t chunk_len = g->params.chunk_len;
	bool cut = g->method != DELTA_METHOD_FULL && g->pending.nr_whole < g->pending.nr_chunks &&
		   g->report->last_is_first;

	return cut ? g->rest.len - (chunk_len - g->pending.len % chunk_len) : g->rest.len;
}

/* Checksum of both tables, combined from those of the blocks. */
static uint32_t tables_crc(const struct delta_gpu *g, uint64_t first_len, uint64_t shifted_len)
{
	uint32_t first = 0, shifted = 0;

	for (uint32_t i = 0; i < tables_blocks(g); i++) {
		first ^= first_len > 0 ? g->report->first_crc[i] : 0;
		shifted ^= shifted_len > 0 ? g->report->shifted_crc[i] : 0;
	}
	return crc_finish(&g->powers, crc_behind(&g->powers, first, shifted_len) ^ shifted, first_len + shifted_len);
}

/* Waits for the tables and sets their fields in the header. */
static int finish_tables(struct delta_gpu *g, struct delta_header *h)
{
	bool first = g->rest.len + g->pages.len > 0 || g->method == DELTA_METHOD_BASIC;
	int r;

	h->first_encoding = encodings[g->method].first;
	h->shifted_encoding = encodings[g->method].shifted;
	if (g->pending.nr_chunks == 0)
		return 0;
	if (g->method == DELTA_METHOD_FULL) {
		r = delta_gpu_ensure_tables(g, 2 * sizeof(*g->tables));
		if (r < 0)
			return r;
		g->tables[0] = 0;
		g->tables[1] = (uint32_t)g->pending.nr_chunks;
		h->first_len = 2 * sizeof(*g->tables);
		h->tables_crc = crc32c(g->tables, h->first_len);
		return 0;
	}
	r = delta_gpu_wait_flag(g, &g->report->tabled, REST);
	if (r < 0)
		return r;
	if (first) {
		h->first_encoding = g->report->first_encoding;
		h->first_len = g->report->first_len;
	}
	if (g->report->upto[g->nr_segments - 1].changed * g->params.chunk_len > g->pages.len + g->rest.len) {
		h->shifted_encoding = g->report->shifted_encoding;
		h->shifted_len = g->report->shifted_len;
	}
	h->tables_crc = tables_crc(g, h->first_len, h->shifted_len);
	return 0;
}

static int make_parts(struct delta_gpu *g, const struct delta_header *h, struct delta_object *ret)
{
	size_t room = g->pages.nr_slabs + g->rest.nr_slabs + 3, nr = 0;
	struct iovec *parts = realloc(g->parts, room * sizeof(*parts));

	if (!parts)
		return -ENOMEM;
	g->parts = parts;
	parts[nr++] = (struct iovec){ g->head, delta_payload_off(h) };
	nr += pinned_parts(&g->pages, h->pages_len, parts + nr, room - nr);
	nr += pinned_parts(&g->rest, h->payload_len - h->pages_len, parts + nr, room - nr);
	if (h->first_len > 0)
		parts[nr++] = (struct iovec){ g->tables, h->first_len };
	if (h->shifted_len > 0)
		parts[nr++] = (struct iovec){ (uint8_t *)g->tables + g->shifted_at, h->shifted_len };
	*ret = (struct delta_object){ .header = *h, .parts = parts, .nr_parts = nr };
	return 0;
}

int delta_gpu_finish(struct delta_gpu *g, struct delta_object *ret)
{
	struct delta_header h = {
		.chunk_len = g->params.chunk_len,
		.number = g->pending.number,
		.parent = g->method == DELTA_METHOD_FULL ? DELTA_NO_PARENT : g->newest.number,
		.content_len = g->pending.len,
		.pages_len = g->pages.len,
		.payload_len = g->pages.len + rest_len(g),
	};
	int r;

	assert(g->pending.number != 0);
	memcpy(h.lineage, g->params.lineage, sizeof(h.lineage));
	r = finish_tables(g, &h);
	if (r == 0 && g->pending.nr_chunks > 0)
		r = delta_gpu_wait_flag(g, &g->report->topped, TOP); /* also waits for the hashing */
	if (r == 0 && g->pages.len + g->rest.len > 0)
		r = delta_gpu_wait(g, COPY);
	if (r < 0)
		return r;
	h.fingerprint = fingerprint(g);
	delta_header_encode(&h, (struct delta_header_disk *)g->head);
	r = make_parts(g, &h, ret);
	g->finished = r == 0;
	return r;
}
