/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/gpu/format/rig_lineage.h"

#include <string.h>

#include "base/util.h"
#include "tests/unit/gpu/format/delta_apply.h"
#include "tests/unit/gpu/format/whole_object.h"

const uint8_t lineage_id[DELTA_LINEAGE_LEN] = "lineage-of-test";

void lineage_init(struct lineage *l, uint32_t chunk_len, uint64_t table_limit)
{
	struct delta_record_params params = { .chunk_len = chunk_len, .table_limit = table_limit };

	*l = (struct lineage){ 0 };
	memcpy(params.key, rig_key, sizeof(params.key));
	memcpy(params.lineage, lineage_id, sizeof(params.lineage));
	leaf_key_init(&l->key, rig_key);
	assert_int_equal(delta_record_new(&params, &l->rec), 0);
}

void lineage_release(struct lineage *l)
{
	for (size_t i = 0; i < LINEAGE_VERSIONS; i++)
		buf_release(&l->versions[i]);
	buf_release(&l->object);
	delta_record_free(l->rec);
}

static ssize_t read_version(void *userdata, uint32_t version, uint64_t off, void *p, size_t len)
{
	const struct lineage *l = userdata;
	size_t n;

	assert_true(version > 0 && version <= l->last && !l->deleted[version]);
	n = off < l->versions[version].len ? MIN(len, l->versions[version].len - (size_t)off) : 0;
	if (n > 0)
		memcpy(p, l->versions[version].data + off, n);
	return (ssize_t)n;
}

/* Every source is there, and as long as it is said to be. */
static void check_regions(struct lineage *l)
{
	struct delta_region r;
	struct delta_tables t;
	struct delta_iter it;

	memset(l->nr_regions, 0, sizeof(l->nr_regions));
	assert_int_equal(delta_decode(l->object.data, l->object.len, &t), 0);
	it = delta_iter(&t);
	while (delta_iter_next(&it, &r) > 0) {
		l->nr_regions[r.kind]++;
		if (r.kind == DELTA_SHIFTED && r.version != t.header.number)
			assert_true(r.src_off + r.len <= l->versions[r.version].len);
	}
}

void lineage_take(struct lineage *l, const struct delta_take *take, const void *data, size_t len)
{
	_cleanup_(freep) uint8_t *copy = malloc(len + !len), *got = malloc(len + !len);
	struct delta_take t = *take;

	assert_true(l->last + 1 < LINEAGE_VERSIONS);
	t.number = l->last + 1;
	if (len > 0)
		memcpy(copy, data, len); /* of its exact length, so that a sanitizer sees a read past the end */
	assert_int_equal(delta_record_take(l->rec, copy, len, &t, &l->object), 0);
	check_regions(l);
	memset(got, 0xee, len + !len);
	assert_int_equal(delta_apply(l->object.data, l->object.len, &l->key, read_version, l, got, len), 0);
	assert_memory_equal(got, copy, len);
}

void lineage_checkpoint(struct lineage *l, const struct delta_take *take, const void *data, size_t len)
{
	lineage_take(l, take, data, len);
	delta_record_commit(l->rec);
	l->last++;
	buf_add(&l->versions[l->last], data, len);
	assert_int_equal(buf_error(&l->versions[l->last]), 0);
}

void lineage_delete(struct lineage *l, uint32_t number)
{
	delta_record_forget(l->rec, number);
	l->deleted[number] = true;
}

/* A stretch of [0, len). */
static struct delta_span stretch(uint64_t *seed, size_t len, size_t align)
{
	struct delta_span s = { 0, 0 };

	if (len >= align) {
		s.off = round_down(rig_random(seed) % len, align);
		s.len = round_down(rig_random(seed) % (len - s.off + 1), align);
	}
	return s;
}

static void move(struct buf *b, uint64_t *seed, size_t align, bool swap)
{
	_cleanup_(freep) uint8_t *old = malloc(b->len + !b->len);
	struct delta_span from = stretch(seed, b->len, align), to = stretch(seed, b->len, align);

	from.len = MIN(from.len, to.len);
	if (from.len == 0)
		return;
	memcpy(old, b->data, b->len);
	memcpy(b->data + to.off, old + from.off, from.len);
	if (swap && from.off + from.len <= to.off)
		memcpy(b->data + from.off, old + to.off, from.len);
}

