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
		.base_place = code_place(CODE_PLACE_MATCHED, r->parts),
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

struct match_out {
	struct code_entropy_work *entropy;
	uint8_t stream[MATCH_NR_STREAMS][MATCH_STREAM_MAX];
	uint32_t len[MATCH_NR_STREAMS], at[MATCH_NR_STREAMS];
	uint32_t recent[MATCH_NR_RECENT];
	uint8_t rest[MATCH_PART];
	uint32_t rest_len;
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

static int stream_out(struct match_out *o, unsigned i, uint32_t word, const uint8_t *p)
{
	uint32_t n = CODE_SECTION_LEN(word);

	switch (CODE_SECTION_KIND(word)) {
	case CODE_SECTION_RAW:
		if (n != o->len[i])
			return -EBADMSG;
		memcpy(o->stream[i], p, n);
		return 0;
	case CODE_SECTION_CODED:
		return code_entropy_out(o->entropy, CODE_ENTROPY_ZSTD, p, n, o->stream[i], o->len[i]);
	default:
		return -EBADMSG;
	}
}

/* The block of what is left: by itself, and not one with runs again. */
static int rest_out(struct match_out *o, struct code_work *w, const uint8_t *p, size_t len)
{
	struct code_header h;
	int n = code_header_decode(p, len, &h);

	if (n < 0 || h.base != CODE_BASE_NONE)
		return -EBADMSG;
	n = code_decode(w, p, len, NULL, 0, o->rest, sizeof(o->rest));
	if (n < 0)
		return n == -ENOMEM ? n : -EBADMSG;
	o->rest_len = (uint32_t)n;
	return 0;
}

static int streams_out(struct match_out *o, struct code_work *w, const uint8_t *p, size_t len)
{
	const struct match_disk *d = (const struct match_disk *)p;
	int r;

	if (len < sizeof(*d))
		return -EBADMSG;
	p += sizeof(*d);
	len -= sizeof(*d);
	for (unsigned i = 0; i < MATCH_NR_STREAMS; i++) {
		uint32_t word = le32_get(d->stream[i].word), n = CODE_SECTION_LEN(word);

		o->len[i] = le32_get(d->stream[i].plain_len);
		o->at[i] = 0;
		if (n > len || o->len[i] > MATCH_STREAM_MAX)
			return -EBADMSG;
		r = stream_out(o, i, word, p);
		if (r < 0)
			return r;
		p += n;
		len -= n;
	}
	memset(o->recent, 0, sizeof(o->recent));
	return rest_out(o, w, p, len);
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

/* What is being put together. */
struct filling {
	uint8_t *const *before;
	uint32_t part, parts; /* its number, and those that it names */
	uint8_t *ret;
	uint32_t at, end; /* elements, as bytes of the part */
};

/* A run of `len` bytes that begins `distance` bytes before f->at. */
static int copy_run(struct filling *f, uint32_t distance, uint32_t len)
{
	uint32_t place = f->part * MATCH_PART + f->at, from = place - distance, source = from / MATCH_PART,
		 in = from % MATCH_PART;

	if (distance > place || distance < MATCH_WIDTH || len > f->end - f->at)
		return -EBADMSG;
	if (source == f->part) {
		if (distance >= len)
			memcpy(f->ret + f->at, f->ret + in, len);
		else
			for (uint32_t i = 0; i < len; i += MATCH_WIDTH) /* what was just put there goes on */
				memcpy(f->ret + f->at + i, f->ret + in + i, MATCH_WIDTH);
	} else {
		if (!(f->parts >> source & 1) || !f->before[source] || len > MATCH_PART - in)
			return -EBADMSG;
		memcpy(f->ret + f->at, f->before[source] + in, len);
	}
	f->at += len;
	return 0;
}

/* Elements from what is left, from *at on. */
static int copy_left(const struct match_out *o, struct filling *f, uint32_t *at, uint32_t len)
{
	if (len > f->end - f->at || len > o->rest_len - *at)
		return -EBADMSG;
	memcpy(f->ret + f->at, o->rest + *at, len);
	f->at += len;
	*at += len;
	return 0;
}

static int fill(struct match_out *o, struct filling *f, uint32_t lead, uint32_t plain_len)
{
	uint32_t at = 0, left = 0;
	int r;

	f->end = lead; /* bytes before the first element */
	r = copy_left(o, f, &at, lead);
	f->end = lead + (uint32_t)round_down(plain_len - lead, MATCH_WIDTH);
	while (r == 0 && o->at[LEFT] < o->len[LEFT]) {
		uint32_t room = (f->end - f->at) / MATCH_WIDTH;
		int nr = get_number(o, LEFT, room), length = get_number(o, LENGTHS, room), distance = get_distance(o);

		if (nr < 0 || length < 0 || distance < 0)
			return -EBADMSG;
		r = copy_left(o, f, &at, (uint32_t)nr * MATCH_WIDTH);
		if (r == 0)
			r = copy_run(f, (uint32_t)distance, ((uint32_t)length + 1) * MATCH_WIDTH);
	}
	if (r < 0 || o->at[LENGTHS] != o->len[LENGTHS] || o->at[DISTANCES] != o->len[DISTANCES])
		return -EBADMSG;
	f->end = plain_len; /* and those behind the last one */
	left = plain_len - f->at;
	r = copy_left(o, f, &at, left);
	return r == 0 && at == o->rest_len ? 0 : -EBADMSG;
}

int match_decode(struct match_out *o, struct code_work *w, const void *p, size_t len, uint8_t *const before[],
		 uint32_t nr_before, void *ret, size_t room)
{
	const uint8_t *stored = (const uint8_t *)p + sizeof(struct code_header_disk);
	struct filling f = { .before = before, .part = nr_before, .ret = ret };
	struct code_header h;
	int r;

	r = code_header_decode(p, len, &h);
	if (r < 0)
		return r;
	f.parts = code_place_off(h.base_place);
	if (h.base != CODE_BASE_MATCHED || nr_before >= MATCH_PARTS || f.parts >> nr_before > 0)
		return -EBADMSG;
	if (h.plain_len > room)
		return -ENOBUFS;
	r = streams_out(o, w, stored, h.stored_len);
	if (r == 0)
		r = fill(o, &f, h.lead, h.plain_len);
	if (r < 0)
		return r;
	return crc32c(ret, h.plain_len) == h.base_crc ? (int)h.plain_len : -EBADMSG;
}
