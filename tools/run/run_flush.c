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

/* Creates the directories between `top` and the last name of `path`. */
static int make_above(int top, const char *path)
{
	_cleanup_(freep) char *part = strdup(path);

	if (!part)
		return -ENOMEM;
	for (char *slash = part; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = '\0';
		if (mkdirat(top, part, 0777) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* Returns the path of .NAME.ckptfs-SEALED, beside the final NAME. */
static int name_partial(const char *path, int64_t sealed_ns, char **ret)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	return asprintf(ret, "%.*s.%s.ckptfs-%" PRIx64, (int)(name - path), path, name, (uint64_t)sealed_ns) < 0 ?
		       -ENOMEM :
		       0;
}

static int sync_above(int top, const char *path)
{
	const char *slash = strrchr(path, '/');
	_cleanup_(freep) char *above = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	_cleanup_(closep) int fd = above ? openat(top, above, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (fd < 0)
		return above ? -errno : -ENOMEM;
	return io_sync_dir(fd);
}

static int copy_seal(struct flush *d, int from, int top, const char *path, const char *partial)
{
	struct run_copy c = { .go_on = report_progress, .userdata = d };
	_cleanup_(closep) int to = -1;
	int r;

	if (mkdirat(top, partial, 0700) < 0 && errno != EEXIST)
		return run_complain_errno(-errno, "%s/%s: cannot copy out", d->d->to, path);
	to = openat(top, partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (to < 0 || fchmod(to, 0700) < 0)
		return run_complain_errno(-errno, "%s/%s: cannot copy out", d->d->to, path);
	r = run_copy_tree(&c, from, to);
	if (r < 0 && r != -ETIME) {
		progress_clear(&d->bar);
		run_complain_errno(r, "%s/%s: cannot copy out: %s%s", d->d->to, path, c.path,
				   r == -EBADMSG    ? ": read back different bytes than written" :
				   r == -EOPNOTSUPP ? ": sockets and devices are not copied" :
						      "");
	}
	return r;
}

/* 1: existed already, 0: copied */
static int flush_seal(struct flush *d, int mount, int top, const struct sealed *e)
{
	const char *path = e->path[0] ? e->path : WHOLE;
	_cleanup_(freep) char *partial = NULL;
	_cleanup_(closep) int from =
		place_open(mount, e->path[0] ? e->path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, false);
	_cleanup_(closep) int there = -1;
	int r;

	if (from < 0)
		return run_complain_errno(from, "%s/%s: cannot copy out", d->d->mountpoint, e->path);
	there = openat(top, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (there >= 0) {
		r = run_copy_is_same(from, there);
		if (r == 0)
			run_complain("%s/%s: exists and differs from sealed %s; not replaced", d->d->to, path,
				     path);
		else if (r < 0)
			run_complain_errno(r, "%s/%s: cannot compare", d->d->to, path);
		return r == 0 ? -EEXIST : r;
	}
	r = make_above(top, path);
	if (r == 0)
		r = name_partial(path, e->sealed_ns, &partial);
	if (r < 0)
		return run_complain_errno(r, "%s/%s: cannot copy out", d->d->to, path);
	r = copy_seal(d, from, top, path, partial);
	if (r < 0)
		return r;
	if (renameat2(top, partial, top, path, RENAME_NOREPLACE) < 0) {
		/* Not every parallel filesystem has RENAME_NOREPLACE. Plain rename(2) replaces nothing but an empty
		 * directory. */
		r = errno == EINVAL ? io_rename(top, partial, top, path) : -errno;
		if (r < 0)
			return run_complain_errno(r, "%s/%s: copied, but cannot rename", d->d->to, path);
	}
	r = sync_above(top, path);
	if (r < 0)
		return run_complain_errno(r, "%s/%s: cannot sync", d->d->to, path);
	return 0;
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
			run_complain(
				"time is up: %zu of %s copied to %s, the newest first; the others are in the store",
				i, human_nr(e->nr, "sealed checkpoint").s, d->to);
			return r;
		}
		run.before += one->bytes;
		if (r < 0)
			result = r;
		else
			run_say("%s: %s (%s), %zu of %zu", one->path[0] ? one->path : WHOLE,
				r > 0 ? "already in the destination" : "copied out", human_size(one->bytes).s, i + 1, e->nr);
	}
	return result;
}
