/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The mount has default_permissions: the kernel checks every path walk, open, change of names, attributes and extended
 * attributes before it sends the request. The daemon checks requests that reach further than their descriptor.
 *
 *   request                          checked by the kernel              checked here
 *   lookup, open, create, mkdir,     mode, ACL, groups, capabilities,   sealed or a replica: attr_sealed()
 *     link, unlink, rename, ...        sticky directories
 *   chmod, chown, utimes, setxattr,  owner, capabilities; of user.*     the same; the set-gid bit that an ACL takes
 *     ACLs                             also mode and ACL                  away
 *   listxattr                        nothing                            trusted.* needs CAP_SYS_ADMIN
 *   read, write, fallocate,          how the descriptors were opened    fallocate, copies: which set-id bits go
 *     copy_file_range
 *   ioctl HANDLE, CLONE, COMPARE,    that there is a descriptor         how it was opened. A handle is 64 random bits
 *     STAT, COMPACT_FILE                                                  and valid in any process, as a descriptor is
 *   ioctl DELTA_BEGIN, _COMMIT       that there is a descriptor         each version read from: R_OK; the directory:
 *                                                                         permission_create(), when the name is made
 *   ioctl SEAL                       R_OK of the directory              SEAL: W_OK of it, ownership of all in it;
 *                                                                         UNSEAL: ownership; REMOVE: ownership of all
 *                                                                         in it, permission_remove(); NEXT, CHECK:
 *                                                                         owner or operator
 *   ioctl EXCLUSIVE                  R_OK of the directory              ADD: R_OK|X_OK of it now, R_OK of each file;
 *                                                                         RUN: the same of what the result counts;
 *                                                                         USER, GROUP: the caller's own, or operator
 *   ioctl OWNERS                     that there is a descriptor         the same
 *   ioctl GC, SCRUB, CLUSTER,        that there is a descriptor         operator; figures of GC and SCRUB are for all
 *     COMPACT, VARIABLE, ...
 *   below .ckptfs                    modes and ACLs of replicas         nothing can be changed: -EROFS
 *
 * The rules are those of generic_permission() and posix_acl_permission(), including this one: a list with an
 * empty mask (no group bits in the mode) is ignored, and a named user then counts as other.
 *
 * Supplementary groups and capabilities come from /proc/PID/status. The thread waits for the reply and cannot end or
 * change its credentials meanwhile, so the pid is still its own. The file is not used if
 *   - the request has no pid: the thread is in a pid namespace that ours does not contain;
 *   - /proc is of another pid namespace than ours, where the pid is another process;
 *   - the filesystem ids in it are not those of the request: the kernel acts with other credentials (overlayfs, nfsd);
 *   - it cannot be read (hidepid).
 * Capabilities count in our own user namespace only. The kernel also counts them in a child that maps the file's ids;
 * that is denied here.
 * Root in a pid namespace that the daemon's does not contain has to enter the latter (nsenter -p) to unseal another
 * user's checkpoint.
 *
 * For work done after the reply (PID_ANSWERED, autoseal) no process can be examined: uid 0 is then the superuser.
 */
#include "fs/posix/permission.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/posix/acl.h"
#include "fs/posix/attr.h"
#include "fs/fs.h"

static_assert(R_OK == 4 && W_OK == 2 && X_OK == 1, "as the bits of a mode");

/* --- credentials of the calling process --- */

/* Read the whole file and append a NUL. */
static int read_proc(const char *path, struct buf *ret)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	do {
		if (buf_reserve(ret, KiB(4)) < 0)
			return -ENOMEM;
		n = TEMP_FAILURE_RETRY(read(fd, ret->data + ret->len, ret->size - ret->len - 1));
		if (n < 0)
			return -errno;
		ret->len += (size_t)n;
	} while (n > 0);
	ret->data[ret->len] = '\0';
	return 0;
}

/* The text after "NAME:"; NULL: no such line. */
static const char *find_line(const struct buf *text, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = (const char *)text->data; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, len) == 0 && line[len] == ':')
			return line + len + 1;
	}
	return NULL;
}

/* Parse one number; returns the position after it, NULL: none left. */
static const char *next_number(const char *at, uint64_t *ret)
{
	char *end;

	at += strspn(at, " \t");
	if (*at < '0' || *at > '9')
		return NULL;
	*ret = strtoull(at, &end, 10);
	return end;
}

/* The fourth of "real effective saved filesystem". */
static bool is_filesystem_id(const struct buf *text, const char *name, uint32_t id)
{
	const char *at = find_line(text, name);
	uint64_t v = 0;

	for (unsigned i = 0; i < 4 && at; i++)
		at = next_number(at, &v);
	return at && v == id;
}

static bool proc_is_ours;

/*
 * Does /proc belong to our own pid namespace? A status file lists the ids of a process in the namespace of that /proc
 * and below.
 */
static void look_at_proc(void)
{
	_cleanup_(buf_release) struct buf text = BUF_EMPTY;
	const char *at;
	uint64_t v = 0, more;

	if (read_proc("/proc/self/status", &text) == 0) {
		at = find_line(&text, "NSpid"); /* NULL: a kernel without pid namespaces */
		proc_is_ours = !at || ((at = next_number(at, &v)) && v == (uint64_t)getpid() && !next_number(at, &more));
	}
	if (!proc_is_ours)
		log_warning("/proc: belongs to another pid namespace: cannot read supplementary groups and capabilities of "
			    "callers; requests that depend on them are refused");
}

