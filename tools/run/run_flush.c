/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/run/run_flush.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/io.h"
#include "base/util.h"
#include "tools/common/place.h"
#include "tools/common/progress.h"
#include "tools/run/run_copy.h"
#include "tools/run/run_say.h"
#include "tools/seal/seals.h"

#define WHOLE "whole" /* name of the copy if the mountpoint itself is sealed */

struct flush {
	const struct run_flush *d;
	const char *name; /* being copied; relative to the mountpoint */
	struct progress bar;
	uint64_t all, before; /* bytes of all checkpoints, and of those already copied */
};

static bool report_progress(void *userdata, uint64_t copied)
{
	struct flush *d = userdata;

	progress_show(&d->bar, d->name, d->before + copied, d->all, true);
	return !d->d->go_on || d->d->go_on(d->d->userdata);
}

/* A name in the destination that may be there already. */
struct place_to {
	const char *path; /* relative to the destination, for messages */
	int above; /* the directory that contains it; O_PATH */
	const char *name; /* the end of `path` */
};

/* Is `st`, in a directory where users cannot replace each other's names, one of another user? */
static bool is_of_other(const struct stat *above, const struct stat *st, uid_t owner)
{
	return above->st_mode & S_ISVTX && st->st_uid != geteuid() && st->st_uid != owner && st->st_uid != 0 &&
	       st->st_uid != above->st_uid;
}

/*
 * Opens a directory with O_PATH. `len`: bytes of p->path to it, for messages. `owner`: another user that may own it.
 * -ENOENT: not there; any other failure is reported.
 */
