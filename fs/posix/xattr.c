/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/posix/xattr.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "client/retention.h"
#include "fs/posix/acl.h"
#include "fs/posix/attr.h"
#include "fs/control/control.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/posix/permission.h"
#include "fs/cluster_hooks.h"

#define CAPABILITY_NAME "security.capability"
#define OURS "user.ckptfs."

/*
 * Limits on all attributes of an inode. Some requests read all of them, or delete or copy them in one transaction under
 * fs.names. A longer list of names cannot be read with listxattr(2).
 */
#define NAMES_MAX ((size_t)XATTR_LIST_MAX)
#define BYTES_MAX ((size_t)MiB(1))

#define COMPRESS_NAME OURS "compress"
#define CHUNKING_NAME OURS "chunking"

static bool is_chunking(const char *p, size_t len)
{
	enum chunking c;

	return chunking_parse(p, len, &c) == 0;
}

static bool is_compress(const char *p, size_t len)
{
	struct compress c;

	return compress_parse(p, len, &c) == 0;
}

static bool is_keep(const char *p, size_t len)
{
	struct keep_policy k;

	return keep_parse(p, len, &k) == 0;
}

static const struct {
	const char *name;
	bool (*is_valid)(const char *p, size_t len);
	const char *values;
	bool stays; /* is not inherited */
} settings[] = {
	{ CHUNKING_NAME, is_chunking, "page, cdc or auto", false },
	{ COMPRESS_NAME, is_compress, "none, lz4, zstd, zstd:1 to zstd:19 or auto", false },
	{ KEEP_XATTR, is_keep, "one or more of last=N, every=N, within=TIME and tagged, with commas between", true },
};

static bool starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static bool is_acl(const char *name)
{
	return strcmp(name, ACL_ACCESS_NAME) == 0 || strcmp(name, ACL_DEFAULT_NAME) == 0;
}

static bool is_bequeathed(const char *name)
{
	return strcmp(name, ACL_DEFAULT_NAME) == 0 || starts_with(name, OURS);
}

int xattr_check_name(const char *name)
{
	const char *dot = strchr(name, '.');

	if (strlen(name) > XATTR_NAME_MAX)
		return -ERANGE;
	if (is_acl(name))
		return 0;
	if (!starts_with(name, "user.") && !starts_with(name, "trusted.") && !starts_with(name, "security."))
		return -EOPNOTSUPP;
	return dot[1] ? 0 : -EINVAL;
}

/* May this attribute below user.ckptfs. be changed? `p` NULL: removed. */
static int check_setting(const char *name, const void *p, size_t len)
{
	static struct log_limit said;

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		if (strcmp(name, settings[i].name) != 0)
			continue;
		if (!p || settings[i].is_valid(p, len))
			return 0;
		log_limited(&said, LOG_LEVEL_WARNING, "xattr %s: must be %s", name, settings[i].values);
		return -EINVAL;
	}
	return -EPERM;
}

/* The retention rule, or the uid of its author in decimal. */
static int get_rule(struct fs *fs, uint64_t ino, bool is_author, struct buf *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r = ns_get_xattr(fs->db, ino, KEEP_XATTR, &value);
	char text[16];
	uint32_t uid;
	size_t len;

	if (r <= 0)
		return r < 0 ? r : -ENODATA;
	r = keep_stored_decode(value.data, value.len, &len, &uid);
	if (r < 0)
		return log_errno(r, "inode %" PRIu64 ": damaged " KEEP_XATTR " in the index", ino);
	if (is_author)
		buf_add(ret, text, (size_t)snprintf(text, sizeof(text), "%" PRIu32, uid));
	else
		buf_add(ret, value.data, len);
	return buf_error(ret);
}

