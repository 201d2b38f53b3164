/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reconstructs a damaged table from its remains and the data of the frame.
 *
 * Every way in which the frame may be stored and cut is tried: the codec and the ends of parts, the length of chunks or
 * varied lengths, and the number of chunks. The assumption that proves the most chunks by their fingerprints is right.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "base/util.h"
#include "store/pack/coded/pack_coding.h"
#include "store/pack/repair/pack_repair.h"
#include "store/pack/packs_impl.h"

/* A fingerprint has 15 bytes; 12 of them agree by chance once in 2^87. */
#define PROOF_BYTES 12

/* One assumption about how the frame is stored. */
struct guess {
	const struct fp_key *key;
	const struct pack_table_disk *d;
	const struct pack_coding_found *found; /* NULL: uncompressed */
	const uint8_t *data; /* plain */
	uint32_t data_len; /* upper bound on the bytes of chunks */
	uint32_t total; /* apparent bytes of chunks */
};

/* The best so far. */
struct best {
	struct pack_salvage *ret;
	uint32_t nr_proved;
};

static void keep_better(struct best *best, const struct pack_salvage *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->nr_chunks; i++)
		n += s->proved[i];
	if (n <= best->nr_proved)
		return;
	*best->ret = *s;
	best->nr_proved = n;
}

/* All chunks in the table are proved: no other assumption can be right. */
static bool is_complete(const struct best *best, const struct pack_table_disk *d)
{
	return best->nr_proved > 0 && best->nr_proved == best->ret->nr_chunks &&
	       best->nr_proved == le32_get(d->nr_chunks);
}

static bool fp_nearly_equal(const uint8_t a[FP_LEN], const uint8_t b[FP_LEN])
{
	unsigned n = 0;

	for (unsigned i = 0; i < FP_LEN; i++)
		n += a[i] == b[i];
	return n >= PROOF_BYTES;
}

/* Does this table entry match chunk i with these bytes? With a domain only one byte may be wrong (fp_is_nearly_of()),
 * since the domain has to be inferred from the entry as well. */
static bool compare(const struct guess *g, struct pack_salvage *s, uint32_t i, struct fp bytes,
		    const uint8_t entry[FP_LEN])
{
	uint8_t encoded[FP_LEN];

	fp_encode(bytes, encoded);
	s->bytes[i] = bytes;
	s->fps[i] = fp_nearly_equal(encoded, entry) ? bytes : fp_decode(entry);
	s->proved[i] = fp_is_nearly_of(g->key, s->fps[i], bytes, &s->fps[i]);
	return s->proved[i];
}

/* --- chunks of one length --- */

static bool slot_is_zero(const uint8_t slot[FP_LEN])
{
	static const uint8_t zero[FP_LEN];

	return memcmp(slot, zero, FP_LEN) == 0;
}

/* Three sources give the number of chunks; two that agree are right, unless more are proved. */
static void decide_number(const struct guess *g, struct pack_salvage *s)
{
	uint32_t max = PACK_FRAME_BYTES / s->chunk_len, said[3];

	said[0] = le32_get(g->d->nr_chunks);
	said[1] = g->total / s->chunk_len;
	for (said[2] = max; said[2] > 0 && slot_is_zero(g->d->fps[said[2] - 1]); said[2]--)
		;
	for (unsigned i = 0; i < ARRAY_SIZE(said); i++)
		if (said[i] == said[(i + 1) % 3] && said[i] > s->nr_chunks && said[i] <= max)
			s->nr_chunks = said[i];
}

/* Assume that chunks have this length, and count those that the table agrees with. */
static void try_length(const struct guess *g, uint32_t chunk_len, struct pack_salvage *s, struct best *best)
{
	uint32_t nr = g->data_len / chunk_len;

	memset(s, 0, sizeof(*s));
	s->chunk_len = chunk_len;
	fp_of_each(g->key, g->data, chunk_len, nr, s->bytes);
	for (uint32_t i = 0; i < PACK_FRAME_BYTES / chunk_len; i++) {
		s->ends[i] = (i + 1) * chunk_len;
		if (i >= nr)
			s->fps[i] = fp_decode(g->d->fps[i]);
		else if (compare(g, s, i, s->bytes[i], g->d->fps[i]))
			s->nr_chunks = i + 1;
	}
	if (s->nr_chunks > 0)
		decide_number(g, s);
	keep_better(best, s);
}

/* --- chunks of varied lengths: a chunk's start follows from the lengths before it, or from those after it --- */

