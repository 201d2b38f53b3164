/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Objects of a tier that are damaged, missing, too large or not readable, of this store and of others. */
#include "store/tier/flush/tier_flush.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/tier/collect/tier_log_format.h"
#include "store/tier/tier.h"
#include "store/tier/tier_gets.h"
#include "store/tier/tier_read.h"
#include "tests/unit/store/tier/checkpoints.h"
#include "tests/unit/store/tier/flush/flush_rig.h"
#include "tests/unit/store/tier/memory.h"
#include "tests/unit/store/tier/restore.h"

static int ignore_bytes(void *userdata _unused_, const void *p _unused_, size_t len _unused_)
{
	return 0;
}

/* Reads all of the one checkpoint. */
static int read_all(struct memory *m)
{
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
	struct restore *r;
	int k = restore_open(t, tier_manifest_name(checkpoint_writer.store, 1).s, &r);

	if (k < 0)
		return k;
	k = restore_catalog(r, &(struct tier_sink){ ignore_bytes, NULL });
	for (uint32_t i = 0; k == 0 && i < restore_manifest(r)->nr_packs; i++) {
		const struct tier_tables *tables;

		k = tier_reader_tables(restore_reader(r), i, &tables);
		for (uint32_t n = 0; k == 0 && n < tables->nr_chunks; n++) {
			uint32_t in;
			const struct tier_frame *frame = tier_tables_find(tables, n, &in);
			struct pack_cuts cuts = pack_table_cuts(&frame->table);
			struct tier_want w = { .fp = frame->table.fps[in], .len = pack_cut_len(&cuts, in) };

			w.buf = malloc(w.len);
			k = restore_chunks(r, &w, 1);
			free(w.buf);
		}
	}
	restore_close(r);
	return k;
}

static void damage_is_never_returned_as_data(void **state _unused_)
{
	struct memory *m = memory_new();
	struct checkpoint a;
	struct tier_flushed f;
	struct pool pool;

	pool_init(&pool, 9, 60);
	checkpoint_init(&a, &pool, 9, 10, 0, 60);
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
	assert_int_equal(read_all(m), 0);
	for (size_t i = 0; i < memory_nr(m); i++) {
		const char *name = memory_name(m, i);
		size_t len;

		if (strncmp(name, TIER_LOG_PREFIX, strlen(TIER_LOG_PREFIX)) == 0)
			continue; /* not read for a checkpoint */
		memory_data(m, i, &len);
		/* but the footer of a pack, which is for machines that have lost the manifest */
		if (strncmp(name, "packs/", 6) == 0)
			len -= sizeof(struct tier_footer_disk);
		for (size_t at = 0; at < len; at += 1 + len / 40) {
			memory_damage(m, name, at);
			assert_int_equal(read_all(m), -EBADMSG);
			memory_damage(m, name, at);
		}
	}
	assert_int_equal(read_all(m), 0);
	for (size_t i = 0; i < memory_nr(m); i++) {
		struct tier *t = memory_open(m, &(struct memory_faults){ 0 });
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		char name[TIER_NAME_MAX + 1];
		int r;

		strcpy(name, memory_name(m, i));
		assert_int_equal(tier_get_all(t, name, MiB(1), &b), 0);
		assert_int_equal(tier_call(t, &(struct tier_request){ .op = TIER_DELETE, .name = name }), 0);
		r = read_all(m);
		if (strncmp(name, TIER_LOG_PREFIX, strlen(TIER_LOG_PREFIX)) == 0)
			assert_int_equal(r, 0);
		else
			assert_int_equal(r, strncmp(name, "sealed/", 7) == 0 ? -ENOENT : -EBADMSG);
		assert_int_equal(tier_put_new(memory_open(m, &(struct memory_faults){ 0 }), name, b.data, b.len), 0);
	}
	assert_int_equal(read_all(m), 0);
	checkpoint_release(&a);
	pool_release(&pool);
	memory_free(m);
}

