/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/match_runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "store/codec/code_entropy.h"

#define LEVEL 3 /* of zstd: streams are short */
#define MORE 255u /* the next byte is added to this one */
#define FAR_BASE (256u - MATCH_NR_RECENT)

int match_runs_init(struct match_runs *r)
{
	*r = (struct match_runs){ .entropy = code_entropy_new() };
	r->stream[0] = malloc((size_t)MATCH_NR_STREAMS * MATCH_STREAM_MAX);
	if (!r->entropy || !r->stream[0]) {
		match_runs_release(r);
		return -ENOMEM;
	}
	for (unsigned i = 1; i < MATCH_NR_STREAMS; i++)
		r->stream[i] = r->stream[0] + i * MATCH_STREAM_MAX;
	return 0;
}

void match_runs_release(struct match_runs *r)
{
	code_entropy_free(r->entropy);
	free(r->stream[0]);
	*r = (struct match_runs){ 0 };
}

void match_runs_start(struct match_runs *r, const uint8_t *plain, uint32_t plain_len, uint32_t lead)
{
	r->plain = plain;
	r->plain_len = plain_len;
	r->lead = lead;
	r->skipped = r->parts = r->kinds = 0;
	memset(r->recent, 0, sizeof(r->recent));
	memset(r->len, 0, sizeof(r->len));
}

void match_runs_skip(struct match_runs *r)
{
	r->skipped++;
}

static void put_byte(struct match_runs *r, unsigned stream, uint32_t byte)
{
	r->stream[stream][r->len[stream]++] = (uint8_t)byte;
}

static void put_number(struct match_runs *r, unsigned stream, uint32_t n)
{
	for (; n >= MORE; n -= MORE)
		put_byte(r, stream, MORE);
	put_byte(r, stream, n);
}

/* Move a distance to the front, from its old position or, if new, from behind the last. */
static void make_recent(uint32_t recent[MATCH_NR_RECENT], unsigned from, uint32_t distance)
{
	for (unsigned i = MIN(from, MATCH_NR_RECENT - 1); i > 0; i--)
		recent[i] = recent[i - 1];
	recent[0] = distance;
}

static unsigned find_recent(const struct match_runs *r, uint32_t distance)
{
	unsigned i = 0;

	while (i < MATCH_NR_RECENT && r->recent[i] != distance)
		i++;
	return i;
}

bool match_runs_is_recent(const struct match_runs *r, uint32_t distance)
{
	return find_recent(r, distance) < MATCH_NR_RECENT;
}

static void put_distance(struct match_runs *r, uint32_t distance)
{
	unsigned i = find_recent(r, distance);

	if (i < MATCH_NR_RECENT) {
		put_byte(r, MATCH_DISTANCES, i);
	} else {
		put_byte(r, MATCH_DISTANCES, MATCH_NR_RECENT + distance % FAR_BASE);
		put_byte(r, MATCH_DISTANCES, distance / FAR_BASE & 0xff);
		put_byte(r, MATCH_DISTANCES, distance / FAR_BASE >> 8);
	}
	make_recent(r->recent, i, distance);
}

void match_runs_add(struct match_runs *r, const struct match_run *run, uint32_t parts)
{
	put_number(r, MATCH_LEFT, r->skipped);
	put_number(r, MATCH_LENGTHS, run->nr - 1);
	put_distance(r, run->distance);
	put_byte(r, MATCH_KINDS, run->kind);
	r->skipped = 0;
	r->parts |= parts;
	r->kinds |= run->kind;
}

void match_runs_add_difference(struct match_runs *r, uint32_t difference)
{
	assert(difference <= MATCH_NEAR_MAX);
	put_byte(r, MATCH_LOW, difference & 0xff);
	put_byte(r, MATCH_HIGH, difference >> 8);
}

/* Store a stream like a section. Returns its stored length, and sets its words. */
static int stream_in(struct match_runs *r, unsigned i, uint8_t *ret, struct match_disk *d)
{
	enum code_section_kind kind = CODE_SECTION_CODED;
	int n = code_entropy_in(r->entropy, CODE_ENTROPY_ZSTD, LEVEL, r->stream[i], r->len[i], ret);

	if (n < 0)
		return n;
	if (n == 0) {
		kind = CODE_SECTION_RAW;
		n = (int)r->len[i];
		memcpy(ret, r->stream[i], (size_t)n);
	}
	d->stream[i].plain_len = le32_put(r->len[i]);
	d->stream[i].word = le32_put((uint32_t)n | (uint32_t)kind << 30);
	return n;
}