int xattr_get(struct fs *fs, struct inode *i, const char *name, struct buf *ret)
{
	int r = xattr_check_name(name);

	if (r < 0)
		return r;
	if (strcmp(name, KEEP_XATTR) == 0 || strcmp(name, KEEP_AUTHOR_XATTR) == 0)
		return get_rule(fs, i->ino, strcmp(name, KEEP_AUTHOR_XATTR) == 0, ret);
	if (starts_with(name, OURS)) {
		r = control_xattr(fs, i, name, ret);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	r = ns_get_xattr(fs->db, i->ino, name, ret);
	if (r <= 0)
		return r < 0 ? r : -ENODATA;
	return buf_error(ret);
}

/* Iterate over NUL-terminated names. NULL at the end. */
static const char *next_name(const struct buf *all, size_t *at)
{
	const char *name = (const char *)all->data;

	if (*at >= all->len)
		return NULL;
	name += *at;
	*at += strlen(name) + 1;
	return name;
}

int xattr_list(struct fs *fs, struct inode *i, struct caller *caller, struct buf *ret)
{
	_cleanup_(buf_release) struct buf all = BUF_EMPTY;
	const char *name;
	int r;

	r = ns_list_xattrs(fs->db, i->ino, &all);
	if (r < 0)
		return r;
	for (size_t at = 0; (name = next_name(&all, &at));)
		if (!starts_with(name, "trusted.") || permission_capable(caller, CAP_SYS_ADMIN))
			buf_add(ret, name, strlen(name) + 1);
	return buf_error(ret);
}

/* Check XATTR_CREATE and XATTR_REPLACE. */
static int check_presence(struct fs *fs, uint64_t ino, const char *name, int flags)
{
	_cleanup_(buf_release) struct buf old = BUF_EMPTY;
	int r;

	if (!(flags & (XATTR_CREATE | XATTR_REPLACE)))
		return 0;
	r = ns_get_xattr(fs->db, ino, name, &old);
	if (r < 0)
		return r;
	if (r > 0 && flags & XATTR_CREATE)
		return -EEXIST;
	return r == 0 && flags & XATTR_REPLACE ? -ENODATA : 0;
}

/* An access ACL changes the mode. It is not stored if the mode is equivalent: then *drop. */
static int set_acl(struct ns_inode *in, const char *name, const void *p, size_t len, bool kill_setgid, bool *drop)
{
	int r = acl_check(p, len);

	if (r < 0)
		return r;
	if (strcmp(name, ACL_DEFAULT_NAME) == 0)
		return S_ISDIR(in->mode) ? 0 : -EACCES;
	in->mode = (in->mode & ~0777u) | acl_mode(p, len, drop);
	if (kill_setgid)
		in->mode &= ~(uint32_t)S_ISGID;
	return 0;
}

/* Only the owner and root may set retention rules: ckptfs-gc, run by root, acts on them. */
static int check_author(const struct ns_inode *in, const char *name, uint32_t uid)
{
	return strcmp(name, KEEP_XATTR) != 0 || uid == 0 || uid == in->uid ? 0 : -EPERM;
}

static int set_xattr(struct fs *fs, uint64_t ino, uint32_t uid, const char *name, const void *p, size_t len, int flags,
		     bool kill_setgid) REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	_cleanup_(buf_release) struct buf rule = BUF_EMPTY;
	uint8_t author[KEEP_AUTHOR_LEN];
	struct ns_inode in;
	bool drop = false;
	int r;

	r = attr_load(fs, ino, &in);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	r = attr_sealed(fs, &in);
	if (r < 0)
		return r;
	r = check_author(&in, name, uid);
	if (r == 0)
		r = check_presence(fs, ino, name, flags);
	if (r < 0)
		return r;
	if (strcmp(name, KEEP_XATTR) == 0) {
		keep_author_encode(uid, author);
		buf_add(&rule, p, len);
		buf_add(&rule, author, sizeof(author));
		r = buf_error(&rule);
		if (r < 0)
			return r;
		p = rule.data;
		len = rule.len;
	}
	if (is_acl(name)) {
		r = set_acl(&in, name, p, len, kill_setgid, &drop);
		if (r < 0)
			return r;
	}
	if (drop) {
		engine_tx_del(&tx, ns_key_xattr(ino, name));
	} else {
		engine_tx_put(&tx, ns_key_xattr(ino, name), p, len);
		in.flags |= INODE_HAS_XATTRS;
	}
	if (S_ISDIR(in.mode) && is_bequeathed(name))
		in.flags |= INODE_BEQUEATHS;
	in.ctime_ns = (int64_t)now_ns();
	attr_store(fs, &tx, &in);
	return fs_apply(fs, &tx);
}

int xattr_apply_settings(struct fs *fs, uint64_t ino, struct content *c)
{
	_cleanup_(buf_release) struct buf compress = BUF_EMPTY, chunking = BUF_EMPTY;
	struct compress how;
	enum chunking cut;
	int r = ns_get_xattr(fs->db, ino, COMPRESS_NAME, &compress);

	if (r < 0)
		return r;
	if (r > 0)
		r = compress_parse((const char *)compress.data, compress.len, &how) == 0;
	content_set_compress(c, r > 0 ? &how : NULL);
	r = ns_get_xattr(fs->db, ino, CHUNKING_NAME, &chunking);
	if (r < 0)
		return r;
	if (r > 0)
		r = chunking_parse((const char *)chunking.data, chunking.len, &cut) == 0;
	content_set_chunking(c, r > 0 ? &cut : NULL);
	return 0;
}