/* It cannot be read, but its number is taken; and what it names is not relied on. */
static void a_damaged_manifest_does_not_stop_the_next(void **state _unused_)
{
	for (unsigned newer = 0; newer < 2; newer++) {
		struct memory *m = memory_new();
		struct tier_object_name name = tier_manifest_name(checkpoint_writer.store, 1);
		struct checkpoint a, b;
		struct tier_flushed f;
		struct pool pool;

		pool_init(&pool, 3, 100);
		checkpoint_init(&a, &pool, 3, 10, 0, 100);
		checkpoint_init(&b, &pool, 4, 11, 0, 100);
		assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
		if (newer)
			memory_set_version(m, name.s, 2);
		else
			memory_damage(m, name.s, 100);
		assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &b, &f), 0);
		assert_int_equal(f.number, 2);
		if (newer)
			memory_set_version(m, name.s, 1);
		else
			memory_damage(m, name.s, 100);
		assert_int_equal(flush_check(m, &a, &b), 2);
		checkpoint_release(&a);
		checkpoint_release(&b);
		pool_release(&pool);
		memory_free(m);
	}
}

/* The key and packs that the tier has under these names, cut off or with a bit flipped, are put again. */
static void what_is_damaged_in_the_tier_is_put_again(void **state _unused_)
{
	for (unsigned how = 0; how < 4; how++) {
		struct tier_writer_conf conf = flush_conf();
		struct memory *m = memory_new();
		struct tier_writer *w;
		struct checkpoint a;
		struct tier_flushed f;
		struct pool pool;

		pool_init(&pool, 7, 100);
		checkpoint_init(&a, &pool, 7, 10, 0, 100);
		assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
		for (size_t i = 0; i < memory_nr(m); i++) {
			const char *name = memory_name(m, i);
			size_t len;
			const void *data = memory_data(m, i, &len);
			uint8_t *copy = malloc(len + 1);

			assert_non_null(copy);
			memcpy(copy, data, len);
			copy[len] = 0;
			if (strncmp(name, "sealed/", 7) == 0 ||
			    strncmp(name, TIER_LOG_PREFIX, strlen(TIER_LOG_PREFIX)) == 0) {
			} else if (how == 0) {
				memory_replace(m, name, copy, 0);
			} else if (how == 1) {
				memory_replace(m, name, copy, len / 2);
			} else if (how == 2) {
				memory_damage(m, name, len - 70); /* the secret; tables */
			} else {
				memory_replace(m, name, copy, len + 1);
			}
			free(copy);
		}
		assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
		/* behind its end nothing is read */
		assert_int_equal(tier_writer_has(w, 10, a.c.sealed_ns), how == 3);
		assert_int_equal(tier_flush(w, &a.c, &f), 0);
		tier_writer_close(w);
		assert_int_equal(flush_check(m, &a, &a), how == 3 ? 1 : 2);
		checkpoint_release(&a);
		pool_release(&pool);
		memory_free(m);
	}
}

/* No manifest names deleted objects: the writer fails, and the next one puts them again. */
static void what_was_deleted_from_the_tier_is_missed(void **state _unused_)
{
	static const struct {
		const char *prefix;
		unsigned manifests;
	} cases[] = { { "", 2 }, { "packs/", 3 }, { "keys/", 2 }, { "sealed/", 2 } };

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct tier_writer_conf conf = flush_conf();
		struct memory *m = memory_new();
		struct tier_flushed f;
		struct tier_writer *w;
		struct checkpoint a, b;
		struct pool pool;
		size_t before;

		pool_init(&pool, 9, 200);
		checkpoint_init(&a, &pool, 9, 10, 0, 150);
		checkpoint_init(&b, &pool, 10, 11, 100, 200);
		assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
		assert_int_equal(tier_flush(w, &a.c, &f), 0);
		memory_delete_all(m, cases[i].prefix);
		before = flush_has_manifest(m, 1);
		flush_logged[0] = '\0';
		assert_int_equal(tier_flush(w, &b.c, &f), -ENOENT);
		assert_non_null(strstr(flush_logged, "was deleted from the tier"));
		assert_false(flush_has_manifest(m, 2));
		assert_int_equal(flush_has_manifest(m, 1), before);
		tier_writer_close(w);
		assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
		assert_int_equal(tier_writer_has(w, 10, a.c.sealed_ns), i == 2);
		assert_int_equal(tier_flush(w, &a.c, &f), 0);
		assert_int_equal(tier_flush(w, &b.c, &f), 0);
		tier_writer_close(w);
		assert_int_equal(flush_check(m, &a, &b), cases[i].manifests);
		checkpoint_release(&a);
		checkpoint_release(&b);
		pool_release(&pool);
		memory_free(m);
	}
}

