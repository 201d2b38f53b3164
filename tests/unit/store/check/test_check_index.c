/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The checker on the index: every entry that is wrong is told, and mended from the journal. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/recipes.h"
#include "index/backref_table.h"
#include "store/log/view.h"
#include "store/pack/pack_format.h"
#include "tests/unit/store/check_rig.h"

static void put(struct db_batch *b, struct ns_key key, const void *value, size_t len)
{
	db_batch_put(b, key.b, key.len, value, len);
}

static void del(struct db_batch *b, struct ns_key key)
{
	db_batch_del(b, key.b, key.len);
}

static void put_attributes(struct db_batch *b, struct ns_inode in)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_inode_encode(&in, &value);
	put(b, ns_key_inode(in.ino), value.data, value.len);
}

static void put_entry(struct db_batch *b, uint64_t dir, uint64_t cookie, const char *name, uint64_t ino, uint8_t type)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_dirent d = dirent_of(name, ino, type);

	ns_dirent_encode(&d, &value);
	put(b, ns_key_dirent(dir, cookie), value.data, value.len);
}

static void put_size(struct db_batch *b, uint64_t ino, uint64_t size, uint64_t mapped)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_content_encode(&(struct ns_content){ .size = size, .mapped = mapped, .mtime_ns = 1 }, &value);
	put(b, ns_key_content(ino), value.data, value.len);
}

static void put_extent(struct db_batch *b, struct extent x)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	recipe_encode(&x, 1, &value);
	put(b, recipe_key(FILE_G, 0), value.data, value.len);
	put_size(b, FILE_G, x.off + x.len, x.len);
	put(b, ns_key_meta("logical"), &(struct le64[]){ le64_put(3 * PAGE + x.len) }, 8);
	put(b, ns_key_meta("backrefs"), &(struct le64[]){ le64_put(0) }, 8); /* not marked as complete */
}

static void bad_value(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put(b, ns_key_content(FILE_G), "short", 5);
}

static void bad_table(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	db_batch_put(b, "Z1", 2, "?", 1);
}

static void bad_backref(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	db_batch_put(b, "B\0\0\0\1\0\0\1\0\0", 10, "", 0);
}

static void missing_backref(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	del(b, backref_key(&(struct backref){ .pack = 1, .frames = 0, .ino = FILE_G, .segments = 0 }));
}

static void bad_cookie(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key)
{
	del(b, ns_key_dirent(ROOT, ns_cookie(key, "g", 1)));
	put_entry(b, ROOT, 4096, "g", FILE_G, DT_REG);
}

static void same_name_twice(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key)
{
	put_entry(b, ROOT, ns_cookie(key, "g", 1) + 1, "g", FILE_G, DT_REG);
}

static void name_of_nothing(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key)
{
	put_entry(b, ROOT, ns_cookie(key, "n", 1), "n", 77, DT_REG);
}

static void name_of_another_type(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key)
{
	put_entry(b, ROOT, ns_cookie(key, "g", 1), "g", FILE_G, DT_FIFO);
}

static void wrong_links(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_attributes(b, (struct ns_inode){ .ino = FILE_F, .mode = S_IFREG | 0644, .nlink = 3 });
	put_attributes(b, (struct ns_inode){ .ino = DIR_D, .mode = S_IFDIR | 0755, .nlink = 2, .parent = ROOT });
}

static void no_name(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key)
{
	del(b, ns_key_dirent(ROOT, ns_cookie(key, "l", 1)));
}

static void wrong_parent(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_attributes(b, (struct ns_inode){ .ino = DIR_E, .mode = S_IFDIR | 0755, .nlink = 2, .parent = ROOT });
}

/* d and e, each in the other. */
static void circle(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key)
{
	del(b, ns_key_dirent(ROOT, ns_cookie(key, "d", 1)));
	put_entry(b, DIR_E, ns_cookie(key, "d", 1), "d", DIR_D, DT_DIR);
	put_attributes(b, (struct ns_inode){ .ino = ROOT, .mode = S_IFDIR | 0755, .nlink = 2, .parent = ROOT });
	put_attributes(b, (struct ns_inode){ .ino = DIR_D, .mode = S_IFDIR | 0755, .nlink = 3, .parent = DIR_E });
	put_attributes(b, (struct ns_inode){ .ino = DIR_E, .mode = S_IFDIR | 0755, .nlink = 3, .parent = DIR_D });
}

static void no_attributes(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	del(b, ns_key_inode(FILE_G));
}

static void no_root(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	del(b, ns_key_inode(ROOT));
}

static void no_target(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	del(b, ns_key_symlink(LINK_L));
}

static void orphan_with_links(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put(b, ns_key_orphan(FILE_F), NULL, 0);
}

