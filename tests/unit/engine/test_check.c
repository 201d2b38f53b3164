/* The checker: each kind of damage is found, told with what and where, and mended where there is something to do so. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/recipes.h"
#include "index/referrers.h"
#include "store/engine/check.h"
#include "store/engine/check_rules.h"
#include "store/engine/record_format.h"
#include "store/pack/pack_format.h"
#include "tests/unit/engine/rig.h"

#define PAGE 4096u
#define NR_SAID 40
#define TEXT 400

/* The tree of every test. */
enum { ROOT = NS_ROOT_INO, DIR_D = 2, FILE_F, FILE_G, LINK_L, DIR_E, FIRST_FREE };

struct said {
	char text[NR_SAID][TEXT]; /* "+" in front: mended */
	size_t nr;
	struct check_result result;
};

static void on_finding(void *userdata, const struct check_finding *f)
{
	struct said *s = userdata;

	if (s->nr < NR_SAID)
		snprintf(s->text[s->nr++], TEXT, "%s%s%s%s", f->mended ? "+" : "", f->path ? f->path : "",
			 f->path ? ": " : "", f->text);
}

static struct said check_with(struct rig *rig, struct check_conf conf)
{
	struct said s = { 0 };

	conf.cache = conf.cache ? conf.cache : MiB(8);
	conf.finding = on_finding;
	conf.userdata = &s;
	assert_int_equal(check_store(rig->path, &conf, &s.result), 0);
	return s;
}

static struct said check(struct rig *rig)
{
	return check_with(rig, (struct check_conf){ 0 });
}

static struct said mend(struct rig *rig)
{
	return check_with(rig, (struct check_conf){ .mend = true });
}

/* Exactly these findings. */
#define ASSERT_SAID(s, ...)                                                     \
	do {                                                                    \
		const char *const expected[] = { __VA_ARGS__ };                 \
		for (size_t n = 0; n < (s).nr && n < ARRAY_SIZE(expected); n++) \
			assert_string_equal((s).text[n], expected[n]);          \
		assert_int_equal((s).nr, ARRAY_SIZE(expected));                 \
	} while (0)

static void assert_clean(struct rig *rig)
{
	struct said s = check_with(rig, (struct check_conf){ .read_data = true });

	if (s.nr > 0)
		fail_msg("%s", s.text[0]);
}

/* --- the tree --- */

static void put_inode(struct engine_tx *tx, struct ns_inode in)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_inode_encode(&in, &value);
	engine_tx_put(tx, ns_key_inode(in.ino), value.data, value.len);
}

static struct ns_dirent dirent_of(struct rig *rig, const char *name, uint64_t ino, uint8_t type)
{
	struct ns_dirent d = { .ino = ino, .type = type, .name_len = (uint8_t)strlen(name) };

	(void)rig;
	strcpy(d.name, name);
	return d;
}

static void put_name(struct rig *rig, struct engine_tx *tx, uint64_t dir, const char *name, uint64_t ino, uint8_t type)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_dirent d = dirent_of(rig, name, ino, type);

	ns_dirent_encode(&d, &value);
	engine_tx_put(tx, ns_key_dirent(dir, ns_cookie(engine_key(rig->e), name, strlen(name))), value.data, value.len);
}

