/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Order:
 *   1. read the manifest; refuse what must not be restored        nothing was written
 *   2. a temporary directory beside the destination, mode 700     a crash leaves it: `.NAME.` and 16 hex digits
 *   3. directories, empty files, symbolic links, special files, hard links
 *   4. content, verified chunk by chunk
 *   5. attributes of all but directories; fsync of each file
 *   6. attributes and fsync of directories, the lower ones first: their names are durable
 *   7. rename the temporary, which replaces nothing; fsync of the directory above. Until here nothing has the name
 *
 * Other users may write to a tier. Names are single components without `.` and `..` (the decoder checks that), and unique
 * in their directory. Everything is opened relative to the temporary, component by component, without following symbolic
 * links, so nothing is written elsewhere.
 */
#include "tools/tier/tier_restore.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/io.h"
#include "base/text.h"
#include "base/util.h"
#include "client/retention.h"
#include "tools/tier/tier_content.h"

#define DIRECTORY_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define TARGET_MAX 4095u

struct getting {
	struct tier_access *a;
	const struct tier_restore *how;
	struct tier_opened o;
	char *parent, *name; /* of the destination */
	char temporary[NAME_MAX + 1];
	int above; /* the directory that contains the destination */
	int top; /* the temporary; -1: not made yet */
	bool is_root;
	atomic_bool cannot_write; /* reported */
	uint32_t dir; /* inode of `fd`; for the thread that makes names */
	int fd;
};

static const struct tier_inode *inode_of(const struct getting *g, uint32_t inode)
{
	return &g->o.tree->inodes[inode];
}

/* Reports what failed with the inode, or, with r 0, what was left out. Returns r. */
static int report(const struct getting *g, uint32_t inode, const char *what, int r)
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;

	if (r == -EINTR)
		return r;
	tier_tree_path(g->o.tree, inode, &path);
	tier_access_say(g->a, "%s: %s%s%s: %s%s%s", g->how->directory, tier_checkpoint_path(g->o.c),
			path.len > 1 ? "/" : "", path.len > 0 ? (const char *)path.data : "", what, r < 0 ? ": " : "",
			r < 0 ? strerror(-r) : "");
	return r;
}

/* --- what may be restored --- */

/* Names the inode if it can grant privileges, as devices and set-user-ID programs do; else NULL. */
static const char *privilege(const struct getting *g, const struct tier_inode *in)
{
	if (S_ISCHR(in->mode) || S_ISBLK(in->mode))
		return "a device";
	if (S_ISREG(in->mode) && in->mode & (S_ISUID | S_ISGID))
		return "a set-user-ID or set-group-ID program";
	for (uint32_t i = in->first_xattr; i < in->first_xattr + in->nr_xattrs && !g->how->no_xattrs; i++)
		if (strcmp(tier_tree_name(g->o.tree, g->o.tree->xattrs[i].name), "security.capability") == 0)
			return "a program with capabilities";
	return NULL;
}

static int check_privileges(const struct getting *g)
{
	for (uint32_t i = 0; i < g->o.tree->nr_inodes && !g->how->trust; i++) {
		_cleanup_(buf_release) struct buf path = BUF_EMPTY;
		const char *what = privilege(g, inode_of(g, i));

		if (!what)
			continue;
		tier_tree_path(g->o.tree, i, &path);
		tier_access_say(g->a, "%s/%s: is %s: not restored; add --trust if you trust all writers of the tier",
				tier_checkpoint_path(g->o.c), path.len > 0 ? (const char *)path.data : "", what);
		return -EPERM;
	}
	return 0;
}

/* --- the destination --- */

static int split_destination(struct getting *g)
{
	_cleanup_(freep) char *path = strdup(g->how->directory);
	size_t len = path ? strlen(path) : 0;
	char *slash;

	if (!path)
		return -ENOMEM;
	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
	slash = strrchr(path, '/');
	g->name = strdup(slash ? slash + 1 : path);
	if (slash)
		slash[slash == path ? 1 : 0] = '\0';
	g->parent = strdup(slash ? path : ".");
	if (!g->name || !g->parent)
		return -ENOMEM;
	return g->name[0] == '\0' || strcmp(g->name, ".") == 0 || strcmp(g->name, "..") == 0 ? -EEXIST : 0;
}

