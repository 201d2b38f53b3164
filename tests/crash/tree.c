/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/tree.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/util.h"
#include "tests/crash/peer.h"

static struct compress tree_compress;
static unsigned tree_processors;

void tree_set_options(uint64_t seed)
{
	static const struct compress hows[] = {
		{ COMPRESS_NONE, 0 }, { COMPRESS_LZ4, 0 }, { COMPRESS_ZSTD, 1 }, { COMPRESS_AUTO, 0 }
	};

	tree_compress = hows[seed % ARRAY_SIZE(hows)];
	tree_processors = seed / ARRAY_SIZE(hows) % 2 ? 16 : 2; /* eight bulk streams or one */
}

struct engine_conf tree_conf(void)
{
	struct engine_conf conf = {
		.page = 4096,
		.cache = MiB(8),
		.dirty = MiB(8),
		.pack_bytes = KiB(128),
		.journal_segment = KiB(16),
		.snapshot_bytes = KiB(24),
		.view_flush_bytes = KiB(16),
		.ingest_entries = 128,
		.processors = tree_processors,
		.compress = tree_compress,
		.cdc = { 256, 1024, 8192 },
		.pending = MiB(2),
	};

	peer_join(&conf);
	return conf;
}

uint64_t tree_hash(const void *p, size_t len)
{
	return XXH3_64bits(p, len);
}

static void put_inode(struct engine_tx *tx, const struct ns_inode *in)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_inode_encode(in, &value);
	engine_tx_put(tx, ns_key_inode(in->ino), value.data, value.len);
}

static void put_name(struct engine_tx *tx, uint64_t dir, struct ns_dirent *d, uint64_t ino, uint32_t mode)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	d->ino = ino;
	d->type = (uint8_t)IFTODT(mode);
	ns_dirent_encode(d, &value);
	engine_tx_put(tx, ns_key_dirent(dir, d->cookie), value.data, value.len);
}

/* A place for a name: its directory, and the entry as ns_find() has it. 1 the name is there, 0 it is not. */
static int find_entry(struct engine *e, const char *path, uint64_t *ret_dir, struct ns_dirent *ret)
{
	uint64_t dir = NS_ROOT_INO;

	for (;;) {
		size_t len = strcspn(path, "/");
		char name[NS_NAME_MAX + 1];
		int r;

		if (len > NS_NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, path, len);
		name[len] = 0;
		r = ns_find(engine_db(e), engine_key(e), dir, name, ret);
		if (r < 0)
			return r;
		if (!path[len]) {
			*ret_dir = dir;
			ret->name_len = (uint8_t)len;
			memcpy(ret->name, name, len + 1);
			return r;
		}
		if (r == 0)
			return -ENOENT;
		dir = ret->ino;
		path += len + 1;
	}
}

static int find_inode(struct engine *e, const char *path, struct ns_inode *ret)
{
	struct ns_dirent d;
	uint64_t dir;
	int r = find_entry(e, path, &dir, &d);

	if (r > 0)
		r = ns_get_inode(engine_db(e), d.ino, ret);
	return r == 0 ? -ENOENT : r;
}

static int count_subdir(struct engine *e, struct engine_tx *tx, uint64_t dir)
{
	struct ns_inode in;
	int r = ns_get_inode(engine_db(e), dir, &in);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	in.nlink++;
	put_inode(tx, &in);
	return 0;
}

/* Add a new inode under a name. More may already be in *tx. */
static int add_inode(struct engine *e, struct engine_tx *tx, const char *path, uint32_t mode, const char *target)
{
	struct ns_inode in = { .mode = mode, .nlink = S_ISDIR(mode) ? 2 : 1, .mtime_ns = now_ns() };
	struct ns_dirent d;
	uint64_t dir;
	int r = find_entry(e, path, &dir, &d);

	if (r > 0)
		return -EEXIST;
	if (r == 0)
		r = engine_new_number(e, &in.ino);
	if (r < 0)
		return r;
	if (S_ISDIR(mode)) {
		in.parent = dir;
		r = count_subdir(e, tx, dir);
		if (r < 0)
			return r;
	}
	put_inode(tx, &in);
	if (target)
		engine_tx_put(tx, ns_key_symlink(in.ino), target, strlen(target));
	put_name(tx, dir, &d, in.ino, mode);
	return engine_tx_apply(e, tx);
}

int tree_format(struct engine *e, const char *const *dirs, size_t nr)
{
	struct engine_tx tx = ENGINE_TX_EMPTY;
	struct ns_inode root = {
		.ino = NS_ROOT_INO, .mode = S_IFDIR | 0755, .nlink = 2 + (uint32_t)nr, .parent = NS_ROOT_INO
	};
	int r;

	put_inode(&tx, &root);
	for (size_t i = 0; i < nr; i++) {
		struct ns_inode in = { .mode = S_IFDIR | 0755, .nlink = 2, .parent = NS_ROOT_INO };
		struct ns_dirent d;
		uint64_t dir;

		r = find_entry(e, dirs[i], &dir, &d);
		if (r == 0)
			r = engine_new_number(e, &in.ino);
		if (r < 0)
			return r;
		put_inode(&tx, &in);
		put_name(&tx, dir, &d, in.ino, in.mode);
	}
	r = engine_tx_apply(e, &tx);
	engine_tx_release(&tx);
	return r;
}

