/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Keys and values of the namespace tables.
 *
 * A name is found by its cookie: the keyed hash of the name picks 16 neighbouring cookies, and the
 * entry is in one of them. The first is looked up alone, since nearly every name is there and a point
 * lookup can use the filters; only if it is not there, all 16 are scanned: a removed name leaves a gap
 * before names that were added after it.
 */
#include "index/namespace_table.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"

#define COOKIE_MIN 16 /* below: "." and ".." */
#define COOKIE_MAX ((UINT64_C(1) << 63) - 1)
#define DIRENT_KEY_LEN 17
#define XATTR_PREFIX_LEN 9
#define SEAL_VERSION 1
#define REPLICA_VERSION 1
#define AWAY_VERSION 1

static struct ns_key key_of(enum view_table table)
{
	struct ns_key k;

	k.b[0] = (uint8_t)table;
	k.len = 1;
	return k;
}

static void key_add_number(struct ns_key *k, uint64_t n)
{
	be64_put(k->b + k->len, n);
	k->len += 8;
}

static void key_add_name(struct ns_key *k, const char *name)
{
	size_t len = strlen(name);

	assert(len <= NS_NAME_MAX);
	memcpy(k->b + k->len, name, len);
	k->len += len;
}

static struct ns_key key_of_number(enum view_table table, uint64_t n)
{
	struct ns_key k = key_of(table);

	key_add_number(&k, n);
	return k;
}

struct ns_key ns_key_inode(uint64_t ino)
{
	return key_of_number(VIEW_INODE, ino);
}

struct ns_key ns_key_content(uint64_t ino)
{
	return key_of_number(VIEW_CONTENT, ino);
}

int ns_content_key_decode(const void *key, size_t len, uint64_t *ret_ino)
{
	const uint8_t *k = key;

	if (len != 1 + sizeof(uint64_t) || k[0] != VIEW_CONTENT)
		return -EBADMSG;
	*ret_ino = be64_get(k + 1);
	return 0;
}

struct ns_key ns_key_dirent(uint64_t parent, uint64_t cookie)
{
	struct ns_key k = key_of_number(VIEW_DIRENT, parent);

	key_add_number(&k, cookie);
	return k;
}

struct ns_key ns_key_dirents(uint64_t parent)
{
	return key_of_number(VIEW_DIRENT, parent);
}

struct ns_key ns_key_symlink(uint64_t ino)
{
	return key_of_number(VIEW_SYMLINK, ino);
}

struct ns_key ns_key_xattr(uint64_t ino, const char *name)
{
	struct ns_key k = key_of_number(VIEW_XATTR, ino);

	key_add_name(&k, name);
	return k;
}

struct ns_key ns_key_xattrs(uint64_t ino)
{
	return key_of_number(VIEW_XATTR, ino);
}

struct ns_key ns_key_orphan(uint64_t ino)
{
	return key_of_number(VIEW_ORPHAN, ino);
}

struct ns_key ns_key_seal(uint64_t ino)
{
	return key_of_number(VIEW_SEAL, ino);
}

struct ns_key ns_key_replica(uint64_t ino)
{
	return key_of_number(VIEW_REPLICA, ino);
}

struct ns_key ns_key_away(uint64_t ino)
{
	return key_of_number(VIEW_AWAY, ino);
}

struct ns_key ns_key_meta(const char *name)
{
	struct ns_key k = key_of(VIEW_META);

	key_add_name(&k, name);
	return k;
}

void ns_inode_encode(const struct ns_inode *in, struct buf *ret)
{
	struct inode_value_disk d = {
		.mode = le32_put(in->mode),
		.nlink = le32_put(in->nlink),
		.uid = le32_put(in->uid),
		.gid = le32_put(in->gid),
		.rdev = le64_put(in->rdev),
		.atime_ns = le64_put((uint64_t)in->atime_ns),
		.mtime_ns = le64_put((uint64_t)in->mtime_ns),
		.ctime_ns = le64_put((uint64_t)in->ctime_ns),
		.btime_ns = le64_put((uint64_t)in->btime_ns),
		.parent = le64_put(in->parent),
		.flags = le32_put(in->flags),
	};

	buf_add(ret, &d, sizeof(d));
}