/* A manifest of another store that is too large, or may not be read, is not used for sharing. The flush succeeds. */
static void manifests_of_others_that_cannot_be_read_stop_nothing(void **state _unused_)
{
	static const int errors[] = { -EFBIG, -EACCES, -EPERM };
	static const char other[] = "sealed/ffffffffffffffffffffffffffffffff/0000000000000001";

	for (unsigned i = 0; i < ARRAY_SIZE(errors); i++) {
		struct memory *m = memory_new();
		struct tier_writer_conf conf = flush_conf();
		struct tier_writer *w = NULL;
		struct tier_flushed f;
		struct checkpoint a;
		struct pool pool;

		pool_init(&pool, 3, 60);
		checkpoint_init(&a, &pool, 3, 10, 0, 60);
		memory_replace(m, other, "", 0);
		/* key, list, 5 of the log, and this */
		assert_int_equal(
			tier_writer_open(memory_open(m, &(struct memory_faults){ .fail_at = 8, .fail_with = errors[i] }),
					 &conf, &w),
			0);
		assert_non_null(strstr(flush_logged, other));
		assert_int_equal(tier_flush(w, &a.c, &f), 0);
		tier_writer_close(w);
		/* an own one might be this seal: put the key, get it; list; 4 of the log; this and the other one, in any order */
		assert_int_equal(
			tier_writer_open(memory_open(m, &(struct memory_faults){ .fail_at = 9, .fail_with = errors[i] }),
					 &conf, &w),
			errors[i]);
		checkpoint_release(&a);
		pool_release(&pool);
		memory_free(m);
	}
}

/* The last manifest is not listed yet: it is found by its number. */
static void a_late_list_does_not_stop_a_writer(void **state _unused_)
{
	struct tier_writer_conf conf = flush_conf();
	struct memory *m = memory_new();
	struct checkpoint a, b;
	struct tier_written last;
	struct tier_flushed f;
	struct tier_writer *w;
	struct pool pool;

	pool_init(&pool, 3, 60);
	checkpoint_init(&a, &pool, 3, 10, 0, 60);
	checkpoint_init(&b, &pool, 4, 10, 0, 60);
	b.c.ino = a.c.ino + 1;
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
	assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ .lists_are_late = true }), &conf, &w),
			 0);
	tier_writer_last(w, &last);
	assert_int_equal(last.number, 1);
	assert_true(tier_writer_has(w, a.c.ino, a.c.sealed_ns));
	assert_int_equal(tier_flush(w, &b.c, &f), 0);
	assert_int_equal(f.number, 2);
	tier_writer_close(w);
	checkpoint_release(&a);
	checkpoint_release(&b);
	pool_release(&pool);
	memory_free(m);
}

