/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/stat_ask.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/apart.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/common/daemon.h"
#include "tools/common/interrupt.h"

#define STAT_XATTR "user.ckptfs.stat"
#define STAT_MAX 65536 /* the kernel's limit */
#define NR_OPEN_DIRS 32

void stat_answer_release(struct stat_answer *a)
{
	free(TAKE(a->text));
	json_flat_release(&a->j);
}

/* The length of the JSON, or negative errno. */
static ssize_t read_figures(const char *path, char *text)
{
	ssize_t n = lgetxattr(path, STAT_XATTR, text, STAT_MAX);

	if (n < 0 && errno == ECONNABORTED) /* the daemon just ended; the next call distinguishes unmounted from died */
		n = lgetxattr(path, STAT_XATTR, text, STAT_MAX);
	if (n < 0)
		return errno == EOPNOTSUPP || errno == EPERM ? -ENODATA : -errno;
	return n;
}

static int parse_figures(const char *text, ssize_t n, struct stat_answer *ret)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	int r;

	if (n < 0)
		return (int)n;
	r = json_flat_parse(text, (size_t)n, &a.j);
	if (r < 0)
		return r;
	a.text = strndup(text, (size_t)n);
	if (!a.text)
		return -ENOMEM;
	*ret = a;
	a = (struct stat_answer){ 0 };
	return 0;
}

int stat_ask(const char *path, struct stat_answer *ret)
{
	static char text[STAT_MAX + 1];

	return parse_figures(text, read_figures(path, text), ret);
}

struct question {
	const char *path;
	char *text; /* shared memory */
};

static void ask_apart(const void *arg, void *ret)
{
	const struct question *q = arg;

	*(ssize_t *)ret = read_figures(q->path, q->text);
}

int stat_ask_until(const char *path, uint64_t until_ns, struct stat_answer *ret)
{
	struct question q = { path, NULL };
	const struct apart a = { .call = ask_apart, .arg = &q, .until_ns = until_ns };
	ssize_t n;
	int r;

	q.text = mmap(NULL, STAT_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (q.text == MAP_FAILED)
		return -errno;
	r = apart_call(&a, &n, sizeof(n));
	r = r > 0 ? parse_figures(q.text, n, ret) : r == 0 ? -ETIMEDOUT : r;
	munmap(q.text, STAT_MAX);
	return r;
}

/* Something else than a file or a directory, which has no figures. */
static bool is_special(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

void stat_complain(const char *path, int r, int before)
{
	const char *why = strerror(-r);

	if (r == -ENODATA)
		why = before	     ? "no longer on a ckptfs: it has been unmounted" :
		      is_special(path) ? "neither a file nor a directory; give one of them" :
		      is_store(path) ? "a store; give its mountpoint (ckptfs stat shows all mounts)" :
				       "not on a ckptfs; give a mountpoint, or a file or directory below one";
	else if (r == -ENOTCONN || r == -ECONNABORTED)
		why = "the daemon of this mount has died; unmount and mount it again";
	else if (r == -ENOENT)
		why = "No such file or directory; give a mountpoint, or a file or directory below one";
	else if (r == -EBADMSG)
		why = "malformed answer from the daemon";
	text_printf(stderr, "ckptfs-stat: %s: %s\n", path, why);
}

/* Static since nftw() passes no user data. */
static struct stat_sums sums;
static int sums_error;

static int add_file(const char *path)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	int r = stat_ask(path, &a);

	if (r < 0) {
		if (r != -ENOENT) /* removed meanwhile */
			stat_complain(path, r, 0);
		return r;
	}
	sums.files++;
	sums.size += json_flat_u64(&a.j, "size_bytes");
	sums.mapped += json_flat_u64(&a.j, "mapped_bytes");
	sums.extents += json_flat_u64(&a.j, "extents");
	sums.frames += json_flat_u64(&a.j, "frames");
	sums.not_durable += strcmp(json_flat_get(&a.j, "durable"), "true") != 0;
	return 0;
}

static int visit(const char *path, const struct stat *st, int type, _unused_ struct FTW *at)
{
	int r = 0;

	if (interrupted())
		return 1;
	if (type == FTW_D)
		sums.directories++;
	else if (type == FTW_F && S_ISREG(st->st_mode))
		r = add_file(path);
	else if (type == FTW_DNR || type == FTW_NS) {
		r = -EACCES;
		stat_complain(path, r, 0);
	}
	if (r < 0 && r != -ENOENT)
		sums_error = r;
	return 0;
}

int stat_sum(const char *directory, struct stat_sums *ret)
{
	sums = (struct stat_sums){ 0 };
	sums_error = 0;
	if (nftw(directory, visit, NR_OPEN_DIRS, FTW_PHYS | FTW_MOUNT) < 0) {
		sums_error = -errno;
		stat_complain(directory, sums_error, 0);
	}
	*ret = sums;
	return sums_error;
}
