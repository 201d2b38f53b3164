/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Stores in which each user, or each group, has a domain: chunks are shared inside one and never across. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/engine_state.h"
#include "tests/unit/store/rig.h"

#define LEN MiB(4)
#define ALICE 1001u
#define BOB 1002u

static int setup_with(void **state, enum fp_domain_kind kind, enum chunking chunking)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	if (!rig || rig_setup(state) < 0)
		return -1;
	*rig = *(struct rig *)*state;
	if (rig_teardown(state) < 0) /* for good: what a store is made with stays */
		return -1;
	*state = rig;
	rig->conf.dedup = 1 + (int)kind;
	rig->conf.chunking = chunking;
	rig_open(rig);
	return 0;
}

static int of_users(void **state)
{
	return setup_with(state, FP_OF_USER, CHUNKING_PAGE);
}

static int of_users_cut(void **state)
{
	return setup_with(state, FP_OF_USER, CHUNKING_CDC);
}

static int of_users_auto(void **state)
{
	return setup_with(state, FP_OF_USER, CHUNKING_AUTO);
}

static int of_groups(void **state)
{
	return setup_with(state, FP_OF_GROUP, CHUNKING_PAGE);
}

static void own(struct rig *rig, uint64_t ino, uint32_t uid, uint32_t gid)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_inode in = { .ino = ino, .mode = S_IFREG | 0600, .nlink = 1, .uid = uid, .gid = gid };

	ns_inode_encode(&in, &value);
	engine_tx_put(&tx, ns_key_inode(ino), value.data, value.len);
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
}

/* What writing it has stored, and not found by any way. */
static uint64_t write_as(struct rig *rig, uint64_t ino, uint32_t uid, uint32_t gid, uint64_t champion, uint64_t seed)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, seed);
	struct engine_stats before = rig_stats(rig), after;

	own(rig, ino, uid, gid);
	rig_write_next(rig, ino, champion, p, LEN, MiB(1));
	after = rig_stats(rig);
	assert_int_equal(after.fresh - before.fresh, after.stored_bytes - before.stored_bytes);
	rig_check(rig, ino, LEN, seed);
	return after.fresh - before.fresh;
}

static void users_share_with_themselves_only(void **state)
{
	struct rig *rig = *state;

	assert_int_equal(write_as(rig, 11, ALICE, 7, 0, 1), LEN);
	assert_int_equal(write_as(rig, 12, BOB, 7, 11, 1), LEN); /* not even if it is his champion */
	assert_int_equal(write_as(rig, 13, ALICE, 8, 11, 1), 0);
	assert_int_equal(write_as(rig, 14, BOB, 7, 0, 1), 0);
	assert_int_equal(write_as(rig, 15, 0, 0, 0, 1), LEN);
	rig_reopen(rig);
	assert_int_equal(write_as(rig, 16, ALICE, 7, 0, 1), 0);
	rig_close(rig);
	rig_remove_index(rig);
	assert_int_equal(engine_rebuild(rig->path, &rig->conf), 0);
	rig_open(rig);
	assert_int_equal(write_as(rig, 17, BOB, 7, 0, 1), 0);
	assert_int_equal(write_as(rig, 18, 1003, 7, 0, 1), LEN);
	rig_fsck(rig);
	assert_int_equal(rig_scrub(rig, &(struct scrub_conf){ .restart = true }).nr_damaged, 0);
}

static void groups_share_with_themselves_only(void **state)
{
	struct rig *rig = *state;

	assert_int_equal(write_as(rig, 11, ALICE, 7, 0, 1), LEN);
	assert_int_equal(write_as(rig, 12, BOB, 7, 0, 1), 0);
	assert_int_equal(write_as(rig, 13, ALICE, 8, 0, 1), LEN);
	rig_fsck(rig);
}

/* What of a file is found where it has moved from, and what is stored of it. */
static struct engine_stats write_moved(struct rig *rig, uint64_t ino, uint32_t uid, uint64_t champion, const uint8_t *p)
{
	struct engine_stats before = rig_stats(rig), after;

	own(rig, ino, uid, 7);
	rig_write_next(rig, ino, champion, p, LEN, MiB(1));
	after = rig_stats(rig);
	rig_check_bytes(rig, ino, p, LEN);
	after.shifted -= before.shifted;
	after.fresh -= before.fresh;
	return after;
}

/* Bytes that have moved are compared as they are, not by fingerprints. */
static void what_has_moved_is_not_looked_for_in_files_of_others(void **state)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN + 1000, 1);
	struct rig *rig = *state;
	struct engine_stats alice, bob;

	write_moved(rig, 11, ALICE, 0, p + 1000);
	bob = write_moved(rig, 12, BOB, 11, p);
	assert_int_equal(bob.shifted, 0);
	assert_int_equal(bob.fresh, LEN);
	write_moved(rig, 21, 1003, 0, p + 1000);
	alice = write_moved(rig, 13, ALICE, 11, p);
	bob = write_moved(rig, 22, 1003, 21, p);
	assert_true(alice.shifted > LEN / 2 && alice.fresh > 0); /* or this would test nothing */
	assert_int_equal(bob.shifted, alice.shifted);
	assert_int_equal(bob.fresh, alice.fresh); /* what was left is stored for each */
	rig_fsck(rig);
}

static int clone_all(struct rig *rig, uint64_t from, uint64_t to)
{
	struct content *a = rig_content(rig, from), *b = rig_content(rig, to);
	uint64_t done = 0;
	int r = content_clone(a, 0, b, 0, LEN, &done);

	content_close(a);
	content_close(b);
	return r;
}