static uint32_t len_of(const struct guess *g, uint32_t i)
{
	return le16_get(g->d->varied[i].len) + 1u;
}

/* Assume that chunk i has these bytes. Does its entry match? */
static bool try_chunk(const struct guess *g, uint32_t i, uint32_t from, uint32_t end, struct pack_salvage *s)
{
	s->ends[i] = end;
	return compare(g, s, i, fp_of(g->key, g->data + from, end - from), g->d->varied[i].fp);
}

/* Chunks from `first` to `end` have the lengths of their entries, but chunk `wrong` has this one. Returns how many are
 * proved. */
static uint32_t try_entries(const struct guess *g, uint32_t first, uint32_t end, uint32_t from, uint32_t wrong,
			    uint32_t len, struct pack_salvage *s)
{
	uint32_t nr_proved = 0;

	for (uint32_t i = first, at = from, n; i < end; i++, at += n) {
		n = i == wrong ? len : len_of(g, i);
		nr_proved += try_chunk(g, i, at, at + n, s);
	}
	return nr_proved;
}

/*
 * Chunks [first, end) share these bytes. Several are not proved where one entry has a wrong length and another chunk is
 * damaged, or freed: its bytes may be gone. All lengths but one are assumed to be right, and which one is not is tried.
 * Where that proves nothing, the bytes are divided equally.
 */
static bool try_middle(const struct guess *g, uint32_t first, uint32_t end, uint32_t from, uint32_t to,
		       struct pack_salvage *s)
{
	uint32_t nr = end - first, sum = 0, wrong = first, most = 0;

	for (uint32_t i = first; i < end; i++)
		sum += len_of(g, i);
	if (nr == 0 || to - from < nr || to - from > nr * PACK_VARIED_LEN_MAX)
		return nr == 0 && from == to;
	for (uint32_t i = first; sum != to - from && i < end; i++) {
		uint32_t others = sum - len_of(g, i), n;

		if (others >= to - from || to - from - others > PACK_VARIED_LEN_MAX)
			continue;
		n = try_entries(g, first, end, from, i, to - from - others, s);
		if (n > most) {
			most = n;
			wrong = i;
		}
	}
	if (sum == to - from || most > 0) {
		try_entries(g, first, end, from, wrong, to - from - (sum - len_of(g, wrong)), s);
		return true;
	}
	for (uint32_t i = first, at = from, n; i < end; i++, at += n) {
		n = i + 1 == end ? to - at : (to - from) / nr;
		if (n > PACK_VARIED_LEN_MAX)
			return false;
		try_chunk(g, i, at, at + n, s);
	}
	return true;
}

/* Assume this number of chunks and bytes: match from both ends as far as chunks are proved, then divide the middle. */
static void try_varied(const struct guess *g, uint32_t nr, uint32_t total, struct pack_salvage *s, struct best *best)
{
	uint32_t first = 0, end = nr, from = 0, to = total;

	if (nr == 0 || nr > PACK_VARIED_MAX || total > g->data_len)
		return;
	memset(s, 0, sizeof(*s));
	s->chunk_len = PACK_VARIED;
	s->nr_chunks = nr;
	while (first < end && len_of(g, first) <= to - from && try_chunk(g, first, from, from + len_of(g, first), s))
		from += len_of(g, first++);
	while (first < end && len_of(g, end - 1) <= to - from && try_chunk(g, end - 1, to - len_of(g, end - 1), to, s))
		to -= len_of(g, --end);
	if (try_middle(g, first, end, from, to, s))
		keep_better(best, s);
}

/* Number and total are known from two sources each. A wrong number has a wrong sum of lengths: that is tried last. */
static void try_all_varied(const struct guess *g, struct pack_salvage *s, struct best *best)
{
	static const struct pack_varied_disk zero;
	uint32_t nr[2] = { le32_get(g->d->nr_chunks), PACK_VARIED_MAX };

	while (nr[1] > 0 && memcmp(&g->d->varied[nr[1] - 1], &zero, sizeof(zero)) == 0)
		nr[1]--;
	for (unsigned i = 0; i < ARRAY_SIZE(nr); i++)
		try_varied(g, nr[i], g->total, s, best);
	for (unsigned i = 0; i < ARRAY_SIZE(nr); i++) {
		uint32_t sum = 0;

		for (uint32_t k = 0; k < nr[i] && k < PACK_VARIED_MAX; k++)
			sum += len_of(g, k);
		try_varied(g, nr[i], sum, s, best);
	}
}

/* --- all assumptions --- */

