#include "store/code/match_runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "store/code/code_entropy.h"

#define LEVEL 3 /* of zstd: streams are short */
#define MORE 255u /* and the next byte is added */
#define FAR_BASE (256u - MATCH_NR_RECENT)

enum { LEFT, LENGTHS, DISTANCES };

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
	r->skipped = r->parts = r->last = 0;
	memset(r->recent, 0, sizeof(r->recent));
	memset(r->len, 0, sizeof(r->len));
}

void match_runs_skip(struct match_runs *r)
{
	r->skipped++;
}

static void put(struct match_runs *r, unsigned stream, uint32_t byte)
{
	r->stream[stream][r->len[stream]++] = (uint8_t)byte;
}

static void put_number(struct match_runs *r, unsigned stream, uint32_t n)
{
	for (; n >= MORE; n -= MORE)
		put(r, stream, MORE);
	put(r, stream, n);
}

/* To the front, from where it was or, of a new one, from behind the last. */
static void make_recent(uint32_t recent[MATCH_NR_RECENT], unsigned from, uint32_t distance)
{
	for (unsigned i = MIN(from, MATCH_NR_RECENT - 1); i > 0; i--)
		recent[i] = recent[i - 1];
	recent[0] = distance;
}

static void put_distance(struct match_runs *r, uint32_t distance)
{
	unsigned i = 0;

	while (i < MATCH_NR_RECENT && r->recent[i] != distance)
		i++;
	if (i < MATCH_NR_RECENT) {
		put(r, DISTANCES, i);
	} else {
		put(r, DISTANCES, MATCH_NR_RECENT + distance % FAR_BASE);
		put(r, DISTANCES, distance / FAR_BASE & 0xff);
		put(r, DISTANCES, distance / FAR_BASE >> 8);
	}
	make_recent(r->recent, i, distance);
	r->last = distance;
}

void match_runs_add(struct match_runs *r, uint32_t nr, uint32_t distance, uint32_t parts)
{
	put_number(r, LEFT, r->skipped);
	put_number(r, LENGTHS, nr - 1);
	put_distance(r, distance);
	r->skipped = 0;
	r->parts |= parts;
}

