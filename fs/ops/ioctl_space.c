/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ioctls about the owners of files and the space that deleting files would free. */
#include "fs/ops/ops_ioctl.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "fs/control/inquiry.h"
#include "fs/posix/attr.h"
#include "fs/posix/permission.h"
#include "store/engine.h"

/* May the caller read the file, or list the directory as ls -l does? */
static int check_inode(struct fs *fs, struct caller *caller, uint64_t ino)
{
	struct ns_inode in;
	int r;

	if (permission_operator(caller->cred))
		return 0;
	rwlock_lock_shared(&fs->names);
	r = attr_load(fs, ino, &in);
	r = r > 0 ? permission_check(fs, caller, &in, S_ISDIR(in.mode) ? R_OK | X_OK : R_OK) : r < 0 ? r : -ENOENT;
	rwlock_unlock_shared(&fs->names);
	return r;
}

/*
 * The caller must be allowed to read every file of the directory: the shared part of a file reveals something about its
 * bytes.
 */
static int check_all(struct fs *fs, struct caller *caller, uint64_t dir)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_dirent d;
	int r = permission_operator(caller->cred) ? 0 : ns_readdir_open(fs->db, dir, 0, &it);

	while (it && r == 0 && (r = cancel_check()) == 0 && (r = ns_readdir_next(it, &d)) > 0)
		r = d.type == DT_REG ? check_inode(fs, caller, d.ino) : 0;
	return r;
}

/* Find a name and return its position in the directory; "": all names. */
static int find_name(struct fs *fs, struct caller *caller, uint64_t dir, const char *name, struct exclusive_name *ret)
{
	struct ns_dirent d = { .cookie = 0 };
	int r = check_inode(fs, caller, dir);

	if (r < 0)
		return r;
	if (name[0] == '\0') {
		r = check_all(fs, caller, dir);
	} else {
		rwlock_lock_shared(&fs->names);
		r = ns_find(fs->db, fs->key, dir, name, &d);
		rwlock_unlock_shared(&fs->names);
		r = r == 0 ? -ENOENT : r < 0 || d.type != DT_REG ? MIN(r, 0) : check_inode(fs, caller, d.ino);
	}
	if (r == 0)
		*ret = (struct exclusive_name){ dir, d.cookie };
	return r;
}