static void nothing_is_cloned_into_another_domain(void **state)
{
	struct content_patch p = { .from_off = 0, .off = 0, .len = 4096 };
	struct rig *rig = *state;
	struct content *to;

	write_as(rig, 11, ALICE, 7, 0, 1);
	own(rig, 12, BOB, 7);
	own(rig, 13, ALICE, 7);
	assert_int_equal(clone_all(rig, 11, 12), -EXDEV);
	rig_check(rig, 12, 0, 1);
	p.from = rig_content(rig, 11);
	to = rig_content(rig, 12);
	assert_int_equal(content_patch(to, &p, 1), -EXDEV);
	content_close(p.from);
	content_close(to);
	assert_int_equal(clone_all(rig, 11, 13), 0);
	rig_check(rig, 13, LEN, 1);
}

static void bytes_stay_where_they_are_when_a_file_is_given_away(void **state)
{
	struct rig *rig = *state;
	uint64_t before;

	write_as(rig, 11, ALICE, 7, 0, 1);
	write_as(rig, 12, ALICE, 7, 0, 1);
	own(rig, 11, BOB, 7);
	before = rig_stats(rig).stored_bytes;
	rig_check(rig, 11, LEN, 1);
	assert_int_equal(write_as(rig, 13, BOB, 7, 11, 1), LEN);
	rig_write(rig, 11, LEN, 1); /* the same again: now it is his */
	assert_int_equal(rig_stats(rig).stored_bytes, before + LEN);
	rig_fsck(rig);
}

static void collecting_moves_chunks_of_all_domains(void **state)
{
	struct rig *rig = *state;
	struct gc_report report;

	for (uint64_t i = 0; i < 16; i++) {
		own(rig, 100 + i, i % 2 ? ALICE : BOB, 7);
		rig_write(rig, 100 + i, KiB(256), i / 2);
	}
	rig_stats(rig);
	for (uint64_t i = 0; i < 13; i++)
		rig_drop(rig, 100 + i);
	rig_reopen(rig); /* what a pack is at is not moved */
	report = rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 90, .place = true });
	assert_true(report.freed_bytes > 0);
	for (uint64_t i = 13; i < 16; i++)
		rig_check(rig, 100 + i, KiB(256), i / 2);
	rig_fsck(rig);
}

/* How small bytes of two become together would tell one of them how much alike they are. */
static void bytes_of_two_domains_are_not_compressed_together(void **state)
{
	struct rig *rig = *state;
	struct engine_stats st;

	rig_close(rig);
	rig->conf.compress = (struct compress){ .kind = COMPRESS_ZSTD };
	rig_open(rig);
	for (uint64_t i = 0; i < 8; i++) {
		own(rig, 100 + i, ALICE, 7);
		rig_write_soft(rig, 100 + i, KiB(16), i);
	}
	st = rig_stats(rig);
	assert_int_equal(st.compressed, KiB(128));
	for (uint64_t i = 0; i < 8; i++) {
		own(rig, 200 + i, i % 2 ? ALICE : BOB, 7);
		rig_write_soft(rig, 200 + i, KiB(16), 100 + i);
	}
	assert_int_equal(rig_stats(rig).compressed, st.compressed);
	rig_fsck(rig);
}

/* A byte of a fingerprint in a frame's table is wrong, and with it the table's seal: it is mended. */
static void a_damaged_table_is_repaired_in_any_byte_of_an_entry(void **state)
{
	struct rig *rig = *state;

	own(rig, 11, ALICE, 7);
	rig_write(rig, 11, 4096, 1); /* one chunk, alone in its frame */
	for (uint64_t i = 0; i < FP_LEN; i++) {
		struct scrub_report report;

		rig_close(rig);
		rig_flip(rig, "packs/*", 4096 + 256 + i);
		rig_open(rig);
		report = rig_scrub(rig, &(struct scrub_conf){ .restart = true });
		assert_int_equal(report.nr_left, 0);
		rig_check(rig, 11, 4096, 1);
	}
	rig_fsck(rig);
}

static void domains_are_chosen_once(void **state)
{
	struct rig *rig = *state;
	struct engine_conf conf = rig->conf;

	rig_close(rig);
	for (enum fp_domain_kind kind = FP_OF_ALL; kind < NR_FP_DOMAIN_KINDS; kind++) {
		conf.dedup = 1 + (int)kind;
		if (conf.dedup != rig->conf.dedup)
			assert_int_equal(engine_open(rig->path, &conf, &rig->e), -EINVAL);
	}
	rig->conf.dedup = 0;
	rig->e = NULL;
	rig_open(rig);
	assert_int_equal(write_as(rig, 11, ALICE, 7, 0, 1), LEN);
	assert_int_equal(write_as(rig, 12, BOB, 7, 0, 1), LEN);
}

#define domain_test(f, how) cmocka_unit_test_setup_teardown(f, how, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		domain_test(users_share_with_themselves_only, of_users),
		domain_test(users_share_with_themselves_only, of_users_cut),
		domain_test(users_share_with_themselves_only, of_users_auto),
		domain_test(groups_share_with_themselves_only, of_groups),
		domain_test(what_has_moved_is_not_looked_for_in_files_of_others, of_users_auto),
		domain_test(nothing_is_cloned_into_another_domain, of_users),
		domain_test(bytes_stay_where_they_are_when_a_file_is_given_away, of_users),
		domain_test(collecting_moves_chunks_of_all_domains, of_users),
		domain_test(bytes_of_two_domains_are_not_compressed_together, of_users),
		domain_test(a_damaged_table_is_repaired_in_any_byte_of_an_entry, of_users),
		domain_test(domains_are_chosen_once, of_users),
	};

	return cmocka_run_group_tests_name("domains", tests, NULL, NULL);
}