int match_runs_encode(struct match_runs *r, struct code_type type, const void *rest, uint32_t rest_len, void *ret,
		      uint32_t *ret_place)
{
	struct code_header_disk *header = ret;
	struct match_disk *d = (struct match_disk *)(header + 1);
	struct code_header h = {
		.type = type,
		.base = CODE_BASE_MATCHED,
		.entropy = CODE_ENTROPY_ZSTD,
		.lead = r->lead,
		.plain_len = r->plain_len,
		.base_crc = crc32c(r->plain, r->plain_len),
		.base_place = code_place(CODE_PLACE_MATCHED, r->parts),
		.near = r->kinds > 0,
	};
	uint32_t all = (uint32_t)sizeof(*header) + match_disk_len(h.near);
	int n;

	for (unsigned i = 0; i < match_nr_streams(h.near); i++) {
		if (all + r->len[i] >= r->plain_len) /* ensures room for a stream that does not shrink */
			return 0;
		n = stream_in(r, i, (uint8_t *)ret + all, d);
		if (n < 0)
			return n;
		all += (uint32_t)n;
	}
	if (all + rest_len >= r->plain_len)
		return 0;
	memcpy((uint8_t *)ret + all, rest, rest_len);
	all += rest_len;
	d->place = le32_put(h.base_place);
	h.stored_len = all - (uint32_t)sizeof(*header);
	code_header_encode(&h, d, header);
	*ret_place = h.base_place;
	return (int)all;
}

/* A range of elements of a part. */
struct run {
	uint16_t at, nr;
};

struct match_out {
	struct code_entropy_work *entropy;
	uint8_t stream[MATCH_NR_STREAMS][MATCH_STREAM_MAX];
	uint32_t len[MATCH_NR_STREAMS], at[MATCH_NR_STREAMS];
	uint32_t recent[MATCH_NR_RECENT];
	uint8_t rest[MATCH_PART];
	uint32_t rest_len;
	/* of the part that match_place_left() was called for */
	struct code_header header;
	struct run run[MATCH_ELEMENTS];
	uint32_t nr_runs;
};

struct match_out *match_out_new(void)
{
	struct match_out *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->entropy = code_entropy_new();
	if (o->entropy)
		return o;
	free(o);
	return NULL;
}

void match_out_free(struct match_out *o)
{
	if (!o)
		return;
	code_entropy_free(o->entropy);
	free(o);
}

/* Decode one of the streams behind `d`; stored_len is that of the block. */
static int stream_out(struct match_out *o, const struct match_disk *d, uint32_t stored_len, unsigned stream)
{
	uint32_t word = le32_get(d->stream[stream].word), n = CODE_SECTION_LEN(word),
		 first = match_disk_len(o->header.near), left = stored_len - first;
	const uint8_t *p = (const uint8_t *)d + first;

	for (unsigned i = 0; i < stream; i++) {
		uint32_t before = CODE_SECTION_LEN(le32_get(d->stream[i].word));

		if (before > left)
			return -EBADMSG;
		p += before;
		left -= before;
	}
	o->len[stream] = le32_get(d->stream[stream].plain_len);
	o->at[stream] = 0;
	if (n > left || o->len[stream] > MATCH_STREAM_MAX)
		return -EBADMSG;
	switch (CODE_SECTION_KIND(word)) {
	case CODE_SECTION_RAW:
		if (n != o->len[stream])
			return -EBADMSG;
		memcpy(o->stream[stream], p, n);
		return 0;
	case CODE_SECTION_CODED:
		return code_entropy_out(o->entropy, CODE_ENTROPY_ZSTD, p, n, o->stream[stream], o->len[stream]);
	default:
		return -EBADMSG;
	}
}

/* Decode the block of left-over elements behind the streams. It must not have a base or runs itself. */
static int rest_out(struct match_out *o, struct code_work *w, const struct match_disk *d, uint32_t stored_len)
{
	const struct code_header_disk *rest;
	size_t before = match_disk_len(o->header.near);
	int n;

	for (unsigned i = 0; i < match_nr_streams(o->header.near); i++)
		before += CODE_SECTION_LEN(le32_get(d->stream[i].word));
	rest = (const struct code_header_disk *)((const uint8_t *)d + before);
	if (before + sizeof(*rest) > stored_len || rest->base != CODE_BASE_NONE)
		return -EBADMSG;
	n = code_decode(w, rest, stored_len - before, NULL, 0, o->rest, sizeof(o->rest));
	if (n < 0)
		return n == -ENOMEM ? n : -EBADMSG;
	o->rest_len = (uint32_t)n;
	return 0;
}