/* A setting takes effect at once, also for open files. */
static int apply_now(struct fs *fs, struct inode *i, const char *name)
{
	struct content *c = starts_with(name, OURS) ? inode_content(fs->inodes, i) : NULL;
	int r;

	if (!c)
		return 0;
	r = xattr_apply_settings(fs, i->ino, c);
	inode_content_close(fs->inodes, i);
	return r;
}

static int check_sum(struct fs *fs, struct inode *i, const char *name, size_t name_len, size_t len)
{
	_cleanup_(buf_release) struct buf old = BUF_EMPTY;
	struct ns_xattr_sum sum;
	int r = ns_sum_xattrs(fs->db, i->ino, BYTES_MAX, &sum);

	if (r == 0)
		r = ns_get_xattr(fs->db, i->ino, name, &old);
	if (r < 0)
		return r;
	i->xattr_bytes = (uint32_t)MIN(sum.bytes + name_len + len, UINT32_MAX - 1) + 1;
	if (r > 0 && len <= old.len)
		return 0;
	sum.names += r > 0 ? 0 : name_len;
	sum.bytes += r > 0 ? len - old.len : name_len + len;
	return sum.names <= NAMES_MAX && sum.bytes <= BYTES_MAX ? 0 : -ENOSPC;
}

/*
 * Is there room for this attribute? Without a lock: the kernel sends one change of an inode's attributes at a time.
 * Counting costs a search, so it is done only if the bytes added since the last one could be too many.
 */
static int check_room(struct fs *fs, struct inode *i, const char *name, size_t len)
{
	size_t name_len = strlen(name) + 1;
	uint32_t known = i->xattr_bytes;
	struct ns_inode in;
	int r = known == 0 ? attr_load(fs, i->ino, &in) : 1;

	if (r <= 0)
		return r;
	if (known == 0 && !(in.flags & INODE_HAS_XATTRS))
		known = 1;
	if (known == 0 || known - 1 + name_len + len > NAMES_MAX)
		return check_sum(fs, i, name, name_len, len);
	i->xattr_bytes = known + (uint32_t)(name_len + len);
	return 0;
}

int xattr_set(struct fs *fs, struct inode *i, uint32_t uid, const char *name, const void *p, size_t len, int flags,
	      bool kill_setgid)
{
	int r = view_is(i->ino) ? -EROFS : xattr_check_name(name);

	if (r == 0 && starts_with(name, OURS))
		r = check_setting(name, p, len);
	if (r == 0)
		r = check_room(fs, i, name, len);
	if (r < 0)
		return r;
	rwlock_lock(&fs->names);
	r = set_xattr(fs, i->ino, uid, name, p, len, flags, kill_setgid);
	rwlock_unlock(&fs->names);
	if (r == 0 && strcmp(name, CAPABILITY_NAME) == 0)
		i->privileged = true;
	if (r == 0)
		r = apply_now(fs, i, name);
	if (r == 0 && fs->sync)
		r = engine_sync(fs->engine);
	return r;
}

static int remove_one(struct fs *fs, uint64_t ino, uint32_t uid, const char *name) REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct ns_inode in;
	int r;

	r = check_presence(fs, ino, name, XATTR_REPLACE);
	if (r < 0)
		return r == -ENODATA && is_acl(name) ? 0 : r; /* removing an absent ACL is no error */
	r = attr_load(fs, ino, &in);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	r = attr_sealed(fs, &in);
	if (r == 0)
		r = check_author(&in, name, uid);
	if (r < 0)
		return r;
	engine_tx_del(&tx, ns_key_xattr(ino, name));
	in.ctime_ns = (int64_t)now_ns();
	attr_store(fs, &tx, &in);
	return fs_apply(fs, &tx);
}

int xattr_remove(struct fs *fs, struct inode *i, uint32_t uid, const char *name)
{
	int r = view_is(i->ino) ? -EROFS : xattr_check_name(name);

	if (r == 0 && starts_with(name, OURS))
		r = check_setting(name, NULL, 0);
	if (r < 0)
		return r;
	rwlock_lock(&fs->names);
	r = remove_one(fs, i->ino, uid, name);
	rwlock_unlock(&fs->names);
	if (r == 0)
		r = apply_now(fs, i, name);
	if (r == 0 && fs->sync)
		r = engine_sync(fs->engine);
	return r;
}

