/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: permissions MNT PLAIN [unseen]
 *        permissions MNT control
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
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/posix_acl_xattr.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "gpu/format/delta_record.h"

enum { OWNER = 1001, NAMED = 1003, MASKED = 1004, DENIED = 1005, OTHER = 1006, CAPABLE = 1007 };
enum { GROUP = 2001, NAMED_GROUP = 2005, OWN_GROUP = 2999 };
enum { A_USER_OBJ = 1, A_USER = 2, A_GROUP_OBJ = 4, A_GROUP = 8, A_MASK = 16, A_OTHER = 32 };

#define CONTENT 4096

struct ace {
	unsigned tag, perm, id;
};

struct kind {
	const char *name;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	const char *list; /* extended attribute; NULL: no list */
	struct ace acl[8];
};

#define LIST(group, mask, other)                                                              \
	{                                                                                     \
		{ A_USER_OBJ, 6, 0 }, { A_USER, 4, NAMED }, { A_USER, 6, MASKED }, { A_USER, 0, DENIED }, \
		{ A_GROUP_OBJ, group, 0 }, { A_GROUP, 4, NAMED_GROUP }, { A_MASK, mask, 0 }, { A_OTHER, other, 0 } \
	}
#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

static const struct kind files[] = {
	{ "0644", 0644, OWNER, GROUP, NULL, {{ 0 }} },
	{ "0640", 0640, OWNER, GROUP, NULL, {{ 0 }} },
	{ "0604", 0604, OWNER, GROUP, NULL, {{ 0 }} },
	{ "0600", 0600, OWNER, GROUP, NULL, {{ 0 }} },
	{ "0044", 0044, OWNER, GROUP, NULL, {{ 0 }} },
	{ "acl", 0640, OWNER, GROUP, ACCESS, LIST(0, 6, 0) },
	{ "acl-other", 0644, OWNER, GROUP, ACCESS, LIST(0, 4, 4) },
	{ "acl-group", 0644, OWNER, GROUP, ACCESS, LIST(4, 4, 0) },
	{ "acl-write-only-mask", 0624, OWNER, GROUP, ACCESS, LIST(6, 2, 4) },
	{ "acl-empty-mask", 0604, OWNER, GROUP, ACCESS, LIST(4, 0, 4) },
};

static const struct kind dirs[] = {
	{ "plain", 0755, OWNER, GROUP, NULL, {{ 0 }} },
	{ "group-writable", 0775, OWNER, GROUP, NULL, {{ 0 }} },
	{ "set-gid", 02775, OWNER, GROUP, NULL, {{ 0 }} },
	{ "sticky", 01777, 0, 0, NULL, {{ 0 }} },
	{ "default-acl", 0777, OWNER, GROUP, DEFAULT, LIST(4, 6, 4) },
	{ "acl-dir", 0775, OWNER, GROUP, ACCESS,
	  { { A_USER_OBJ, 7, 0 }, { A_USER, 7, NAMED }, { A_USER, 1, DENIED }, { A_GROUP_OBJ, 5, 0 },
	    { A_GROUP, 7, NAMED_GROUP }, { A_MASK, 7, 0 }, { A_OTHER, 5, 0 } } },
	{ "write-without-search", 0722, OWNER, GROUP, NULL, {{ 0 }} },
	{ "closed", 0700, OWNER, GROUP, NULL, {{ 0 }} },
	{ "sealed", 0777, OWNER, GROUP, NULL, {{ 0 }} },
};

/* FS_IMMUTABLE_FL on another filesystem */
static bool is_sealed(const struct kind *dir)
{
	return strcmp(dir->name, "sealed") == 0;
}