static void make_tree(struct rig *rig)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	uint64_t number;

	for (uint64_t ino = DIR_D; ino < FIRST_FREE; ino++) {
		assert_int_equal(engine_new_number(rig->e, &number), 0);
		assert_int_equal(number, ino);
	}
	put_inode(&tx, (struct ns_inode){ .ino = ROOT, .mode = S_IFDIR | 0755, .nlink = 3, .parent = ROOT });
	put_inode(&tx, (struct ns_inode){ .ino = DIR_D, .mode = S_IFDIR | 0755, .nlink = 3, .parent = ROOT });
	put_inode(&tx, (struct ns_inode){ .ino = FILE_F, .mode = S_IFREG | 0644, .nlink = 2 });
	put_inode(&tx, (struct ns_inode){ .ino = FILE_G, .mode = S_IFREG | 0644, .nlink = 1, .flags = INODE_HAS_XATTRS });
	put_inode(&tx, (struct ns_inode){ .ino = LINK_L, .mode = S_IFLNK | 0777, .nlink = 1 });
	put_inode(&tx, (struct ns_inode){ .ino = DIR_E, .mode = S_IFDIR | 0755, .nlink = 2, .parent = DIR_D });
	engine_tx_put(&tx, ns_key_symlink(LINK_L), "target", 6);
	engine_tx_put(&tx, ns_key_xattr(FILE_G, "user.x"), "value", 5);
	put_name(rig, &tx, ROOT, "d", DIR_D, DT_DIR);
	put_name(rig, &tx, DIR_D, "f", FILE_F, DT_REG);
	put_name(rig, &tx, ROOT, "g", FILE_G, DT_REG);
	put_name(rig, &tx, ROOT, "l", LINK_L, DT_LNK);
	put_name(rig, &tx, DIR_D, "e", DIR_E, DT_DIR);
	put_name(rig, &tx, DIR_E, "hard", FILE_F, DT_REG);
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
	rig_write(rig, FILE_F, 3 * PAGE, 1);
	rig_write(rig, FILE_G, 2 * PAGE + 100, 2);
}

static int setup(void **state)
{
	int r = rig_setup(state);

	if (r == 0)
		make_tree(*state);
	return r;
}

/* --- damaging files --- */

static void path_of(const struct rig *rig, const char *pattern, char ret[300])
{
	char path[200];
	glob_t g;

	snprintf(path, sizeof(path), "%s/%s", rig->path, pattern);
	assert_int_equal(glob(path, 0, NULL, &g), 0);
	snprintf(ret, 300, "%s", g.gl_pathv[g.gl_pathc - 1]);
	globfree(&g);
}

static void flip(const struct rig *rig, const char *pattern, uint64_t off)
{
	char path[300];
	uint8_t b;
	int fd;

	path_of(rig, pattern, path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &b, 1, (off_t)off), 1);
	b ^= 0x10;
	assert_int_equal(pwrite(fd, &b, 1, (off_t)off), 1);
	close(fd);
}

static void a_sound_store_is_clean(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	s = check_with(rig, (struct check_conf){ .read_data = true });
	assert_int_equal(s.nr, 0);
	assert_int_equal(s.result.nr_inodes, 6);
	assert_int_equal(s.result.nr_names, 6);
	assert_int_equal(s.result.nr_chunks, 6);
	assert_int_equal(s.result.read_bytes, 6 * PAGE);
}

static void a_new_store_is_clean(void **state)
{
	struct rig *rig = *state;

	rig_close(rig);
	assert_clean(rig);
}

static void a_store_in_use_or_absent_is_not_checked(void **state)
{
	struct rig *rig = *state;
	struct check_conf conf = { .cache = MiB(8) };
	struct check_result result;

	assert_int_equal(check_store(rig->path, &conf, &result), -EBUSY);
	assert_int_equal(check_store("/nowhere/at/all", &conf, &result), -ENOENT);
	rig_close(rig);
}

static bool stop(_unused_ void *userdata, _unused_ const char *what, _unused_ uint64_t done, _unused_ uint64_t all,
		 _unused_ bool bytes)
{
	return false;
}

static void a_check_can_be_stopped(void **state)
{
	struct rig *rig = *state;
	struct check_conf conf = { .cache = MiB(8), .progress = stop };
	struct check_result result;

	rig_close(rig);
	assert_int_equal(check_store(rig->path, &conf, &result), -EINTR);
	assert_clean(rig);
}

static void a_copy_of_the_superblock_is_made_from_the_other(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	flip(rig, "superblock", 4096 + 30);
	s = check(rig);
	ASSERT_SAID(s, "superblock: the second copy is damaged; the other is used");
	s = mend(rig);
	ASSERT_SAID(s, "+superblock: the second copy is damaged; written anew from the other");
	flip(rig, "superblock", 41);
	s = mend(rig);
	ASSERT_SAID(s, "+superblock: the first copy is damaged; written anew from the other");
	assert_clean(rig);
	flip(rig, "superblock", 41);
	flip(rig, "superblock", 4096 + 41);
	s = mend(rig);
	ASSERT_SAID(
		s,
		"superblock: both copies are damaged; with them the key is lost, without which no chunk can be recognised");
}