static void no_links(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key)
{
	put_attributes(b, (struct ns_inode){ .ino = LINK_L, .mode = S_IFLNK | 0777 });
	del(b, ns_key_dirent(ROOT, ns_cookie(key, "l", 1)));
}

static void unsaid_xattr(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put(b, ns_key_xattr(FILE_F, "user.y"), "v", 1);
}

static void put_seal(struct db_batch *b, uint64_t ino)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_seal_encode(&(struct ns_seal){ .files = 1, .is_complete = true }, &value);
	put(b, ns_key_seal(ino), value.data, value.len);
}

static void bad_seal(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put(b, ns_key_seal(DIR_D), "short", 5);
}

static void seal_of_nothing(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_seal(b, 77);
}

static void seal_of_a_file(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_seal(b, FILE_F);
}

static void put_place_in_tier(struct db_batch *b, uint64_t ino, uint32_t index)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_away_encode(&(struct ns_away){ .number = 1, .index = index }, &value);
	put(b, ns_key_away(ino), value.data, value.len);
}

static void place_in_tier_of_nothing(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_place_in_tier(b, 77, 1);
}

static void place_in_tier_unsealed(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_place_in_tier(b, FILE_F, 1);
}

static void mark_without_a_seal(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_attributes(
		b, (struct ns_inode){
			   .ino = DIR_E, .mode = S_IFDIR | 0755, .nlink = 2, .parent = DIR_D, .flags = INODE_SEALED });
}

static void half_a_seal(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_attributes(
		b, (struct ns_inode){
			   .ino = DIR_D, .mode = S_IFDIR | 0755, .nlink = 3, .parent = ROOT, .flags = INODE_SEALED });
	put_attributes(b, (struct ns_inode){
				  .ino = FILE_F, .mode = S_IFREG | 0644, .nlink = 2, .flags = INODE_SEALED });
	put_seal(b, DIR_D);
}

static void put_copy(struct db_batch *b, uint64_t ino)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_replica_encode(&(struct ns_replica){ .state = NS_REPLICA_KEPT, .name = "n", .path = "p" }, &value);
	put(b, ns_key_replica(ino), value.data, value.len);
}

static void bad_copy(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put(b, ns_key_replica(DIR_D), "short", 5);
}

static void copy_of_nothing(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_copy(b, 77);
}

static void copy_with_a_way_to_it(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_copy(b, DIR_D);
}

static void top_without_a_note(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_attributes(b, (struct ns_inode){ .ino = 8,
					     .mode = S_IFDIR | 0755,
					     .nlink = 2,
					     .parent = 8,
					     .flags = INODE_SEALED | INODE_REPLICA });
}

static void copy_that_is_not_sealed(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_attributes(b, (struct ns_inode){
				  .ino = 8, .mode = S_IFDIR | 0755, .nlink = 2, .parent = 8, .flags = INODE_REPLICA });
	put_copy(b, 8);
}

static void file_in_a_copy_and_elsewhere(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key)
{
	put_attributes(b, (struct ns_inode){ .ino = 8,
					     .mode = S_IFDIR | 0755,
					     .nlink = 2,
					     .parent = 8,
					     .flags = INODE_SEALED | INODE_REPLICA });
	put_copy(b, 8);
	put_attributes(
		b, (struct ns_inode){
			   .ino = LINK_L, .mode = S_IFLNK | 0777, .nlink = 2, .flags = INODE_SEALED | INODE_REPLICA });
	put_entry(b, 8, ns_cookie(key, "l", 1), "l", LINK_L, DT_LNK);
}

static void number_not_given(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key)
{
	put_attributes(b, (struct ns_inode){ .ino = 5000, .mode = S_IFIFO | 0644, .nlink = 1 });
	put_entry(b, ROOT, ns_cookie(key, "p", 1), "p", 5000, DT_FIFO);
}

static void wrong_mapped(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_size(b, FILE_F, 3 * PAGE, 4 * PAGE);
}

static void data_behind_the_end(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_size(b, FILE_F, 2 * PAGE, 3 * PAGE);
}

static void no_size(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	del(b, ns_key_content(FILE_F));
	put(b, ns_key_meta("logical"), &(struct le64[]){ le64_put(2 * PAGE + 100) }, 8);
}

static void bytes_of_a_link(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_size(b, LINK_L, 0, 0);
}

static void extent_nowhere(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_extent(b, (struct extent){ 0, PAGE, { .pack = 1, .off = 4096 } });
}

static void extent_across_frames(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_extent(b, (struct extent){ 0, 2 * PAGE, { .pack = 1, .off = pack_data_off(0) + PACK_FRAME_BYTES - PAGE } });
}