static bool mode_is_valid(uint32_t mode)
{
	if (mode & ~(uint32_t)(S_IFMT | 07777))
		return false;
	switch (mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
	case S_IFIFO:
	case S_IFSOCK:
	case S_IFCHR:
	case S_IFBLK:
		return true;
	default:
		return false;
	}
}

int ns_inode_decode(uint64_t ino, const void *p, size_t len, struct ns_inode *ret)
{
	const struct inode_value_disk *d = p;

	if (len != sizeof(*d) || !mode_is_valid(le32_get(d->mode)) || le32_get(d->reserved) != 0)
		return -EBADMSG;
	*ret = (struct ns_inode){
		.ino = ino,
		.mode = le32_get(d->mode),
		.nlink = le32_get(d->nlink),
		.uid = le32_get(d->uid),
		.gid = le32_get(d->gid),
		.rdev = le64_get(d->rdev),
		.atime_ns = (int64_t)le64_get(d->atime_ns),
		.mtime_ns = (int64_t)le64_get(d->mtime_ns),
		.ctime_ns = (int64_t)le64_get(d->ctime_ns),
		.btime_ns = (int64_t)le64_get(d->btime_ns),
		.parent = le64_get(d->parent),
		.flags = le32_get(d->flags),
	};
	return 0;
}

void ns_content_encode(const struct ns_content *c, struct buf *ret)
{
	struct content_value_disk d = {
		.size = le64_put(c->size),
		.mapped = le64_put(c->mapped),
		.mtime_ns = le64_put((uint64_t)c->mtime_ns),
		.ctime_ns = le64_put((uint64_t)c->ctime_ns),
	};

	buf_add(ret, &d, sizeof(d));
}

int ns_content_decode(const void *p, size_t len, struct ns_content *ret)
{
	const struct content_value_disk *d = p;

	if (len != sizeof(*d) || le64_get(d->size) > INT64_MAX)
		return -EBADMSG;
	*ret = (struct ns_content){
		.size = le64_get(d->size),
		.mapped = le64_get(d->mapped),
		.mtime_ns = (int64_t)le64_get(d->mtime_ns),
		.ctime_ns = (int64_t)le64_get(d->ctime_ns),
	};
	return 0;
}

void ns_dirent_encode(const struct ns_dirent *d, struct buf *ret)
{
	struct dirent_value_disk head = { .ino = le64_put(d->ino), .type = d->type };

	buf_add(ret, &head, sizeof(head));
	buf_add(ret, d->name, d->name_len);
}

void ns_seal_encode(const struct ns_seal *s, struct buf *ret)
{
	struct seal_value_disk d = {
		.version = SEAL_VERSION,
		.flags = s->is_complete ? SEAL_COMPLETE : 0,
		.uid = le32_put(s->uid),
		.sealed_ns = le64_put((uint64_t)s->sealed_ns),
		.files = le64_put(s->files),
		.directories = le64_put(s->directories),
		.bytes = le64_put(s->bytes),
		.new_bytes = le64_put(s->is_complete ? s->new_bytes : 0),
	};

	if (s->is_complete)
		memcpy(d.root, s->root, sizeof(d.root));
	buf_add(ret, &d, sizeof(d));
}

int ns_seal_decode(const void *p, size_t len, struct ns_seal *ret)
{
	struct seal_value_disk d = { 0 };

	if (len != sizeof(d))
		return -EBADMSG;
	memcpy(&d, p, len);
	if (d.version != SEAL_VERSION || d.flags & ~SEAL_COMPLETE || !mem_is_zero(d.reserved, sizeof(d.reserved)))
		return -EBADMSG;
	if (!(d.flags & SEAL_COMPLETE) && (le64_get(d.new_bytes) != 0 || !mem_is_zero(d.root, sizeof(d.root))))
		return -EBADMSG;
	*ret = (struct ns_seal){
		.uid = le32_get(d.uid),
		.sealed_ns = (int64_t)le64_get(d.sealed_ns),
		.files = le64_get(d.files),
		.directories = le64_get(d.directories),
		.bytes = le64_get(d.bytes),
		.is_complete = d.flags & SEAL_COMPLETE,
		.new_bytes = le64_get(d.new_bytes),
	};
	memcpy(ret->root, d.root, sizeof(ret->root));
	return 0;
}