static void a_header_is_written_anew(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	flip(rig, "packs/00000001.pack", 20);
	s = check(rig);
	ASSERT_SAID(s, "pack 1: the header is damaged; its chunks can still be read");
	s = mend(rig);
	ASSERT_SAID(s, "+pack 1: the header is damaged; written anew");
	assert_clean(rig);
	rig_open(rig);
	rig_check(rig, FILE_F, 3 * PAGE, 1);
	rig_close(rig);
}

/* Every field of it, and every part of a fingerprint. */
static void a_table_is_written_anew_from_the_bytes(void **state)
{
	static const uint64_t places[] = { 0,  8,   17,	 20,	   24,	     29,	   33,	37,
					   41, 100, 256, 256 + 15, 256 + 29, 256 + 15 * 7, 4095 };
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		flip(rig, "packs/00000001.pack", pack_table_off(0) + places[i]);
		s = mend(rig);
		ASSERT_SAID(s, "+pack 1 frame 0: the table of fingerprints is damaged; written anew, for 6 of 6 chunks");
		assert_clean(rig);
	}
}

static void zero_table(struct rig *rig, uint64_t from, size_t len)
{
	char path[300], zeros[PAGE] = { 0 };
	int fd;

	path_of(rig, "packs/00000001.pack", path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pwrite(fd, zeros, len, (off_t)(pack_table_off(0) + from)), len);
	close(fd);
}

static void files_of_a_lost_table_are_named(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	zero_table(rig, 0, 1024); /* all that was there; none of it absorbed, so no hint proves anything */
	flip(rig, "packs/00000001.pack", pack_table_off(0));
	s = check(rig);
	ASSERT_SAID(
		s, "g: bytes 0 to 8291 cannot be read: the fingerprints are damaged in pack 1 offset 20480",
		"d/f: bytes 0 to 12287 cannot be read: the fingerprints are damaged in pack 1 offset 8192",
		"d/e/hard: bytes 0 to 12287 cannot be read: the fingerprints are damaged in pack 1 offset 8192",
		"pack 1 frame 0: the table of fingerprints is damaged; its chunks, up to 1 MiB, cannot be read; -p may mend it");
	assert_int_equal(s.result.nr_lost_files, 2);
	assert_int_equal(s.result.lost_bytes, 5 * PAGE + 100);
	s = mend(rig);
	assert_int_equal(s.result.nr_left, 4);
}

static void hints_prove_the_chunks_of_a_lost_table(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	s = check_with(rig, (struct check_conf){ .mend = true, .rebuild = true }); /* absorbs */
	assert_int_equal(s.nr, 0);
	assert_true(s.result.rebuilt);
	zero_table(rig, 256 + 15, 45); /* three of six entries */
	s = mend(rig);
	ASSERT_SAID(s, "+pack 1 frame 0: the table of fingerprints is damaged; written anew, for 6 of 6 chunks");
	assert_clean(rig);
}

static void files_of_a_damaged_chunk_are_named(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	flip(rig, "packs/00000001.pack", pack_data_off(0) + PAGE + 77);
	s = check(rig);
	assert_int_equal(s.nr, 0); /* nobody has read the bytes */
	s = check_with(rig, (struct check_conf){ .read_data = true });
	ASSERT_SAID(s, "d/f: bytes 4096 to 8191 cannot be read: the data is damaged in pack 1 offset 12288",
		    "d/e/hard: bytes 4096 to 8191 cannot be read: the data is damaged in pack 1 offset 12288",
		    "pack 1 offset 12288: a chunk of 4096 bytes is damaged");
	assert_int_equal(s.result.nr_lost_files, 1);
	s = check_with(rig, (struct check_conf){ .read_data = true, .mend = true });
	assert_int_equal(s.result.nr_left, 3);
	assert_string_equal(s.text[2], "pack 1 offset 12288: a chunk of 4096 bytes is damaged; there is no second copy");
}