/* The next byte; -EBADMSG at the end. */
static int get_byte(struct match_out *o, unsigned stream)
{
	return o->at[stream] < o->len[stream] ? o->stream[stream][o->at[stream]++] : -EBADMSG;
}

/* A number of at most `most`. */
static int get_number(struct match_out *o, unsigned stream, uint32_t most)
{
	uint32_t n = 0;
	int byte;

	do {
		byte = get_byte(o, stream);
		if (byte < 0)
			return byte;
		n += (uint32_t)byte;
	} while (byte == MORE && n <= most);
	return n <= most ? (int)n : -EBADMSG;
}

static int get_distance(struct match_out *o)
{
	int byte = get_byte(o, MATCH_DISTANCES), low, high;
	uint32_t distance;

	if (byte < 0)
		return byte;
	if (byte < (int)MATCH_NR_RECENT) {
		distance = o->recent[byte];
	} else {
		low = get_byte(o, MATCH_DISTANCES);
		high = get_byte(o, MATCH_DISTANCES);
		if (low < 0 || high < 0)
			return -EBADMSG;
		distance = ((uint32_t)high << 8 | (uint32_t)low) * FAR_BASE + (uint32_t)byte - MATCH_NR_RECENT;
	}
	make_recent(o->recent, MIN((unsigned)byte, MATCH_NR_RECENT), distance);
	return (int)distance;
}

/* One by one: most runs are short, and a run may overlap its own source. */
static void copy_elements(uint8_t *to, const uint8_t *from, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		uint64_t x;

		memcpy(&x, from + (size_t)i * MATCH_WIDTH, MATCH_WIDTH);
		memcpy(to + (size_t)i * MATCH_WIDTH, &x, MATCH_WIDTH);
	}
}

/* Put the left-over elements in their place, and record where the runs are. */
static int place_elements(struct match_out *o, uint8_t *ret)
{
	const struct code_header *h = &o->header;
	uint32_t nr = code_nr_elements(h), at = 0, from = h->lead, tail = h->plain_len - h->lead - nr * MATCH_WIDTH;

	o->nr_runs = 0;
	if (o->rest_len < h->lead + tail)
		return -EBADMSG;
	memcpy(ret, o->rest, h->lead);
	while (o->at[MATCH_LEFT] < o->len[MATCH_LEFT]) {
		int left = get_number(o, MATCH_LEFT, nr - at), length = get_number(o, MATCH_LENGTHS, nr - at);
		uint32_t end = at + (uint32_t)left + (uint32_t)length + 1;

		if (left < 0 || length < 0 || end > nr || (uint32_t)left * MATCH_WIDTH > o->rest_len - tail - from)
			return -EBADMSG;
		copy_elements(ret + h->lead + (size_t)at * MATCH_WIDTH, o->rest + from, (uint32_t)left);
		from += (uint32_t)left * MATCH_WIDTH;
		at += (uint32_t)left;
		o->run[o->nr_runs++] = (struct run){ (uint16_t)at, (uint16_t)(length + 1) };
		at = end;
	}
	/* and the elements behind the last run */
	if (o->at[MATCH_LENGTHS] != o->len[MATCH_LENGTHS] || o->rest_len - from != (nr - at) * MATCH_WIDTH + tail)
		return -EBADMSG;
	memcpy(ret + h->lead + (size_t)at * MATCH_WIDTH, o->rest + from, o->rest_len - from);
	return 0;
}

int match_place_left(struct match_out *o, struct code_work *w, const void *p, size_t len, void *ret, size_t room)
{
	const struct match_disk *d = (const struct match_disk *)((const uint8_t *)p + sizeof(struct code_header_disk));
	struct code_header *h = &o->header;
	int r;

	r = code_header_decode(p, len, h);
	if (r < 0)
		return r;
	if (h->base != CODE_BASE_MATCHED || h->stored_len < match_disk_len(h->near))
		return -EBADMSG;
	if (h->plain_len > room)
		return -ENOBUFS;
	r = stream_out(o, d, h->stored_len, MATCH_LEFT);
	if (r == 0)
		r = stream_out(o, d, h->stored_len, MATCH_LENGTHS);
	if (r == 0)
		r = rest_out(o, w, d, h->stored_len);
	if (r == 0)
		r = place_elements(o, ret);
	return r < 0 ? r : (int)h->plain_len;
}

/* The part being filled. */
struct filling {
	uint8_t *const *before;
	uint32_t part, parts; /* its number, and the parts it refers to */
	uint8_t *ret;
};

