/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/code_columns.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

#define SAMPLE 8192u /* bytes compared, from the middle */
#define CLEARLY (SAMPLE / 64) /* equal bytes above the average that a record length needs */
#define NEARLY 8u /* as good as the best: its lead over the average may be less by one in so many */
#define BETTER_BY 12u /* per cent more equal pairs, or the column stays unchanged: noise has some by chance */

static uint32_t nr_records(const struct code_header *h)
{
	return h->plain_len / h->stride[0];
}

size_t code_columns_bytes(const struct code_header *h)
{
	return h->stride[0] + (size_t)nr_records(h) * h->stride[0];
}

/* How much the bytes repeat: number of equal pairs. */
static uint64_t count_pairs(const uint8_t *a, size_t nr)
{
	uint32_t counts[2][256] = { { 0 } }; /* two tables, so that equal neighbours do not stall on each other */
	uint64_t sum = 0;
	size_t i = 0;

	for (; i + 2 <= nr; i += 2) {
		counts[0][a[i]]++;
		counts[1][a[i + 1]]++;
	}
	if (i < nr)
		counts[0][a[i]]++;
	for (unsigned k = 0; k < 256; k++) {
		uint64_t n = counts[0][k] + counts[1][k];

		sum += n * n;
	}
	return sum;
}

static void column_in(const uint8_t *restrict p, size_t nr, size_t record, uint8_t *restrict ret)
{
	for (size_t i = 0; i < nr; i++)
		ret[i] = p[i * record];
}

static void delta_in(const uint8_t *restrict a, size_t nr, uint8_t *restrict ret)
{
	if (nr > 0)
		ret[0] = a[0];
	for (size_t i = 1; i < nr; i++)
		ret[i] = (uint8_t)(a[i] - a[i - 1]);
}

/* The base has the first `have` records. */
static void base_in(const uint8_t *restrict a, const uint8_t *restrict base, size_t nr, size_t have, size_t record,
		    uint8_t *restrict ret)
{
	for (size_t i = 0; i < have; i++)
		ret[i] = (uint8_t)(a[i] - base[i * record]);
	memcpy(ret + have, a + have, nr - have);
}

/* Number of records for which the base has the byte in this column. */
static size_t records_in(size_t base_len, size_t column, size_t record, size_t nr)
{
	return base_len > column ? MIN(nr, (base_len - column - 1) / record + 1) : 0;
}

/* Replace the column at `a` by `other` if that repeats more. Returns how it is stored then. */
static enum code_column choose_way(uint8_t *a, const uint8_t *other, size_t nr, enum code_column was,
				   enum code_column way, uint64_t *pairs)
{
	uint64_t n = count_pairs(other, nr);

	if (n <= *pairs + *pairs * BETTER_BY / 100)
		return was;
	*pairs = n;
	memcpy(a, other, nr);
	return way;
}

static bool is_constant(const uint8_t *a, size_t nr)
{
	return nr < 2 || memcmp(a, a + 1, nr - 1) == 0;
}

void code_columns_split(const struct code_header *h, const uint8_t *p, const uint8_t *base, size_t base_len,
			uint8_t *room, uint8_t *ret)
{
	size_t record = h->stride[0], nr = nr_records(h);
	uint8_t *delta = room, *against = room + nr, *a = ret + record;

	if (h->base == CODE_BASE_NONE)
		base_len = 0;
	for (size_t k = 0; k < record; k++, a += nr) {
		size_t have = records_in(base_len, k, record, nr);
		uint64_t pairs;

		ret[k] = CODE_COLUMN_SAME;
		column_in(p + k, nr, record, a);
		if (is_constant(a, nr))
			continue;
		pairs = count_pairs(a, nr);
		delta_in(a, nr, delta);
		if (have > 0)
			base_in(a, base + k, nr, have, record, against);
		ret[k] = (uint8_t)choose_way(a, delta, nr, ret[k], CODE_COLUMN_DELTA, &pairs);
		if (have > 0)
			ret[k] = (uint8_t)choose_way(a, against, nr, ret[k], CODE_COLUMN_BASE, &pairs);
	}
}

static void column_out(const uint8_t *restrict a, size_t nr, size_t record, uint8_t *restrict ret)
{
	for (size_t i = 0; i < nr; i++)
		ret[i * record] = a[i];
}

static void delta_out(const uint8_t *restrict a, size_t nr, size_t record, uint8_t *restrict ret)
{
	uint8_t last = 0;

	for (size_t i = 0; i < nr; i++)
		ret[i * record] = last = (uint8_t)(last + a[i]);
}

static void base_out(const uint8_t *restrict a, const uint8_t *restrict base, size_t nr, size_t have, size_t record,
		     uint8_t *restrict ret)
{
	for (size_t i = 0; i < have; i++)
		ret[i * record] = (uint8_t)(a[i] + base[i * record]);
	column_out(a + have, nr - have, record, ret + have * record);
}

int code_columns_join(const uint8_t *const sections[], const struct code_header *h, const uint8_t *base, size_t base_len,
		      uint8_t *ret)
{
	size_t record = h->stride[0], nr = nr_records(h);
	const uint8_t *how = sections[0];

	for (size_t k = 0; k < record; k++) {
		size_t have = records_in(base_len, k, record, nr);

		switch (how[k]) {
		case CODE_COLUMN_SAME:
			column_out(sections[1 + k], nr, record, ret + k);
			break;
		case CODE_COLUMN_DELTA:
			delta_out(sections[1 + k], nr, record, ret + k);
			break;
		case CODE_COLUMN_BASE:
			if (h->base == CODE_BASE_NONE)
				return -EBADMSG;
			base_out(sections[1 + k], have > 0 ? base + k : NULL, nr, have, record, ret + k);
			break;
		default:
			return -EBADMSG;
		}
	}
	return 0;
}

/* Over SAMPLE bytes. Uses byte-wide lanes to fill vectors, and few enough rows that no lane overflows. */
static uint32_t count_equal(const uint8_t *restrict a, const uint8_t *restrict b)
{
	enum { LANES = 64, ROWS = 128 };
	uint32_t sum = 0;

	static_assert(SAMPLE % (LANES * ROWS) == 0 && ROWS <= UINT8_MAX, "all of them, none over");
	for (size_t at = 0; at < SAMPLE; at += LANES * ROWS) {
		uint8_t lane[LANES] = { 0 };

		for (size_t i = at; i < at + LANES * ROWS; i += LANES)
			for (size_t k = 0; k < LANES; k++)
				lane[k] = (uint8_t)(lane[k] + (a[i + k] == b[i + k]));
		for (size_t k = 0; k < LANES; k++)
			sum += lane[k];
	}
	return sum;
}

uint32_t code_columns_find_record(const uint8_t *p, size_t len)
{
	uint32_t equal[CODE_RECORD_MAX + 1], most = 0, mean = 0;

	if (len < SAMPLE + CODE_RECORD_MAX)
		return 0;
	p += (len - SAMPLE - CODE_RECORD_MAX) / 2;
	for (uint32_t i = 1; i <= CODE_RECORD_MAX; i++) {
		equal[i] = count_equal(p, p + i);
		most = MAX(most, equal[i]);
		mean += equal[i];
	}
	mean /= CODE_RECORD_MAX;
	if (most < mean + CLEARLY)
		return 0;
	for (uint32_t i = 1; i <= CODE_RECORD_MAX; i++)
		if (equal[i] >= most - (most - mean) / NEARLY)
			return i >= CODE_RECORD_MIN ? i : 0;
	return 0;
}
