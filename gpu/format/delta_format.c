/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/format/delta_format.h"

#include <errno.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"

void delta_header_encode(const struct delta_header *h, struct delta_header_disk *ret)
{
	*ret = (struct delta_header_disk){
		.version = le32_put(DELTA_VERSION),
		.compat = le32_put(h->compat),
		.chunk_len = le32_put(h->chunk_len),
		.number = le32_put(h->number),
		.parent = le32_put(h->parent),
		.content_len = le64_put(h->content_len),
		.payload_len = le64_put(h->payload_len),
		.first_encoding = (uint8_t)h->first_encoding,
		.shifted_encoding = (uint8_t)h->shifted_encoding,
		.first_len = le64_put(h->first_len),
		.shifted_len = le64_put(h->shifted_len),
		.literals_len = le64_put(h->literals_len),
		.tables_crc32c = le32_put(h->tables_crc),
		.pages_len = le64_put(h->pages_len),
	};
	memcpy(ret->magic, DELTA_MAGIC, sizeof(ret->magic));
	memcpy(ret->lineage, h->lineage, sizeof(ret->lineage));
	digest_encode(h->fingerprint, ret->fingerprint);
	ret->crc32c = le32_put(crc32c(ret, offsetof(struct delta_header_disk, crc32c)));
}

/* Whole entries, and no more than there are chunks. */
static bool entries_fit(uint64_t len, size_t entry, uint64_t nr_chunks)
{
	return len % entry == 0 && len / entry <= nr_chunks;
}

static bool first_len_valid(const struct delta_header *h, uint64_t nr_chunks)
{
	switch (h->first_encoding) {
	case DELTA_BITMAP:
		return h->first_len == nr_chunks / 8 + (nr_chunks % 8 != 0);
	case DELTA_LIST:
	case DELTA_NODES:
		return entries_fit(h->first_len, sizeof(struct le32), nr_chunks);
	case DELTA_RUNS:
		return entries_fit(h->first_len, sizeof(struct delta_run_disk), nr_chunks);
	}
	return false;
}

static bool shifted_len_valid(const struct delta_header *h, uint64_t nr_chunks)
{
	return entries_fit(h->shifted_len,
			   h->shifted_encoding == DELTA_RUNS ? sizeof(struct delta_shifted_run_disk) :
							       sizeof(struct delta_shifted_disk),
			   nr_chunks);
}

static bool encodings_known(const struct delta_header_disk *d)
{
	return d->first_encoding >= DELTA_BITMAP && d->first_encoding <= DELTA_RUNS &&
	       d->shifted_encoding >= DELTA_LIST && d->shifted_encoding <= DELTA_RUNS;
}

int delta_header_decode(const void *p, size_t len, struct delta_header *ret)
{
	const struct delta_header_disk *d = p;
	struct delta_header h;
	uint64_t nr_chunks;

	if (len < sizeof(*d) || memcmp(d->magic, DELTA_MAGIC, sizeof(d->magic)) != 0)
		return -EBADMSG;
	if (crc32c(d, offsetof(struct delta_header_disk, crc32c)) != le32_get(d->crc32c))
		return -EBADMSG;
	if (le32_get(d->version) != DELTA_VERSION || (le32_get(d->incompat) & ~DELTA_INCOMPAT_KNOWN) != 0 ||
	    !encodings_known(d))
		return -EOPNOTSUPP;
	h = (struct delta_header){
		.compat = le32_get(d->compat),
		.chunk_len = le32_get(d->chunk_len),
		.number = le32_get(d->number),
		.parent = le32_get(d->parent),
		.content_len = le64_get(d->content_len),
		.fingerprint = digest_decode(d->fingerprint),
		.payload_len = le64_get(d->payload_len),
		.first_encoding = d->first_encoding,
		.shifted_encoding = d->shifted_encoding,
		.first_len = le64_get(d->first_len),
		.shifted_len = le64_get(d->shifted_len),
		.literals_len = le64_get(d->literals_len),
		.tables_crc = le32_get(d->tables_crc32c),
		.pages_len = le64_get(d->pages_len),
	};
	memcpy(h.lineage, d->lineage, sizeof(h.lineage));
	if (!chunk_len_valid(h.chunk_len) || h.number == 0 || h.parent >= h.number)
		return -EBADMSG;
	nr_chunks = delta_nr_chunks(&h);
	if (nr_chunks > DELTA_CHUNKS_MAX || h.payload_len > h.content_len || h.pages_len > h.payload_len)
		return -EBADMSG;
	if (!first_len_valid(&h, nr_chunks) || !shifted_len_valid(&h, nr_chunks) ||
	    !entries_fit(h.literals_len, sizeof(struct delta_literal_disk), h.content_len))
		return -EBADMSG;
	*ret = h;
	return 0;
}

