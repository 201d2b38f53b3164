/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "gpu/format/delta_encode.h"
#include "tests/unit/gpu/format/rig.h"

#define NUMBER 9u /* of the versions made here */

/* Tables, and the runs they were made of. */
struct made {
	struct delta_header header;
	struct buf first, shifted, tables;
};

static void made_release(struct made *m)
{
	buf_release(&m->first);
	buf_release(&m->shifted);
	buf_release(&m->tables);
}

static void add_chunk(struct made *m, const struct delta_shift *s, uint32_t chunk)
{
	struct delta_run *run = m->first.len > 0 ? (struct delta_run *)(m->first.data + m->first.len) - 1 : NULL;
	struct delta_shift *shift =
		m->shifted.len > 0 ? (struct delta_shift *)(m->shifted.data + m->shifted.len) - 1 : NULL;

	if (!s && run && run->chunk + run->count == chunk)
		run->count++;
	else if (!s)
		buf_add(&m->first, &(struct delta_run){ chunk, 1 }, sizeof(*run));
	else if (!shift || !delta_shift_join(shift, s))
		buf_add(&m->shifted, s, sizeof(*s));
}

/*
 * Chunks at random: unchanged, new, from an older version or, where there are new ones already, from one of those; in
 * stretches. The sources of a stretch advance, stay or jump.
 */
static void make_random(struct made *m, uint64_t *seed, uint64_t nr_chunks)
{
	unsigned kind = 0, left = 0, how = 0;
	uint32_t first[256], nr_first = 0;
	struct delta_shift s = { 0 };

	*m = (struct made){
		.header = { .chunk_len = 32, .number = NUMBER, .parent = NUMBER - 1, .content_len = nr_chunks * 32 }
	};
	for (uint32_t i = 0; i < nr_chunks; i++) {
		if (left-- == 0) {
			kind = rig_random(seed) % 4;
			how = rig_random(seed) % 3;
			left = rig_random(seed) % 3 ? rig_random(seed) % 20 : 0;
			s = (struct delta_shift){ .version = 1 + rig_random(seed) % 3, .src = rig_random(seed) % 1000 };
		}
		s.dst = i;
		s.count = 1;
		s.repeated = false;
		if (kind == 1) {
			add_chunk(m, NULL, i);
			m->header.payload_len += 32;
			first[nr_first++ % ARRAY_SIZE(first)] = i;
		} else if (kind == 2) {
			s.src = how == 0 ? s.src + 1 : how == 1 ? s.src : rig_random(seed) % 1000;
			add_chunk(m, &s, i);
		} else if (kind == 3 && nr_first > 0) {
			s.version = NUMBER;
			s.src = first[rig_random(seed) % MIN(nr_first, (uint32_t)ARRAY_SIZE(first))];
			add_chunk(m, &s, i);
		}
	}
	assert_int_equal(buf_error(&m->first) + buf_error(&m->shifted), 0);
}

static void encode(struct made *m, unsigned first_as, unsigned shifted_as)
{
	struct delta_plan plan = {
		.first = (const struct delta_run *)m->first.data,
		.shifted = (const struct delta_shift *)m->shifted.data,
		.nr_first = m->first.len / sizeof(struct delta_run),
		.nr_shifted = m->shifted.len / sizeof(struct delta_shift),
		.first_as = first_as,
		.shifted_as = shifted_as,
	};

	buf_clear(&m->tables);
	delta_tables_encode(&m->header, &plan, &m->tables);
	assert_int_equal(buf_error(&m->tables), 0);
}

/* The regions are the runs it was made of, in order. */
static void check_regions(const struct made *m, const struct delta_tables *t)
{
	const struct delta_run *run = (const struct delta_run *)m->first.data;
	const struct delta_shift *shift = (const struct delta_shift *)m->shifted.data;
	uint64_t payload_off = 0, end = 0;
	size_t nr_first = 0, nr_shifted = 0;
	struct delta_iter it = delta_iter(t);
	struct delta_region r;

	while (delta_iter_next(&it, &r) > 0) {
		assert_true(r.off >= end);
		end = r.off + r.len;
		if (r.kind == DELTA_FIRST) {
			assert_int_equal(r.off, run->chunk * 32);
			assert_int_equal(r.len, run->count * 32);
			assert_int_equal(r.payload_off, payload_off);
			payload_off += r.len;
			run++;
			nr_first++;
			continue;
		}
		assert_int_equal(r.off, shift->dst * 32);
		assert_int_equal(r.len, shift->count * 32);
		assert_int_equal(r.version, shift->version);
		assert_int_equal(r.src_off, shift->src * 32);
		assert_int_equal(r.kind, shift->repeated ? DELTA_REPEATED : DELTA_SHIFTED);
		shift++;
		nr_shifted++;
	}
	assert_int_equal(nr_first, m->first.len / sizeof(*run));
	assert_int_equal(nr_shifted, m->shifted.len / sizeof(*shift));
}