void ns_away_encode(const struct ns_away *a, struct buf *ret)
{
	struct away_value_disk d = {
		.version = AWAY_VERSION,
		.flags = a->is_erased ? AWAY_ERASED : 0,
		.index = le32_put(a->index),
		.number = le64_put(a->number),
	};

	memcpy(d.check, a->check, sizeof(d.check));
	buf_add(ret, &d, sizeof(d));
}

int ns_away_decode(const void *p, size_t len, struct ns_away *ret)
{
	struct away_value_disk d = { 0 };

	if (len != sizeof(d))
		return -EBADMSG;
	memcpy(&d, p, len);
	if (d.version != AWAY_VERSION || d.flags & ~AWAY_ERASED || !mem_is_zero(d.reserved, sizeof(d.reserved)))
		return -EBADMSG;
	*ret = (struct ns_away){
		.number = le64_get(d.number),
		.index = le32_get(d.index),
		.is_erased = d.flags & AWAY_ERASED,
	};
	memcpy(ret->check, d.check, sizeof(ret->check));
	return ret->number == 0 || (ret->is_erased && ret->index != 0) ? -EBADMSG : 0;
}

static bool type_is_valid(uint8_t type)
{
	switch (type) {
	case DT_REG:
	case DT_DIR:
	case DT_LNK:
	case DT_FIFO:
	case DT_SOCK:
	case DT_CHR:
	case DT_BLK:
		return true;
	default:
		return false;
	}
}