static int open_existing(const char *to, const struct place_to *p, const char *name, int len, uid_t owner)
{
	_cleanup_(closep) int fd = openat(p->above, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat above, st;
	int ret;

	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0 && errno == ENOTDIR && fstatat(p->above, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
		return run_complain_cause(-ELOOP, "%s/%.*s: is a symbolic link, which is not followed", to, len, p->path);
	if (fd < 0 || fstat(p->above, &above) < 0 || fstat(fd, &st) < 0)
		return run_complain_errno(-errno, "%s/%.*s: cannot copy out", to, len, p->path);
	if (is_of_other(&above, &st, owner))
		return run_complain_cause(-EPERM,
					  "%s/%.*s: belongs to user %u, in a directory where any user may create it",
					  to, len, p->path, (unsigned)st.st_uid);
	ret = fd;
	fd = -1;
	return ret;
}

/*
 * Opens the directory above the last name of a path, and creates those that are missing. Symbolic links are not
 * followed: in a destination that other users can write to, one of these could lead anywhere. Failures are reported.
 */
static int open_above(const struct flush *d, int top, struct place_to *p)
{
	_cleanup_(freep) char *part = strdup(p->path);
	char *name = part;

	p->above = openat(top, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (!part || p->above < 0)
		return run_complain_errno(part ? -errno : -ENOMEM, "%s/%s: cannot copy out", d->d->to, p->path);
	for (char *slash; (slash = strchr(name, '/')); name = slash + 1) {
		int next;

		*slash = '\0';
		if (mkdirat(p->above, name, 0777) < 0 && errno != EEXIST)
			return run_complain_errno(-errno, "%s/%s: cannot copy out", d->d->to, p->path);
		next = open_existing(d->d->to, p, name, (int)(slash - part), geteuid());
		if (next < 0)
			return next;
		close(p->above);
		p->above = next;
	}
	p->name = p->path + (name - part);
	return 0;
}

/* Opens the directory .NAME.ckptfs-SEALED beside NAME, and returns its name. Failures are reported. */
static int open_partial(const struct flush *d, const struct place_to *p, int64_t sealed_ns, char **ret_name)
{
	_cleanup_(freep) char *name = NULL;
	_cleanup_(closep) int fd = -1;
	struct stat st;
	int ret;

	if (asprintf(&name, ".%s.ckptfs-%" PRIx64, p->name, (uint64_t)sealed_ns) < 0)
		return run_complain_errno(-ENOMEM, "%s/%s: cannot copy out", d->d->to, p->path);
	if (mkdirat(p->above, name, 0700) < 0 && errno != EEXIST)
		return run_complain_errno(-errno, "%s/%s: cannot copy out", d->d->to, p->path);
	fd = openat(p->above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return run_complain_errno(-errno, "%s/%s: cannot copy out: %s", d->d->to, p->path, name);
	if (geteuid() == 0 && st.st_uid != 0) /* its owner can change it while root copies; for others fchmod() fails */
		return run_complain_cause(-EPERM, "%s/%s: cannot copy out: %s beside it belongs to user %u; remove it",
					  d->d->to, p->path, name, (unsigned)st.st_uid);
	if (fchmod(fd, 0700) < 0)
		return run_complain_errno(-errno, "%s/%s: cannot copy out: %s", d->d->to, p->path, name);
	*ret_name = TAKE(name);
	ret = fd;
	fd = -1;
	return ret;
}

static int copy_seal(struct flush *d, int from, int to, const char *path)
{
	struct run_copy c = { .go_on = report_progress, .userdata = d };
	int r = run_copy_tree(&c, from, to);

	if (r < 0 && r != -ETIME) {
		progress_clear(&d->bar);
		run_complain_errno(r, "%s/%s: cannot copy out: %s%s", d->d->to, path, c.path,
				   r == -EBADMSG    ? ": read back different bytes than written" :
				   r == -EOPNOTSUPP ? ": sockets and devices are not copied" :
						      "");
	}
	return r;
}

/* 1: is the same; <0, reported: not, or cannot be compared */
static int compare_existing(const struct flush *d, int from, const struct place_to *p, int existing)
{
	_cleanup_(closep) int there = openat(existing, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = there < 0 ? -errno : run_copy_is_same(from, there);

	if (r < 0)
		return run_complain_errno(r, "%s/%s: cannot compare", d->d->to, p->path);
	return r > 0 ? 1 :
		       run_complain_cause(-EEXIST, "%s/%s: exists and differs from sealed %s; not replaced", d->d->to,
					  p->path, p->path);
}

static int give_name(const struct flush *d, const struct place_to *p, const char *partial)
{
	_cleanup_(closep) int above = openat(p->above, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = 0;

	if (renameat2(p->above, partial, p->above, p->name, RENAME_NOREPLACE) < 0)
		/* Not every parallel filesystem has RENAME_NOREPLACE. Plain rename(2) replaces nothing but an empty
		 * directory. */
		r = errno == EINVAL ? io_rename(p->above, partial, p->above, p->name) : -errno;
	if (r < 0)
		return run_complain_errno(r, "%s/%s: copied, but cannot rename", d->d->to, p->path);
	r = above < 0 ? -EACCES : io_sync_dir(above);
	return r < 0 ? run_complain_errno(r, "%s/%s: cannot sync", d->d->to, p->path) : 0;
}

static void place_to_release(struct place_to *p)
{
	closep(&p->above);
}

/* 1: existed already, 0: copied */
static int flush_seal(struct flush *d, int mount, int top, const struct sealed *e)
{
	_cleanup_(place_to_release) struct place_to p = { .path = e->path[0] ? e->path : WHOLE, .above = -1 };
	_cleanup_(freep) char *partial = NULL;
	_cleanup_(closep) int from =
		place_open(mount, e->path[0] ? e->path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, false);
	_cleanup_(closep) int existing = -1;
	_cleanup_(closep) int to = -1;
	struct stat st;
	int r;

	if (from < 0 || fstat(from, &st) < 0)
		return run_complain_errno(from < 0 ? from : -errno, "%s/%s: cannot copy out", d->d->mountpoint, e->path);
	r = open_above(d, top, &p);
	if (r < 0)
		return r;
	existing = open_existing(d->d->to, &p, p.name, (int)strlen(p.path), st.st_uid);
	if (existing != -ENOENT)
		return existing < 0 ? existing : compare_existing(d, from, &p, existing);
	to = open_partial(d, &p, e->sealed_ns, &partial);
	r = to < 0 ? to : copy_seal(d, from, to, p.path);
	return r < 0 ? r : give_name(d, &p, partial);
}

int run_flush_seals(const struct run_flush *d, const struct seals *e)
{
	_cleanup_(closep) int mount = open(d->mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(closep) int top = -1;
	struct flush run = { .d = d };
	int r = 0, result = 0;

	if (mount < 0)
		return run_complain_errno(-errno, "%s", d->mountpoint);
	top = open(d->to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top < 0)
		return run_complain_errno(-errno, "--flush-to %s", d->to);
	for (size_t i = 0; i < e->nr; i++)
		run.all += e->v[i].bytes;
	progress_init(&run.bar);
	for (size_t i = 0; i < e->nr; i++) {
		const struct sealed *one = &e->v[e->nr - 1 - i];

		run.name = one->path;
		r = report_progress(&run, 0) ? flush_seal(&run, mount, top, one) : -ETIME;
		progress_clear(&run.bar);
		if (r == -ETIME) {
			run_complain("time is up: %zu of %s copied to %s, the newest first; the others are in the store",
				     i, human_nr(e->nr, "sealed checkpoint").s, d->to);
			return r;
		}
		run.before += one->bytes;
		if (r < 0)
			result = r;
		else
			run_say("%s: %s (%s), %zu of %zu", one->path[0] ? one->path : WHOLE,
				r > 0 ? "already in the destination" : "copied out", human_size(one->bytes).s, i + 1,
				e->nr);
	}
	return result;
}