unsigned delta_tree_height(uint64_t nr_chunks)
{
	return nr_chunks <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(nr_chunks - 1);
}

/* The chunks below a node; false: there is no such node. */
static bool node_chunks(uint64_t nr_chunks, uint32_t node, struct delta_run *ret)
{
	unsigned height = delta_tree_height(nr_chunks), depth;

	if (node == 0)
		return false;
	depth = 31 - (unsigned)__builtin_clz(node);
	if (depth > height)
		return false;
	ret->chunk = (uint32_t)(((uint64_t)node << (height - depth)) - (UINT64_C(1) << height));
	ret->count = UINT32_C(1) << (height - depth);
	return true;
}

/* Bits `from` to `end` of a bitmap of `len` bytes: the first that is `set`, or `end`. */
static uint64_t bitmap_find(const uint8_t *bitmap, uint64_t len, uint64_t from, uint64_t end, bool set)
{
	uint64_t bits, at = from;

	while (at < end) {
		uint64_t byte = at / 64 * 8;
		struct le64 word = { { 0 } };

		memcpy(word.b, bitmap + byte, (size_t)MIN(len - byte, UINT64_C(8)));
		bits = (set ? le64_get(word) : ~le64_get(word)) >> at % 64;
		if (bits != 0)
			return MIN(at + (unsigned)__builtin_ctzll(bits), end);
		at = (at / 64 + 1) * 64;
	}
	return end;
}

/* Entry i of FIRST, not as a bitmap; false: cannot be. */
static inline bool first_entry(const struct delta_tables *t, uint64_t i, struct delta_run *ret)
{
	const struct delta_run_disk *runs = (const struct delta_run_disk *)t->first;
	const struct le32 *numbers = (const struct le32 *)t->first;

	if (t->header.first_encoding == DELTA_NODES)
		return node_chunks(t->nr_chunks, le32_get(numbers[i]), ret);
	if (t->header.first_encoding == DELTA_RUNS)
		*ret = (struct delta_run){ le32_get(runs[i].chunk), le32_get(runs[i].count) };
	else
		*ret = (struct delta_run){ le32_get(numbers[i]), 1 };
	return ret->count > 0;
}

static uint64_t nr_first_entries(const struct delta_tables *t)
{
	if (t->header.first_encoding == DELTA_RUNS)
		return t->header.first_len / sizeof(struct delta_run_disk);
	return t->header.first_len / sizeof(struct le32);
}

/* Entries must be minimal: runs do not touch, and two siblings are replaced by their parent. */
static bool first_entry_needed(const struct delta_tables *t, uint64_t i, const struct delta_run *run, uint64_t end)
{
	const struct le32 *nodes = (const struct le32 *)t->first;

	if (t->header.first_encoding == DELTA_RUNS)
		return run->chunk != end;
	if (t->header.first_encoding == DELTA_NODES)
		return (le32_get(nodes[i - 1]) ^ le32_get(nodes[i])) != 1;
	return true;
}

/* The next stretch of the bitmap; `at` is a bit. */
static int first_read_bitmap(const struct delta_tables *t, uint64_t *at, struct delta_run *ret)
{
	uint64_t len = t->header.first_len, nr_chunks = t->nr_chunks, from, end;

	from = bitmap_find(t->first, len, *at, len * 8, true);
	if (from == len * 8)
		return 0;
	end = bitmap_find(t->first, len, from, len * 8, false);
	if (end > nr_chunks)
		return -EBADMSG;
	*at = end;
	*ret = (struct delta_run){ (uint32_t)from, (uint32_t)(end - from) };
	return 1;
}