static void a_missing_pack_is_told_with_its_files(void **state)
{
	struct rig *rig = *state;
	char path[300];
	struct said s;

	rig_close(rig);
	path_of(rig, "packs/00000001.pack", path);
	assert_int_equal(unlink(path), 0);
	s = check(rig);
	ASSERT_SAID(s, "pack 1: the file is missing",
		    "g: bytes 0 to 8291 cannot be read: there is no data in pack 1 offset 20480",
		    "d/f: bytes 0 to 12287 cannot be read: there is no data in pack 1 offset 8192",
		    "d/e/hard: bytes 0 to 12287 cannot be read: there is no data in pack 1 offset 8192",
		    "packs: 6 chunks with 24576 bytes were committed, 0 with 0 are there");
}

/* --- damaging the index --- */

typedef void edit_fn(struct rig *rig, struct db_batch *b, const struct fp_key *key);

static struct fp_key key_of(struct rig *rig)
{
	return *engine_key(rig->e);
}

/* Changes the index of a store that is closed, as no journal knows of. */
static void edit_index(struct rig *rig, const struct fp_key *key, edit_fn *edit)
{
	struct db_conf conf = { .cache = MiB(8) };
	struct db_batch *b;
	struct db *db;
	char dir[200];

	snprintf(dir, sizeof(dir), "%s/index", rig->path);
	assert_int_equal(db_open(dir, &conf, &db), 0);
	assert_int_equal(db_batch_new(db, &b), 0);
	edit(rig, b, key);
	assert_int_equal(db_batch_apply(b), 0);
	assert_int_equal(db_view_flush_start(db), 0);
	assert_int_equal(db_view_flush_wait(db), 0);
	db_batch_free(b);
	db_close(db);
}

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
	struct ns_dirent d = dirent_of(NULL, name, ino, type);

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
	put(b, ns_key_meta("referrers"), &(struct le64[]){ le64_put(0) }, 8); /* nobody says that those are right */
}

static void bad_value(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	put(b, ns_key_content(FILE_G), "short", 5);
}

static void bad_table(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	db_batch_put(b, "Z1", 2, "?", 1);
}

static void bad_referrer(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	db_batch_put(b, "B\0\0\0\1\0\0\1\0\0", 10, "", 0);
}

static void missing_referrer(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	del(b, referrer_key(&(struct referrer){ .pack = 1, .frames = 0, .ino = FILE_G, .segments = 0 }));
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

static void every_wrong_entry_is_found_and_mended_from_the_journal(void **state)
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
		{ bad_referrer, { "index: entry B 0000000100000100 00: its key does not decode" } },
		{ missing_referrer, { "index: 1 references of recipes are missing in the table of who refers to what" } },
		{ bad_cookie,
		  { "index: entry D 0000000000000001 0000000000001000: its name is not where look-ups search for it",
		    "inode 4: has no name" } },
		{ same_name_twice,
		  { "directory 1: has the name 'g' twice",
		    "inode 1: has names of equal hash, but the root does not say so: look-ups miss them",
		    "inode 4: has 2 names, should have 1" } },
		{ name_of_nothing, { "name 'n' in directory 1: leads to inode 77, which does not exist" } },
		{ name_of_another_type, { "name 'g' in directory 1: says type 1, but inode 4 is of type 8" } },
		{ wrong_links,
		  { "inode 2: has a link count of 2, but 1 directories in it", "inode 3: has 2 names, should have 3" } },
		{ no_name, { "inode 5: has no name" } },
		{ wrong_parent, { "name 'e' in directory 2: directory 6 says it lies in 1" } },
		{ circle, { "directory 2: lies below itself" } },
		{ no_attributes,
		  { "inode 4: there are bytes of a file that does not exist",
		    "inode 4: there are extended attributes of nothing",
		    "name 'g' in directory 1: leads to inode 4, which does not exist" } },
		{ no_root,
		  { "inode 1: there are 3 names in a directory that does not exist", "the root does not exist" } },
		{ no_target, { "inode 5: is a symbolic link without a target" } },
		{ orphan_with_links, { "inode 3: is to be removed, but has links" } },
		{ no_links, { "inode 5: has no links, but is not to be removed" } },
		{ unsaid_xattr, { "inode 3: has extended attributes, but does not say so" } },
		{ number_not_given, { "inode 5000: has a number that was never given out" } },
		{ wrong_mapped,
		  { "inode 3: counts 16384 bytes with data, its recipe has 12288",
		    "index: counts 20580 bytes with data in all files, they have 24676" } },
		{ data_behind_the_end, { "inode 3: has data up to 12288, behind its end at 8192" } },
		{ no_size, { "inode 3: has a recipe but no size" } },
		{ bytes_of_a_link, { "inode 5: is no regular file but has bytes" } },
	};
	struct rig *rig = *state;
	struct fp_key key = key_of(rig);
	struct said s;

	rig_close(rig);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t nr = 0;

		edit_index(rig, &key, cases[i].edit);
		s = check(rig);
		for (; nr < ARRAY_SIZE(cases[i].said) && cases[i].said[nr]; nr++)
			assert_string_equal(nr < s.nr ? s.text[nr] : "nothing", cases[i].said[nr]);
		assert_int_equal(s.nr, nr);
		s = mend(rig);
		assert_int_equal(s.result.nr_left, 0);
		assert_int_equal(s.result.nr_mended, nr);
		assert_clean(rig);
	}
}