/* An object that has the name of a manifest but is none is not read as a whole: it may have 2 GiB. */
static void large_objects_that_are_no_manifests_are_not_read(void **state _unused_)
{
	struct tier_writer_conf conf = flush_conf();
	uint8_t *bytes = calloc(1, MiB(1));
	struct memory *m = memory_new();
	struct tier_writer *w;

	assert_non_null(bytes);
	memory_replace(m, "sealed/ffffffffffffffffffffffffffffffff/0000000000000001", bytes, MiB(1));
	assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
	assert_int_equal(memory_nr_requests(m), 9); /* key, list, 5 of the log, the first bytes of it; the first number */
	tier_writer_close(w);
	memory_free(m);
	free(bytes);
}

/* A manifest of another store that has lost its packs costs requests for the first ones, which are sent together. */
static void packs_that_others_have_lost_are_not_all_looked_for(void **state _unused_)
{
	struct tier_writer_conf conf = flush_conf(), other = flush_conf();
	struct memory *m = memory_new();
	struct tier_flushed f;
	struct tier_writer *w;
	struct checkpoint a;
	struct pool pool;

	other.store[0] ^= 1;
	other.pack_bytes = 6000;
	pool_init(&pool, 3, 300);
	checkpoint_init(&a, &pool, 3, 10, 0, 300);
	assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &other, &w), 0);
	assert_int_equal(tier_flush(w, &a.c, &f), 0);
	tier_writer_close(w);
	assert_true(f.packs > 40);
	memory_delete_all(m, "packs/");
	assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
	/* put the key, get it; list; 7 of the log; manifest, packs; number */
	assert_in_range(memory_nr_requests(m), 12 + 1, 12 + TIER_GETS_MAX);
	tier_writer_close(w);
	checkpoint_release(&a);
	pool_release(&pool);
	memory_free(m);
}

/* Without memory for its chunks, only the head of a manifest is read: it still says how long the manifest must be. */
static void a_manifest_that_is_cut_off_does_not_count(void **state _unused_)
{
	for (unsigned how = 0; how < 3; how++) {
		struct tier_writer_conf conf = flush_conf();
		struct memory *m = memory_new();
		struct tier_object_name name = tier_manifest_name(conf.store, 1),
					next = tier_manifest_name(conf.store, 2);
		struct checkpoint a, b;
		struct tier_flushed f;
		struct tier_writer *w;
		struct pool pool;
		uint8_t *copy;
		size_t len;

		pool_init(&pool, 7, 100);
		checkpoint_init(&a, &pool, 7, 10, 0, 50);
		checkpoint_init(&b, &pool, 8, 11, 50, 100);
		assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
		assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &b, &f), 0);
		assert_non_null(memory_find(m, name.s, &len));
		copy = malloc(len);
		assert_non_null(copy);
		memcpy(copy, memory_find(m, name.s, &len), len);
		if (how == 1)
			memory_replace(m, name.s, copy, len - 1);
		if (how == 2) /* a copy under another name */
			memory_replace(m, next.s, copy, len);
		free(copy);
		conf.known_max = 2;
		assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
		assert_int_equal(tier_writer_has(w, 10, a.c.sealed_ns), how != 1);
		assert_int_equal(tier_writer_has(w, 11, b.c.sealed_ns), how != 2);
		tier_writer_close(w);
		checkpoint_release(&a);
		checkpoint_release(&b);
		pool_release(&pool);
		memory_free(m);
	}
}

