/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/index/rig.h"

#include <inttypes.h>

#include "index/fingerprint_filter.h"
#include "index/fingerprints.h"
#include "tests/unit/golden.h"

static struct fp fp_nr(uint64_t n)
{
	return (struct fp){ .lo = n * 0x9e3779b97f4a7c15, .hi = (n * 0xc2b2ae3d27d4eb4f) >> 8 };
}

static struct fingerprint_entry entry(uint64_t n, uint32_t pack, uint32_t block)
{
	return (struct fingerprint_entry){ .fp = fp_nr(n), .pack = pack, .block = block };
}

static struct addr find(struct rig *rig, struct fp fp)
{
	struct addr a = { .pack = 99 };

	assert_int_equal(fingerprints_find(rig->db, &fp, 1, &a), 0);
	return a;
}

static void present_are_found_and_absent_are_nowhere(void **state)
{
	struct rig *rig = *state;
	enum { N = 40000 };
	struct fingerprint_entry *e = malloc(N * sizeof(*e));
	struct fp *fps = malloc(2 * N * sizeof(*fps));
	struct addr *a = malloc(2 * N * sizeof(*a));

	assert_true(e && fps && a);
	for (uint32_t i = 0; i < N; i++)
		e[i] = entry(i, 1 + i / 1000, i * 20 + 1);
	assert_int_equal(fingerprints_ingest(rig->db, e, N), 0);
	for (uint32_t i = 0; i < 2 * N; i++)
		fps[i] = fp_nr(i);
	assert_int_equal(fingerprints_find(rig->db, fps, 2 * N, a), 0);
	for (uint32_t i = 0; i < N; i++)
		assert_true(addr_equal(a[i], (struct addr){ .pack = 1 + i / 1000, .off = (i * 20 + 1) * 4096 }));
	for (uint32_t i = N; i < 2 * N; i++)
		assert_true(addr_is_none(a[i]));
	free(e);
	free(fps);
	free(a);
}

static void entries_come_out_sorted_by_their_bytes(void **state)
{
	struct rig *rig = *state;
	/* Little-endian bytes: 0x0100 sorts before 0x01. */
	struct fingerprint_entry e[] = {
		{ .fp = { .lo = 1 }, .pack = 1 },
		{ .fp = { .lo = 0x0100 }, .pack = 2 },
		{ .fp = { .lo = UINT64_C(1) << 56 }, .pack = 3 },
		{ .fp = { .lo = 0 }, .pack = 4 },
	};

	assert_int_equal(fingerprints_ingest(rig->db, e, ARRAY_SIZE(e)), 0);
	assert_int_equal(e[0].pack, 4);
	assert_int_equal(e[1].pack, 3);
	assert_int_equal(e[2].pack, 2);
	assert_int_equal(e[3].pack, 1);
	assert_int_equal(find(rig, (struct fp){ .lo = 0x0100 }).pack, 2);
	assert_int_equal(find(rig, (struct fp){ .lo = 0x0101 }).pack, 0);
}

static void largest_address_fits(void **state)
{
	struct rig *rig = *state;
	struct fingerprint_entry e = entry(1, (1u << 28) - 1, (1u << 20) - 1);
	struct addr a;

	assert_int_equal(fingerprints_ingest(rig->db, &e, 1), 0);
	a = find(rig, fp_nr(1));
	assert_int_equal(a.pack, (1u << 28) - 1);
	assert_int_equal(a.off, 0xfffff000);
	assert_int_equal(a.node, 0);
}

static void of_equal_keys_the_last_one_given_stays(void **state)
{
	struct rig *rig = *state;
	enum { N = 3000 };
	struct fingerprint_entry *e = malloc(N * sizeof(*e));

	assert_non_null(e);
	for (uint32_t i = 0; i < N; i++)
		e[i] = entry(i % 10, 1 + i, i);
	assert_int_equal(fingerprints_ingest(rig->db, e, N), 0);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(find(rig, fp_nr(i)).pack, N - 10 + 1 + i);
	/* Only the first 8 bytes of a fingerprint are the key. */
	assert_int_equal(find(rig, (struct fp){ .lo = fp_nr(3).lo, .hi = 0 }).pack, N - 10 + 1 + 3);
	free(e);
}

static void a_later_ingestion_replaces(void **state)
{
	struct rig *rig = *state;
	struct fingerprint_entry first[] = { entry(1, 1, 1), entry(2, 1, 2) };
	struct fingerprint_entry second[] = { entry(2, 5, 6), entry(3, 5, 7) };

	assert_int_equal(fingerprints_ingest(rig->db, first, 2), 0);
	assert_int_equal(fingerprints_ingest(rig->db, second, 2), 0);
	assert_int_equal(fingerprints_ingest(rig->db, second, 0), 0);
	rig_reopen(rig);
	assert_true(addr_equal(find(rig, fp_nr(1)), (struct addr){ .pack = 1, .off = 4096 }));
	assert_true(addr_equal(find(rig, fp_nr(2)), (struct addr){ .pack = 5, .off = 6 * 4096 }));
	assert_true(addr_equal(find(rig, fp_nr(3)), (struct addr){ .pack = 5, .off = 7 * 4096 }));
}