static void every_wrong_extent_is_told_with_its_file(void **state)
{
	static const struct {
		edit_fn *edit;
		const char *said;
	} cases[] = {
		{ extent_nowhere,
		  "g: bytes 0 to 4095 cannot be read: they are said to lie where no data can be, in pack 1 offset 4096" },
		{ extent_across_frames,
		  "g: bytes 0 to 8191 cannot be read: they are said to lie where no data can be, in pack 1 offset 1052672" },
		{ extent_in_no_frame, "g: bytes 0 to 4095 cannot be read: there is no data in pack 1 offset 9482240" },
		{ extent_behind_chunks, "g: bytes 0 to 8191 cannot be read: there is no data in pack 1 offset 28672" },
		{ extent_in_a_pack_to_come,
		  "g: bytes 0 to 4095 cannot be read: they are said to lie where nothing was ever written, in pack 9 offset 8192" },
	};
	struct rig *rig = *state;
	struct fp_key key = key_of(rig);
	struct said s;

	rig_close(rig);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		edit_index(rig, &key, cases[i].edit);
		s = check(rig);
		ASSERT_SAID(s, cases[i].said);
	}
	s = check_with(rig, (struct check_conf){ .mend = true, .rebuild = true });
	assert_int_equal(s.result.nr_left, 0);
	assert_clean(rig);
}

static void a_wrong_tree_that_the_journal_says_too_is_left(void **state)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct rig *rig = *state;
	struct said s;

	put_inode(&tx, (struct ns_inode){ .ino = LINK_L, .mode = S_IFLNK | 0777, .nlink = 2 });
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
	rig_close(rig);
	s = mend(rig);
	ASSERT_SAID(s, "+inode 5: has 1 names, should have 2; the index is made anew",
		    "inode 5: has 1 names, should have 2");
}

static void a_missing_index_is_made_anew(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	rig_remove_index(rig);
	s = check(rig);
	ASSERT_SAID(s, "index: missing or unusable; nothing is lost: -p makes it anew from journal and packs");
	s = mend(rig);
	ASSERT_SAID(s, "+index: missing or unusable; made anew from journal and packs");
	assert_clean(rig);
}

/* An old copy of the index, from before a snapshot took the place of the groups that would bring it up to date. */
static void an_index_that_is_too_old_is_made_anew(void **state)
{
	struct rig *rig = *state;
	char cmd[400];
	struct said s;

	rig_close(rig);
	snprintf(cmd, sizeof(cmd), "cp -a %s/index %s.index", rig->path, rig->path);
	assert_int_equal(system(cmd), 0);
	rig->conf.snapshot_bytes = 1;
	rig_open(rig);
	for (uint64_t i = 0; i < 40; i++) { /* more than the first segment of the journal takes */
		_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
		static uint8_t value[60000];

		rig_pattern(value, sizeof(value), i);
		engine_tx_put(&tx, ns_key_xattr(FILE_G, "user.x"), value, sizeof(value));
		assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
		assert_int_equal(engine_sync(rig->e), 0);
	}
	rig_close(rig);
	snprintf(cmd, sizeof(cmd), "rm -r %s/index && mv %s.index %s/index", rig->path, rig->path, rig->path);
	assert_int_equal(system(cmd), 0);
	s = mend(rig);
	ASSERT_SAID(s, "+index: stands for commit 1, and the journal does not go back so far; made anew from journal and packs");
	assert_clean(rig);
}

