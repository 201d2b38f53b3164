/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: permissions MNT PLAIN [unseen]
 *        permissions MNT control
 *        permissions MNT tier
 *        permissions DIR make
 *        permissions VIEW PLAIN replicas MNT
 *
 * Every way to the bytes of a file, or to a new name, that does not go through open(2): the daemon must decide as the
 * kernel does for open(2) itself. As root. Each kind of caller meets each kind of file in each kind of directory, with
 * descriptors that root has opened, so that only the daemon's own check is between the caller and the result. The same
 * directories are made in PLAIN, on another filesystem: the kernel must decide there as it does on the mount.
 *
 * unseen: the daemon cannot see the caller's process. Then it must never grant what the kernel does not, and must still
 * grant what does not depend on groups and capabilities.
 *
 * control: below .ckptfs, in a store of a cluster, nothing can be changed by any of them.
 *
 * tier: what a mount with a tier reports of it, and of a sealed directory in it.
 *
 * make, replicas: a sealed DIR of one node has all kinds of files and directories. VIEW is the same directory on another
 * node, below .ckptfs/nodes, where MNT is the mount: whatever gives bytes there does so as open(2) in PLAIN.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/util.h"
#include "permissions_rig.h"

/* --- entry points that read a file or make one --- */

struct visit {
	char dir[PATH_MAX], file[PATH_MAX + 16], fresh[PATH_MAX + 16], victim[PATH_MAX + 16];
	uint32_t number;
	int dir_fd, staged, staged_older, staged_new, target;
};