static const struct caller_kind {
	const char *name;
	uid_t uid;
	gid_t gid, groups[2];
	size_t nr_groups;
	unsigned capability; /* in effect, besides none; 0 (CAP_CHOWN): none */
	bool has_all; /* capabilities */
	bool in_user_namespace;
} callers[] = {
	{ "owner", OWNER, OWN_GROUP, { 0 }, 0, 0, false, false },
	{ "group", OTHER, GROUP, { 0 }, 0, 0, false, false },
	{ "supplementary group", OTHER, OWN_GROUP, { 3000, GROUP }, 2, 0, false, false },
	{ "named user", NAMED, OWN_GROUP, { 0 }, 0, 0, false, false },
	{ "masked user", MASKED, OWN_GROUP, { 0 }, 0, 0, false, false },
	{ "denied user", DENIED, OWN_GROUP, { GROUP }, 1, 0, false, false },
	{ "named group", OTHER, NAMED_GROUP, { 0 }, 0, 0, false, false },
	{ "named supplementary group", OTHER, OWN_GROUP, { NAMED_GROUP }, 1, 0, false, false },
	{ "two groups", OTHER, GROUP, { NAMED_GROUP }, 1, 0, false, false },
	{ "other", OTHER, OWN_GROUP, { 0 }, 0, 0, false, false },
	{ "with CAP_DAC_OVERRIDE", CAPABLE, OWN_GROUP, { 0 }, 0, CAP_DAC_OVERRIDE, false, false },
	{ "with CAP_DAC_READ_SEARCH", CAPABLE, OWN_GROUP, { 0 }, 0, CAP_DAC_READ_SEARCH, false, false },
	{ "root", 0, 0, { 0 }, 0, 0, true, false },
	{ "root without capabilities", 0, 0, { 0 }, 0, 0, false, false },
	{ "root of a user namespace", 0, 0, { 0 }, 0, 0, true, true },
};

/* What a caller was told, as errno. The first ones by the kernel. */
enum way {
	OPEN,
	CREATE,
	LIST_DIR, /* R_OK|X_OK of the directory */
	OWNS, /* chmod of a directory */
	MAY_WRITE, /* W_OK of that */
	UNLINK,
	XATTR, /* of the directory */
	KERNEL,
	DELTA = KERNEL, /* from the file */
	DELTA_OLDER, /* from another one that all may read, with bytes of the file */
	DELTA_NEW, /* from nothing */
	EXCLUSIVE_NAME,
	EXCLUSIVE_ALL,
	CLONE,
	COPY,
	FINGERPRINT,
	COMPARE,
	STAT,
	KEEP, /* retention rule of the directory */
	LIST_USER, /* the owner by OWNERS, and no other that is not the caller's */
	LIST_GROUP,
	EXCLUSIVE_USER,
	EXCLUSIVE_GROUP,
	SEAL,
	CHECK,
	NEXT,
	UNSEAL,
	RMDIR, /* by the kernel */
	REMOVE,
	LIST_NODES, /* by the kernel */
	CHANGE_NODES,
	NEXT_REPLICA,
	NR_WAYS
};
static const char *const way_names[] = {
	"open", "create", "list", "chmod", "write", "unlink", "setxattr", "delta", "delta with bytes of an older version",
	"delta from nothing", "exclusive, by name", "exclusive, all", "clone", "copy_file_range", "fingerprint", "compare",
	"stat", "retention rule", "list users", "list groups", "exclusive, by user", "exclusive, by group", "seal",
	"check a seal", "list seals", "unseal", "rmdir", "remove", "list nodes", "change the node directory view",
	"list replicas",
};

/* Shared with the child. */
struct answers {
	int outcome[NR_WAYS];
};

static bool is_unseen;
static unsigned nr_checks, nr_granted, nr_failed;

static _Noreturn void fail(const char *what, const char *of)
{
	fprintf(stderr, "permissions: %s: %s: %s\n", of, what, strerror(errno));
	exit(1);
}

#define MUST(call, of) ((call) < 0 ? fail(#call, of) : (void)0)

/* --- what there is --- */

static void set_list(const char *path, const struct kind *k)
{
	struct {
		struct posix_acl_xattr_header head;
		struct posix_acl_xattr_entry e[8];
	} raw = { .head.a_version = htole32(POSIX_ACL_XATTR_VERSION) };
	size_t n = 0;

	for (; n < ARRAY_SIZE(k->acl) && k->acl[n].tag; n++)
		raw.e[n] = (struct posix_acl_xattr_entry){
			.e_tag = htole16((uint16_t)k->acl[n].tag),
			.e_perm = htole16((uint16_t)k->acl[n].perm),
			.e_id = htole32(k->acl[n].id ? k->acl[n].id : UINT32_MAX),
		};
	if (setxattr(path, k->list, &raw, sizeof(raw.head) + n * sizeof(raw.e[0]), 0) == 0)
		return;
	if (errno == EOPNOTSUPP) {
		puts("no POSIX ACLs there");
		exit(77);
	}
	fail(k->list, path);
}