/* --- hints --- */

/* As if all had been absorbed: nobody looks into the packs' tables for it, and RocksDB knows nothing. */
static void pretend_absorbed(struct rig *rig _unused_, struct db_batch *b, const struct fp_key *key _unused_)
{
	struct pack_marks m = { .stream = { { 1, 1 }, { 1, 1 } }, .next_pack = 2 };
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	marks_encode(&m, &value);
	put(b, ns_key_meta("absorbed"), value.data, value.len);
}

static void missing_hints_are_put_back(void **state)
{
	struct rig *rig = *state;
	struct fp_key key = key_of(rig);
	struct said s;

	rig_close(rig);
	edit_index(rig, &key, pretend_absorbed);
	s = check(rig);
	ASSERT_SAID(s, "index: 6 chunks cannot be found by their fingerprints and would be stored again");
	s = mend(rig);
	ASSERT_SAID(s, "+index: 6 chunks cannot be found by their fingerprints and would be stored again; put back");
	assert_clean(rig);
}

static void a_chunk_is_healed_from_its_second_copy(void **state)
{
	struct rig *rig = *state;
	struct fp_key key = key_of(rig);
	struct said s;

	rig_close(rig);
	edit_index(rig, &key, pretend_absorbed);
	rig_open(rig);
	rig_write(rig, FILE_G, 3 * PAGE, 1); /* what f has, stored once more */
	rig_close(rig);
	s = mend(rig);
	assert_int_equal(s.result.nr_left, 0);
	assert_int_equal(s.result.nr_chunks, 9);
	flip(rig, "packs/00000001.pack", pack_data_off(0) + 2 * PAGE + 5);
	s = check_with(rig, (struct check_conf){ .read_data = true, .mend = true });
	ASSERT_SAID(s, "+pack 1 offset 16384: a chunk of 4096 bytes is damaged; healed from pack 1 offset 1069056");
	assert_clean(rig);
	rig_open(rig);
	rig_check(rig, FILE_F, 3 * PAGE, 1);
	rig_close(rig);
}

/* --- the journal --- */

static void a_damaged_journal_is_made_anew_from_the_index(void **state)
{
	static const uint64_t places[] = { 9, 512 + 5, 512 + 100 }; /* file header, header of a group, its records */
	struct rig *rig = *state;
	struct said s;

	assert_int_equal(engine_sync(rig->e), 0);
	rig_write(rig, FILE_F, PAGE, 7);
	rig_close(rig);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		flip(rig, "journal/*.log", places[i]);
		s = check(rig);
		assert_int_equal(s.nr, 1);
		assert_int_equal(s.result.nr_left, 1);
		assert_non_null(strstr(s.text[0], "; -p makes it anew from the index, which stands for commit "));
		s = mend(rig);
		assert_int_equal(s.nr, 1);
		assert_int_equal(s.result.nr_mended, 1);
		assert_non_null(strstr(s.text[0], "; made anew from the index, up to commit "));
		assert_clean(rig);
		rig_open(rig);
		rig_write(rig, FILE_F, PAGE, 8 + i);
		assert_int_equal(engine_sync(rig->e), 0);
		rig_write(rig, FILE_F, PAGE, 18 + i);
		rig_close(rig);
		assert_clean(rig);
	}
}

static void without_index_a_damaged_journal_is_left(void **state)
{
	struct rig *rig = *state;
	struct said s;

	assert_int_equal(engine_sync(rig->e), 0);
	rig_write(rig, FILE_F, PAGE, 7);
	rig_close(rig);
	rig_remove_index(rig);
	flip(rig, "journal/*.log", 512 + 100);
	s = mend(rig);
	ASSERT_SAID(s, "index: missing or unusable",
		    "journal: a file of it is damaged or missing; there is no sound index to make it anew from");
}

static void check_page(struct rig *rig, uint64_t ino, uint64_t seed)
{
	uint8_t want[PAGE], got[PAGE];
	struct content *c = rig_content(rig, ino);

	rig_pattern(want, PAGE, seed);
	assert_int_equal(content_read(c, got, PAGE, 0), PAGE);
	assert_memory_equal(got, want, PAGE);
	content_close(c);
}