/* A stream, as sections are stored: its bytes, and its words. */
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
		.base_place = code_place(CODE_PLACE_MATCHED, CODE_PLACE_LEFT | r->parts),
	};
	uint32_t all = sizeof(*header) + sizeof(*d);
	int n;

	for (unsigned i = 0; i < MATCH_NR_STREAMS; i++) {
		if (all + r->len[i] >= r->plain_len) /* what does not get shorter has room */
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

/* Elements of a part. */
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
	/* of the part whose elements that are left have been placed */
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

/* One of the streams behind `d`, whose stored bytes are those of the block. */
static int stream_out(struct match_out *o, const struct match_disk *d, uint32_t stored_len, unsigned stream)
{
	uint32_t word = le32_get(d->stream[stream].word), n = CODE_SECTION_LEN(word), left = stored_len - sizeof(*d);
	const uint8_t *p = (const uint8_t *)(d + 1);

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

/* The block of what is left, behind the streams: by itself, and not one with runs again. */
static int rest_out(struct match_out *o, struct code_work *w, const struct match_disk *d, uint32_t stored_len)
{
	const struct code_header_disk *rest;
	size_t before = sizeof(*d);
	int n;

	for (unsigned i = 0; i < MATCH_NR_STREAMS; i++)
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

/* The next byte; none is left: -EBADMSG. */
static int get(struct match_out *o, unsigned stream)
{
	return o->at[stream] < o->len[stream] ? o->stream[stream][o->at[stream]++] : -EBADMSG;
}

/* No more than `most`. */
static int get_number(struct match_out *o, unsigned stream, uint32_t most)
{
	uint32_t n = 0;
	int byte;

	do {
		byte = get(o, stream);
		if (byte < 0)
			return byte;
		n += (uint32_t)byte;
	} while (byte == MORE && n <= most);
	return n <= most ? (int)n : -EBADMSG;
}

static int get_distance(struct match_out *o)
{
	int byte = get(o, DISTANCES), low, high;
	uint32_t distance;

	if (byte < 0)
		return byte;
	if (byte < (int)MATCH_NR_RECENT) {
		distance = o->recent[byte];
	} else {
		low = get(o, DISTANCES);
		high = get(o, DISTANCES);
		if (low < 0 || high < 0)
			return -EBADMSG;
		distance = ((uint32_t)high << 8 | (uint32_t)low) * FAR_BASE + (uint32_t)byte - MATCH_NR_RECENT;
	}
	make_recent(o->recent, MIN((unsigned)byte, MATCH_NR_RECENT), distance);
	return (int)distance;
}

/* One by one: most runs are short, and what was just put there may go on. */
static void copy_elements(uint8_t *to, const uint8_t *from, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		uint64_t x;

		memcpy(&x, from + (size_t)i * MATCH_WIDTH, MATCH_WIDTH);
		memcpy(to + (size_t)i * MATCH_WIDTH, &x, MATCH_WIDTH);
	}
}

/* What is left goes to its place, and where the runs are is noted. */
static int place_elements(struct match_out *o, uint8_t *ret)
{
	const struct code_header *h = &o->header;
	uint32_t nr = code_nr_elements(h), at = 0, from = h->lead, tail = h->plain_len - h->lead - nr * MATCH_WIDTH;

	o->nr_runs = 0;
	if (o->rest_len < h->lead + tail)
		return -EBADMSG;
	memcpy(ret, o->rest, h->lead);
	while (o->at[LEFT] < o->len[LEFT]) {
		int left = get_number(o, LEFT, nr - at), length = get_number(o, LENGTHS, nr - at);
		uint32_t end = at + (uint32_t)left + (uint32_t)length + 1;

		if (left < 0 || length < 0 || end > nr || (uint32_t)left * MATCH_WIDTH > o->rest_len - tail - from)
			return -EBADMSG;
		copy_elements(ret + h->lead + (size_t)at * MATCH_WIDTH, o->rest + from, (uint32_t)left);
		from += (uint32_t)left * MATCH_WIDTH;
		at += (uint32_t)left;
		o->run[o->nr_runs++] = (struct run){ (uint16_t)at, (uint16_t)(length + 1) };
		at = end;
	}
	/* and those behind the last one */
	if (o->at[LENGTHS] != o->len[LENGTHS] || o->rest_len - from != (nr - at) * MATCH_WIDTH + tail)
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
	if (h->base != CODE_BASE_MATCHED || h->stored_len < sizeof(*d))
		return -EBADMSG;
	if (h->plain_len > room)
		return -ENOBUFS;
	r = stream_out(o, d, h->stored_len, LEFT);
	if (r == 0)
		r = stream_out(o, d, h->stored_len, LENGTHS);
	if (r == 0)
		r = rest_out(o, w, d, h->stored_len);
	if (r == 0)
		r = place_elements(o, ret);
	return r < 0 ? r : (int)h->plain_len;
}

/* What is being put together. */
struct filling {
	uint8_t *const *before;
	uint32_t part, parts; /* its number, and those that it names */
	uint8_t *ret;
};

/* A run that begins at byte `at` of the part, and whose elements also begin `distance` bytes before that. */
static int copy_run(const struct filling *f, uint32_t at, uint32_t nr, uint32_t distance)
{
	uint32_t place = f->part * MATCH_PART + at, from = place - distance, source = from / MATCH_PART,
		 in = from % MATCH_PART;

	if (distance > place || distance < MATCH_WIDTH)
		return -EBADMSG;
	if (source == f->part) {
		copy_elements(f->ret + at, f->ret + in, nr);
		return 0;
	}
	if (!(f->parts >> source & 1) || !f->before[source] || nr * MATCH_WIDTH > MATCH_PART - in)
		return -EBADMSG;
	copy_elements(f->ret + at, f->before[source] + in, nr);
	return 0;
}

int match_place_runs(struct match_out *o, const void *p, uint8_t *const before[], uint32_t nr_before, void *ret)
{
	const struct match_disk *d = (const struct match_disk *)((const uint8_t *)p + sizeof(struct code_header_disk));
	const struct code_header *h = &o->header;
	struct filling f = { .before = before, .part = nr_before, .parts = code_place_parts(h->base_place), .ret = ret };
	int r;

	if (nr_before >= MATCH_PARTS || f.parts >> nr_before > 0)
		return -EBADMSG;
	r = stream_out(o, d, h->stored_len, DISTANCES);
	memset(o->recent, 0, sizeof(o->recent));
	for (uint32_t i = 0; i < o->nr_runs && r == 0; i++) {
		int distance = get_distance(o);

		r = distance < 0 ? distance :
				   copy_run(&f, h->lead + o->run[i].at * MATCH_WIDTH, o->run[i].nr, (uint32_t)distance);
	}
	if (r < 0)
		return r;
	return o->at[DISTANCES] == o->len[DISTANCES] ? 0 : -EBADMSG;
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