static void every_encoding_gives_the_same_regions_and_the_smallest_is_chosen(void **state _unused_)
{
	uint64_t seed = 1;

	for (unsigned round = 0; round < 3000; round++) {
		_cleanup_(made_release) struct made m;
		uint64_t first_len = UINT64_MAX, shifted_len = UINT64_MAX;
		struct delta_tables t;

		make_random(&m, &seed, rig_random(&seed) % (round % 10 ? 100 : 1000));
		for (unsigned f = DELTA_BITMAP; f <= DELTA_RUNS; f++)
			for (unsigned s = DELTA_LIST; s <= DELTA_RUNS; s++) {
				encode(&m, DELTA_AS(f), DELTA_AS(s));
				assert_int_equal(m.header.first_encoding, f);
				assert_int_equal(m.header.shifted_encoding, s);
				assert_int_equal(delta_tables_decode(&m.header, m.tables.data, m.tables.len, &t), 0);
				check_regions(&m, &t);
				first_len = MIN(first_len, m.header.first_len);
				shifted_len = MIN(shifted_len, m.header.shifted_len);
			}
		encode(&m, DELTA_AS_ANY, DELTA_AS_ANY);
		assert_int_equal(m.header.first_len, first_len);
		assert_int_equal(m.header.shifted_len, shifted_len);
	}
}

static void the_largest_content_has_room_in_all_numbers(void **state _unused_)
{
	static const struct delta_run all[] = { { 0, UINT32_C(1) << 31 } };
	static const struct delta_shift again[] = { { 1, (UINT32_C(1) << 31) - 1, NUMBER, 0, true } };
	static const struct delta_shift last[] = { { (UINT32_C(1) << 31) - 1, 1, 1, (UINT32_C(1) << 31) - 1, false } };
	struct delta_header h = { .chunk_len = 4096, .number = NUMBER, .content_len = UINT64_C(4096) << 31 };
	struct delta_plan plan = {
		.nr_first = 1, .first = all, .first_as = DELTA_AS(DELTA_NODES), .shifted_as = DELTA_AS_ANY
	};
	_cleanup_(buf_release) struct buf tables = BUF_EMPTY;
	struct delta_region r;
	struct delta_tables t;
	struct delta_iter it;

	h.payload_len = h.pages_len = h.content_len;
	delta_tables_encode(&h, &plan, &tables);
	assert_int_equal(delta_tables_decode(&h, tables.data, tables.len, &t), 0);
	assert_int_equal(tables.len, 4);
	it = delta_iter(&t);
	assert_int_equal(delta_iter_next(&it, &r), 1);
	assert_int_equal(r.len, h.content_len);

	buf_clear(&tables);
	plan = (struct delta_plan){ .first = &(struct delta_run){ 0, 1 },
				    .nr_first = 1,
				    .shifted = again,
				    .nr_shifted = 1,
				    .first_as = DELTA_AS(DELTA_LIST),
				    .shifted_as = DELTA_AS(DELTA_RUNS) };
	h.payload_len = h.pages_len = 4096;
	delta_tables_encode(&h, &plan, &tables);
	assert_int_equal(delta_tables_decode(&h, tables.data, tables.len, &t), 0);
	it = delta_iter(&t);
	assert_int_equal(delta_iter_next(&it, &r), 1);
	assert_int_equal(delta_iter_next(&it, &r), 1);
	assert_int_equal(r.kind, DELTA_REPEATED);
	assert_int_equal(r.off + r.len, h.content_len);
	assert_int_equal(delta_iter_next(&it, &r), 0);

	for (unsigned s = DELTA_LIST; s <= DELTA_RUNS; s++) {
		buf_clear(&tables);
		plan.shifted = last;
		plan.shifted_as = DELTA_AS(s);
		delta_tables_encode(&h, &plan, &tables);
		assert_int_equal(delta_tables_decode(&h, tables.data, tables.len, &t), 0);
		it = delta_iter(&t);
		assert_int_equal(delta_iter_next(&it, &r), 1);
		assert_int_equal(delta_iter_next(&it, &r), 1);
		assert_int_equal(r.src_off + r.len, h.content_len);
	}
}