/* The index stands for an early commit; a later one is damaged, and one after it is not. */
static void commits_behind_a_damaged_one_are_given_up_only_if_asked(void **state)
{
	struct rig *rig = *state;
	char copy[100], cmd[400];
	struct said s;

	rig_close(rig);
	snprintf(copy, sizeof(copy), "%s.index", rig->path);
	snprintf(cmd, sizeof(cmd), "cp -a %s/index %s", rig->path, copy);
	assert_int_equal(system(cmd), 0);
	rig_open(rig);
	for (uint64_t i = 0; i < 3; i++) {
		rig_write(rig, FILE_F, PAGE, 30 + i);
		assert_int_equal(engine_sync(rig->e), 0);
	}
	rig_close(rig);
	snprintf(cmd, sizeof(cmd), "rm -r %s/index && mv %s %s/index", rig->path, copy, rig->path);
	assert_int_equal(system(cmd), 0);
	flip(rig, "journal/*.log", 512 + 1024 + 512 + 70); /* the second of the three */
	s = mend(rig);
	assert_int_equal(s.result.nr_left, 1);
	assert_non_null(
		strstr(s.text[0], "; -y gives up commits 3 to 4, among them a damaged one, and goes on from there"));
	s = check_with(rig, (struct check_conf){ .mend = true, .give_up = true });
	assert_string_equal(s.text[0], "journal: commits 3 to 4 are lost");
	assert_int_equal(s.result.nr_left, 1);
	s = mend(rig);
	assert_int_equal(s.result.nr_left, 0);
	assert_clean(rig);
	rig_open(rig);
	check_page(rig, FILE_F, 30);
}

static void a_killed_store_is_clean_and_stays_as_it_was(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	rig_open(rig);
	rig_write(rig, FILE_F, 3 * PAGE, 40);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_crash(rig); /* opened again */
	rig_close(rig);
	assert_clean(rig);
	rig_open(rig);
	rig_write(rig, FILE_F, 3 * PAGE, 41);
	assert_int_equal(engine_sync(rig->e), 0);
	{
		char cmd[300];

		snprintf(cmd, sizeof(cmd), "cp -a %s %s.killed", rig->path, rig->path);
		assert_int_equal(system(cmd), 0);
		rig_close(rig);
		snprintf(cmd, sizeof(cmd), "rm -r %s && mv %s.killed %s", rig->path, rig->path, rig->path);
		assert_int_equal(system(cmd), 0);
	}
	s = check(rig);
	assert_int_equal(s.nr, 0);
	assert_int_equal(s.result.unapplied, 1);
	s = mend(rig);
	assert_int_equal(s.nr, 0);
	assert_int_equal(s.result.unapplied, 0);
	rig_open(rig);
	rig_check(rig, FILE_F, 3 * PAGE, 41);
}

static void wrong_counts_are_counted_anew(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	zero_table(rig, 0, PAGE); /* there is no frame now, and nobody said so */
	s = mend(rig);
	assert_int_equal(s.nr, 4);
	assert_string_equal(s.text[3],
			    "+packs: 6 chunks with 24576 bytes were committed, 0 with 0 are there; counted anew");
	s = mend(rig);
	assert_int_equal(s.nr, 3); /* the files that miss their bytes */
}

/* --- bounded memory --- */

static void many_inodes_are_checked_window_by_window(void **state)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct check_conf conf = { .cache = 1 }; /* 1024 inodes at a time */
	struct rig *rig = *state;
	uint64_t ino;
	struct said s;

	for (int i = 0; i < 3000; i++) {
		char name[20];

		snprintf(name, sizeof(name), "file%d", i);
		assert_int_equal(engine_new_number(rig->e, &ino), 0);
		put_inode(&tx, (struct ns_inode){ .ino = ino, .mode = S_IFREG | 0644, .nlink = i == 2500 ? 2 : 1 });
		put_name(rig, &tx, ROOT, name, ino, DT_REG);
	}
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
	rig_close(rig);
	s = check_with(rig, conf);
	ASSERT_SAID(s, "inode 2507: has 1 names, should have 2");
	assert_int_equal(s.result.nr_inodes, 3006);
}