static void extent_in_no_frame(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_extent(b, (struct extent){ 0, PAGE, { .pack = 1, .off = pack_data_off(9) } });
}

static void extent_behind_chunks(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_extent(b, (struct extent){ 0, 2 * PAGE, { .pack = 1, .off = pack_data_off(0) + 5 * PAGE } });
}

static void extent_in_a_pack_to_come(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put_extent(b, (struct extent){ 0, PAGE, { .pack = 9, .off = pack_data_off(0) } });
}

static void every_wrong_entry_is_found_and_repaired_from_the_journal(void **state)
{
	static const struct {
		edit_fn *edit;
		const char *said[4];
	} cases[] = {
		{ bad_value,
		  { "index: entry C 0000000000000004: its size and times do not decode",
		    "inode 4: has a recipe but no size",
		    "index: counts 20580 bytes with data in all files, they have 12288" } },
		{ bad_table, { "index: entry Z 31: it belongs to no table" } },
		{ bad_backref, { "index: entry B 0000000100000100 00: its key does not decode" } },
		{ missing_backref, { "index: the back-reference table lacks 1 reference of recipes" } },
		{ bad_cookie,
		  { "index: entry D 0000000000000001 0000000000001000: its name is not where look-ups search for it",
		    "inode 4: has no name" } },
		{ same_name_twice,
		  { "directory 1: has the name 'g' twice",
		    "inode 1: has names of equal hash, but the root does not say so: look-ups miss them",
		    "inode 4: has 2 names, should have 1" } },
		{ name_of_nothing, { "name 'n' in directory 1: leads to inode 77, which does not exist" } },
		{ name_of_another_type, { "name 'g' in directory 1: has type 1, but inode 4 is of type 8" } },
		{ wrong_links,
		  { "inode 2: has a link count of 2, but 1 directory in it", "inode 3: has 2 names, should have 3" } },
		{ no_name, { "inode 5: has no name" } },
		{ wrong_parent, { "name 'e' in directory 2: directory 6 says it lies in 1" } },
		{ circle, { "directory 2: contains itself" } },
		{ no_attributes,
		  { "inode 4: there are bytes of a file that does not exist",
		    "inode 4: there are extended attributes of nothing",
		    "name 'g' in directory 1: leads to inode 4, which does not exist" } },
		{ no_root,
		  { "inode 1: does not exist as a directory, but has 3 names in it", "the root does not exist" } },
		{ no_target, { "inode 5: is a symbolic link without a target" } },
		{ orphan_with_links, { "inode 3: is to be removed, but has links" } },
		{ no_links, { "inode 5: has no links, but is not to be removed" } },
		{ unsaid_xattr, { "inode 3: has extended attributes, but does not say so" } },
		{ bad_seal, { "index: entry S 0000000000000002: the record of its seal does not decode" } },
		{ seal_of_nothing, { "inode 77: has a seal record, but does not exist" } },
		{ seal_of_a_file, { "inode 3: has a seal record, but is not a directory" } },
		{ place_in_tier_of_nothing, { "inode 77: has a place in a tier, but does not exist" } },
		{ place_in_tier_unsealed, { "inode 3: has a place in a tier, but is not sealed" } },
		{ mark_without_a_seal,
		  { "inode 6: is marked as sealed, but in no directory that is",
		    "name 'hard' in directory 6: the directory is sealed, but inode 3 is not" } },
		{ bad_copy, { "index: entry N 0000000000000002: the record of the replica does not decode" } },
		{ copy_of_nothing, { "inode 77: has a replica record, but does not exist" } },
		{ copy_with_a_way_to_it, { "inode 2: has a replica record, but is not the top of a replica" } },
		{ top_without_a_note, { "directory 8: contains itself", "inode 8: has no name" } },
		{ copy_that_is_not_sealed, { "inode 8: belongs to a replica, but is not sealed" } },
		{ file_in_a_copy_and_elsewhere,
		  { "name 'l' in directory 1: only one of the directory and inode 5 belongs to a replica" } },
		{ half_a_seal, { "name 'e' in directory 2: the directory is sealed, but inode 6 is not" } },
		{ number_not_given, { "inode 5000: has a number that was never issued" } },
		{ wrong_mapped,
		  { "inode 3: counts 16384 bytes with data, its recipe has 12288",
		    "index: counts 20580 bytes with data in all files, they have 24676" } },
		{ data_behind_the_end, { "inode 3: has data up to 12288, behind its end at 8192" } },
		{ no_size, { "inode 3: has a recipe but no size" } },
		{ bytes_of_a_link, { "inode 5: is no regular file but has bytes" } },
	};
	struct rig *rig = *state;
	struct fp_key key = *engine_key(rig->e);
	struct said s;

	rig_close(rig);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t nr = 0;

		edit_index(rig, &key, cases[i].edit);
		s = check(rig);
		for (; nr < ARRAY_SIZE(cases[i].said) && cases[i].said[nr]; nr++)
			assert_string_equal(nr < s.nr ? s.text[nr] : "nothing", cases[i].said[nr]);
		assert_int_equal(s.nr, nr);
		s = repair(rig);
		assert_int_equal(s.result.nr_left, 0);
		assert_int_equal(s.result.nr_repaired, nr);
		assert_clean(rig);
	}
}

