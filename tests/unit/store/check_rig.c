/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/check_rig.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/util.h"
#include "index/db.h"
#include "index/namespace_table.h"

static void on_finding(void *userdata, const struct check_finding *f)
{
	struct said *s = userdata;

	if (s->nr < NR_SAID)
		snprintf(s->text[s->nr++], TEXT, "%s%s%s%s", f->repaired ? "+" : "", f->path ? f->path : "",
			 f->path ? ": " : "", f->text);
}

struct said check_with(struct rig *rig, struct check_conf conf)
{
	struct said s = { 0 };

	conf.cache = conf.cache ? conf.cache : MiB(8);
	conf.finding = on_finding;
	conf.userdata = &s;
	assert_int_equal(check_store(rig->path, &conf, &s.result), 0);
	return s;
}

struct said check(struct rig *rig)
{
	return check_with(rig, (struct check_conf){ 0 });
}

struct said repair(struct rig *rig)
{
	return check_with(rig, (struct check_conf){ .repair = true });
}

void assert_clean(struct rig *rig)
{
	struct said s = check_with(rig, (struct check_conf){ .read_data = true });

	if (s.nr > 0)
		fail_msg("%s", s.text[0]);
}

void put_inode(struct engine_tx *tx, struct ns_inode in)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_inode_encode(&in, &value);
	engine_tx_put(tx, ns_key_inode(in.ino), value.data, value.len);
}

struct ns_dirent dirent_of(const char *name, uint64_t ino, uint8_t type)
{
	struct ns_dirent d = { .ino = ino, .type = type, .name_len = (uint8_t)strlen(name) };

	strcpy(d.name, name);
	return d;
}

void put_name(struct rig *rig, struct engine_tx *tx, uint64_t dir, const char *name, uint64_t ino, uint8_t type)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_dirent d = dirent_of(name, ino, type);

	ns_dirent_encode(&d, &value);
	engine_tx_put(tx, ns_key_dirent(dir, ns_cookie(engine_key(rig->e), name, strlen(name))), value.data, value.len);
}

void make_tree(struct rig *rig)
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
	put_inode(&tx, (struct ns_inode){
			       .ino = FILE_G, .mode = S_IFREG | 0644, .nlink = 1, .flags = INODE_HAS_XATTRS });
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

int check_setup(void **state)
{
	int r = rig_setup(state);

	if (r == 0)
		make_tree(*state);
	return r;
}

void keep_index(const struct rig *rig)
{
	char cmd[400];

	snprintf(cmd, sizeof(cmd), "cp -a %s/index %s.index", rig->path, rig->path);
	assert_int_equal(system(cmd), 0);
}

void bring_back_index(const struct rig *rig)
{
	char cmd[400];

	snprintf(cmd, sizeof(cmd), "rm -r %s/index && mv %s.index %s/index", rig->path, rig->path, rig->path);
	assert_int_equal(system(cmd), 0);
}

void edit_index(struct rig *rig, const struct fp_key *key, edit_fn *edit)
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
