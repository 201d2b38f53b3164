/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "permissions_rig.h"

#include <endian.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/posix_acl_xattr.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/util.h"
#include "gpu/format/delta_record.h"

const struct kind files[] = {
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

const struct kind dirs[] = {
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

const struct caller_kind callers[] = {
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

bool is_sealed(const struct kind *dir)
{
	return strcmp(dir->name, "sealed") == 0;
}

const char *const way_names[] = {
	"open", "create", "list", "chmod", "write", "unlink", "setxattr", "delta", "delta with bytes of an older version",
	"delta from nothing", "exclusive, by name", "exclusive, all", "clone", "copy_file_range", "fingerprint", "compare",
	"stat", "retention rule", "list users", "list groups", "exclusive, by user", "exclusive, by group", "seal",
	"check a seal", "list seals", "state of replicas", "state of gathering", "tier", "tier, of this directory",
	"tier, of a directory by number", "unseal", "rmdir", "remove", "list nodes", "change the node directory view",
	"list replicas",
};

bool is_unseen;
unsigned nr_checks, nr_granted, nr_failed;
struct answers *shared;

void fail(const char *what, const char *of)
{
	fprintf(stderr, "permissions: %s: %s: %s\n", of, what, strerror(errno));
	exit(1);
}

/* --- what there is --- */

void set_list(const char *path, const struct kind *k)
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

void make_so(const char *path, const struct kind *k)
{
	MUST(chown(path, k->uid, k->gid), path);
	MUST(chmod(path, k->mode), path);
	if (k->list)
		set_list(path, k);
}

void make_file(const char *path, const struct kind *k)
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

int stage(const char *dir, uint32_t number, uint32_t parent)
{
	_cleanup_(buf_release) struct buf object = BUF_EMPTY;
	int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

	make_object(number, parent, &object);
	if (fd < 0 || write(fd, object.data, object.len) != (ssize_t)object.len)
		fail("cannot stage", dir);
	return fd;
}

/* --- the ways --- */

int outcome(long r)
{
	return r < 0 ? errno : 0;
}

int make_version(int staged, uint32_t number, uint32_t parent)
{
	struct ckptfs_delta_begin begin = ARGUMENT(ckptfs_delta_begin, .number = number, .parent = parent);
	struct ckptfs_delta_commit commit = ARGUMENT(ckptfs_delta_commit, .flags = 0);
	int r = ioctl(staged, CKPTFS_IOC_DELTA_BEGIN, &begin);

	return outcome(r < 0 ? r : ioctl(staged, CKPTFS_IOC_DELTA_COMMIT, &commit));
}

int ask_exclusive(int dir, enum ckptfs_exclusive_command command, uint32_t id, const char *name)
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

int clone_to(int to, const char *path)
{
	struct ckptfs_clone clone = ARGUMENT(ckptfs_clone, .from = 0);
	int r = handle_of(path, &clone.from);

	return outcome(r < 0 ? r : ioctl(to, CKPTFS_IOC_CLONE, &clone));
}

int compare_with(int fd, const char *path)
{
	struct ckptfs_compare compare = ARGUMENT(ckptfs_compare, .len = CONTENT);
	int r = handle_of(path, &compare.with);

	return outcome(r < 0 ? r : ioctl(fd, CKPTFS_IOC_COMPARE, &compare));
}

int stat_of(const char *path)
{
	struct ckptfs_stat arg = ARGUMENT(ckptfs_stat, .reserved = 0);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	return outcome(fd < 0 ? fd : ioctl(fd, CKPTFS_IOC_STAT, &arg));
}

int copy_to(int to, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	return outcome(fd < 0 ? -1 : copy_file_range(fd, NULL, to, NULL, CONTENT, 0));
}

int seal(int dir, enum ckptfs_seal_command command)
{
	struct ckptfs_seal arg = ARGUMENT(ckptfs_seal, .command = command);

	return outcome(ioctl(dir, CKPTFS_IOC_SEAL, &arg));
}

int check_seal(int dir, enum ckptfs_seal_command command)
{
	struct ckptfs_seal arg = ARGUMENT(ckptfs_seal, .command = command);
	struct stat st;

	MUST(fstat(dir, &st), "seal");
	arg.inode = st.st_ino - 1;
	if (ioctl(dir, CKPTFS_IOC_SEAL, &arg) < 0)
		return command == CKPTFS_SEAL_NEXT && errno == ENOENT ? EPERM : errno;
	return arg.inode == st.st_ino ? 0 : EPERM;
}

int may_write(int dir)
{
	return outcome(syscall(SYS_faccessat2, dir, "", W_OK, AT_EMPTY_PATH | AT_EACCESS));
}

int ask_tier(int fd, uint64_t inode)
{
	struct ckptfs_tier arg = ARGUMENT(ckptfs_tier, .inode = inode);

	return outcome(ioctl(fd, CKPTFS_IOC_TIER, &arg));
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

void as_caller(const struct caller_kind *c, void (*fn)(void *), void *arg)
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

void ask_seal(void *dir_fd)
{
	int dir = *(int *)dir_fd, *t = shared->outcome;
	struct stat st;

	MUST(fstat(dir, &st), "seal");
	t[OWNS] = outcome(fchmod(dir, st.st_mode & 07777));
	t[MAY_WRITE] = may_write(dir);
	t[SEAL] = seal(dir, CKPTFS_SEAL_SEAL);
}

/* --- comparing --- */

void expect(const char *of, const struct caller_kind *c, enum way way, int want, bool is_certain)
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
