/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/report_record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define BEGIN "<script type=\"text/plain\" id=\"ckptfs-record-1\">\n"
#define END "</script>"
#define NR_FIELDS 9

void record_release(struct record *r)
{
	free(TAKE(r->reading));
	r->nr = 0;
}

/* Parses the numbers of one reading, separated by blanks, in [p, end). */
static int parse_reading(const char *p, const char *end, struct record_reading *ret)
{
	uint64_t v[NR_FIELDS];

	for (unsigned i = 0; i < NR_FIELDS; i++) {
		const char *digits = p;

		v[i] = 0;
		for (; p < end && *p >= '0' && *p <= '9'; p++)
			if (__builtin_mul_overflow(v[i], 10, &v[i]) ||
			    __builtin_add_overflow(v[i], (uint64_t)(*p - '0'), &v[i]))
				return -EBADMSG;
		if (p == digits || (i + 1 < NR_FIELDS ? p == end || *p++ != ' ' : p != end))
			return -EBADMSG;
	}
	*ret = (struct record_reading){ v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8] };
	return 0;
}

static int append_reading(struct record *r, const struct record_reading *reading)
{
	struct record_reading *more = reallocarray(r->reading, r->nr + 1, sizeof(*more));

	if (!more)
		return -ENOMEM;
	r->reading = more;
	r->reading[r->nr++] = *reading;
	return 0;
}

static int parse_id(const char *p, const char *end, struct record *ret)
{
	size_t len = (size_t)(end - p);

	if (len == 0 || len >= sizeof(ret->store_id))
		return -EBADMSG;
	for (size_t i = 0; i < len; i++)
		if (!strchr("0123456789abcdef", p[i]) || p[i] == '\0')
			return -EBADMSG;
	memcpy(ret->store_id, p, len);
	ret->store_id[len] = '\0';
	return 0;
}

/* Parses readings up to the end mark; they must be in order of time. */
static int parse_readings(const char *p, const char *end, struct record *ret)
{
	struct record_reading one;
	const char *stop;
	int r = 0;

	for (; r == 0 && (stop = memchr(p, '\n', (size_t)(end - p))); p = stop + 1) {
		if ((size_t)(stop - p) == strlen(END) && memcmp(p, END, strlen(END)) == 0)
			return 0;
		r = parse_reading(p, stop, &one);
		if (r == 0 && (ret->nr >= RECORD_MAX || (ret->nr > 0 && one.time_s < ret->reading[ret->nr - 1].time_s)))
			r = -EBADMSG;
		if (r == 0)
			r = append_reading(ret, &one);
	}
	return r < 0 ? r : -EBADMSG;
}

int record_parse(const char *page, size_t len, struct record *ret)
{
	_cleanup_(record_release) struct record found = { 0 };
	const char *end = page + len, *p = memmem(page, len, BEGIN, strlen(BEGIN)), *stop;
	int r;

	if (!p)
		return -EBADMSG;
	p += strlen(BEGIN);
	stop = memchr(p, '\n', (size_t)(end - p));
	r = stop ? parse_id(p, stop, &found) : -EBADMSG;
	if (r == 0)
		r = parse_readings(stop + 1, end, &found);
	if (r < 0)
		return r;
	*ret = found;
	found = (struct record){ 0 };
	return 0;
}

/* Drops every second reading of the older half. */
static void thin_out(struct record *r)
{
	size_t half = r->nr / 2, kept = 0;

	for (size_t i = 0; i < r->nr; i++)
		if (i >= half || i % 2 == 0)
			r->reading[kept++] = r->reading[i];
	r->nr = kept;
}

int record_add(struct record *r, const struct record_reading *reading)
{
	while (r->nr > 0 && r->reading[r->nr - 1].time_s > reading->time_s)
		r->nr--;
	if (r->nr >= RECORD_MAX)
		thin_out(r);
	return append_reading(r, reading);
}

bool record_growth(const struct record *r, uint64_t span_s, uint64_t least_s, double *ret, uint64_t *ret_span_s)
{
	const struct record_reading *last, *first;

	if (r->nr == 0)
		return false;
	first = last = &r->reading[r->nr - 1];
	while (first > r->reading && last->time_s - first[-1].time_s <= span_s)
		first--;
	*ret_span_s = last->time_s - first->time_s;
	if (*ret_span_s == 0 || *ret_span_s < least_s)
		return false;
	*ret = ((double)last->disk - (double)first->disk) / (double)*ret_span_s;
	return true;
}

void record_print(FILE *to, const struct record *r)
{
	fputs(BEGIN, to);
	fprintf(to, "%s\n", r->store_id);
	for (size_t i = 0; i < r->nr; i++) {
		const struct record_reading *o = &r->reading[i];

		fprintf(to,
			"%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
			" %" PRIu64 "\n",
			o->time_s, o->logical, o->stored, o->compressed, o->disk, o->pid, o->uptime_s, o->cut, o->fresh);
	}
	fputs(END "\n", to);
}