static int setup_small_packs(void **state)
{
	struct rig *rig;
	int r = rig_setup(state);

	if (r < 0)
		return r;
	rig = *state;
	rig_close(rig);
	rig->conf.pack_bytes = 64 << 10;
	rig_open(rig);
	make_tree(rig);
	return 0;
}

static void many_packs_are_checked_window_by_window(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, FILE_F);
	static uint8_t bytes[128 << 10];
	struct said s;

	for (uint64_t i = 0; i < 6; i++) { /* a pack each */
		rig_pattern(bytes, sizeof(bytes), 50 + i);
		assert_int_equal(content_write(c, bytes, sizeof(bytes), i * sizeof(bytes)), 0);
		assert_int_equal(content_sync(c, NULL), 0);
	}
	content_close(c);
	rig_close(rig);
	s = check_with(rig, (struct check_conf){ .cache = 1, .read_data = true });
	assert_int_equal(s.nr, 0);
	assert_true(s.result.nr_packs >= 4);
	flip(rig, "packs/00000002.pack", pack_data_off(0) + 10);
	flip(rig, "packs/00000004.pack", pack_data_off(0) + 10);
	s = check_with(rig, (struct check_conf){ .cache = 1, .read_data = true });
	assert_int_equal(s.nr, 6); /* two names of the file, and the chunk, of each */
	assert_int_equal(s.result.lost_bytes, 2 * PAGE);
}

/* --- rules --- */

static void the_place_of_a_byte_is_known(void **state _unused_)
{
	uint32_t frame, in;

	assert_false(check_place(0, &frame, &in));
	assert_false(check_place(4096, &frame, &in)); /* the first table */
	assert_true(check_place(8192 + 5, &frame, &in));
	assert_int_equal(frame, 0);
	assert_int_equal(in, 5);
	assert_true(check_place(pack_data_off(7) + PACK_FRAME_BYTES - 1, &frame, &in));
	assert_int_equal(frame, 7);
	assert_int_equal(in, PACK_FRAME_BYTES - 1);
	assert_false(check_place(pack_table_off(8), &frame, &in));
}

int main(void)
{
#define ON_TREE(f) cmocka_unit_test_setup_teardown(f, setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		ON_TREE(a_sound_store_is_clean),
		cmocka_unit_test_setup_teardown(a_new_store_is_clean, rig_setup, rig_teardown),
		ON_TREE(a_store_in_use_or_absent_is_not_checked),
		ON_TREE(a_check_can_be_stopped),
		ON_TREE(a_copy_of_the_superblock_is_made_from_the_other),
		ON_TREE(a_header_is_written_anew),
		ON_TREE(a_table_is_written_anew_from_the_bytes),
		ON_TREE(files_of_a_lost_table_are_named),
		ON_TREE(hints_prove_the_chunks_of_a_lost_table),
		ON_TREE(files_of_a_damaged_chunk_are_named),
		ON_TREE(a_missing_pack_is_told_with_its_files),
		ON_TREE(every_wrong_entry_is_found_and_mended_from_the_journal),
		ON_TREE(every_wrong_extent_is_told_with_its_file),
		ON_TREE(a_wrong_tree_that_the_journal_says_too_is_left),
		ON_TREE(a_missing_index_is_made_anew),
		ON_TREE(an_index_that_is_too_old_is_made_anew),
		ON_TREE(missing_hints_are_put_back),
		ON_TREE(a_chunk_is_healed_from_its_second_copy),
		ON_TREE(a_damaged_journal_is_made_anew_from_the_index),
		ON_TREE(without_index_a_damaged_journal_is_left),
		ON_TREE(commits_behind_a_damaged_one_are_given_up_only_if_asked),
		ON_TREE(a_killed_store_is_clean_and_stays_as_it_was),
		ON_TREE(wrong_counts_are_counted_anew),
		ON_TREE(many_inodes_are_checked_window_by_window),
		cmocka_unit_test_setup_teardown(many_packs_are_checked_window_by_window, setup_small_packs, rig_teardown),
		cmocka_unit_test(the_place_of_a_byte_is_known),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