static void every_flipped_bit_of_header_and_tables_is_noticed(void **state _unused_)
{
	struct delta_header_disk disk;
	_cleanup_(made_release) struct made m;
	struct delta_header h, got;
	struct delta_tables t = { .header.number = 1234 };
	uint8_t *p = (uint8_t *)&disk;
	uint64_t seed = 2;

	make_random(&m, &seed, 300);
	encode(&m, DELTA_AS_ANY, DELTA_AS_ANY);
	for (size_t bit = 0; bit < 8 * m.tables.len; bit++) {
		m.tables.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(delta_tables_decode(&m.header, m.tables.data, m.tables.len, &t), -EBADMSG);
		m.tables.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t len = 0; len < m.tables.len; len++)
		assert_int_equal(delta_tables_decode(&m.header, m.tables.data, len, &t), -EBADMSG);
	assert_int_equal(t.header.number, 1234);

	h = m.header;
	h.fingerprint = (struct digest){ UINT64_C(0x0123456789abcdef), UINT64_C(0xfedcba9876543210) };
	memcpy(h.lineage, "of some lineage", DELTA_LINEAGE_LEN);
	delta_header_encode(&h, &disk);
	assert_int_equal(delta_header_decode(&disk, sizeof(disk), &got), 0);
	assert_digest_equal(got.fingerprint, h.fingerprint);
	assert_memory_equal(got.lineage, h.lineage, DELTA_LINEAGE_LEN);
	assert_int_equal(delta_object_len(&got), 256 + m.header.payload_len + m.tables.len);
	for (size_t bit = 0; bit < 8 * sizeof(disk); bit++) {
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(delta_header_decode(p, sizeof(disk), &got), -EBADMSG);
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t len = 0; len < sizeof(disk); len++)
		assert_int_equal(delta_header_decode(p, len, &got), -EBADMSG);
}

/* With checksums made right, tables that lie are refused, or what they say is as sound as any. */
static void random_tables_are_refused_or_sound(void **state _unused_)
{
	unsigned nr_sound = 0;
	uint64_t seed = 3;

	for (unsigned round = 0; round < 30000; round++) {
		_cleanup_(made_release) struct made m;
		uint64_t end = 0, payload_len = 0;
		struct delta_region r;
		struct delta_tables t;
		struct delta_iter it;

		make_random(&m, &seed, 1 + rig_random(&seed) % 40);
		encode(&m, DELTA_AS(DELTA_BITMAP + round % 4), DELTA_AS(DELTA_LIST + round % 3));
		for (unsigned i = 0; m.tables.len > 0 && i < 1 + round % 3; i++)
			m.tables.data[rig_random(&seed) % m.tables.len] ^= (uint8_t)(1 << rig_random(&seed) % 8);
		m.header.tables_crc = crc32c(m.tables.data, m.tables.len);
		if (delta_tables_decode(&m.header, m.tables.data, m.tables.len, &t) < 0)
			continue;
		nr_sound++;
		it = delta_iter(&t);
		while (delta_iter_next(&it, &r) > 0) {
			assert_true(r.len > 0 && r.off >= end);
			end = r.off + r.len;
			payload_len += r.kind == DELTA_FIRST ? r.len : 0;
		}
		assert_true(end <= m.header.content_len);
		assert_int_equal(payload_len, m.header.payload_len);
	}
	assert_true(nr_sound > 1000 && nr_sound < 29000);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_encoding_gives_the_same_regions_and_the_smallest_is_chosen),
		cmocka_unit_test(the_largest_content_has_room_in_all_numbers),
		cmocka_unit_test(every_flipped_bit_of_header_and_tables_is_noticed),
		cmocka_unit_test(random_tables_are_refused_or_sound),
	};

	return cmocka_run_group_tests_name("delta_format", tests, NULL, NULL);
}