int xattr_acl_chmod(struct fs *fs, struct engine_tx *tx, const struct ns_inode *in)
{
	_cleanup_(buf_release) struct buf acl = BUF_EMPTY;
	int r = ns_get_xattr(fs->db, in->ino, ACL_ACCESS_NAME, &acl);

	if (r <= 0)
		return r;
	r = acl_check(acl.data, acl.len);
	if (r < 0)
		return log_errno(-EBADMSG, "inode %" PRIu64 ": its access list is damaged", in->ino);
	acl_chmod(acl.data, acl.len, in->mode);
	engine_tx_put(tx, ns_key_xattr(in->ino, ACL_ACCESS_NAME), acl.data, acl.len);
	return 0;
}

void xattr_drop_capabilities(struct engine_tx *tx, uint64_t ino)
{
	engine_tx_del(tx, ns_key_xattr(ino, CAPABILITY_NAME));
}

int xattr_drop_all(struct fs *fs, struct engine_tx *tx, const struct ns_inode *in)
{
	_cleanup_(buf_release) struct buf all = BUF_EMPTY;
	const char *name;
	int r;

	if (!(in->flags & INODE_HAS_XATTRS))
		return 0;
	r = ns_list_xattrs(fs->db, in->ino, &all);
	if (r < 0)
		return r;
	for (size_t at = 0; (name = next_name(&all, &at));)
		engine_tx_del(tx, ns_key_xattr(in->ino, name));
	return 0;
}

static void put_xattr(struct engine_tx *tx, struct ns_inode *in, const char *name, const struct buf *value)
{
	engine_tx_put(tx, ns_key_xattr(in->ino, name), value->data, value->len);
	in->flags |= INODE_HAS_XATTRS | (S_ISDIR(in->mode) && is_bequeathed(name) ? INODE_BEQUEATHS : 0);
}

int xattr_copy_all(struct fs *fs, struct engine_tx *tx, const struct ns_inode *from, struct ns_inode *in)
{
	_cleanup_(buf_release) struct buf all = BUF_EMPTY;
	const char *name;
	int r = from->flags & INODE_HAS_XATTRS ? ns_list_xattrs(fs->db, from->ino, &all) : 0;

	for (size_t at = 0; r >= 0 && (name = next_name(&all, &at));) {
		_cleanup_(buf_release) struct buf value = BUF_EMPTY;

		if (strcmp(name, CAPABILITY_NAME) == 0)
			continue;
		r = ns_get_xattr(fs->db, from->ino, name, &value);
		if (r > 0)
			put_xattr(tx, in, name, &value);
	}
	return MIN(r, 0);
}

/* 1: a default list was inherited; it replaces the umask. */
static int inherit_acl(struct fs *fs, struct engine_tx *tx, const struct ns_inode *dir, struct ns_inode *in)
{
	_cleanup_(buf_release) struct buf acl = BUF_EMPTY;
	bool mode_says_all;
	int r;

	r = ns_get_xattr(fs->db, dir->ino, ACL_DEFAULT_NAME, &acl);
	if (r <= 0)
		return r;
	r = acl_check(acl.data, acl.len);
	if (r < 0)
		return log_errno(-EBADMSG, "inode %" PRIu64 ": its default access list is damaged", dir->ino);
	if (S_ISDIR(in->mode))
		put_xattr(tx, in, ACL_DEFAULT_NAME, &acl);
	in->mode = acl_inherit(acl.data, acl.len, in->mode, &mode_says_all);
	if (!mode_says_all)
		put_xattr(tx, in, ACL_ACCESS_NAME, &acl);
	return 1;
}

int xattr_inherit(struct fs *fs, struct engine_tx *tx, const struct ns_inode *dir, uint32_t umask, struct ns_inode *in)
{
	int r = 0;

	if (S_ISLNK(in->mode))
		return 0;
	if (dir->flags & INODE_BEQUEATHS)
		r = inherit_acl(fs, tx, dir, in);
	if (r < 0)
		return r;
	if (r == 0)
		in->mode &= ~umask;
	if (!(dir->flags & INODE_BEQUEATHS) || !(S_ISDIR(in->mode) || S_ISREG(in->mode)))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		_cleanup_(buf_release) struct buf value = BUF_EMPTY;

		if (settings[i].stays)
			continue;
		r = ns_get_xattr(fs->db, dir->ino, settings[i].name, &value);
		if (r < 0)
			return r;
		if (r > 0)
			put_xattr(tx, in, settings[i].name, &value);
	}
	return 0;
}