/* The next difference, decoded from its form with the sign in the lowest bit; false: no more. */
static bool get_difference(struct match_out *o, uint64_t *ret)
{
	int low = get_byte(o, MATCH_LOW), high = get_byte(o, MATCH_HIGH);
	uint64_t difference = (uint64_t)high << 8 | (uint64_t)low;

	*ret = difference >> 1 ^ -(difference & 1);
	return low >= 0 && high >= 0;
}

/* For any kind but 0: element by element, as a run may overlap its own source. */
static int make_elements(struct match_out *o, uint8_t *to, const uint8_t *from, const struct match_run *run)
{
	uint64_t negated = run->kind & MATCH_KIND_NEGATED ? UINT64_C(1) << 63 : 0, difference = 0, x;
	ptrdiff_t step = run->kind & MATCH_KIND_BACKWARDS ? -(ptrdiff_t)MATCH_WIDTH : (ptrdiff_t)MATCH_WIDTH;
	bool big_endian = o->header.type.big_endian;

	for (uint32_t i = 0; i < run->nr; i++, to += MATCH_WIDTH) {
		if (run->kind & MATCH_KIND_NEAR && !get_difference(o, &difference))
			return -EBADMSG;
		x = (match_load(from + i * step, big_endian) ^ negated) + difference;
		match_store(to, x, big_endian);
	}
	return 0;
}

/* Fill in a run that begins at byte `at` of the part. */
static int copy_run(struct match_out *o, const struct filling *f, uint32_t at, const struct match_run *run)
{
	uint32_t place = f->part * MATCH_PART + at, from = place - run->distance, source = from / MATCH_PART,
		 in = from % MATCH_PART, len = run->nr * MATCH_WIDTH;
	bool backwards = run->kind & MATCH_KIND_BACKWARDS;
	const uint8_t *p = f->ret;

	if (run->distance > place || run->distance < MATCH_WIDTH || (backwards && len - MATCH_WIDTH > in))
		return -EBADMSG;
	if (source != f->part) {
		p = f->before[source];
		if (!(f->parts >> source & 1) || !p || (backwards ? MATCH_WIDTH : len) > MATCH_PART - in)
			return -EBADMSG;
	}
	if (run->kind > 0)
		return make_elements(o, f->ret + at, p + in, run);
	copy_elements(f->ret + at, p + in, run->nr);
	return 0;
}

/* Decode the streams that describe runs; equal runs have no kinds. */
static int run_streams_out(struct match_out *o, const struct match_disk *d, uint32_t stored_len)
{
	int r = 0;

	for (unsigned i = MATCH_DISTANCES; i < match_nr_streams(o->header.near) && r == 0; i++)
		r = stream_out(o, d, stored_len, i);
	return r;
}

static int get_run(struct match_out *o, uint32_t nr, struct match_run *ret)
{
	int distance = get_distance(o), kind = o->header.near ? get_byte(o, MATCH_KINDS) : 0;

	if (distance < 0 || kind < 0 || kind > (int)MATCH_KIND_MAX)
		return -EBADMSG;
	*ret = (struct match_run){ .nr = nr, .distance = (uint32_t)distance, .kind = (unsigned)kind };
	return 0;
}

int match_place_runs(struct match_out *o, const void *p, uint8_t *const before[], uint32_t nr_before, void *ret)
{
	const struct match_disk *d = (const struct match_disk *)((const uint8_t *)p + sizeof(struct code_header_disk));
	const struct code_header *h = &o->header;
	struct filling f = { .before = before, .part = nr_before, .parts = code_place_parts(h->base_place), .ret = ret };
	struct match_run run;
	int r;

	if (nr_before >= MATCH_PARTS || f.parts >> nr_before > 0)
		return -EBADMSG;
	r = run_streams_out(o, d, h->stored_len);
	memset(o->recent, 0, sizeof(o->recent));
	for (uint32_t i = 0; i < o->nr_runs && r == 0; i++) {
		r = get_run(o, o->run[i].nr, &run);
		if (r == 0)
			r = copy_run(o, &f, h->lead + o->run[i].at * MATCH_WIDTH, &run);
	}
	for (unsigned i = MATCH_DISTANCES; i < match_nr_streams(h->near) && r == 0; i++)
		r = o->at[i] == o->len[i] ? 0 : -EBADMSG;
	return r;
}

int match_decode(struct match_out *o, struct code_work *w, const void *p, size_t len, uint8_t *const before[],
		 uint32_t nr_before, void *ret, size_t room)
{
	int n = match_place_left(o, w, p, len, ret, room), r;

	if (n < 0)
		return n;
	r = match_place_runs(o, p, before, nr_before, ret);
	if (r == 0 && crc32c(ret, (size_t)n) != o->header.base_crc)
		r = -EBADMSG;
	return r < 0 ? r : n;
}
