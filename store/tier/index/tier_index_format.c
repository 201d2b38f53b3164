/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/index/tier_index_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"

static size_t list_len(uint32_t nr_packs, uint32_t nr_runs)
{
	return sizeof(struct tier_index_disk) + nr_packs * sizeof(struct tier_pack_ref_disk) +
	       nr_runs * sizeof(struct tier_index_run_disk) + sizeof(struct le32);
}

void tier_index_list_encode(const struct tier_index_list *l, struct buf *ret)
{
	struct tier_index_disk d = {
		.version = le32_put(TIER_VERSION),
		.nr_packs = le32_put(l->nr_packs),
		.nr_runs = le32_put(l->nr_runs),
	};
	size_t from = ret->len;
	struct le32 crc;

	memcpy(d.magic, TIER_INDEX_MAGIC, sizeof(d.magic));
	memcpy(d.store, l->owner.store, sizeof(d.store));
	memcpy(d.key_id, l->owner.key_id, sizeof(d.key_id));
	memcpy(d.where, l->owner.where, sizeof(d.where));
	buf_add(ret, &d, sizeof(d));
	buf_add(ret, l->packs, l->nr_packs * sizeof(struct tier_pack_ref_disk));
	for (uint32_t i = 0; i < l->nr_runs; i++) {
		struct tier_index_run_disk run = {
			.id = le64_put(l->runs[i].id),
			.nr_entries = le64_put(l->runs[i].nr_entries),
			.filter_len = le64_put(l->runs[i].filter_len),
			.is_own = le32_put(l->runs[i].is_own),
		};

		buf_add(ret, &run, sizeof(run));
	}
	if (buf_error(ret) < 0)
		return;
	crc = le32_put(crc32c(ret->data + from, ret->len - from));
	buf_add(ret, &crc, sizeof(crc));
}

static int decode_run(const struct tier_index_run_disk *d, struct tier_index_run *ret)
{
	*ret = (struct tier_index_run){
		.id = le64_get(d->id),
		.nr_entries = le64_get(d->nr_entries),
		.filter_len = le64_get(d->filter_len),
		.is_own = le32_get(d->is_own) == 1,
	};
	if (ret->nr_entries == 0 || ret->nr_entries > UINT64_MAX / 4096 || le32_get(d->is_own) > 1 ||
	    le32_get(d->reserved) != 0)
		return -EBADMSG;
	/* merged runs have larger filters than they need */
	if (ret->filter_len == 0 || ret->filter_len % TIER_FILTER_LINE != 0 || ret->filter_len > UINT64_MAX / 4096)
		return -EBADMSG;
	return 0;
}

int tier_index_list_decode(const void *p, size_t len, struct tier_index_list *ret)
{
	const struct tier_index_disk *d = p;
	const struct tier_index_run_disk *runs;
	uint32_t nr_packs, nr_runs;
	struct le32 crc;
	int r = 0;

	if (len < list_len(0, 0) || memcmp(d->magic, TIER_INDEX_MAGIC, sizeof(d->magic)) != 0)
		return -EBADMSG;
	memcpy(&crc, (const uint8_t *)p + len - sizeof(crc), sizeof(crc));
	if (crc32c(p, len - sizeof(crc)) != le32_get(crc))
		return -EBADMSG;
	if (le32_get(d->version) != TIER_VERSION || le32_get(d->incompat) != 0)
		return -EOPNOTSUPP;
	nr_packs = le32_get(d->nr_packs);
	nr_runs = le32_get(d->nr_runs);
	if (nr_packs > UINT32_MAX / sizeof(struct tier_pack_ref_disk) || nr_runs > TIER_INDEX_RUNS_MAX ||
	    len != list_len(nr_packs, nr_runs))
		return -EBADMSG;
	memcpy(ret->owner.store, d->store, sizeof(d->store));
	memcpy(ret->owner.key_id, d->key_id, sizeof(d->key_id));
	memcpy(ret->owner.where, d->where, sizeof(d->where));
	ret->packs = (const uint8_t *)(d + 1);
	ret->nr_packs = nr_packs;
	ret->nr_runs = nr_runs;
	runs = (const void *)(ret->packs + nr_packs * sizeof(struct tier_pack_ref_disk));
	for (uint32_t i = 0; i < nr_runs && r == 0; i++)
		r = decode_run(&runs[i], &ret->runs[i]);
	return r;
}