static void change_chunks(struct buf *b, uint64_t *seed, uint32_t chunk_len, bool zeros)
{
	size_t nr = (size_t)chunks_of(b->len, chunk_len);

	for (size_t i = 0; nr > 0 && i < 1 + nr / 20; i++) {
		size_t off = rig_random(seed) % nr * chunk_len, len = MIN((size_t)chunk_len, b->len - off);

		if (zeros)
			memset(b->data + off, 0, len);
		else
			b->data[off + rig_random(seed) % len] ^= (uint8_t)(1 + rig_random(seed) % 255);
	}
}

static void change_stretches(struct buf *b, uint64_t *seed)
{
	for (int i = 0; i < 3; i++) {
		struct delta_span s = stretch(seed, b->len, 1);

		rig_noise(seed, b->data + s.off, (size_t)s.len / 4);
	}
}

static void fill_stretch(struct buf *b, uint64_t *seed, uint32_t chunk_len, bool constant)
{
	struct delta_span s = stretch(seed, b->len, constant ? 1 : chunk_len);
	size_t period = chunk_len * (1 + rig_random(seed) % 4);

	if (constant && s.len > 0)
		memset(b->data + s.off, (int)(rig_random(seed) % 3), (size_t)s.len);
	for (size_t i = (size_t)s.off; !constant && i < s.off + s.len; i++)
		if (i >= period)
			b->data[i] = b->data[i - period];
}

static void change_to_old(const struct lineage *l, struct buf *b, uint64_t *seed, uint32_t chunk_len)
{
	struct delta_span to = stretch(seed, b->len, chunk_len);
	const struct buf *old;
	size_t off;

	if (l->last == 0)
		return;
	old = &l->versions[1 + rig_random(seed) % l->last];
	off = rig_random(seed) % 2 ? (size_t)to.off : (size_t)round_down(rig_random(seed) % (b->len + 1), chunk_len);
	if (off < old->len && to.len > 0)
		memcpy(b->data + to.off, old->data + off, MIN((size_t)to.len, old->len - off));
}

static void grow(struct buf *b, uint64_t *seed, size_t max, bool zeros)
{
	size_t more = b->len < max ? rig_random(seed) % (max - b->len) : 0;

	assert_int_equal(buf_reserve(b, more + 1), 0);
	memset(b->data + b->len, 0, more);
	if (!zeros)
		rig_noise(seed, b->data + b->len, more);
	b->len += more;
}

void lineage_change(const struct lineage *l, enum pattern pattern, uint32_t chunk_len, size_t max, uint64_t *seed,
		    struct buf *b)
{
	switch (pattern) {
	case PATTERN_SPARSE:
	case PATTERN_ZEROS:
		change_chunks(b, seed, chunk_len, pattern == PATTERN_ZEROS);
		break;
	case PATTERN_RUNS:
		change_stretches(b, seed);
		break;
	case PATTERN_MOVED:
	case PATTERN_SWAPPED:
		move(b, seed, chunk_len, pattern == PATTERN_SWAPPED);
		break;
	case PATTERN_MOVED_UNALIGNED:
		move(b, seed, 1, false);
		break;
	case PATTERN_CONSTANT:
	case PATTERN_PERIODIC:
		fill_stretch(b, seed, chunk_len, pattern == PATTERN_CONSTANT);
		break;
	case PATTERN_OLD:
		change_to_old(l, b, seed, chunk_len);
		break;
	case PATTERN_GROWN:
	case PATTERN_GROWN_ZEROS:
		grow(b, seed, max, pattern == PATTERN_GROWN_ZEROS);
		break;
	case PATTERN_SHRUNK:
		b->len = b->len > 0 ? rig_random(seed) % b->len : 0;
		break;
	case PATTERN_ALL:
		rig_noise(seed, b->data, b->len);
		break;
	default:
		break;
	}
}