/* The next entry of FIRST, which begins behind `end`. */
static int first_read(const struct delta_tables *t, uint64_t *at, uint64_t end, struct delta_run *ret)
{
	struct delta_run run;

	if (t->header.first_encoding == DELTA_BITMAP)
		return first_read_bitmap(t, at, ret);
	if (*at == nr_first_entries(t))
		return 0;
	if (!first_entry(t, *at, &run) || run.chunk < end ||
	    (uint64_t)run.chunk + run.count > t->nr_chunks)
		return -EBADMSG;
	if (*at > 0 && !first_entry_needed(t, *at, &run, end))
		return -EBADMSG;
	(*at)++;
	ret->chunk = run.chunk; /* separate stores, like the ones to `run`: a wide load of `run` would stall on them */
	ret->count = run.count;
	return 1;
}

/* The last entry of FIRST that begins at or before `chunk`; the first one if there is none. */
static uint64_t first_search(const struct delta_tables *t, uint32_t chunk)
{
	uint64_t low = 0, high = nr_first_entries(t);
	struct delta_run run;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (first_entry(t, middle, &run) && run.chunk <= chunk)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/*
 * Are all these chunks in FIRST? Runs do not touch, so one entry decides; in a list two entries; of nodes without
 * siblings at most two per level are adjacent. The bits of a bitmap are amortised: SHIFTED lists each chunk once.
 */
static bool first_covers(const struct delta_tables *t, uint32_t chunk, uint32_t count)
{
	uint64_t end = (uint64_t)chunk + count, at = chunk, nr = nr_first_entries(t), i;
	struct delta_run run;

	if (end > t->nr_chunks)
		return false;
	if (t->header.first_encoding == DELTA_BITMAP)
		return bitmap_find(t->first, t->header.first_len, chunk, end, false) == end;
	i = first_search(t, chunk);
	if (t->header.first_encoding == DELTA_LIST && count > 1) {
		if (i >= nr || nr - i < count || !first_entry(t, i, &run) || run.chunk != chunk)
			return false;
		return first_entry(t, i + count - 1, &run) && run.chunk == end - 1;
	}
	for (; at < end; i++) {
		if (i >= nr || !first_entry(t, i, &run) || run.chunk > at || (uint64_t)run.chunk + run.count <= at)
			return false;
		at = (uint64_t)run.chunk + run.count;
	}
	return true;
}

bool delta_shift_join(struct delta_shift *run, const struct delta_shift *next)
{
	if (next->dst != (uint64_t)run->dst + run->count || next->version != run->version)
		return false;
	if ((!run->repeated || run->count == 1) && (!next->repeated || next->count == 1) &&
	    next->src == (uint64_t)run->src + run->count)
		run->repeated = false;
	else if ((run->repeated || run->count == 1) && (next->repeated || next->count == 1) && next->src == run->src)
		run->repeated = true;
	else
		return false;
	run->count += next->count;
	return true;
}

static int shifted_entry(const struct delta_tables *t, uint64_t i, struct delta_shift *ret)
{
	const struct delta_shifted_run_disk *runs = (const struct delta_shifted_run_disk *)t->shifted;
	const struct delta_shifted_disk *entries = (const struct delta_shifted_disk *)t->shifted;
	struct delta_run dst;

	if (t->header.shifted_encoding == DELTA_RUNS) {
		uint32_t src = le32_get(runs[i].src);

		*ret = (struct delta_shift){
			.dst = le32_get(runs[i].dst),
			.count = le32_get(runs[i].count),
			.version = le32_get(runs[i].version),
			.src = src & ~DELTA_SRC_REPEATED,
			.repeated = (src & DELTA_SRC_REPEATED) != 0,
		};
		return 0;
	}
	if (t->header.shifted_encoding == DELTA_LIST)
		dst = (struct delta_run){ le32_get(entries[i].dst), 1 };
	else if (!node_chunks(t->nr_chunks, le32_get(entries[i].dst), &dst))
		return -EBADMSG;
	*ret = (struct delta_shift){
		.dst = dst.chunk,
		.count = dst.count,
		.version = le32_get(entries[i].version),
		.src = le32_get(entries[i].src),
	};
	return 0;
}

/* Within the content and, if of this version, from first occurrences. A short last chunk takes no part. */
static bool shift_valid(const struct delta_tables *t, const struct delta_shift *s, uint64_t end)
{
	uint64_t nr_whole = t->header.content_len / t->header.chunk_len, nr_src = s->repeated ? 1 : s->count;

	if (s->count == 0 || s->dst < end || (uint64_t)s->dst + s->count > nr_whole)
		return false;
	if (s->version == 0 || s->version > t->header.number || s->src + nr_src > DELTA_CHUNKS_MAX)
		return false;
	if (s->version < t->header.number)
		return true;
	return s->src + nr_src <= nr_whole && first_covers(t, s->src, (uint32_t)nr_src);
}

static int shifted_read(const struct delta_tables *t, uint64_t *at, uint64_t end, struct delta_shift *ret)
{
	size_t entry = t->header.shifted_encoding == DELTA_RUNS ? sizeof(struct delta_shifted_run_disk) :
								  sizeof(struct delta_shifted_disk);
	struct delta_shift s;

	if (*at == t->header.shifted_len / entry)
		return 0;
	if (shifted_entry(t, *at, &s) < 0 || !shift_valid(t, &s, end))
		return -EBADMSG;
	(*at)++;
	*ret = s;
	return 1;
}

/* The next stretch of neighbours. */
static int first_stretch(struct delta_iter *it)
{
	const struct delta_header *h = &it->t->header;
	struct delta_run run = it->first.next;
	uint64_t end;

	if (it->first.r <= 0)
		return it->first.r;
	for (;;) {
		end = (uint64_t)run.chunk + run.count;
		it->first.r = first_read(it->t, &it->first.at, end, &it->first.next);
		if (it->first.r <= 0 || it->first.next.chunk != end)
			break;
		run.count += it->first.next.count;
	}
	it->first.off = (uint64_t)run.chunk * h->chunk_len;
	it->first.end = MIN(end * h->chunk_len, h->content_len);
	return 1;
}

/* Of a stretch, what comes before its whole pages, these, and what comes behind. */
static int first_next(struct delta_iter *it, struct delta_region *ret)
{
	uint64_t begin, end, stop, *from;
	int r;

	if (it->first.off == it->first.end) {
		r = first_stretch(it);
		if (r <= 0)
			return r;
	}
	begin = round_up(it->first.off, (uint64_t)DELTA_PAGE);
	end = round_down(it->first.end, (uint64_t)DELTA_PAGE);
	stop = begin >= end ? it->first.end : it->first.off < begin ? begin : end;
	from = begin < end && it->first.off == begin ? &it->first.pages_off : &it->first.rest_off;
	*ret = (struct delta_region){
		.kind = DELTA_FIRST,
		.off = it->first.off,
		.len = stop - it->first.off,
		.payload_off = *from,
	};
	*from += ret->len;
	it->first.off = stop;
	return 1;
}

static int shifted_next(struct delta_iter *it, struct delta_region *ret)
{
	uint32_t chunk_len = it->t->header.chunk_len;
	struct delta_shift run = it->shifted.next;

	if (it->shifted.r <= 0)
		return it->shifted.r;
	do
		it->shifted.r = shifted_read(it->t, &it->shifted.at, (uint64_t)run.dst + run.count, &it->shifted.next);
	while (it->shifted.r > 0 && delta_shift_join(&run, &it->shifted.next));
	*ret = (struct delta_region){
		.kind = run.repeated && run.count > 1 ? DELTA_REPEATED : DELTA_SHIFTED,
		.off = (uint64_t)run.dst * chunk_len,
		.len = (uint64_t)run.count * chunk_len,
		.version = run.version,
		.src_off = (uint64_t)run.src * chunk_len,
	};
	return 1;
}

/* Bytes of all literals, which end the payload; UINT64_MAX: more than there can be. */
static uint64_t literals_sum(const struct delta_tables *t)
{
	const struct delta_literal_disk *d = (const struct delta_literal_disk *)t->literals;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < t->header.literals_len / sizeof(*d); i++)
		if (__builtin_add_overflow(sum, le64_get(d[i].len), &sum))
			return UINT64_MAX;
	return sum;
}

