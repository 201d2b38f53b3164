/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The node directory view, below .ckptfs, and the replicas in it. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/util.h"
#include "permissions_rig.h"

/* --- the node directory view --- */

struct control {
	char own[PATH_MAX], path[PATH_MAX + 16], below[PATH_MAX + 32];
	int fd; /* of path */
};

/* 0: one of them is permitted. */
static int change_nodes(const struct control *c)
{
	const char *below = c->below, *path = c->path;
	bool is_changed = mkdir(below, 0755) == 0 || mknod(below, S_IFREG | 0644, 0) == 0 || symlink("x", below) == 0 ||
			  open(below, O_CREAT | O_WRONLY | O_CLOEXEC, 0644) >= 0 ||
			  open(path, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644) >= 0 || rename(c->own, below) == 0 ||
			  link(c->own, below) == 0 || rename(path, c->own) == 0 || rmdir(path) == 0 ||
			  chmod(path, 0777) == 0 || chown(path, OTHER, GROUP) == 0 ||
			  utimensat(AT_FDCWD, path, NULL, 0) == 0 || setxattr(path, "user.test", "1", 1, 0) == 0 ||
			  setxattr(path, "user.ckptfs.keep", "last=1", 6, 0) == 0 || fchmod(c->fd, 0777) == 0 ||
			  futimens(c->fd, NULL) == 0 || seal(c->fd, CKPTFS_SEAL_SEAL) == 0 ||
			  seal(c->fd, CKPTFS_SEAL_UNSEAL) == 0 || seal(c->fd, CKPTFS_SEAL_REMOVE) == 0;

	return is_changed ? 0 : EROFS;
}

static void ask_nodes(void *arg)
{
	const struct control *c = arg;
	int *t = shared->outcome;

	t[LIST_NODES] = outcome(syscall(SYS_faccessat2, AT_FDCWD, c->path, R_OK | X_OK, AT_EACCESS));
	t[CHANGE_NODES] = change_nodes(c);
	t[CHECK] = seal(c->fd, CKPTFS_SEAL_CHECK);
	t[NEXT_REPLICA] = seal(c->fd, CKPTFS_SEAL_REPLICA);
}