static int add_one(struct engine *e, const char *path, uint32_t mode, const char *target)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;

	return add_inode(e, &tx, path, mode, target);
}

int tree_mkdir(struct engine *e, const char *path)
{
	return add_one(e, path, S_IFDIR | 0755, NULL);
}

int tree_create(struct engine *e, const char *path, uint32_t mode)
{
	return add_one(e, path, S_IFREG | mode, NULL);
}

int tree_symlink(struct engine *e, const char *path, const char *target)
{
	return add_one(e, path, S_IFLNK | 0777, target);
}

int tree_link(struct engine *e, const char *path, const char *new_path)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct ns_inode in;
	struct ns_dirent d;
	uint64_t dir;
	int r;

	r = find_inode(e, path, &in);
	if (r < 0)
		return r;
	r = find_entry(e, new_path, &dir, &d);
	if (r != 0)
		return r < 0 ? r : -EEXIST;
	in.nlink++;
	put_inode(&tx, &in);
	put_name(&tx, dir, &d, in.ino, in.mode);
	return engine_tx_apply(e, &tx);
}

/* One name less: the inode and all it has go with the last. */
static int drop_link(struct engine *e, struct engine_tx *tx, uint64_t ino)
{
	struct ns_inode in;
	int r = ns_get_inode(engine_db(e), ino, &in);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	if (--in.nlink > 0 && !S_ISDIR(in.mode)) {
		put_inode(tx, &in);
		return 0;
	}
	engine_tx_del(tx, ns_key_inode(ino));
	engine_tx_del_prefix(tx, ns_key_xattrs(ino));
	if (S_ISLNK(in.mode))
		engine_tx_del(tx, ns_key_symlink(ino));
	if (S_ISREG(in.mode))
		engine_tx_drop_content(tx, ino);
	return 0;
}

int tree_rename(struct engine *e, const char *path, const char *new_path)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct ns_dirent from, to;
	uint64_t from_dir, to_dir, ino;
	int r;

	r = find_entry(e, path, &from_dir, &from);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	r = find_entry(e, new_path, &to_dir, &to);
	if (r > 0 && to.ino == from.ino)
		return 0;
	if (r > 0)
		r = drop_link(e, &tx, to.ino);
	if (r < 0)
		return r;
	ino = from.ino;
	engine_tx_del(&tx, ns_key_dirent(from_dir, from.cookie));
	put_name(&tx, to_dir, &to, ino, DTTOIF(from.type));
	return engine_tx_apply(e, &tx);
}

int tree_unlink(struct engine *e, const char *path)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct ns_dirent d;
	uint64_t dir;
	int r;

	r = find_entry(e, path, &dir, &d);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	engine_tx_del(&tx, ns_key_dirent(dir, d.cookie));
	r = drop_link(e, &tx, d.ino);
	return r < 0 ? r : engine_tx_apply(e, &tx);
}

int tree_set_owner(struct engine *e, const char *path, uint32_t mode, uint32_t uid)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct ns_inode in;
	int r;

	r = find_inode(e, path, &in);
	if (r < 0)
		return r;
	in.mode = (in.mode & S_IFMT) | mode;
	in.uid = uid;
	put_inode(&tx, &in);
	return engine_tx_apply(e, &tx);
}

int tree_set_xattr(struct engine *e, const char *path, const char *name, const char *value)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct ns_inode in;
	int r;

	r = find_inode(e, path, &in);
	if (r < 0)
		return r;
	in.flags |= INODE_HAS_XATTRS;
	put_inode(&tx, &in);
	if (value)
		engine_tx_put(&tx, ns_key_xattr(in.ino, name), value, strlen(value));
	else
		engine_tx_del(&tx, ns_key_xattr(in.ino, name));
	return engine_tx_apply(e, &tx);
}

int tree_number(struct engine *e, const char *path, uint64_t *ret)
{
	struct ns_inode in;
	int r = find_inode(e, path, &in);

	if (r < 0)
		return r;
	*ret = in.ino;
	return 0;
}

int tree_open(struct engine *e, const char *path, struct content **ret)
{
	static const enum chunking ways[] = { CHUNKING_PAGE, CHUNKING_AUTO, CHUNKING_CDC, CHUNKING_AUTO };
	uint64_t champions[CHAMPIONS_MAX];
	struct ns_inode in;
	unsigned nr = 0;
	int r = find_inode(e, path, &in);

	if (r < 0)
		return r;
	r = content_open(e, in.ino, ret);
	if (r < 0)
		return r;
	content_set_chunking(*ret, &ways[in.ino % ARRAY_SIZE(ways)]);
	for (; nr < ARRAY_SIZE(champions) && nr + 1 < in.ino; nr++) /* older ones only: they refer to no younger ones */
		champions[nr] = in.ino - nr - 1;
	content_set_champions(*ret, champions, nr);
	return 0;
}
