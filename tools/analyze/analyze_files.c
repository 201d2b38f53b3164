/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/analyze/analyze_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/noatime.h"
#include "base/util.h"
#include "tools/analyze/analyze_complain.h"
#include "tools/analyze/analyze_names.h"
#include "tools/common/place.h"

#define NR_FILES_MAX ((size_t)UINT32_MAX)

#define HOLES_MAX 1024u /* largest ratio of size to allocated bytes, beyond the first GiB */

/* Calls `open_it` for a path, or what it leads to in `beneath`. */
static int open_by(int (*open_it)(int dirfd, const char *path, int flags), int beneath, const char *path, int flags)
{
	char link[32];
	int found, fd, error;

	if (beneath == 0)
		return open_it(AT_FDCWD, path, flags);
	found = place_open(beneath, path, O_PATH | O_CLOEXEC, false);
	if (found < 0) {
		errno = -found;
		return -1;
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", found);
	fd = open_it(AT_FDCWD, link, flags & ~O_NOFOLLOW);
	error = errno;
	close(found);
	errno = error;
	return fd;
}

int files_open(int beneath, const char *path, int flags)
{
	return open_by(open_plain_noatime, beneath, path, flags);
}

static int stat_path(int beneath, const char *path, struct stat *ret)
{
	_cleanup_(closep) int fd = -1;

	if (beneath == 0)
		return stat(path, ret);
	fd = place_open(beneath, path, O_PATH | O_CLOEXEC, false);
	if (fd < 0)
		errno = -fd;
	return fd < 0 ? -1 : fstat(fd, ret);
}

/* Such files are skipped: the whole size is read, holes included. */
static bool is_nearly_empty(const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size;

	return size > GiB(1) && (size - GiB(1)) / HOLES_MAX > (uint64_t)st->st_blocks * 512;
}

/* The name of `path` with `below` replaced by `as`. */
static char *name_for(const char *path, const char *below, const char *as)
{
	char *name;

	return asprintf(&name, "%s%s", as, path + strlen(below)) < 0 ? NULL : name;
}

/* below, as: arguments of files_add_as(); as is NULL for files_add() */
static int add_file(struct files *fs, const char *path, const struct stat *st, const char *below, const char *as)
{
	struct file *f;

	if (fs->nr == NR_FILES_MAX)
		return -EFBIG;
	if (fs->nr == fs->nr_room) {
		size_t room = MAX(2 * fs->nr_room, (size_t)64);

		f = reallocarray(fs->file, room, sizeof(*f));
		if (!f)
			return -ENOMEM;
		fs->file = f;
		fs->nr_room = room;
	}
	f = &fs->file[fs->nr];
	*f = (struct file){ .path = as ? name_for(path, below, as) : strdup(path),
			    .from = as ? strdup(path) : NULL,
			    .size = (uint64_t)st->st_size,
			    .dev = st->st_dev,
			    .ino = st->st_ino,
			    .uid = st->st_uid,
			    .gid = st->st_gid,
			    .beneath = fs->beneath,
			    .mtime_ns = st->st_mtim.tv_sec * INT64_C(1000000000) + st->st_mtim.tv_nsec };
	fs->nr++;
	return f->path && (f->from || !as) ? 0 : -ENOMEM;
}

/* Directories still to be read. */
struct walk {
	struct files *fs;
	const char *below, *as; /* as in add_file() */
	char **dir; /* owned, as are the paths */
	size_t nr, room;
};

static int walk_later(struct walk *w, char *path)
{
	if (list_grow(&w->dir, w->nr, &w->room, sizeof(*w->dir)) < 0) {
		free(path);
		return -ENOMEM;
	}
	w->dir[w->nr++] = path;
	return 0;
}

static int walk_file(struct walk *w, const char *path, const struct stat *st)
{
	if (is_nearly_empty(st)) {
		(void)refuse("%s: skipped: nearly all of it is a hole", path);
		return 0;
	}
	return add_file(w->fs, path, st, w->below, w->as);
}

static int walk_entry(struct walk *w, int dir, const char *path, const char *name)
{
	_cleanup_(freep) char *found = NULL;
	struct stat st;

	if (asprintf(&found, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", name) < 0) {
		found = NULL;
		return -ENOMEM;
	}
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return complain(-errno, "%s", found);
	if (S_ISDIR(st.st_mode))
		return walk_later(w, TAKE(found));
	if (S_ISREG(st.st_mode))
		return walk_file(w, found, &st);
	w->fs->nr_special++;
	return 0;
}

/* Continues after errors other than -ENOMEM. */
static int walk_dir(struct walk *w, const char *path, int flags)
{
	int fd = open_by(openat_noatime, w->fs->beneath, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags), r = 0, one;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!dir) {
		r = complain(-errno, "%s", path);
		closep(&fd);
		return r;
	}
	while (r != -ENOMEM && (errno = 0, de = readdir(dir))) {
		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		one = walk_entry(w, fd, path, de->d_name);
		r = one < 0 ? one : r;
	}
	if (r != -ENOMEM && errno)
		r = complain(-errno, "%s", path);
	closedir(dir);
	return r;
}

int files_add(struct files *fs, const char *path)
{
	return files_add_as(fs, path, NULL);
}

int files_add_as(struct files *fs, const char *path, const char *as)
{
	struct walk w = { .fs = fs, .below = path, .as = as };
	struct stat st;
	int r, one;

	if (stat_path(fs->beneath, path, &st) < 0)
		return complain(-errno, "%s", path);
	if (S_ISREG(st.st_mode))
		return walk_file(&w, path, &st);
	if (!S_ISDIR(st.st_mode))
		return refuse("%s: neither a file nor a directory; give one of them", path);
	r = walk_dir(&w, path, 0);
	while (w.nr > 0 && r != -ENOMEM) {
		_cleanup_(freep) char *dir = w.dir[--w.nr];

		one = walk_dir(&w, dir, O_NOFOLLOW);
		r = one < 0 ? one : r;
	}
	while (w.nr > 0)
		free(w.dir[--w.nr]);
	free(w.dir);
	return r;
}

static int by_inode(const void *left, const void *right)
{
	const struct file *a = left, *b = right;

	if (a->dev != b->dev)
		return a->dev < b->dev ? -1 : 1;
	if (a->ino != b->ino)
		return a->ino < b->ino ? -1 : 1;
	return strcmp(a->path, b->path);
}

static void release(struct file *f)
{
	free(f->path);
	free(f->from);
	free(f->series_name);
	free(f->family_name);
}

static void drop_links(struct files *fs)
{
	size_t n = 0;

	qsort(fs->file, fs->nr, sizeof(*fs->file), by_inode);
	for (size_t i = 0; i < fs->nr; i++)
		if (n > 0 && fs->file[n - 1].dev == fs->file[i].dev && fs->file[n - 1].ino == fs->file[i].ino)
			release(&fs->file[i]);
		else
			fs->file[n++] = fs->file[i];
	fs->nr_links = fs->nr - n;
	fs->nr = n;
}

static int by_family(const void *left, const void *right)
{
	const struct file *a = left, *b = right;
	int r = strcmp(a->family_name, b->family_name);

	return r ? r : strcmp(a->path, b->path);
}

static int by_step(const void *left, const void *right)
{
	const struct file *a = left, *b = right;
	int r = strcmp(a->series_name, b->series_name);

	if (r == 0)
		r = number_compare(a->path + a->step_at, a->step_len, b->path + b->step_at, b->step_len);
	return r ? r : strcmp(a->path, b->path);
}

/* Which numbers in the names differ within a family, as a bit mask. */
static uint32_t varying(const struct file *file, size_t n)
{
	struct name_number first[NAME_NUMBERS_MAX], here[NAME_NUMBERS_MAX];
	size_t nr = name_numbers(file[0].path, first);
	uint32_t varies = 0;

	for (size_t i = 1; i < n; i++) {
		name_numbers(file[i].path, here);
		for (size_t k = 0; k < nr; k++)
			if (number_compare(file[0].path + first[k].at, first[k].len, file[i].path + here[k].at,
					   here[k].len) != 0)
				varies |= UINT32_C(1) << k;
	}
	return varies;
}

/* file[0] to file[n - 1] are one complete family. */
static int arrange_family(struct files *fs, struct file *file, size_t n)
{
	uint32_t varies = varying(file, n);

	for (size_t i = 0; i < n; i++) {
		struct name_number step = name_step(file[i].path, varies);

		file[i].step_at = step.at;
		file[i].step_len = step.len;
		file[i].series_name = name_series(file[i].path, step);
		if (!file[i].series_name)
			return -ENOMEM;
	}
	qsort(file, n, sizeof(*file), by_step);
	fs->nr_families++;
	for (size_t i = 0; i < n; i++) {
		fs->nr_series += i == 0 || strcmp(file[i - 1].series_name, file[i].series_name) != 0;
		file[i].series = (uint32_t)fs->nr_series;
		file[i].family = (uint32_t)fs->nr_families;
	}
	return 0;
}

int files_arrange(struct files *fs)
{
	size_t end;
	int r;

	if (fs->nr == 0)
		return 0;
	drop_links(fs);
	for (size_t i = 0; i < fs->nr; i++) {
		fs->size += fs->file[i].size;
		fs->file[i].family_name = name_family(fs->file[i].path);
		if (!fs->file[i].family_name)
			return -ENOMEM;
	}
	qsort(fs->file, fs->nr, sizeof(*fs->file), by_family);
	for (size_t i = 0; i < fs->nr; i = end) {
		for (end = i + 1; end < fs->nr; end++)
			if (strcmp(fs->file[i].family_name, fs->file[end].family_name) != 0)
				break;
		r = arrange_family(fs, &fs->file[i], end - i);
		if (r < 0)
			return r;
	}
	return 0;
}

static uint64_t holes_of(int fd, off_t size)
{
	off_t data, hole = 0;
	uint64_t bytes = 0;

	while (hole < size) {
		data = lseek(fd, hole, SEEK_DATA);
		if (data < 0)
			data = errno == ENXIO ? size : hole;
		bytes += (uint64_t)(MIN(data, size) - hole);
		hole = data < size ? lseek(fd, data, SEEK_HOLE) : size;
		if (hole < 0)
			break;
	}
	return bytes;
}

static int examine(struct file *f)
{
	_cleanup_(closep) int fd = files_open(f->beneath, f->path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	f->size = 0;
	if (fd < 0)
		return complain(-errno, "%s: cannot open", f->path);
	if (fstat(fd, &st) < 0)
		return complain(-errno, "%s", f->path);
	if (!S_ISREG(st.st_mode))
		return refuse("%s: no longer a regular file", f->path);
	f->size = (uint64_t)st.st_size;
	f->holes = holes_of(fd, st.st_size);
	return 0;
}

void files_examine(struct files *fs)
{
	fs->size = 0;
	for (size_t i = 0; i < fs->nr; i++) {
		struct file *f = &fs->file[i];

		f->error = examine(f);
		fs->size += f->size;
		fs->holes += f->holes;
	}
}

void files_release(struct files *fs)
{
	for (size_t i = 0; i < fs->nr; i++)
		release(&fs->file[i]);
	free(fs->file);
	*fs = (struct files){ 0 };
}