static void every_wrong_extent_is_reported_with_its_file(void **state)
{
	static const struct {
		edit_fn *edit;
		const char *said;
	} cases[] = {
		{ extent_nowhere,
		  "g: bytes 0 to 4095 cannot be read: "
		  "the recipe has an invalid address in pack 1 offset 4096" },
		{ extent_across_frames,
		  "g: bytes 0 to 8191 cannot be read: "
		  "the recipe has an invalid address in pack 1 offset 1052672" },
		{ extent_in_no_frame, "g: bytes 0 to 4095 cannot be read: there is no data in pack 1 offset 9482240" },
		{ extent_behind_chunks, "g: bytes 0 to 8191 cannot be read: there is no data in pack 1 offset 28672" },
		{ extent_in_a_pack_to_come,
		  "g: bytes 0 to 4095 cannot be read: "
		  "the recipe refers to unwritten space in pack 9 offset 8192" },
	};
	struct rig *rig = *state;
	struct fp_key key = *engine_key(rig->e);
	struct said s;

	rig_close(rig);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		edit_index(rig, &key, cases[i].edit);
		s = check(rig);
		ASSERT_SAID(s, cases[i].said);
	}
	s = check_with(rig, (struct check_conf){ .repair = true, .rebuild = true });
	assert_int_equal(s.result.nr_left, 0);
	assert_clean(rig);
}

/* RocksDB drops the back-references of a pack that is gone. After a crash the view may still have recipes that do. */
static void a_missing_pack_needs_no_back_references(void **state)
{
	struct rig *rig = *state;
	struct fp_key key = *engine_key(rig->e);
	struct said s;

	rig_close(rig);
	keep_index(rig);
	rig_open(rig);
	rig_drop(rig, FILE_F);
	rig_drop(rig, FILE_G);
	rig_collect(rig, &(struct gc_conf){ .delete = true });
	rig_close(rig);
	bring_back_index(rig);
	s = check(rig);
	edit_index(rig, &key, missing_backref);
	assert_int_equal(check(rig).nr, s.nr);
}

static void a_wrong_tree_that_the_journal_says_too_is_left(void **state)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct rig *rig = *state;
	struct said s;

	put_inode(&tx, (struct ns_inode){ .ino = LINK_L, .mode = S_IFLNK | 0777, .nlink = 2 });
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
	rig_close(rig);
	s = repair(rig);
	ASSERT_SAID(s, "+inode 5: has 1 name, should have 2; the index is rebuilt", "inode 5: has 1 name, should have 2");
}

static void a_missing_index_is_rebuilt(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	rig_remove_index(rig);
	s = check(rig);
	ASSERT_SAID(s, "index: missing or unusable; nothing is lost: -p rebuilds it from journal and packs");
	s = repair(rig);
	ASSERT_SAID(s, "+index: missing or unusable; rebuilt from journal and packs");
	assert_clean(rig);
}

/* An old copy of the index, from before a snapshot took the place of the groups that would bring it up to date. */
static void an_index_that_is_too_old_is_rebuilt(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	keep_index(rig);
	rig_open(rig);
	for (uint64_t i = 0; i < 40; i++) { /* more than the first segment of the journal takes */
		_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
		static uint8_t value[60000];

		rig_pattern(value, sizeof(value), i);
		engine_tx_put(&tx, ns_key_xattr(FILE_G, "user.x"), value, sizeof(value));
		assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
		assert_int_equal(engine_sync(rig->e), 0);
	}
	assert_int_equal(view_flush(rig->e, true), 0);
	rig_close(rig);
	bring_back_index(rig);
	s = repair(rig);
	ASSERT_SAID(s, "+index: stands for commit 1, and the journal does not go back so far; "
		       "rebuilt from journal and packs");
	assert_clean(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		check_test(every_wrong_entry_is_found_and_repaired_from_the_journal),
		check_test(every_wrong_extent_is_reported_with_its_file),
		check_test(a_missing_pack_needs_no_back_references),
		check_test(a_wrong_tree_that_the_journal_says_too_is_left),
		check_test(a_missing_index_is_rebuilt),
		check_test(an_index_that_is_too_old_is_rebuilt),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("check_index", tests, NULL, NULL);
}