/* All that reads a manifest has it in memory. So a larger one is not put, and its flush ends before all is read. */
static void a_manifest_that_is_too_large_is_not_put(void **state _unused_)
{
	struct tier_writer_conf conf = flush_conf();
	struct memory *m = memory_new();
	struct checkpoint a, b;
	struct tier_flushed f;
	struct tier_writer *w;
	struct pool pool;
	size_t size, i;

	pool_init(&pool, 3, 60);
	checkpoint_init_attributes(&a, &pool, 10, 40, 1000);
	checkpoint_init(&b, &pool, 4, 11, 0, 60);
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
	assert_non_null(memory_find(m, tier_manifest_name(conf.store, 1).s, &size));
	for (i = 0; i < 3; i++) {
		const size_t max[] = { size, size - 1, 10000 };
		int result = i == 0 ? 0 : -EFBIG;

		memory_free(m);
		m = memory_new();
		conf.manifest_max = max[i];
		flush_logged[0] = '\0';
		assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
		assert_int_equal(tier_flush(w, &a.c, &f), result);
		assert_int_equal(flush_has_manifest(m, 1), i == 0);
		if (i > 0)
			assert_non_null(strstr(flush_logged, "run1/step.0200: its manifest in the tier would exceed"));
		tier_writer_close(w);
	}
	assert_in_range(a.sent, 10000, 10000 + 1100 + 3000); /* a record and a portion */
	assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &b, &f), 0); /* the others go on */
	assert_int_equal(f.number, 1);
	assert_int_equal(flush_check(m, &a, &b), 1);
	checkpoint_release(&a);
	checkpoint_release(&b);
	pool_release(&pool);
	memory_free(m);
}

/* The answer to the put of a manifest was lost, and a repetition finds the name taken. It is compared in pieces. */
static void a_large_manifest_is_compared_with_its_lost_put(void **state _unused_)
{
	for (unsigned i = 0; i < 3; i++) {
		struct tier_object_name name = tier_manifest_name(checkpoint_writer.store, 1);
		struct memory *m = memory_new();
		struct tier_flushed f;
		struct checkpoint a;
		struct pool pool;
		uint64_t put;
		uint8_t *copy;
		size_t len;

		pool_init(&pool, 3, 60);
		checkpoint_init_attributes(&a, &pool, 10, 150, 60000);
		assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ 0 }), &a, &f), 0);
		put = memory_nr_requests(m) - 1; /* then the log is read */
		assert_non_null(memory_find(m, name.s, &len));
		assert_true(len > MiB(8));
		copy = malloc(len);
		assert_non_null(copy);
		memcpy(copy, memory_find(m, name.s, &len), len);
		memory_free(m);
		m = memory_new();
		if (i == 0) { /* as it is */
			assert_int_equal(flush_once(memory_open(m, &(struct memory_faults){ .fail_at = put,
											    .fail_with = -EEXIST,
											    .fail_after = true }),
						    &a, &f),
					 0);
			assert_int_equal(flush_check(m, &a, &a), 1);
		} else { /* with another last byte; one byte shorter */
			struct tier_writer_conf conf = flush_conf();
			struct tier_writer *w;

			assert_int_equal(tier_writer_open(memory_open(m, &(struct memory_faults){ 0 }), &conf, &w), 0);
			copy[len - 1] ^= 1;
			memory_replace(m, name.s, copy, i == 1 ? len : len - 1);
			memory_open(m, &(struct memory_faults){ 0 });
			assert_int_equal(tier_flush(w, &a.c, &f), -ENOTUNIQ);
			tier_writer_close(w);
		}
		free(copy);
		checkpoint_release(&a);
		pool_release(&pool);
		memory_free(m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(damage_is_never_returned_as_data),
		cmocka_unit_test(a_damaged_manifest_does_not_stop_the_next),
		cmocka_unit_test(what_is_damaged_in_the_tier_is_put_again),
		cmocka_unit_test(what_was_deleted_from_the_tier_is_missed),
		cmocka_unit_test(manifests_of_others_that_cannot_be_read_stop_nothing),
		cmocka_unit_test(a_late_list_does_not_stop_a_writer),
		cmocka_unit_test(large_objects_that_are_no_manifests_are_not_read),
		cmocka_unit_test(packs_that_others_have_lost_are_not_all_looked_for),
		cmocka_unit_test(a_manifest_that_is_cut_off_does_not_count),
		cmocka_unit_test(a_manifest_that_is_too_large_is_not_put),
		cmocka_unit_test(a_large_manifest_is_compared_with_its_lost_put),
	};

	flush_rig_log();
	return cmocka_run_group_tests_name("flush_damage", tests, NULL, NULL);
}