static bool name_is_valid(const char *name, size_t len)
{
	if (len == 0 || len > NS_NAME_MAX || memchr(name, '\0', len) || memchr(name, '/', len))
		return false;
	return !(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')));
}

void ns_replica_encode(const struct ns_replica *c, struct buf *ret)
{
	struct copy_value_disk d = {
		.version = REPLICA_VERSION,
		.state = (uint8_t)c->state,
		.name_len = (uint8_t)strlen(c->name),
		.slots = (uint8_t)(c->nr_slots << 4 | c->slot),
		.ino = le64_put(c->ino),
		.sealed_ns = le64_put((uint64_t)c->sealed_ns),
	};

	memcpy(d.store, c->store, sizeof(d.store));
	buf_add(ret, &d, sizeof(d));
	if (c->nr_slots > 0)
		buf_add(ret, c->sender, sizeof(c->sender));
	buf_add(ret, c->name, d.name_len);
	buf_add(ret, c->path, strlen(c->path));
}

bool ns_path_is_valid(const char *path, size_t len)
{
	if (len > NS_PATH_MAX)
		return false;
	for (size_t at = 0; len > 0 && at <= len;) {
		const char *slash = memchr(path + at, '/', len - at);
		size_t n = slash ? (size_t)(slash - path) - at : len - at;

		if (!name_is_valid(path + at, n))
			return false;
		at += n + 1;
	}
	return true;
}

bool ns_node_name_is_valid(const char *name, size_t len)
{
	return len <= NS_NODE_NAME_MAX && name_is_valid(name, len);
}

static bool slots_are_valid(uint8_t slots)
{
	unsigned nr = slots >> 4, slot = slots & 15;

	return slots == 0 || (nr <= NS_REPLICA_SLOTS_MAX && slot < nr);
}

int ns_replica_decode(const void *p, size_t len, struct ns_replica *ret)
{
	const struct copy_value_disk *d = p;
	const char *name = (const char *)p + sizeof(*d);
	size_t path_len, sender_len;

	if (len < sizeof(*d) || d->version != REPLICA_VERSION || d->state > NS_REPLICA_STRIPE ||
	    !slots_are_valid(d->slots))
		return -EBADMSG;
	sender_len = d->slots == 0 ? 0 : NS_STORE_ID_LEN;
	len -= sizeof(*d);
	if (len < sender_len + d->name_len || !ns_node_name_is_valid(name + sender_len, d->name_len))
		return -EBADMSG;
	path_len = len - sender_len - d->name_len;
	name += sender_len;
	if (!ns_path_is_valid(name + d->name_len, path_len))
		return -EBADMSG;
	ret->state = (enum ns_replica_state)d->state;
	memcpy(ret->store, d->store, sizeof(ret->store));
	ret->ino = le64_get(d->ino);
	ret->sealed_ns = (int64_t)le64_get(d->sealed_ns);
	memcpy(ret->name, name, d->name_len);
	ret->name[d->name_len] = '\0';
	memcpy(ret->path, name + d->name_len, path_len);
	ret->path[path_len] = '\0';
	ret->nr_slots = d->slots >> 4;
	ret->slot = d->slots & 15;
	memset(ret->sender, 0, sizeof(ret->sender));
	memcpy(ret->sender, d + 1, sender_len);
	return 0;
}

int ns_dirent_decode(uint64_t cookie, const void *p, size_t len, struct ns_dirent *ret)
{
	const struct dirent_value_disk *d = p;
	const char *name = (const char *)p + sizeof(*d);
	size_t name_len;

	if (len <= sizeof(*d) || cookie < COOKIE_MIN || cookie > COOKIE_MAX)
		return -EBADMSG;
	name_len = len - sizeof(*d);
	if (!name_is_valid(name, name_len) || !type_is_valid(d->type) || le64_get(d->ino) == 0)
		return -EBADMSG;
	ret->ino = le64_get(d->ino);
	ret->cookie = cookie;
	ret->type = d->type;
	ret->name_len = (uint8_t)name_len;
	memcpy(ret->name, name, name_len);
	ret->name[name_len] = '\0';
	return 0;
}

int ns_get_inode(struct db *db, uint64_t ino, struct ns_inode *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key k = ns_key_inode(ino);
	int r;

	r = db_get(db, DB_VIEW, k.b, k.len, &value);
	if (r <= 0)
		return r;
	r = ns_inode_decode(ino, value.data, value.len, ret);
	return r < 0 ? log_errno(r, "inode %" PRIu64 ": damaged attributes in the index", ino) : 1;
}

int ns_get_content(struct db *db, uint64_t ino, struct ns_content *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key k = ns_key_content(ino);
	int r;

	r = db_get(db, DB_VIEW, k.b, k.len, &value);
	if (r <= 0)
		return r;
	r = ns_content_decode(value.data, value.len, ret);
	return r < 0 ? log_errno(r, "inode %" PRIu64 ": damaged size and times in the index", ino) : 1;
}

int ns_get_symlink(struct db *db, uint64_t ino, struct buf *ret)
{
	struct ns_key k = ns_key_symlink(ino);

	return db_get(db, DB_VIEW, k.b, k.len, ret);
}

int ns_get_xattr(struct db *db, uint64_t ino, const char *name, struct buf *ret)
{
	struct ns_key k = ns_key_xattr(ino, name);

	return db_get(db, DB_VIEW, k.b, k.len, ret);
}

static int seal_decode_or_log(uint64_t ino, const void *p, size_t len, struct ns_seal *ret)
{
	int r = ns_seal_decode(p, len, ret);

	return r < 0 ? log_errno(r, "directory %" PRIu64 ": damaged seal in the index", ino) : 1;
}

int ns_get_seal(struct db *db, uint64_t ino, struct ns_seal *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key k = ns_key_seal(ino);
	int r = db_get(db, DB_VIEW, k.b, k.len, &value);

	return r <= 0 ? r : seal_decode_or_log(ino, value.data, value.len, ret);
}

int ns_get_meta(struct db *db, const char *name, struct buf *ret)
{
	struct ns_key k = ns_key_meta(name);

	return db_get(db, DB_VIEW, k.b, k.len, ret);
}

static int dirent_decode_or_log(uint64_t dir, uint64_t cookie, const void *p, size_t len, struct ns_dirent *ret)
{
	int r;

	r = ns_dirent_decode(cookie, p, len, ret);
	if (r < 0)
		return log_errno(r, "directory %" PRIu64 ": damaged entry %" PRIx64 " in the index", dir, cookie);
	return 1;
}

uint64_t ns_cookie(const struct fp_key *key, const char *name, size_t len)
{
	uint64_t cookie = fp_hash64(key, name, len) >> 1 & ~(uint64_t)(NS_COOKIES_PER_HASH - 1);

	return MAX(cookie, (uint64_t)COOKIE_MIN);
}

int ns_find_first(struct db *db, const struct fp_key *key, uint64_t dir, const char *name, struct ns_dirent *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	size_t len = strlen(name);
	uint64_t cookie;
	struct ns_dirent d;
	struct ns_key k;
	int r;

	if (len > NS_NAME_MAX)
		return -ENAMETOOLONG;
	if (len == 0)
		return -EINVAL;
	cookie = ns_cookie(key, name, len);
	k = ns_key_dirent(dir, cookie);
	r = db_get(db, DB_VIEW, k.b, k.len, &value);
	if (r < 0)
		return r;
	if (r == 0) {
		ret->cookie = cookie;
		return 0;
	}
	r = dirent_decode_or_log(dir, cookie, value.data, value.len, &d);
	if (r < 0)
		return r;
	if (strcmp(d.name, name) != 0)
		return -EEXIST;
	*ret = d;
	return 1;
}

int ns_find(struct db *db, const struct fp_key *key, uint64_t dir, const char *name, struct ns_dirent *ret)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	uint64_t first, unused;
	struct ns_dirent d;
	struct ns_key k;
	int r;

	r = ns_find_first(db, key, dir, name, &d);
	if (r > 0)
		*ret = d;
	if (r != 0 && r != -EEXIST)
		return r;
	first = unused = ns_cookie(key, name, strlen(name));
	k = ns_key_dirent(dir, first);
	r = db_iter_new(db, NULL, k.b, k.len - 1, k.b, k.len, &it); /* they differ in the last byte only */
	if (r < 0)
		return r;
	while ((r = ns_readdir_next(it, &d)) > 0 && d.cookie < first + NS_COOKIES_PER_HASH) {
		if (strcmp(d.name, name) == 0) {
			*ret = d;
			return 1;
		}
		if (d.cookie == unused)
			unused++;
	}
	if (r < 0)
		return r;
	if (unused == first + NS_COOKIES_PER_HASH)
		return -ENOSPC;
	ret->cookie = unused;
	return 0;
}