static bool is_in_our_user_namespace(int pid)
{
	char path[64];
	struct stat ours, theirs;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	return stat("/proc/self/ns/user", &ours) == 0 && stat(path, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
	       ours.st_ino == theirs.st_ino;
}

/* On failure, groups and capabilities stay unknown. */
void caller_load(struct caller *c)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const struct cred *cred = c->cred;
	const char *capabilities;
	char path[64];

	if (c->is_loaded)
		return;
	c->is_loaded = true;
	c->capabilities = cred->uid == 0 && cred->pid == PID_ANSWERED ? UINT64_MAX : 0;
	if (cred->pid <= 0)
		return;
	pthread_once(&once, look_at_proc);
	if (!proc_is_ours)
		return;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", cred->pid, cred->pid);
	if (read_proc(path, &c->status) < 0 || !is_filesystem_id(&c->status, "Uid", cred->uid) ||
	    !is_filesystem_id(&c->status, "Gid", cred->gid))
		return;
	c->groups = find_line(&c->status, "Groups");
	capabilities = find_line(&c->status, "CapEff");
	c->capabilities = capabilities && is_in_our_user_namespace(cred->pid) ? strtoull(capabilities, NULL, 16) : 0;
}

/* --- the rules --- */

static enum acl_member is_member(void *userdata, uint32_t gid)
{
	struct caller *c = userdata;
	const char *at;
	uint64_t v;

	if (c->cred->gid == gid)
		return ACL_MEMBER;
	caller_load(c);
	if (!c->groups)
		return ACL_MEMBER_UNKNOWN;
	for (at = c->groups; (at = next_number(at, &v));)
		if (v == gid)
			return ACL_MEMBER;
	return ACL_NO_MEMBER;
}

static bool has_bits(uint32_t bits, unsigned want)
{
	return (bits & want) == want;
}

/* 1/0: the mode or the list grants `want` to a caller that is not the owner; <0. */
static int is_granted(struct fs *fs, struct caller *c, const struct ns_inode *in, unsigned want)
{
	_cleanup_(buf_release) struct buf list = BUF_EMPTY;
	int r = 0;

	if (in->flags & INODE_HAS_XATTRS && in->mode & S_IRWXG)
		r = ns_get_xattr(fs->db, in->ino, ACL_ACCESS_NAME, &list);
	if (r > 0 && acl_check(list.data, list.len) < 0)
		r = log_errno(-EBADMSG, "inode %" PRIu64 ": access list is damaged", in->ino);
	if (r < 0)
		return r;
	if (r > 0)
		return acl_grants(list.data, list.len, c->cred->uid, in->gid, is_member, c, want);
	if (has_bits(in->mode, want) == has_bits(in->mode >> 3, want))
		return has_bits(in->mode, want);
	switch (is_member(c, in->gid)) {
	case ACL_MEMBER:
		return has_bits(in->mode >> 3, want);
	case ACL_NO_MEMBER:
		return has_bits(in->mode, want);
	default:
		return 0;
	}
}

bool permission_capable(struct caller *c, unsigned capability)
{
	caller_load(c);
	return c->capabilities >> capability & 1;
}

/* Capabilities that override the mode, as in generic_permission(). */
static bool is_overridden(struct caller *c, const struct ns_inode *in, unsigned want)
{
	if ((S_ISDIR(in->mode) ? !(want & W_OK) : want == R_OK) && permission_capable(c, CAP_DAC_READ_SEARCH))
		return true;
	return (S_ISDIR(in->mode) || !(want & X_OK) || in->mode & 0111) && permission_capable(c, CAP_DAC_OVERRIDE);
}

int permission_check(struct fs *fs, struct caller *c, const struct ns_inode *in, unsigned want)
{
	int r = 0;

	if (want & W_OK)
		r = fs->read_only ? -EROFS : attr_sealed(fs, in);
	if (r == 0)
		r = c->cred->uid == in->uid ? has_bits(in->mode >> 6, want) : is_granted(fs, c, in, want);
	return r < 0 ? r : r > 0 || is_overridden(c, in, want) ? 0 : -EACCES;
}

int permission_create(struct fs *fs, struct caller *c, const struct ns_inode *dir)
{
	if (dir->nlink == 0)
		return -ENOENT;
	return S_ISDIR(dir->mode) ? permission_check(fs, c, dir, W_OK | X_OK) : -ENOTDIR;
}

int permission_remove(struct fs *fs, struct caller *c, const struct ns_inode *dir, const struct ns_inode *in,
		      bool unseals)
{
	int r = permission_create(fs, c, dir);

	if (r < 0)
		return r;
	if (dir->mode & S_ISVTX && c->cred->uid != dir->uid && !permission_owner(c, in))
		return -EPERM;
	if (!unseals || in->flags & INODE_REPLICA)
		return attr_sealed(fs, in);
	return !(in->flags & INODE_SEALED) || permission_owner(c, in) ? 0 : -EPERM;
}

bool permission_owner(struct caller *c, const struct ns_inode *in)
{
	return c->cred->uid == in->uid || permission_capable(c, CAP_FOWNER);
}

bool permission_operator(const struct cred *cred)
{
	return cred->uid == 0 || cred->uid == geteuid();
}

bool permission_in_group(struct caller *c, uint32_t gid)
{
	return is_member(c, gid) == ACL_MEMBER;
}