static void make_so(const char *path, const struct kind *k)
{
	MUST(chown(path, k->uid, k->gid), path);
	MUST(chmod(path, k->mode), path);
	if (k->list)
		set_list(path, k);
}

static void make_file(const char *path, const struct kind *k)
{
	static const uint8_t content[CONTENT] = { 1, 2, 3 };
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, content, sizeof(content)) != sizeof(content) || close(fd) < 0)
		fail("cannot make", path);
	make_so(path, k);
}

/* Makes the object of the next version, as if it were committed. */
static void take_version(struct delta_record *rec, uint32_t number, const uint8_t *content, struct buf *ret)
{
	struct delta_take take = { .method = DELTA_METHOD_TREE, .number = number };

	if (delta_record_take(rec, content, CONTENT, &take, ret) < 0)
		fail("cannot take", "object");
	delta_record_commit(rec);
}

/* Version `number`, with the content of version 1, after versions 1 to `parent`. */
static void make_object(uint32_t number, uint32_t parent, struct buf *ret)
{
	static const uint8_t content[CONTENT] = { 1, 2, 3 }, other[CONTENT] = { 4, 5, 6 };
	struct delta_record_params params = { .chunk_len = 128, .table_limit = MiB(1) };
	struct delta_record *rec;

	if (delta_record_new(&params, &rec) < 0)
		fail("no memory", "object");
	for (uint32_t n = 1; n <= parent; n++)
		take_version(rec, n, n == 1 ? content : other, ret);
	take_version(rec, number, content, ret);
	delta_record_free(rec);
}

static int stage(const char *dir, uint32_t number, uint32_t parent)
{
	_cleanup_(buf_release) struct buf object = BUF_EMPTY;
	int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

	make_object(number, parent, &object);
	if (fd < 0 || write(fd, object.data, object.len) != (ssize_t)object.len)
		fail("cannot stage", dir);
	return fd;
}

/* --- the ways --- */

static int outcome(long r)
{
	return r < 0 ? errno : 0;
}

#define ARGUMENT(type, ...) ((struct type){ .size = sizeof(struct type), .version = CKPTFS_IOC_VERSION, __VA_ARGS__ })

static int make_version(int staged, uint32_t number, uint32_t parent)
{
	struct ckptfs_delta_begin begin = ARGUMENT(ckptfs_delta_begin, .number = number, .parent = parent);
	struct ckptfs_delta_commit commit = ARGUMENT(ckptfs_delta_commit, .flags = 0);
	int r = ioctl(staged, CKPTFS_IOC_DELTA_BEGIN, &begin);

	return outcome(r < 0 ? r : ioctl(staged, CKPTFS_IOC_DELTA_COMMIT, &commit));
}

/* ADD a name, or USER or GROUP. */
static int ask_exclusive(int dir, enum ckptfs_exclusive_command command, uint32_t id, const char *name)
{
	struct ckptfs_exclusive arg = ARGUMENT(ckptfs_exclusive, .command = CKPTFS_EXCLUSIVE_BEGIN);
	int r;

	MUST(ioctl(dir, CKPTFS_IOC_EXCLUSIVE, &arg), "exclusive");
	arg.command = command;
	arg.id = id;
	snprintf(arg.name, sizeof(arg.name), "%s", name);
	r = outcome(ioctl(dir, CKPTFS_IOC_EXCLUSIVE, &arg));
	arg.command = CKPTFS_EXCLUSIVE_END;
	MUST(ioctl(dir, CKPTFS_IOC_EXCLUSIVE, &arg), "exclusive");
	return r;
}

static int handle_of(const char *path, uint64_t *ret)
{
	struct ckptfs_handle handle = ARGUMENT(ckptfs_handle, .handle = 0);
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = fd;

	if (fd >= 0)
		r = ioctl(fd, CKPTFS_IOC_HANDLE, &handle);
	*ret = handle.handle;
	return r;
}

static int clone_to(int to, const char *path)
{
	struct ckptfs_clone clone = ARGUMENT(ckptfs_clone, .from = 0);
	int r = handle_of(path, &clone.from);

	return outcome(r < 0 ? r : ioctl(to, CKPTFS_IOC_CLONE, &clone));
}

static int compare_with(int fd, const char *path)
{
	struct ckptfs_compare compare = ARGUMENT(ckptfs_compare, .len = CONTENT);
	int r = handle_of(path, &compare.with);

	return outcome(r < 0 ? r : ioctl(fd, CKPTFS_IOC_COMPARE, &compare));
}

