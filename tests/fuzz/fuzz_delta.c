/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Delta objects: as they come, and with checksums and the length of the payload made right, because by chance they
 * never are. What is accepted is sound, and FIRST encodes to the same bytes.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/checksum.h"
#include "base/util.h"
#include "gpu/format/delta_encode.h"
#include "gpu/format/delta_format.h"
#include "tests/unit/gpu/format/whole_object.h"

#define CHUNKS_MAX 4096u /* that are looked at one by one */

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void check_first(const struct delta_tables *t, const struct buf *runs)
{
	_cleanup_(buf_release) struct buf tables = BUF_EMPTY;
	struct delta_header h = t->header;
	const struct delta_plan plan = {
		.first = (const struct delta_run *)runs->data,
		.nr_first = runs->len / sizeof(struct delta_run),
		.first_as = DELTA_AS(h.first_encoding),
		.shifted_as = DELTA_AS(h.shifted_encoding),
	};

	delta_tables_encode(&h, &plan, &tables);
	assert(h.first_len == t->header.first_len);
	assert(tables.len == 0 || memcmp(tables.data, t->first, tables.len) == 0);
}

/* A stretch with whole pages comes in pieces. */
static void add_run(struct buf *runs, struct delta_run run)
{
	struct delta_run *last = runs->len > 0 ? (struct delta_run *)(runs->data + runs->len) - 1 : NULL;

	if (last && last->chunk + last->count == run.chunk)
		last->count += run.count;
	else
		buf_add(runs, &run, sizeof(run));
}

/* Regions do not overlap, and what comes from this version is a first occurrence of it. */
static void check_regions(const struct delta_tables *t)
{
	_cleanup_(buf_release) struct buf runs = BUF_EMPTY;
	uint32_t chunk_len = t->header.chunk_len;
	struct delta_iter it = delta_iter(t);
	uint8_t first[CHUNKS_MAX] = { 0 };
	struct delta_region r;
	uint64_t end = 0;

	while (delta_iter_next(&it, &r) > 0) {
		struct delta_run run = { (uint32_t)(r.off / chunk_len), (uint32_t)chunks_of(r.len, chunk_len) };

		assert(r.len > 0 && r.off >= end && r.off + r.len <= t->header.content_len);
		end = r.off + r.len;
		if (r.kind == DELTA_FIRST || r.kind == DELTA_LITERAL)
			assert(r.payload_off + r.len <= t->header.payload_len);
		if (r.kind != DELTA_FIRST)
			continue;
		add_run(&runs, run);
		if (run.chunk < CHUNKS_MAX)
			memset(first + run.chunk, 1, MIN(run.count, CHUNKS_MAX - run.chunk));
	}
	it = delta_iter(t);
	while (delta_iter_next(&it, &r) > 0) {
		uint64_t src = r.src_off / chunk_len, nr = r.kind == DELTA_REPEATED ? 1 : r.len / chunk_len;

		if (r.kind == DELTA_FIRST || r.kind == DELTA_LITERAL || r.version != t->header.number)
			continue;
		for (uint64_t i = src; i < src + nr && src + nr <= CHUNKS_MAX; i++)
			assert(first[i]);
	}
	if (delta_nr_chunks(&t->header) <= 64 * CHUNKS_MAX)
		check_first(t, &runs);
}

/* Sets how much payload the tables speak of; the iterator trusts nothing, either. */
static void set_payload_len(struct delta_header *h, const uint8_t *tables)
{
	struct delta_tables t = { .header = *h, .first = tables, .nr_chunks = delta_nr_chunks(h) };
	struct delta_region r;
	struct delta_iter it;
	uint64_t sum = 0;

	t.shifted = t.first + h->first_len;
	t.literals = t.shifted + h->shifted_len;
	it = delta_iter(&t);
	while (delta_iter_next(&it, &r) > 0)
		sum += r.kind == DELTA_FIRST || r.kind == DELTA_LITERAL ? r.len : 0;
	h->payload_len = sum;
	h->pages_len = it.first.pages_off;
}

/* The header, and from the end of the input the tables. */
static void read_repaired(const uint8_t *p, size_t len)
{
	struct delta_header_disk d;
	struct delta_header h;
	struct delta_tables t;
	const uint8_t *tables;

	if (len < sizeof(d))
		return;
	memcpy(&d, p, sizeof(d));
	memcpy(d.magic, DELTA_MAGIC, sizeof(d.magic));
	d.payload_len = d.pages_len = le64_put(0);
	d.crc32c = le32_put(crc32c(&d, offsetof(struct delta_header_disk, crc32c)));
	if (delta_header_decode(&d, sizeof(d), &h) < 0 || delta_tables_len(&h) > len - sizeof(d))
		return;
	tables = p + len - delta_tables_len(&h);
	h.tables_crc = crc32c(tables, (size_t)delta_tables_len(&h));
	set_payload_len(&h, tables);
	if (delta_tables_decode(&h, tables, (size_t)delta_tables_len(&h), &t) == 0)
		check_regions(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct delta_tables t;

	if (delta_decode(p, len, &t) == 0)
		check_regions(&t);
	read_repaired(p, len);
	return 0;
}