static int literal_next(struct delta_iter *it, struct delta_region *ret)
{
	const struct delta_literal_disk *d = (const struct delta_literal_disk *)it->t->literals;
	const struct delta_header *h = &it->t->header;
	uint64_t off, len;

	if (it->literals.at == h->literals_len / sizeof(*d))
		return 0;
	off = le64_get(d[it->literals.at].off);
	len = le64_get(d[it->literals.at].len);
	if (len == 0 || off > h->content_len || len > h->content_len - off)
		return -EBADMSG;
	*ret = (struct delta_region){
		.kind = DELTA_LITERAL,
		.off = off,
		.len = len,
		.payload_off = it->literals.payload_off,
	};
	it->literals.at++;
	it->literals.payload_off += len;
	return 1;
}

static int (*const next_of[])(struct delta_iter *it, struct delta_region *ret) = {
	first_next,
	shifted_next,
	literal_next,
};

struct delta_iter delta_iter(const struct delta_tables *t)
{
	struct delta_iter it = { .t = t };

	it.first.rest_off = t->header.pages_len;
	it.first.r = first_read(t, &it.first.at, 0, &it.first.next);
	it.shifted.r = shifted_read(t, &it.shifted.at, 0, &it.shifted.next);
	it.literals.payload_off = t->header.payload_len - literals_sum(t); /* wrong, but harmless, if the tables are invalid */
	for (size_t i = 0; i < ARRAY_SIZE(next_of); i++)
		it.heads[i].r = next_of[i](&it, &it.heads[i].region);
	return it;
}