static int exclusive_add(const struct ioctl_call *c, const struct ckptfs_exclusive *arg)
{
	struct cred cred = ops_cred(c->req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	struct exclusive_name name;
	int r;

	if (strnlen(arg->name, sizeof(arg->name)) == sizeof(arg->name))
		return -EINVAL;
	r = find_name(c->fs, &caller, c->ino, arg->name, &name);
	return r < 0 ? r : inquiry_add(c->fs->inquiries, arg->question, name);
}

static bool may_know_of(struct caller *caller, enum fp_domain_kind kind, uint32_t id)
{
	if (permission_operator(caller->cred))
		return true;
	return kind == FP_OF_USER ? caller->cred->uid == id : permission_in_group(caller, id);
}

/* What the names lead to may change until it is listed, which is after the reply to RUN. */
struct asker {
	struct inquiry_reader reader;
	struct fs *fs;
	struct cred cred;
	struct caller caller; /* with its groups and capabilities at RUN */
};

static int asker_check(struct inquiry_reader *r, uint64_t ino)
{
	struct asker *a = container_of(r, struct asker, reader);

	return check_inode(a->fs, &a->caller, ino);
}

static void asker_free(struct inquiry_reader *r)
{
	struct asker *a = container_of(r, struct asker, reader);

	caller_release(&a->caller);
	free(a);
}

static int exclusive_run(const struct ioctl_call *c, const struct ckptfs_exclusive *arg)
{
	struct asker *a = malloc(sizeof(*a));
	int r;

	if (!a)
		return -ENOMEM;
	*a = (struct asker){ .reader = { asker_check, asker_free }, .fs = c->fs, .cred = ops_cred(c->req) };
	a->caller = caller_of(&a->cred);
	caller_load(&a->caller);
	r = inquiry_start(c->fs->inquiries, arg->question, &a->reader);
	if (r < 0)
		asker_free(&a->reader);
	return r;
}

static int exclusive_add_owner(const struct ioctl_call *c, enum fp_domain_kind kind, const struct ckptfs_exclusive *arg)
{
	struct cred cred = ops_cred(c->req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);

	if (!may_know_of(&caller, kind, arg->id))
		return -EPERM;
	return inquiry_add_owner(c->fs->inquiries, arg->question, (struct fp_domain){ kind, arg->id });
}

static int fill_exclusive(struct fs *fs, struct ckptfs_exclusive *arg)
{
	struct inquiry_status s = { 0 };
	int r = inquiry_status(fs->inquiries, arg->question, &s);

	if (r < 0)
		return r;
	arg->running = s.running;
	arg->error = ops_errno(s.error);
	arg->files = s.report.nr_files;
	arg->file_size = s.report.size;
	arg->mapped = s.report.mapped;
	arg->linked_files = s.report.nr_linked;
	arg->chunks = s.report.nr_chunks;
	arg->bytes = s.report.bytes;
	arg->exclusive_chunks = s.report.exclusive_chunks;
	arg->exclusive_bytes = s.report.exclusive_bytes;
	arg->exclusive_stored = s.report.exclusive_disk;
	arg->damaged = s.report.nr_damaged;
	arg->frames = s.report.nr_frames;
	arg->frames_done = s.report.nr_frames_done;
	arg->recipes = s.report.nr_recipes;
	arg->built = s.report.nr_built;
	return 0;
}

int ioctl_exclusive(const struct ioctl_call *c, void *p)
{
	struct ckptfs_exclusive *arg = p;
	struct fs *fs = c->fs;

	switch (arg->command) {
	case CKPTFS_EXCLUSIVE_BEGIN:
		return inquiry_begin(fs->inquiries, fuse_req_ctx(c->req)->uid, ops_may_command(c->req), &arg->question);
	case CKPTFS_EXCLUSIVE_ADD:
		return exclusive_add(c, arg);
	case CKPTFS_EXCLUSIVE_USER:
		return exclusive_add_owner(c, FP_OF_USER, arg);
	case CKPTFS_EXCLUSIVE_GROUP:
		return exclusive_add_owner(c, FP_OF_GROUP, arg);
	case CKPTFS_EXCLUSIVE_RUN:
		return exclusive_run(c, arg);
	case CKPTFS_EXCLUSIVE_STATUS:
		return fill_exclusive(fs, arg);
	case CKPTFS_EXCLUSIVE_END:
		return inquiry_end(fs->inquiries, arg->question);
	default:
		return -EINVAL;
	}
}

int ioctl_owners(const struct ioctl_call *c, void *p)
{
	struct cred cred = ops_cred(c->req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	struct engine_owner v[CKPTFS_OWNERS_MAX];
	struct ckptfs_owners *arg = p;
	enum fp_domain_kind kind = arg->kind;
	size_t nr;
	int r;

	static_assert(CKPTFS_OWNER_GROUP == (int)FP_OF_GROUP && CKPTFS_OWNER_USER == (int)FP_OF_USER,
		      "copied without conversion");
	if (arg->kind != CKPTFS_OWNER_GROUP && arg->kind != CKPTFS_OWNER_USER)
		return -EINVAL;
	r = engine_owners(c->fs->engine, kind, arg->from, v, ARRAY_SIZE(v), &nr);
	if (r < 0)
		return r;
	memset(arg->v, 0, sizeof(arg->v));
	arg->nr = 0;
	for (size_t i = 0; i < nr; i++)
		if (may_know_of(&caller, kind, v[i].id))
			arg->v[arg->nr++] = (struct ckptfs_owner){ v[i].id, 0, v[i].nr_files, v[i].size, v[i].mapped };
	arg->more = nr == ARRAY_SIZE(v);
	arg->from = nr > 0 ? (uint64_t)v[nr - 1].id + 1 : arg->from;
	return 0;
}