bool ns_cookie_shared(uint64_t cookie)
{
	return cookie % NS_COOKIES_PER_HASH != 0;
}

int ns_has_entries(struct db *db, uint64_t dir)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key k = ns_key_dirents(dir);
	const void *key, *value;
	size_t key_len, value_len;
	int r;

	r = db_iter_new(db, NULL, k.b, k.len, NULL, 0, &it);
	if (r < 0)
		return r;
	return db_iter_next(it, &key, &key_len, &value, &value_len);
}

int ns_readdir_open(struct db *db, uint64_t dir, uint64_t after, struct db_iter **ret)
{
	struct ns_key prefix = ns_key_dirents(dir), from;

	if (after > COOKIE_MAX)
		return -EINVAL;
	from = ns_key_dirent(dir, after + 1);
	return db_iter_new(db, NULL, prefix.b, prefix.len, from.b, from.len, ret);
}

int ns_readdir_next(struct db_iter *it, struct ns_dirent *ret)
{
	const void *key, *value;
	size_t key_len, value_len;
	int r;

	r = db_iter_next(it, &key, &key_len, &value, &value_len);
	if (r <= 0)
		return r;
	if (key_len != DIRENT_KEY_LEN)
		return log_errno(-EBADMSG, "directory: key of %zu bytes in the index", key_len);
	return dirent_decode_or_log(be64_get((const uint8_t *)key + 1), be64_get((const uint8_t *)key + 9), value,
				    value_len, ret);
}

void ns_readdir_close(struct db_iter *it)
{
	db_iter_free(it);
}

struct xattr_entry {
	const char *name; /* not NUL-terminated */
	size_t len, value_len;
};

/* 1: next one, borrowed until the next call; 0: end; <0. */
static int next_xattr(struct db_iter *it, uint64_t ino, struct xattr_entry *ret)
{
	const void *key, *value;
	size_t key_len;
	int r = db_iter_next(it, &key, &key_len, &value, &ret->value_len);

	if (r <= 0)
		return r;
	ret->name = (const char *)key + XATTR_PREFIX_LEN;
	ret->len = key_len - XATTR_PREFIX_LEN;
	if (ret->len == 0 || ret->len > NS_NAME_MAX || memchr(ret->name, '\0', ret->len))
		return log_errno(-EBADMSG, "inode %" PRIu64 ": damaged attribute name in the index", ino);
	return 1;
}

int ns_list_xattrs(struct db *db, uint64_t ino, struct buf *ret)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key k = ns_key_xattrs(ino);
	struct xattr_entry e;
	int r = db_iter_new(db, NULL, k.b, k.len, NULL, 0, &it);

	while (r >= 0 && (r = next_xattr(it, ino, &e)) > 0) {
		buf_add(ret, e.name, e.len);
		buf_add_u8(ret, 0);
	}
	return r < 0 ? r : buf_error(ret);
}