static int stat_of(const char *path)
{
	struct ckptfs_stat arg = ARGUMENT(ckptfs_stat, .reserved = 0);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	return outcome(fd < 0 ? fd : ioctl(fd, CKPTFS_IOC_STAT, &arg));
}

static int copy_to(int to, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	return outcome(fd < 0 ? -1 : copy_file_range(fd, NULL, to, NULL, CONTENT, 0));
}

static int seal(int dir, enum ckptfs_seal_command command)
{
	struct ckptfs_seal arg = ARGUMENT(ckptfs_seal, .command = command);

	return outcome(ioctl(dir, CKPTFS_IOC_SEAL, &arg));
}

/* As CHECK; for NEXT, EPERM if the directory itself is not listed. */
static int check_seal(int dir, enum ckptfs_seal_command command)
{
	struct ckptfs_seal arg = ARGUMENT(ckptfs_seal, .command = command);
	struct stat st;

	MUST(fstat(dir, &st), "seal");
	arg.inode = st.st_ino - 1;
	if (ioctl(dir, CKPTFS_IOC_SEAL, &arg) < 0)
		return command == CKPTFS_SEAL_NEXT && errno == ENOENT ? EPERM : errno;
	return arg.inode == st.st_ino ? 0 : EPERM;
}

static int may_write(int dir)
{
	return outcome(syscall(SYS_faccessat2, dir, "", W_OK, AT_EMPTY_PATH | AT_EACCESS));
}

/* --- callers --- */

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		fail("cannot write", path);
	close(fd);
}

static void become(const struct caller_kind *c)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	MUST(setgroups(c->nr_groups, c->groups), c->name);
	MUST(setresgid(c->gid, c->gid, c->gid), c->name);
	MUST(prctl(PR_SET_KEEPCAPS, 1), c->name);
	MUST(setresuid(c->uid, c->uid, c->uid), c->name);
	if (c->in_user_namespace) {
		MUST(unshare(CLONE_NEWUSER), c->name);
		write_text("/proc/self/setgroups", "deny");
		write_text("/proc/self/uid_map", "0 0 1");
		write_text("/proc/self/gid_map", "0 0 1");
	}
	if (c->has_all)
		return;
	if (c->capability)
		data[0].effective = data[0].permitted = 1u << c->capability;
	MUST((int)syscall(SYS_capset, &head, data), c->name);
}

static struct answers *shared;

/* Runs fn(arg) as this caller, who leaves what he was told in `shared`. */
static void as_caller(const struct caller_kind *c, void (*fn)(void *), void *arg)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		become(c);
		fn(arg);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		fail("the caller failed", c->name);
}

/* --- comparing --- */

static void expect(const char *of, const struct caller_kind *c, enum way way, int want, bool is_certain)
{
	int got = shared->outcome[way];

	nr_checks++;
	nr_granted += got == 0;
	if (got == want || (is_unseen && got != 0 && !is_certain))
		return;
	if (nr_failed++ < 20)
		fprintf(stderr, "permissions: %s: %s: %s: %s, the kernel says %s\n", of, c->name, way_names[way],
			got ? strerrorname_np(got) : "granted", want ? strerrorname_np(want) : "granted");
}

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

/* --- seals --- */