static void ask_kernel(void *arg)
{
	struct visit *v = arg;
	int *t = shared->outcome;

	t[OPEN] = outcome(open(v->file, O_RDONLY | O_CLOEXEC));
	t[CREATE] = outcome(open(v->fresh, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
	t[LIST_DIR] = outcome(syscall(SYS_faccessat2, AT_FDCWD, v->dir, R_OK | X_OK, AT_EACCESS));
	t[UNLINK] = outcome(unlink(v->victim));
	t[XATTR] = outcome(setxattr(v->dir, "user.test", "1", 1, 0));
}

static void ask_all(void *arg)
{
	char value[64];
	struct visit *v = arg;
	int *t = shared->outcome;

	ask_kernel(v);
	t[DELTA] = make_version(v->staged, v->number, 1);
	t[DELTA_NEW] = make_version(v->staged_new, v->number + 1, 0);
	t[DELTA_OLDER] = make_version(v->staged_older, v->number + 2, 2);
	t[EXCLUSIVE_NAME] = ask_exclusive(v->dir_fd, CKPTFS_EXCLUSIVE_ADD, 0, "000001");
	t[EXCLUSIVE_ALL] = ask_exclusive(v->dir_fd, CKPTFS_EXCLUSIVE_ADD, 0, "");
	t[CLONE] = clone_to(v->target, v->file);
	t[COPY] = copy_to(v->target, v->file);
	t[FINGERPRINT] = outcome(getxattr(v->file, "user.ckptfs.fingerprint", value, sizeof(value)));
	t[COMPARE] = compare_with(v->target, v->file);
	t[STAT] = stat_of(v->file);
	t[KEEP] = outcome(setxattr(v->dir, "user.ckptfs.keep", "last=1", 6, 0));
}

static void make_files(struct visit *v, const struct kind *file)
{
	static const struct kind for_all = { "parent", 0644, OWNER, GROUP, NULL, {{ 0 }} };
	char path[PATH_MAX + 16];

	snprintf(v->file, sizeof(v->file), "%s/000001", v->dir);
	make_file(v->file, file);
	snprintf(path, sizeof(path), "%s/000002", v->dir);
	make_file(path, &for_all);
}

static void prepare(struct visit *v, size_t caller)
{
	static const struct kind of_root = { "victim", 0600, 0, 0, NULL, {{ 0 }} };

	snprintf(v->fresh, sizeof(v->fresh), "%s/fresh.%zu", v->dir, caller);
	snprintf(v->victim, sizeof(v->victim), "%s/victim.%zu", v->dir, caller);
	make_file(v->victim, &of_root);
	v->number = 3 * (uint32_t)caller + 3;
}

static void clean(struct visit *v)
{
	unlink(v->fresh);
	unlink(v->victim);
	removexattr(v->dir, "user.test");
	removexattr(v->dir, "user.ckptfs.keep");
}

/* The versions that were made are not in the way of the next caller. */
static void clean_versions(struct visit *v)
{
	for (unsigned i = 0; i < 3; i++) {
		snprintf(v->fresh, sizeof(v->fresh), "%s/%06u", v->dir, v->number + i);
		unlink(v->fresh);
	}
}

/* By the owner of all that is in it: a daemon that cannot see root does not let it. */
static void seal_visited(struct visit *v)
{
	MUST(chown(v->victim, OWNER, GROUP), v->victim);
	as_caller(&callers[0], ask_seal, &v->dir_fd);
	if (shared->outcome[SEAL] != 0)
		fail("the owner cannot seal", v->dir);
}

static void visit_as(struct visit *v, const struct kind *dir, const struct kind *file, size_t caller)
{
	const struct caller_kind *c = &callers[caller];
	/* The same for all groups, and without capabilities. */
	bool is_plain = c->uid != 0 && !c->capability && !file->list && !dir->list,
	     certain = is_plain && (c->uid == file->uid || strcmp(file->name, "0644") == 0 || strcmp(file->name, "0600") == 0),
	     certain_dir = is_plain && (c->uid == dir->uid || ((dir->mode >> 3 ^ dir->mode) & 7) == 0);
	int *t = shared->outcome;

	prepare(v, caller);
	v->dir_fd = open(v->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	v->staged = stage(v->dir, v->number, 1);
	v->staged_new = stage(v->dir, v->number + 1, 0);
	v->staged_older = stage(v->dir, v->number + 2, 2);
	v->target = open(v->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (v->dir_fd < 0 || v->target < 0)
		fail("cannot open", v->dir);
	if (is_sealed(dir))
		seal_visited(v);
	as_caller(c, ask_all, v);
	close(v->dir_fd);
	close(v->staged);
	close(v->staged_new);
	close(v->staged_older);
	close(v->target);
	clean(v);
	clean_versions(v);
	expect(v->dir, c, DELTA, t[CREATE] ? t[CREATE] : t[OPEN], certain && certain_dir);
	expect(v->dir, c, DELTA_OLDER, t[CREATE] ? t[CREATE] : t[OPEN], certain && certain_dir);
	expect(v->dir, c, DELTA_NEW, t[CREATE], certain_dir);
	if (c->uid != 0) { /* the operator may ask about all */
		expect(v->dir, c, EXCLUSIVE_NAME, t[LIST_DIR] ? t[LIST_DIR] : t[OPEN], certain && certain_dir);
		if (t[LIST_DIR])
			expect(v->dir, c, EXCLUSIVE_ALL, t[LIST_DIR], certain && certain_dir);
	}
	expect(v->dir, c, CLONE, t[OPEN], true);
	expect(v->dir, c, COPY, t[OPEN], true);
	expect(v->dir, c, FINGERPRINT, t[OPEN], true);
	expect(v->dir, c, COMPARE, t[OPEN], true);
	expect(v->dir, c, STAT, t[OPEN], true);
	expect(v->dir, c, KEEP, t[XATTR] ? t[XATTR] : c->uid == 0 || c->uid == dir->uid ? 0 : EPERM, true);
}

/* false: there is no such flag there. */
static bool set_immutable(const char *path, bool is_immutable)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), flags = 0, r = fd;

	if (r >= 0)
		r = ioctl(fd, FS_IOC_GETFLAGS, &flags);
	flags = is_immutable ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
	if (r >= 0)
		r = ioctl(fd, FS_IOC_SETFLAGS, &flags);
	if (fd >= 0)
		close(fd);
	return r >= 0;
}

static void compare_with_plain(struct visit *v, const struct kind *dir, size_t caller)
{
	struct answers on_mount = *shared;

	prepare(v, caller);
	if (is_sealed(dir) && !set_immutable(v->dir, true)) {
		clean(v);
		return;
	}
	as_caller(&callers[caller], ask_kernel, v);
	if (is_sealed(dir))
		set_immutable(v->dir, false);
	clean(v);
	for (unsigned i = 0; i < KERNEL; i++)
		if (i != OWNS && i != MAY_WRITE && !(i == XATTR && shared->outcome[i] == EOPNOTSUPP))
			expect(v->dir, &callers[caller], i, on_mount.outcome[i], true);
}

/* The same directory here and there, for the callers from `from` to before `end`. */
static void visit_dir(const char *mnt, const char *plain, const struct kind *dir, const struct kind *file, size_t from,
		      size_t end)
{
	struct visit here, there;

	snprintf(here.dir, sizeof(here.dir), "%s/%s.%s.%zu", mnt, dir->name, file->name, from);
	snprintf(there.dir, sizeof(there.dir), "%s/%s.%s.%zu", plain, dir->name, file->name, from);
	for (struct visit *v = &here; v; v = v == &here ? &there : NULL) {
		MUST(mkdir(v->dir, 0700), v->dir);
		make_files(v, file);
		make_so(v->dir, dir);
	}
	for (size_t c = from; c < end; c++) {
		visit_as(&here, dir, file, c);
		if (!is_unseen)
			compare_with_plain(&there, dir, c);
	}
}

static void visit_all(const char *mnt, const char *plain)
{
	for (size_t d = 0; d < ARRAY_SIZE(dirs); d++) {
		/* a sealed directory cannot be prepared for the next caller */
		size_t together = is_sealed(&dirs[d]) ? 1 : ARRAY_SIZE(callers);

		for (size_t f = 0; f < ARRAY_SIZE(files); f++)
			for (size_t c = 0; c < ARRAY_SIZE(callers); c += together)
				visit_dir(mnt, plain, &dirs[d], &files[f], c, c + together);
	}
}

/* --- what becomes of a version's attributes --- */

static void take_group(void *arg)
{
	int fd = *(int *)arg;

	MUST(fchown(fd, (uid_t)-1, OWN_GROUP), "staging file");
	MUST(fchmod(fd, 02755), "staging file");
	shared->outcome[DELTA_NEW] = make_version(fd, 7, 0);
}

/* A user that is not in the directory's group cannot get a set-gid program of that group. */
static void keep_groups_apart(const char *mnt, const struct kind *dir)
{
	static const struct caller_kind user = { "other", OTHER, OWN_GROUP, { 0 }, 0, 0, false, false };
	char path[PATH_MAX];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", mnt, dir->name);
	MUST(mkdir(path, 0700), path);
	make_so(path, dir);
	fd = stage(path, 7, 0);
	MUST(fchown(fd, OTHER, OWN_GROUP), path);
	if (dir->list)
		MUST(fremovexattr(fd, ACCESS), path);
	as_caller(&user, take_group, &fd);
	close(fd);
	expect(path, &user, DELTA_NEW, 0, true);
	snprintf(path, sizeof(path), "%s/%s/000007", mnt, dir->name);
	MUST(stat(path, &st), path);
	if (st.st_uid == OTHER && st.st_gid == OWN_GROUP && (st.st_mode & 07777) == 02755 &&
	    getxattr(path, ACCESS, NULL, 0) < 0)
		return;
	nr_failed++;
	fprintf(stderr, "permissions: %s: %u:%u mode %o, not as its staging file\n", path, st.st_uid, st.st_gid,
		st.st_mode);
}

/* --- a directory that is closed between BEGIN and COMMIT --- */

static int commit_only(int fd)
{
	struct ckptfs_delta_commit commit = ARGUMENT(ckptfs_delta_commit, .flags = 0);

	return outcome(ioctl(fd, CKPTFS_IOC_DELTA_COMMIT, &commit));
}

struct closing {
	char dir[PATH_MAX], sub[PATH_MAX + 8];
	int staged, begun[2], closed[2];
};

static void begin_then_commit(void *arg)
{
	struct closing *c = arg;
	struct ckptfs_delta_begin begin = ARGUMENT(ckptfs_delta_begin, .number = 7, .parent = 0);
	char byte = 0;

	MUST(ioctl(c->staged, CKPTFS_IOC_DELTA_BEGIN, &begin), c->dir);
	MUST((int)write(c->begun[1], &byte, 1), c->dir);
	MUST((int)read(c->closed[0], &byte, 1), c->dir);
	shared->outcome[DELTA_NEW] = commit_only(c->staged);
}

static void close_dir(const struct closing *c, unsigned how, int fd)
{
	static const struct kind denies = {
		.list = ACCESS,
		.acl = { { A_USER_OBJ, 7, 0 }, { A_USER, 5, OTHER }, { A_GROUP_OBJ, 7, 0 }, { A_MASK, 7, 0 }, { A_OTHER, 7, 0 } },
	};

	switch (how) {
	case 0:
		MUST(chmod(c->dir, 0755), c->dir);
		break;
	case 1:
		MUST(chmod(c->dir, 0776), c->dir);
		break;
	case 2:
		set_list(c->dir, &denies);
		break;
	case 3:
		if (seal(fd, CKPTFS_SEAL_SEAL) != 0)
			fail("cannot seal", c->dir);
		break;
	default:
		MUST(rmdir(c->dir), c->dir);
	}
}

static void close_meanwhile(const char *mnt)
{
	static const int want[] = { EACCES, EACCES, EACCES, EPERM, ENOENT };
	static const struct caller_kind user = { "other", OTHER, OWN_GROUP, { 0 }, 0, 0, false, false };

	for (unsigned how = 0; how < ARRAY_SIZE(want); how++) {
		struct closing c;
		char byte = 0, path[PATH_MAX + 16];
		int fd, status;
		pid_t pid;

		snprintf(c.dir, sizeof(c.dir), "%s/closing.%u", mnt, how);
		MUST(mkdir(c.dir, 0777), c.dir);
		MUST(chmod(c.dir, 0777), c.dir);
		fd = open(c.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		c.staged = stage(c.dir, 7, 0);
		MUST(pipe2(c.begun, O_CLOEXEC), c.dir);
		MUST(pipe2(c.closed, O_CLOEXEC), c.dir);
		pid = fork();
		if (pid == 0) {
			as_caller(&user, begin_then_commit, &c);
			_exit(0);
		}
		MUST((int)read(c.begun[0], &byte, 1), c.dir);
		close_dir(&c, how, fd);
		MUST((int)write(c.closed[1], &byte, 1), c.dir);
		if (waitpid(pid, &status, 0) != pid || status != 0)
			fail("the caller failed", c.dir);
		expect(c.dir, &user, DELTA_NEW, want[how], true);
		snprintf(path, sizeof(path), "%s/000007", c.dir);
		if (access(path, F_OK) == 0)
			fprintf(stderr, "permissions: %s: made in a closed directory\n", path);
		else if (how < 3 && commit_only(c.staged) != 0) /* nothing has changed: root can do it still */
			fail("root cannot commit", c.dir);
		close(c.staged);
		close(fd);
	}
}

static int conclude(void)
{
	if (nr_failed > 0) {
		fprintf(stderr, "permissions: %u of %u decisions are not the kernel's\n", nr_failed, nr_checks);
		return 1;
	}
	printf("%u decisions as the kernel's, %u of them granted\n", nr_checks, nr_granted);
	return 0;
}

int main(int argc, char *argv[])
{
	static const struct kind set_gid[] = {
		{ "attributes", 02777, 0, GROUP, NULL, {{ 0 }} },
		{ "attributes-acl", 02777, 0, GROUP, DEFAULT, LIST(4, 6, 4) },
	};

	if (argc < 3)
		return 2;
	is_unseen = argc == 4;
	umask(0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("no memory", "answers");
	if (strcmp(argv[2], "make") == 0) {
		make_all(argv[1]);
		return 0;
	}
	if (argc == 5) {
		try_replicas(argv[1], argv[2], argv[4]);
		return conclude();
	}
	if (strcmp(argv[2], "control") == 0) {
		MUST(chmod(argv[1], 0777), argv[1]);
		try_control(argv[1]);
		return conclude();
	}
	if (strcmp(argv[2], "tier") == 0) {
		MUST(chmod(argv[1], 0777), argv[1]);
		try_tier(argv[1]);
		return conclude();
	}
	visit_all(argv[1], argv[2]);
	try_owners(argv[1]);
	try_seals(argv[1]);
	if (!is_unseen) /* root could not seal */
		try_removals(argv[1]);
	if (!is_unseen) {
		for (size_t i = 0; i < ARRAY_SIZE(set_gid); i++)
			keep_groups_apart(argv[1], &set_gid[i]);
		close_meanwhile(argv[1]);
	}
	return conclude();
}