int ns_sum_xattrs(struct db *db, uint64_t ino, size_t max_bytes, struct ns_xattr_sum *ret)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key k = ns_key_xattrs(ino);
	struct ns_xattr_sum sum = { 0 };
	struct xattr_entry e;
	int r = db_iter_new(db, NULL, k.b, k.len, NULL, 0, &it);

	while (r >= 0 && sum.bytes <= max_bytes && (r = next_xattr(it, ino, &e)) > 0) {
		sum.names += e.len + 1;
		sum.bytes += e.len + 1 + e.value_len;
	}
	if (r >= 0)
		*ret = sum;
	return MIN(r, 0);
}

/* The first entry of a table of inodes behind `after`; what *value points to goes with *it. */
static int next_of_table(struct db *db, enum view_table table, uint64_t after, struct db_iter **it, uint64_t *ret,
			 const void **value, size_t *value_len)
{
	struct ns_key prefix = key_of(table), from;
	const void *key;
	size_t key_len;
	int r;

	if (after == UINT64_MAX)
		return 0;
	from = key_of_number(table, after + 1);
	r = db_iter_new(db, NULL, prefix.b, prefix.len, from.b, from.len, it);
	if (r < 0)
		return r;
	r = db_iter_next(*it, &key, &key_len, value, value_len);
	if (r <= 0)
		return r;
	if (key_len != from.len)
		return log_errno(-EBADMSG, "table %c: key of %zu bytes in the index", (char)table, key_len);
	*ret = be64_get((const uint8_t *)key + 1);
	return 1;
}

int ns_next_orphan(struct db *db, uint64_t after, uint64_t *ret)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const void *value;
	size_t value_len;

	return next_of_table(db, VIEW_ORPHAN, after, &it, ret, &value, &value_len);
}

int ns_next_seal(struct db *db, uint64_t after, uint64_t *ret_ino, struct ns_seal *ret)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const void *value;
	size_t value_len;
	uint64_t ino;
	int r = next_of_table(db, VIEW_SEAL, after, &it, &ino, &value, &value_len);

	if (r > 0)
		r = seal_decode_or_log(ino, value, value_len, ret);
	if (r > 0)
		*ret_ino = ino;
	return r;
}

static int away_decode_or_log(uint64_t ino, const void *p, size_t len, struct ns_away *ret)
{
	int r = ns_away_decode(p, len, ret);

	return r < 0 ? log_errno(r, "inode %" PRIu64 ": damaged record of its place in a tier in the index", ino) : 1;
}

int ns_get_away(struct db *db, uint64_t ino, struct ns_away *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key k = ns_key_away(ino);
	int r = db_get(db, DB_VIEW, k.b, k.len, &value);

	return r <= 0 ? r : away_decode_or_log(ino, value.data, value.len, ret);
}

int ns_next_away(struct db *db, uint64_t after, uint64_t *ret_ino, struct ns_away *ret)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const void *value;
	size_t value_len;
	uint64_t ino;
	int r = next_of_table(db, VIEW_AWAY, after, &it, &ino, &value, &value_len);

	if (r <= 0)
		return r;
	*ret_ino = ino;
	return away_decode_or_log(ino, value, value_len, ret);
}

static int replica_decode_or_log(uint64_t ino, const void *p, size_t len, struct ns_replica *ret)
{
	int r = ns_replica_decode(p, len, ret);

	return r < 0 ? log_errno(r, "directory %" PRIu64 ": damaged entry of a replica in the index", ino) : 1;
}

int ns_get_replica(struct db *db, uint64_t ino, struct ns_replica *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key k = ns_key_replica(ino);
	int r = db_get(db, DB_VIEW, k.b, k.len, &value);

	return r <= 0 ? r : replica_decode_or_log(ino, value.data, value.len, ret);
}

int ns_next_replica(struct db *db, uint64_t after, uint64_t *ret_ino, struct ns_replica *ret)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const void *value;
	size_t value_len;
	uint64_t ino;
	int r = next_of_table(db, VIEW_REPLICA, after, &it, &ino, &value, &value_len);

	if (r > 0)
		r = replica_decode_or_log(ino, value, value_len, ret);
	if (r > 0)
		*ret_ino = ino;
	return r;
}