static void ask_seal(void *arg)
{
	int dir = *(int *)arg, *t = shared->outcome;
	struct stat st;

	MUST(fstat(dir, &st), "seal");
	t[OWNS] = outcome(fchmod(dir, st.st_mode & 07777));
	t[MAY_WRITE] = may_write(dir);
	t[SEAL] = seal(dir, CKPTFS_SEAL_SEAL);
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

/* --- owners --- */

struct asking {
	const struct caller_kind *who;
	int dir;
};

static bool is_own(const struct caller_kind *who, enum ckptfs_owner_kind kind, uint32_t id)
{
	bool is_one = who->uid == 0 || id == (kind == CKPTFS_OWNER_USER ? who->uid : who->gid);

	for (size_t i = 0; kind == CKPTFS_OWNER_GROUP && i < who->nr_groups; i++)
		is_one |= who->groups[i] == id;
	return is_one;
}

/* 0: `id` is listed; EPERM: it is not. EINVAL: others are that are not for the caller. */
static int list_owners(const struct asking *a, enum ckptfs_owner_kind kind, uint32_t id)
{
	struct ckptfs_owners arg = ARGUMENT(ckptfs_owners, .kind = kind);
	int r = EPERM;

	do {
		MUST(ioctl(a->dir, CKPTFS_IOC_OWNERS, &arg), "owners");
		for (uint32_t i = 0; i < arg.nr; i++)
			r = !is_own(a->who, kind, arg.v[i].id) ? EINVAL : arg.v[i].id == id && r == EPERM ? 0 : r;
	} while (arg.more);
	return r;
}

static void ask_owners(void *arg)
{
	const struct asking *a = arg;
	int *t = shared->outcome;

	t[LIST_USER] = list_owners(a, CKPTFS_OWNER_USER, OWNER);
	t[LIST_GROUP] = list_owners(a, CKPTFS_OWNER_GROUP, GROUP);
	t[EXCLUSIVE_USER] = ask_exclusive(a->dir, CKPTFS_EXCLUSIVE_USER, OWNER, "");
	t[EXCLUSIVE_GROUP] = ask_exclusive(a->dir, CKPTFS_EXCLUSIVE_GROUP, GROUP, "");
}

static void try_owners(const char *mnt)
{
	int fd = open(mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (size_t c = 0; c < ARRAY_SIZE(callers); c++) {
		const struct caller_kind *who = &callers[c];
		int user = is_own(who, CKPTFS_OWNER_USER, OWNER) ? 0 : EPERM,
		    group = is_own(who, CKPTFS_OWNER_GROUP, GROUP) ? 0 : EPERM;

		as_caller(who, ask_owners, &(struct asking){ who, fd });
		expect(mnt, who, LIST_USER, user, true);
		expect(mnt, who, LIST_GROUP, group, who->uid == 0 || who->gid == GROUP);
		expect(mnt, who, EXCLUSIVE_USER, user, true);
		expect(mnt, who, EXCLUSIVE_GROUP, group, who->uid == 0 || who->gid == GROUP);
	}
	close(fd);
}

static void ask_sealed(void *arg)
{
	int dir = *(int *)arg, *t = shared->outcome;

	t[CHECK] = check_seal(dir, CKPTFS_SEAL_CHECK);
	t[NEXT] = check_seal(dir, CKPTFS_SEAL_NEXT);
}

static void ask_unseal(void *arg)
{
	shared->outcome[UNSEAL] = seal(*(int *)arg, CKPTFS_SEAL_UNSEAL);
}

static void try_seals(const char *mnt)
{
	static const struct kind kinds[] = { { "rwx", 0755, OWNER, GROUP, NULL, {{ 0 }} },
					     { "r-x", 0555, OWNER, GROUP, NULL, {{ 0 }} } };

	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
		for (size_t c = 0; c < ARRAY_SIZE(callers); c++) {
			const struct caller_kind *who = &callers[c];
			char path[PATH_MAX], file[PATH_MAX + 8];
			int fd, owns, *t = shared->outcome;

			snprintf(path, sizeof(path), "%s/seal.%zu.%zu", mnt, k, c);
			snprintf(file, sizeof(file), "%s/file", path);
			MUST(mkdir(path, 0700), path);
			make_file(file, &files[0]);
			make_so(path, &kinds[k]);
			fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			as_caller(who, ask_seal, &fd);
			owns = t[OWNS];
			expect(path, who, SEAL, owns ? owns : t[MAY_WRITE], !who->capability && who->uid != 0);
			if (t[SEAL] != 0) {
				MUST(fchmod(fd, 0755), path);
				as_caller(&callers[0], ask_seal, &fd);
			}
			if (t[SEAL] != 0)
				fail("the owner cannot seal", path);
			as_caller(who, ask_sealed, &fd);
			expect(path, who, CHECK, who->uid == 0 || who->uid == OWNER ? 0 : EPERM, true);
			expect(path, who, NEXT, who->uid == 0 || who->uid == OWNER ? 0 : EPERM, true);
			as_caller(who, ask_unseal, &fd);
			expect(path, who, UNSEAL, owns, !who->capability && who->uid != 0);
			close(fd);
		}
}

struct removing {
	char empty[PATH_MAX];
	int fd; /* of a sealed directory beside it, of the same owner */
};

static void ask_remove(void *arg)
{
	const struct removing *r = arg;

	shared->outcome[RMDIR] = outcome(rmdir(r->empty));
	shared->outcome[REMOVE] = seal(r->fd, CKPTFS_SEAL_REMOVE);
}

/* A sealed directory is removed by those who own all of it, if the kernel lets them remove a directory there. */
static void try_removal(const char *dir, const struct caller_kind *who, uid_t owner, uid_t owner_below)
{
	char path[PATH_MAX + 8], file[PATH_MAX + 16];
	bool owns = who->uid == 0 ? who->has_all || owner == 0 : who->uid == owner && owner == owner_below;
	struct removing r;

	snprintf(r.empty, sizeof(r.empty), "%.4000s/empty", dir);
	snprintf(path, sizeof(path), "%s/sealed", dir);
	snprintf(file, sizeof(file), "%s/file", path);
	MUST(mkdir(r.empty, 0755), r.empty);
	MUST(mkdir(path, 0755), path);
	make_file(file, &files[0]);
	MUST(chown(file, owner_below, GROUP), file);
	MUST(chown(r.empty, owner, GROUP), r.empty);
	MUST(chown(path, owner, GROUP), path);
	r.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (seal(r.fd, CKPTFS_SEAL_SEAL) != 0)
		fail("cannot seal", path);
	as_caller(who, ask_remove, &r);
	if (who->uid == 0)
		expect(path, who, REMOVE, shared->outcome[RMDIR] ? shared->outcome[RMDIR] : owns ? 0 : EPERM, true);
	else
		expect(path, who, REMOVE, !owns ? EPERM : shared->outcome[RMDIR], true);
	if ((shared->outcome[REMOVE] == 0) != (access(path, F_OK) < 0))
		fail("is there, or gone, against what was said", path);
	if (shared->outcome[REMOVE] != 0 && seal(r.fd, CKPTFS_SEAL_REMOVE) != 0)
		fail("cannot remove", path);
	close(r.fd);
	if (shared->outcome[RMDIR] != 0)
		MUST(rmdir(r.empty), r.empty);
}

static void try_removals(const char *mnt)
{
	for (size_t d = 0; d < ARRAY_SIZE(dirs); d++) {
		char dir[PATH_MAX];

		if (is_sealed(&dirs[d])) /* nothing is removed in it */
			continue;
		snprintf(dir, sizeof(dir), "%s/removals.%s", mnt, dirs[d].name);
		MUST(mkdir(dir, 0700), dir);
		make_so(dir, &dirs[d]);
		for (size_t c = 0; c < ARRAY_SIZE(callers); c++) {
			uid_t uid = callers[c].uid;

			if (callers[c].in_user_namespace) /* its capabilities do not count here (fs/posix/permission.c) */
				continue;
			try_removal(dir, &callers[c], uid, uid);
			try_removal(dir, &callers[c], uid, OWNER);
			try_removal(dir, &callers[c], OWNER, OWNER);
		}
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
	t[NEXT_REPLICA] = seal(c->fd, CKPTFS_SEAL_COPY);
}

/* Without other nodes. */
static void try_control(const char *mnt)
{
	static const char *const names[] = { ".ckptfs", ".ckptfs/nodes" };

	for (size_t n = 0; n < ARRAY_SIZE(names); n++)
		for (size_t c = 0; c < ARRAY_SIZE(callers); c++) {
			const struct caller_kind *who = &callers[c];
			struct kind own = { "own", 0666, who->uid, who->gid, NULL, {{ 0 }} };
			struct control v;

			snprintf(v.own, sizeof(v.own), "%s/own.%zu.%zu", mnt, n, c);
			make_file(v.own, &own);
			snprintf(v.path, sizeof(v.path), "%s/%s", mnt, names[n]);
			snprintf(v.below, sizeof(v.below), "%s/new", v.path);
			v.fd = open(v.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			if (v.fd < 0)
				fail("cannot open", v.path);
			as_caller(who, ask_nodes, &v);
			close(v.fd);
			expect(v.path, who, LIST_NODES, 0, true);
			expect(v.path, who, CHANGE_NODES, EROFS, true);
			expect(v.path, who, CHECK, ENODATA, true);
			expect(v.path, who, NEXT_REPLICA, who->uid == 0 ? ENOENT : EPERM, true);
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
	is_unseen = argc > 3;
	umask(0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("no memory", "answers");
	if (strcmp(argv[2], "control") == 0) {
		MUST(chmod(argv[1], 0777), argv[1]);
		try_control(argv[1]);
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