int delta_iter_next(struct delta_iter *it, struct delta_region *ret)
{
	size_t lowest = ARRAY_SIZE(next_of);

	for (size_t i = 0; i < ARRAY_SIZE(next_of); i++) {
		if (it->heads[i].r < 0)
			return it->heads[i].r;
		if (it->heads[i].r > 0 &&
		    (lowest == ARRAY_SIZE(next_of) || it->heads[i].region.off < it->heads[lowest].region.off))
			lowest = i;
	}
	if (lowest == ARRAY_SIZE(next_of))
		return 0;
	if (it->heads[lowest].region.off < it->end)
		return -EBADMSG;
	*ret = it->heads[lowest].region;
	it->end = ret->off + ret->len;
	it->heads[lowest].r = next_of[lowest](it, &it->heads[lowest].region);
	return 1;
}

int delta_tables_decode(const struct delta_header *h, const void *p, size_t len, struct delta_tables *ret)
{
	struct delta_tables t = { .header = *h, .first = p, .nr_chunks = delta_nr_chunks(h) };
	struct delta_region region;
	uint64_t payload_len = 0;
	struct delta_iter it;
	int r;

	if (len != delta_tables_len(h) || crc32c(p, len) != h->tables_crc)
		return -EBADMSG;
	if (len > 0) { /* else `p` may be NULL */
		t.shifted = t.first + h->first_len;
		t.literals = t.shifted + h->shifted_len;
	}
	it = delta_iter(&t);
	while ((r = delta_iter_next(&it, &region)) > 0)
		if (region.kind == DELTA_FIRST || region.kind == DELTA_LITERAL)
			payload_len += region.len; /* of disjoint regions: at most the content */
	if (r < 0)
		return r;
	if (payload_len != h->payload_len || it.first.pages_off != h->pages_len)
		return -EBADMSG;
	*ret = t;
	return 0;
}
