/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/stat_exclusive.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/stat/stat_ask.h"

#define ASK_NS 50000000
#define ASK_SOON_NS 2000000 /* most answers are immediate */
#define SOON 20u
#define NR_OPEN_DIRS 32

static int complain_exclusive(const char *path, int r)
{
	if (r == -ENOTTY)
		text_printf(stderr, "ckptfs-stat: %s: not on a ckptfs; give files and directories of one mount\n", path);
	else if (r == -EBUSY)
		text_printf(stderr, "ckptfs-stat: %s: too many concurrent requests; try again\n", path);
	else if (r == -E2BIG)
		text_printf(stderr,
			    "ckptfs-stat: %s: too many files, or too many directories in concurrent requests; give fewer "
			    "paths\n",
			    path);
	else if (r == -EXDEV)
		text_printf(stderr,
			    "ckptfs-stat: %s: on another mount than the previous paths; give paths of one mount only\n",
			    path);
	else if (r == -ENOTCONN || r == -ECONNABORTED)
		stat_complain(path, r, 0);
	else if (r != -EINTR)
		text_printf(stderr, "ckptfs-stat: %s: cannot compute exclusive space: %s\n", path, strerror(-r));
	return r;
}

static int send_command(int fd, struct ckptfs_exclusive *x, uint32_t what)
{
	x->size = sizeof(*x);
	x->version = CKPTFS_IOC_VERSION;
	x->command = what;
	return ioctl(fd, CKPTFS_IOC_EXCLUSIVE, x) < 0 ? -errno : 0;
}

/* Static since nftw() passes no user data. */
static struct {
	uint64_t question;
	dev_t dev;
	bool begun;
} q;

/* Opens the directory for every command, so that the permissions of the caller apply. */
static int send_command_at(const char *dir, const char *name, uint32_t what, struct ckptfs_exclusive *x)
{
	_cleanup_(closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	*x = (struct ckptfs_exclusive){ .question = q.question };
	snprintf(x->name, sizeof(x->name), "%s", name);
	return send_command(fd, x, what);
}

static int begin_query(const char *dir, const struct stat *st)
{
	struct ckptfs_exclusive x;
	int r;

	if (q.begun)
		return st->st_dev == q.dev ? 0 : -EXDEV;
	r = send_command_at(dir, "", CKPTFS_EXCLUSIVE_BEGIN, &x);
	if (r < 0)
		return r;
	q.question = x.question;
	q.dev = st->st_dev;
	q.begun = true;
	return 0;
}

static int visit(const char *path, const struct stat *st, int type, _unused_ struct FTW *at)
{
	struct ckptfs_exclusive x;
	int r = 0;

	if (interrupted())
		return -EINTR;
	if (type == FTW_NS && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return 0;
	if (type == FTW_DNR || type == FTW_NS)
		return complain_exclusive(path, -EACCES);
	if (type == FTW_D) {
		r = begin_query(path, st);
		if (r == 0)
			r = send_command_at(path, "", CKPTFS_EXCLUSIVE_ADD, &x);
	}
	return r < 0 && r != -ENOENT ? complain_exclusive(path, r) : 0; /* removed meanwhile */
}

static int add_file(const char *path, const struct stat *st)
{
	_cleanup_(freep) char *copy1 = strdup(path);
	_cleanup_(freep) char *copy2 = strdup(path);
	struct ckptfs_exclusive x;
	int r = copy1 && copy2 ? begin_query(dirname(copy1), st) : -ENOMEM;

	if (r == 0)
		r = send_command_at(dirname(strcpy(copy1, path)), basename(copy2), CKPTFS_EXCLUSIVE_ADD, &x);
	return r < 0 ? complain_exclusive(path, r) : 0;
}

static int add_path(const char *path)
{
	struct stat st;
	int r;

	if (lstat(path, &st) < 0)
		return complain_exclusive(path, -errno);
	if (!S_ISDIR(st.st_mode))
		return add_file(path, &st);
	r = nftw(path, visit, NR_OPEN_DIRS, FTW_PHYS | FTW_MOUNT);
	return r == -1 ? complain_exclusive(path, -errno) : r;
}

static void show_progress(struct progress *p, const struct ckptfs_exclusive *x)
{
	if (x->frames == 0 && x->built > 0)
		progress_show(p, "building back-references", x->built, 0, false);
	else if (x->frames > 0)
		progress_show(p, "reading frames", x->frames_done, x->frames, false);
	else
		progress_show(p, "reading recipes", x->recipes, 0, false);
}

static int run_query(int fd, struct ckptfs_exclusive *x)
{
	struct progress p;
	int r;

	progress_init(&p);
	r = send_command(fd, x, CKPTFS_EXCLUSIVE_RUN);
	if (r == 0)
		r = send_command(fd, x, CKPTFS_EXCLUSIVE_STATUS);
	for (unsigned i = 0; r == 0 && x->running && !interrupted(); i++) {
		interrupt_sleep(i < SOON ? ASK_SOON_NS : ASK_NS);
		r = send_command(fd, x, CKPTFS_EXCLUSIVE_STATUS);
		if (r == 0)
			show_progress(&p, x);
	}
	progress_clear(&p);
	return r < 0 ? r : interrupted() ? -EINTR : -x->error;
}

int stat_exclusive_owner(int fd, uint32_t kind, uint32_t id, struct ckptfs_exclusive *ret)
{
	struct ckptfs_exclusive x = { 0 }, end = { 0 };
	int r = send_command(fd, &x, CKPTFS_EXCLUSIVE_BEGIN);

	if (r < 0)
		return r;
	end.question = x.question;
	x.id = id;
	r = send_command(fd, &x, kind == CKPTFS_OWNER_USER ? CKPTFS_EXCLUSIVE_USER : CKPTFS_EXCLUSIVE_GROUP);
	if (r == 0)
		r = run_query(fd, &x);
	send_command(fd, &end, CKPTFS_EXCLUSIVE_END);
	if (r == 0)
		*ret = x;
	return r;
}

/* Opens a directory of the mount, whichever. */
static int open_near(const char *path)
{
	_cleanup_(freep) char *copy = strdup(path);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP) && copy)
		fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int stat_exclusive(char *const paths[], size_t nr, struct ckptfs_exclusive *ret)
{
	struct ckptfs_exclusive x = { 0 }, end = { 0 };
	int r = 0, fd;

	q.begun = false;
	fd = open_near(paths[0]);
	if (fd < 0)
		return complain_exclusive(paths[0], fd);
	for (size_t i = 0; i < nr && r == 0; i++)
		r = add_path(paths[i]);
	if (r == 0) {
		x.question = q.question;
		r = run_query(fd, &x);
		if (r < 0)
			complain_exclusive(paths[0], r);
	}
	if (q.begun) {
		end.question = q.question;
		send_command(fd, &end, CKPTFS_EXCLUSIVE_END);
	}
	close(fd);
	if (r == 0)
		*ret = x;
	return r;
}