/* Without other nodes. */
void try_control(const char *mnt)
{
	static const char *const names[] = { ".ckptfs", ".ckptfs/nodes" };

	for (size_t n = 0; n < ARRAY_SIZE(names); n++)
		for (size_t c = 0; c < ARRAY_SIZE(callers); c++) {
			const struct caller_kind *caller = &callers[c];
			struct kind own = { "own", 0666, caller->uid, caller->gid, NULL, { { 0 } } };
			struct control v;

			snprintf(v.own, sizeof(v.own), "%s/own.%zu.%zu", mnt, n, c);
			make_file(v.own, &own);
			snprintf(v.path, sizeof(v.path), "%s/%s", mnt, names[n]);
			snprintf(v.below, sizeof(v.below), "%s/new", v.path);
			v.fd = open(v.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			if (v.fd < 0)
				fail("cannot open", v.path);
			as_caller(caller, ask_nodes, &v);
			close(v.fd);
			expect(v.path, caller, LIST_NODES, 0, true);
			expect(v.path, caller, CHANGE_NODES, EROFS, true);
			expect(v.path, caller, CHECK, ENODATA, true);
			expect(v.path, caller, NEXT_REPLICA, caller->uid == 0 ? ENOENT : EPERM, true);
		}
}

/* --- replicas --- */

void make_all(const char *top)
{
	for (size_t d = 0; d < ARRAY_SIZE(dirs); d++)
		for (size_t f = 0; f < ARRAY_SIZE(files); f++) {
			char dir[PATH_MAX], path[PATH_MAX + 8];

			snprintf(dir, sizeof(dir), "%s/%s.%s", top, dirs[d].name, files[f].name);
			snprintf(path, sizeof(path), "%s/file", dir);
			MUST(mkdir(dir, 0700), dir);
			make_file(path, &files[f]);
			make_so(dir, &dirs[d]);
		}
}

struct replica {
	char dir[PATH_MAX], file[PATH_MAX + 8];
	int dir_fd, target; /* a file of the caller's */
};

static void read_replica(void *arg)
{
	const struct replica *p = arg;
	int *t = shared->outcome;
	char value[64];

	t[OPEN] = outcome(open(p->file, O_RDONLY | O_CLOEXEC));
	t[LIST_DIR] = outcome(syscall(SYS_faccessat2, AT_FDCWD, p->dir, R_OK | X_OK, AT_EACCESS));
	if (p->dir_fd < 0)
		return;
	t[CLONE] = clone_to(p->target, p->file);
	t[COPY] = copy_to(p->target, p->file);
	t[FINGERPRINT] = outcome(getxattr(p->file, "user.ckptfs.fingerprint", value, sizeof(value)));
	t[COMPARE] = compare_with(p->target, p->file);
	t[STAT] = stat_of(p->file);
	t[EXCLUSIVE_NAME] = ask_exclusive(p->dir_fd, CKPTFS_EXCLUSIVE_ADD, 0, "file");
	t[CREATE] = outcome(openat(p->dir_fd, "new", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	t[UNLINK] = outcome(unlinkat(p->dir_fd, "file", 0));
	t[KEEP] = outcome(fsetxattr(p->dir_fd, "user.ckptfs.keep", "last=1", 6, 0));
	t[UNSEAL] = seal(p->dir_fd, CKPTFS_SEAL_UNSEAL);
	t[REMOVE] = seal(p->dir_fd, CKPTFS_SEAL_REMOVE);
}

static void expect_refused(const char *of, const struct caller_kind *c, enum way way)
{
	nr_checks++;
	if (shared->outcome[way] != 0)
		return;
	nr_failed++;
	fprintf(stderr, "permissions: %s: %s: %s: granted in a replica\n", of, c->name, way_names[way]);
}

static void try_replica(const char *view, const char *plain, const char *mnt, const char *name,
			const struct caller_kind *caller)
{
	static const enum way reads[] = { COPY, FINGERPRINT, COMPARE, STAT };
	static const enum way changes[] = { CREATE, UNLINK, KEEP, UNSEAL, REMOVE };
	struct replica here, there = { .dir_fd = -1, .target = -1 };
	int *t = shared->outcome, open_there, list_there;

	snprintf(here.dir, sizeof(here.dir), "%s/%s", view, name);
	snprintf(here.file, sizeof(here.file), "%s/file", here.dir);
	snprintf(there.dir, sizeof(there.dir), "%s/%s", plain, name);
	snprintf(there.file, sizeof(there.file), "%s/file", there.dir);
	as_caller(caller, read_replica, &there);
	open_there = t[OPEN];
	list_there = t[LIST_DIR];
	here.dir_fd = open(here.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	here.target = open(mnt, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (here.dir_fd < 0 || here.target < 0)
		fail("cannot open", here.dir);
	as_caller(caller, read_replica, &here);
	close(here.dir_fd);
	close(here.target);
	expect(here.file, caller, OPEN, open_there, true);
	expect(here.dir, caller, LIST_DIR, list_there, true);
	for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
		expect(here.file, caller, reads[i], open_there, true);
	expect(here.file, caller, CLONE, open_there ? open_there : EXDEV, true); /* its chunks belong to the other node */
	if (caller->uid != 0 && t[EXCLUSIVE_NAME] == 0 && (list_there || open_there))
		expect(here.file, caller, EXCLUSIVE_NAME, list_there ? list_there : open_there, true);
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++)
		expect_refused(here.dir, caller, changes[i]);
}

void try_replicas(const char *view, const char *plain, const char *mnt)
{
	make_all(plain);
	for (size_t d = 0; d < ARRAY_SIZE(dirs); d++)
		for (size_t f = 0; f < ARRAY_SIZE(files); f++)
			for (size_t c = 0; c < ARRAY_SIZE(callers); c++) {
				char name[64];

				snprintf(name, sizeof(name), "%s.%s", dirs[d].name, files[f].name);
				try_replica(view, plain, mnt, name, &callers[c]);
			}
}