static int check_destination(struct getting *g)
{
	struct stat st;
	int r = split_destination(g);

	if (r == 0) {
		g->above = open(g->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = g->above < 0 ? -errno : 0;
	}
	if (r == 0)
		r = fstatat(g->above, g->name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? -EEXIST : errno == ENOENT ? 0 : -errno;
	if (r == -EEXIST)
		tier_access_say(g->a, "%s: exists already; give the name of a new directory", g->how->directory);
	else if (r < 0)
		tier_access_say(g->a, "%s: cannot be created: %s", g->how->directory, strerror(-r));
	return r;
}

/* Files in it must not inherit access lists of the directory above. */
static int make_temporary(struct getting *g)
{
	uint64_t random;
	int r;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	snprintf(g->temporary, sizeof(g->temporary), ".%.*s.%016" PRIx64, NAME_MAX - 18, g->name, random);
	r = mkdirat(g->above, g->temporary, 0700) < 0 ? -errno : 0;
	if (r == 0) {
		g->top = openat(g->above, g->temporary, DIRECTORY_FLAGS);
		r = g->top < 0 ? -errno : 0;
		if (r < 0)
			unlinkat(g->above, g->temporary, AT_REMOVEDIR);
	}
	if (r == 0 && ((fremovexattr(g->top, "system.posix_acl_default") < 0 && errno != ENODATA && errno != EOPNOTSUPP) ||
		       (fremovexattr(g->top, "system.posix_acl_access") < 0 && errno != ENODATA && errno != EOPNOTSUPP)))
		r = -errno;
	if (r < 0)
		tier_access_say(g->a, "%s: cannot be created: %s", g->how->directory, strerror(-r));
	return r;
}

/* --- names --- */

/* Opens a directory of the tree. */
static int open_directory(const struct getting *g, uint32_t inode)
{
	const struct tier_tree *t = g->o.tree;
	_cleanup_(freep) uint32_t *chain = NULL;
	size_t depth = 0, room = 0;
	int fd = openat(g->top, ".", DIRECTORY_FLAGS), r = fd < 0 ? -errno : 0;

	for (uint32_t i = inode; i != 0 && r == 0; i = t->inodes[i].parent) {
		r = list_grow(&chain, depth, &room, sizeof(*chain));
		if (r == 0)
			chain[depth++] = i;
	}
	while (depth > 0 && r == 0) {
		int next = openat(fd, tier_tree_name(t, t->inodes[chain[--depth]].name), DIRECTORY_FLAGS);

		r = next < 0 ? -errno : 0;
		closep(&fd);
		fd = next;
	}
	if (r < 0)
		closep(&fd);
	return r < 0 ? r : fd;
}

/* The same, but `fd` stays open until another directory is used. */
static int use_directory(struct getting *g, uint32_t inode)
{
	if (g->fd >= 0 && g->dir == inode)
		return g->fd;
	closep(&g->fd);
	g->fd = open_directory(g, inode);
	g->dir = inode;
	return g->fd;
}

static int make_symlink(int dir, const char *name, const struct tier_inode *in)
{
	char target[TARGET_MAX + 1];

	if (in->size > TARGET_MAX)
		return -ENAMETOOLONG;
	memcpy(target, in->target, in->size);
	target[in->size] = '\0';
	return symlinkat(target, dir, name) < 0 ? -errno : 0;
}

static int make_file(int dir, const char *name, const struct tier_inode *in)
{
	_cleanup_(closep) int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : io_truncate(fd, in->size);
}

static int make_inode(struct getting *g, uint32_t inode)
{
	const struct tier_inode *in = inode_of(g, inode);
	const char *name = tier_tree_name(g->o.tree, in->name);
	int dir = use_directory(g, in->parent), r;

	if (dir < 0)
		return dir;
	if (S_ISDIR(in->mode))
		r = mkdirat(dir, name, 0700) < 0 ? -errno : 0;
	else if (S_ISREG(in->mode))
		r = make_file(dir, name, in);
	else if (S_ISLNK(in->mode))
		r = make_symlink(dir, name, in);
	else
		r = mknodat(dir, name, (in->mode & S_IFMT) | 0600, (dev_t)in->rdev) < 0 ? -errno : 0;
	return r;
}

/* Directories have lower numbers than what is in them. */
static int make_names(struct getting *g)
{
	const struct tier_tree *t = g->o.tree;
	int r = 0;

	for (uint32_t i = 1; i < t->nr_inodes && r == 0; i++) {
		r = atomic_load(&g->a->is_stopping) ? -EINTR : make_inode(g, i);
		if (r < 0)
			report(g, i, "cannot be created", r);
	}
	for (uint32_t i = 0; i < t->nr_entries && r == 0; i++) {
		const struct tier_entry *e = &t->entries[i];
		const struct tier_inode *in = inode_of(g, e->inode);
		_cleanup_(closep) int from = -1;
		int to;

		if (e->name == in->name)
			continue; /* the first name */
		from = open_directory(g, in->parent);
		to = from < 0 ? from : use_directory(g, e->dir);
		r = to < 0 ? to : 0;
		if (r == 0 && linkat(from, tier_tree_name(t, in->name), to, tier_tree_name(t, e->name), 0) < 0)
			r = -errno;
		if (r < 0)
			report(g, e->inode, "cannot be linked", r);
	}
	closep(&g->fd);
	g->fd = -1;
	return r;
}

/* --- content --- */

static int open_file(const struct getting *g, uint32_t inode)
{
	_cleanup_(closep) int dir = open_directory(g, inode_of(g, inode)->parent);
	int fd;

	if (dir < 0)
		return dir;
	fd = openat(dir, tier_tree_name(g->o.tree, inode_of(g, inode)->name), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int begin_part(void *userdata, uint32_t inode, int *ret_fd)
{
	const struct getting *g = userdata;
	int fd = open_file(g, inode);

	if (fd < 0)
		return report(g, inode, "cannot be opened", fd);
	*ret_fd = fd;
	return 0;
}

static int write_data(void *userdata, int fd, uint64_t off, const struct tier_bytes *b)
{
	struct getting *g = userdata;
	int r = 0;

	for (size_t i = 0; i < b->nr && r == 0; off += b->iov[i].iov_len, i++)
		if (b->parts[i].span) /* otherwise zeros: a hole */
			r = io_pwrite(fd, b->iov[i].iov_base, b->iov[i].iov_len, off);
	if (r < 0 && !atomic_exchange(&g->cannot_write, true))
		tier_access_say(g->a, "%s: cannot be written: %s", g->how->directory, strerror(-r));
	return r;
}

static int on_failed(void *userdata, uint32_t inode, int r, const struct tier_fault *fault)
{
	const struct getting *g = userdata;
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;

	tier_tree_path(g->o.tree, inode, &path);
	tier_access_say(g->a, "%s/%s: %s %s; not restored", tier_checkpoint_path(g->o.c),
			path.len > 0 ? (const char *)path.data : "", fault->object.s, fault->what);
	return r;
}

/* --- attributes --- */

static struct timespec time_of(int64_t ns)
{
	int64_t part = ns % 1000000000;

	if (part < 0)
		part += 1000000000;
	return (struct timespec){ .tv_sec = (time_t)((ns - part) / 1000000000), .tv_nsec = (long)part };
}

/* Only root may set these. */
static bool is_for_root(const char *xattr)
{
	return strncmp(xattr, "trusted.", 8) == 0 || strncmp(xattr, "security.", 9) == 0;
}

/*
 * A retention rule is stored with its author. Root sets it in the name of that user, so that it applies to the same
 * checkpoints as before. One that ckptfs-gc ignored, because the directory has got another owner, is left out.
 */
static int set_rule(const struct getting *g, uint32_t inode, const struct tier_xattr *x, int fd)
{
	bool as_author = g->is_root && !g->how->no_owner;
	size_t len;
	uint32_t author;
	int r = keep_stored_decode(x->value, x->len, &len, &author);

	if (r < 0)
		return r;
	if (author != 0 && author != inode_of(g, inode)->uid) {
		report(g, inode, "its retention rule is left out: neither root nor the owner has set it", 0);
		return 0;
	}
	if (as_author)
		setfsuid(author); /* of this thread */
	r = fsetxattr(fd, KEEP_XATTR, x->value, len, 0) < 0 ? -errno : 0;
	if (as_author)
		setfsuid(0);
	return r;
}

static int set_xattrs(const struct getting *g, uint32_t inode, int fd)
{
	const struct tier_inode *in = inode_of(g, inode);
	const struct tier_tree *t = g->o.tree;

	for (uint32_t i = in->first_xattr; i < in->first_xattr + in->nr_xattrs; i++) {
		const struct tier_xattr *x = &t->xattrs[i];
		const char *name = tier_tree_name(t, x->name);
		char what[400];
		int r;

		if (g->how->no_xattrs || (!g->is_root && is_for_root(name)))
			continue;
		if (strcmp(name, KEEP_XATTR) == 0)
			r = set_rule(g, inode, x, fd);
		else
			r = fsetxattr(fd, name, x->value, x->len, 0) < 0 ? -errno : 0;
		if (r == 0)
			continue;
		snprintf(what, sizeof(what), "attribute %s cannot be set; --no-xattrs leaves them out", name);
		return report(g, inode, what, r);
	}
	return 0;
}

static int set_attributes(const struct getting *g, uint32_t inode, int fd)
{
	const struct tier_inode *in = inode_of(g, inode);
	const struct timespec times[] = { time_of(in->atime_ns), time_of(in->mtime_ns) };
	int r = 0;

	if (g->is_root && !g->how->no_owner && fchown(fd, in->uid, in->gid) < 0)
		return report(g, inode, "its owner cannot be set; --no-owner leaves owners out", -errno);
	r = set_xattrs(g, inode, fd);
	if (r == 0 && fchmod(fd, in->mode & 07777) < 0) /* after the owner, which clears bits */
		r = report(g, inode, "its mode cannot be set", -errno);
	if (r == 0 && futimens(fd, times) < 0)
		r = report(g, inode, "its times cannot be set", -errno);
	if (r == 0 && fsync(fd) < 0)
		r = report(g, inode, "cannot be made durable", -errno);
	return r;
}

/* Of symbolic links and special files, which cannot be opened. They are durable with their directory. */
static int set_attributes_at(const struct getting *g, uint32_t inode)
{
	const struct tier_inode *in = inode_of(g, inode);
	const struct timespec times[] = { time_of(in->atime_ns), time_of(in->mtime_ns) };
	const char *name = tier_tree_name(g->o.tree, in->name);
	_cleanup_(closep) int dir = open_directory(g, in->parent);

	if (dir < 0)
		return report(g, inode, "cannot be opened", dir);
	if (g->is_root && !g->how->no_owner && fchownat(dir, name, in->uid, in->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return report(g, inode, "its owner cannot be set; --no-owner leaves owners out", -errno);
	if (in->nr_xattrs > 0 && !g->how->no_xattrs) {
		_cleanup_(closep) int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		char path[64];

		if (fd < 0)
			return report(g, inode, "cannot be opened", -errno);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		for (uint32_t i = in->first_xattr; i < in->first_xattr + in->nr_xattrs; i++) {
			const struct tier_xattr *x = &g->o.tree->xattrs[i];
			const char *xattr = tier_tree_name(g->o.tree, x->name);

			if ((g->is_root || !is_for_root(xattr)) && setxattr(path, xattr, x->value, x->len, 0) < 0)
				return report(g, inode, "an attribute cannot be set; --no-xattrs leaves them out", -errno);
		}
	}
	if (!S_ISLNK(in->mode) && fchmodat(dir, name, in->mode & 07777, 0) < 0)
		return report(g, inode, "its mode cannot be set", -errno);
	if (utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return report(g, inode, "its times cannot be set", -errno);
	return 0;
}

static int finish_file(void *userdata, size_t i)
{
	const struct getting *g = userdata;
	uint32_t inode = (uint32_t)i;
	_cleanup_(closep) int fd = -1;

	if (S_ISDIR(inode_of(g, inode)->mode))
		return 0;
	if (!S_ISREG(inode_of(g, inode)->mode))
		return set_attributes_at(g, inode);
	fd = open_file(g, inode);
	return fd < 0 ? report(g, inode, "cannot be opened", fd) : set_attributes(g, inode, fd);
}

static int finish_directories(struct getting *g)
{
	int r = 0;

	for (uint32_t i = g->o.tree->nr_inodes; i-- > 0 && r == 0;) {
		_cleanup_(closep) int fd = -1;

		if (!S_ISDIR(inode_of(g, i)->mode))
			continue;
		fd = open_directory(g, i);
		r = fd < 0 ? report(g, i, "cannot be opened", fd) : set_attributes(g, i, fd);
	}
	return r;
}

/* --- the whole --- */

/* NFS and Lustre have no rename that replaces nothing. There, an empty directory that was just made may be replaced. */
static int rename_destination(struct getting *g)
{
	struct stat st;
	int r = io_rename_new(g->above, g->temporary, g->above, g->name);

	if (r == -EINVAL || r == -ENOSYS)
		r = fstatat(g->above, g->name, &st, AT_SYMLINK_NOFOLLOW) == 0 ?
			    -EEXIST :
			    io_rename(g->above, g->temporary, g->above, g->name);
	if (r == 0)
		closep(&g->top);
	if (r == 0) {
		g->top = -1;
		r = io_sync_dir(g->above);
	}
	if (r < 0)
		tier_access_say(g->a, "%s: cannot be renamed or made durable: %s", g->how->directory, strerror(-r));
	return r;
}

/* After a failure. Directories may have lost the permission to change them. */
static void remove_temporary(struct getting *g)
{
	const struct tier_tree *t = g->o.tree;
	int r = 0;

	for (uint32_t i = 0; i < t->nr_inodes; i++) {
		_cleanup_(closep) int dir = -1;

		if (!S_ISDIR(t->inodes[i].mode))
			continue;
		if (i == 0) {
			fchmod(g->top, 0700);
			continue;
		}
		dir = open_directory(g, t->inodes[i].parent);
		if (dir >= 0)
			fchmodat(dir, tier_tree_name(t, t->inodes[i].name), 0700, 0);
	}
	for (uint32_t i = t->nr_inodes; i-- > 0;) {
		_cleanup_(closep) int dir = S_ISDIR(t->inodes[i].mode) ? open_directory(g, i) : -1;

		for (uint32_t k = t->inodes[i].first; dir >= 0 && k < t->inodes[i].first + t->inodes[i].nr; k++) {
			const struct tier_entry *e = &t->entries[k];

			unlinkat(dir, tier_tree_name(t, e->name), S_ISDIR(t->inodes[e->inode].mode) ? AT_REMOVEDIR : 0);
		}
	}
	closep(&g->top);
	g->top = -1;
	r = unlinkat(g->above, g->temporary, AT_REMOVEDIR) < 0 ? -errno : 0;
	if (r < 0)
		tier_access_say(g->a, "%s/%s: cannot be removed: %s; remove it", g->parent, g->temporary, strerror(-r));
}

/* Reports what an ordinary user cannot restore. */
static void report_left_out(const struct getting *g)
{
	const struct tier_tree *t = g->o.tree;
	bool has_owners = false, has_xattrs = false;

	for (uint32_t i = 0; i < t->nr_inodes && !g->is_root; i++) {
		has_owners |= t->inodes[i].uid != geteuid() || t->inodes[i].gid != getegid();
		for (uint32_t k = t->inodes[i].first_xattr; k < t->inodes[i].first_xattr + t->inodes[i].nr_xattrs; k++)
			has_xattrs |= is_for_root(tier_tree_name(t, t->xattrs[k].name));
	}
	if ((has_owners && !g->how->no_owner) || (has_xattrs && !g->how->no_xattrs))
		tier_access_say(g->a, "%s: without%s%s%s, which only root can set", g->how->directory,
				has_owners ? " owners and groups" : "", has_owners && has_xattrs ? " and" : "",
				has_xattrs ? " attributes in trusted and security" : "");
}

static int restore(struct getting *g, uint64_t *ret_bytes)
{
	const struct tier_content content = { .begin = begin_part, .data = write_data, .failed = on_failed, .userdata = g };
	int r = make_names(g);

	if (r == 0)
		r = tier_content_read(&g->o, &content, ret_bytes);
	if (r == 0)
		r = tier_access_each(g->a, g->o.tree->nr_inodes, finish_file, g);
	if (r == 0)
		r = finish_directories(g);
	if (r == 0)
		r = atomic_load(&g->a->is_stopping) ? -EINTR : rename_destination(g);
	return r;
}

static int get_checkpoint(struct getting *g)
{
	const struct tier_checkpoint *c = g->o.c;
	uint64_t bytes = 0;
	int r = check_privileges(g);

	if (r == 0)
		r = make_temporary(g);
	if (r == 0) {
		atomic_store(&g->a->what, "restoring");
		atomic_store(&g->a->all, tier_opened_data(&g->o));
		r = restore(g, &bytes);
	}
	if (g->top >= 0)
		remove_temporary(g);
	if (r < 0)
		return r;
	report_left_out(g);
	tier_access_begin_output(g->a);
	if (!g->how->quiet)
		text_printf(stdout, "%s, number %" PRIu64 ": restored to %s: %s, %s, %s read\n", tier_checkpoint_path(c),
			    c->number, g->how->directory, human_nr(c->files, "file").s, human_size(c->bytes).s,
			    human_size(bytes).s);
	tier_access_end_output(g->a);
	return 0;
}

int tier_restore(struct tier_access *a, const struct tier_restore *how)
{
	_cleanup_(tier_checkpoints_release) struct tier_checkpoints list = { 0 };
	struct getting g = { .a = a, .how = how, .above = -1, .top = -1, .fd = -1, .is_root = geteuid() == 0 };
	const struct tier_checkpoint *c;
	int r = check_destination(&g);

	if (r == 0)
		r = tier_checkpoints_get(a, &list);
	if (r == 0) {
		c = tier_checkpoints_find(a, &list, how->checkpoint);
		r = c ? tier_opened_open(a, c, &g.o) : -ESRCH;
		if (r == -ENOENT)
			tier_access_say(a, "%s: its manifest was removed", how->checkpoint);
	}
	if (r == 0) {
		r = get_checkpoint(&g);
		tier_opened_close(&g.o);
	}
	closep(&g.above);
	free(g.parent);
	free(g.name);
	return r;
}