static void try_lengths(const struct guess *g, struct pack_salvage *s, struct best *best)
{
	/* possible values of page= */
	for (uint32_t len = PACK_BLOCK; len <= PACK_FRAME_BYTES && !is_complete(best, g->d); len *= 2)
		try_length(g, len, s, best);
}

/* Try the values in the table first: if they are right, the rest is skipped. */
static void try_cuts(const struct guess *g, struct best *best)
{
	bool varied = le32_get(g->d->chunk_len) == PACK_VARIED;
	uint32_t before = best->nr_proved;
	struct pack_salvage s, *ret = best->ret;
	struct pack_coding coding = { 0 };

	if (varied)
		try_all_varied(g, &s, best);
	try_lengths(g, &s, best);
	if (!varied && !is_complete(best, g->d))
		try_all_varied(g, &s, best);
	if (best->nr_proved == before)
		return;
	if (g->found)
		coding = pack_coding_settle(g->found, ret->ends[ret->nr_chunks - 1]);
	ret->codec = coding.codec;
	memcpy(ret->parts.end, coding.part_end, sizeof(ret->parts.end));
	memcpy(ret->parts.base, coding.base, sizeof(ret->parts.base));
}

/* Assume that the frame is stored with this codec. `plain` is room for its bytes. */
static int try_codec(struct packs *p, enum pack_codec codec, const struct pack_buffer *b, uint32_t data_len,
		     struct pack_buffer *plain, struct best *best)
{
	struct guess g = { .key = p->conf.key, .d = &b->table, .data = b->data, .data_len = data_len };
	struct pack_coding_found found;
	struct coder *coder;
	int r;

	g.total = le32_get(b->table.stored_len);
	if (codec != PACK_CODEC_NONE) {
		coder = coder_get(&p->coders);
		r = coder ? pack_coding_find(coder, codec, &b->table, b->data, plain->data, &found) : -ENOMEM;
		coder_put(&p->coders, coder);
		if (r <= 0)
			return r;
		g.found = &found;
		g.data = plain->data;
		/* if the last part is lost, its length is unknown */
		g.data_len = (uint32_t)round_up(found.plain_len, PACK_PART_BYTES);
		g.total = found.plain_len;
	}
	try_cuts(&g, best);
	return 0;
}

/* Read table and data, with zeros beyond the end of the file. 1/0 the file ends before the table/<0. */
static int read_whole(struct packs *p, uint32_t pack, uint32_t frame, struct pack_buffer *b, uint32_t *ret_data_len)
{
	_cleanup_(closep) int fd = -1;
	struct iovec iov[2] = { { &b->table, PACK_BLOCK }, { b->data, PACK_FRAME_BYTES } };
	ssize_t n;

	fd = io_open(p->dirfd, pack_name(pack).s, O_RDONLY, 0);
	if (fd < 0)
		return fd;
	n = io_preadv(fd, iov, ARRAY_SIZE(iov), pack_table_off(frame));
	if (n < 0)
		return (int)n;
	*ret_data_len = (uint32_t)n - MIN((uint32_t)n, PACK_BLOCK);
	memset(b->data + *ret_data_len, 0, PACK_FRAME_BYTES - *ret_data_len);
	return n >= (ssize_t)PACK_BLOCK;
}

int packs_salvage_table(struct packs *p, uint32_t pack, uint32_t frame, struct pack_salvage *ret)
{
	/* The codec in the table is tried first: others are taken only if they prove more. */
	static const enum pack_codec codecs[] = { PACK_CODEC_NONE, PACK_CODEC_LZ4, PACK_CODEC_ZSTD, PACK_CODEC_CODED };
	struct pack_buffer *b = pack_buffer_get(&p->buffers), *plain = pack_buffer_get(&p->buffers);
	struct best best = { .ret = ret };
	uint32_t data_len = 0;
	int r = b && plain ? read_whole(p, pack, frame, b, &data_len) : -ENOMEM;

	for (size_t i = 0; r > 0 && i < ARRAY_SIZE(codecs) && !is_complete(&best, &b->table); i++)
		if (try_codec(p, codecs[(b->table.codec + i) % ARRAY_SIZE(codecs)], b, data_len, plain, &best) < 0)
			r = -ENOMEM;
	if (best.nr_proved > 0) {
		ret->pack = pack;
		ret->frame = frame;
	}
	pack_buffer_put(&p->buffers, b);
	pack_buffer_put(&p->buffers, plain);
	return r < 0 ? r : best.nr_proved > 0;
}