static void the_index_takes_at_most_18_bytes_per_entry(void **state)
{
	struct rig *rig = *state;
	enum { N = 500000 };
	struct fingerprint_entry *e = malloc(N * sizeof(*e));
	struct fp_key key;
	struct db_stats st;

	assert_non_null(e);
	fp_key_init(&key, FP_XXH3, (const uint8_t[FP_KEY_LEN]){ 7 });
	for (uint32_t i = 0; i < N; i++)
		e[i] = (struct fingerprint_entry){ fp_of(&key, &i, sizeof(i)), 1 + i / 65536, i % 65536 };
	assert_int_equal(fingerprints_ingest(rig->db, e, N), 0);
	db_stats(rig->db, &st);
	assert_in_range(st.fingerprints_disk, N * 10, N * 18);
	free(e);
}

static void a_scan_gives_all_keys_in_order(void **state)
{
	struct rig *rig = *state;
	struct fingerprint_entry e[1000];
	uint64_t keys[300], from = 0, last = 0;
	size_t n = ARRAY_SIZE(keys), all = 0;

	for (uint32_t i = 0; i < ARRAY_SIZE(e); i++)
		e[i] = entry(i, 1, i);
	assert_int_equal(fingerprints_ingest(rig->db, e, 500), 0);
	assert_int_equal(fingerprints_ingest(rig->db, e + 500, 500), 0);
	while (n == ARRAY_SIZE(keys)) {
		assert_int_equal(fingerprints_scan(rig->db, from, keys, ARRAY_SIZE(keys), &n), 0);
		for (size_t i = 0; i < n; i++, all++) {
			assert_true(all == 0 || keys[i] > last);
			last = keys[i];
		}
		from = last + 1;
	}
	assert_int_equal(all, ARRAY_SIZE(e));
}

static void the_filter_has_what_was_added_and_little_else(void **state)
{
	struct fingerprint_filter f;
	struct fp_key key;
	uint64_t wrong = 0;
	enum { BITS = 12, N = 51 << BITS };

	(void)state;
	fp_key_init(&key, FP_XXH3, (const uint8_t[FP_KEY_LEN]){ 7 });
	assert_int_equal(fingerprint_filter_init(&f, BITS), 0);
	assert_int_equal(fingerprint_filter_bytes(&f), 64 << BITS);
	assert_false(fingerprint_filter_has(&f, 1));
	for (uint64_t i = 0; i < N; i++)
		fingerprint_filter_add(&f, fingerprint_key(fp_of(&key, &i, sizeof(i))));
	for (uint64_t i = 0; i < N; i++)
		assert_true(fingerprint_filter_has(&f, fingerprint_key(fp_of(&key, &i, sizeof(i)))));
	for (uint64_t i = N; i < 2 * N; i++)
		wrong += fingerprint_filter_has(&f, fingerprint_key(fp_of(&key, &i, sizeof(i))));
	print_message("1 in %" PRIu64 "\n", N / (wrong + 1));
	assert_in_range(wrong, 0, N / 50);
	fingerprint_filter_add(&f, UINT64_MAX);
	fingerprint_filter_add(&f, 0);
	assert_true(fingerprint_filter_has(&f, UINT64_MAX) && fingerprint_filter_has(&f, 0));
	fingerprint_filter_release(&f);
	assert_int_equal(fingerprint_filter_bytes(&f), 0);
}

static void fingerprints_have_these_bytes(void **state)
{
	struct rig *rig = *state;
	_cleanup_(buf_release) struct buf all = BUF_EMPTY, v = BUF_EMPTY;
	struct fingerprint_entry e = { .fp = { .lo = 0x0102030405060708, .hi = 9 }, .pack = 0x01020304, .block = 0x50607 };
	uint8_t from[8] = { 0 }, key[8], value[6];
	size_t nr;

	assert_int_equal(fingerprints_ingest(rig->db, &e, 1), 0);
	assert_int_equal(db_scan(rig->db, DB_FINGERPRINTS, from, key, sizeof(key), value, sizeof(value), 1, &nr), 0);
	assert_int_equal(nr, 1);
	buf_add(&v, value, sizeof(value));
	rig_golden(&all, key, sizeof(key), &v);
	golden_expect("index/v1-fingerprints.txt", "the fingerprint table: lengths, key, value", all.data, all.len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(fingerprints_have_these_bytes),
		rig_test(present_are_found_and_absent_are_nowhere),
		rig_test(entries_come_out_sorted_by_their_bytes),
		rig_test(largest_address_fits),
		rig_test(of_equal_keys_the_last_one_given_stays),
		rig_test(a_later_ingestion_replaces),
		rig_test(a_scan_gives_all_keys_in_order),
		rig_test(the_filter_has_what_was_added_and_little_else),
		rig_test(the_index_takes_at_most_18_bytes_per_entry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