struct tier_index_name tier_index_run_name(uint64_t id)
{
	struct tier_index_name n;

	snprintf(n.s, sizeof(n.s), "%016" PRIx64 ".run", id);
	return n;
}

/* --- blocks --- */

static int compare_numbers(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

int tier_index_entry_compare(const void *a, const void *b)
{
	const struct tier_index_entry *x = a, *y = b;

	return x->fp.lo != y->fp.lo ? compare_numbers(x->fp.lo, y->fp.lo) :
	       x->fp.hi != y->fp.hi ? compare_numbers(x->fp.hi, y->fp.hi) :
				      compare_numbers(x->len, y->len);
}

void tier_index_entry_encode(const struct tier_index_entry *e, struct tier_index_entry_disk *ret)
{
	ret->lo = le64_put(e->fp.lo);
	ret->hi = le64_put(e->fp.hi);
	ret->len = le32_put(e->len);
	ret->pack = le32_put(e->place.pack);
	ret->chunk = le32_put(e->place.chunk);
}

struct tier_index_entry tier_index_entry_decode(const struct tier_index_entry_disk *d)
{
	return (struct tier_index_entry){
		.fp = { .lo = le64_get(d->lo), .hi = le64_get(d->hi) },
		.len = le32_get(d->len),
		.place = { le32_get(d->pack), le32_get(d->chunk) },
	};
}

void tier_index_block_seal(struct tier_index_block_disk *b, uint64_t run, uint64_t number, uint32_t nr)
{
	b->run = le64_put(run);
	b->number = le64_put(number);
	b->nr = le32_put(nr);
	b->crc32c = le32_put(crc32c(b, offsetof(struct tier_index_block_disk, crc32c)));
}

bool tier_index_block_is_intact(const struct tier_index_block_disk *b, uint64_t run, uint64_t number, bool is_tail)
{
	uint32_t nr = le32_get(b->nr);

	return le64_get(b->run) == run && le64_get(b->number) == number && nr > 0 &&
	       nr <= (is_tail ? TIER_INDEX_TAIL : TIER_INDEX_ENTRIES) &&
	       crc32c(b, offsetof(struct tier_index_block_disk, crc32c)) == le32_get(b->crc32c);
}

const struct tier_index_entry_disk *tier_index_block_find(const struct tier_index_block_disk *b, struct fp fp,
							  uint32_t len)
{
	const struct tier_index_entry wanted = { .fp = fp, .len = len };
	uint32_t low = 0, high = le32_get(b->nr);

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		struct tier_index_entry e = tier_index_entry_decode(&b->entries[middle]);
		int c = tier_index_entry_compare(&e, &wanted);

		if (c == 0)
			return &b->entries[middle];
		if (c < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

/* --- filters: a line for each chunk, and four bits in it --- */

uint64_t tier_filter_len(uint64_t nr_entries)
{
	return round_up(MAX(nr_entries, (uint64_t)1), TIER_FILTER_LINE);
}

static uint64_t filter_hash(uint64_t v)
{
	v = (v ^ v >> 32) * UINT64_C(0x9e3779b97f4a7c15);
	return v ^ v >> 29;
}

static const uint8_t *line_of(const uint8_t *filter, uint64_t len, struct fp fp)
{
	uint64_t nr = len / TIER_FILTER_LINE;

	return filter + (uint64_t)((unsigned __int128)filter_hash(fp.lo) * nr >> 64) * TIER_FILTER_LINE;
}

void tier_filter_add(uint8_t *filter, uint64_t len, struct fp fp)
{
	uint8_t *line = (uint8_t *)line_of(filter, len, fp);
	uint64_t bits = filter_hash(fp.hi + fp.lo);

	for (unsigned i = 0; i < 4; i++, bits >>= 9)
		line[bits >> 3 & 63] |= (uint8_t)(1u << (bits & 7));
}

bool tier_filter_passes(const uint8_t *filter, uint64_t len, struct fp fp)
{
	const uint8_t *line = line_of(filter, len, fp);
	uint64_t bits = filter_hash(fp.hi + fp.lo);

	for (unsigned i = 0; i < 4; i++, bits >>= 9)
		if (!(line[bits >> 3 & 63] & 1u << (bits & 7)))
			return false;
	return true;
}
