/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/run/run_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

#define DIRECTORY_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* A directory that was entered and not left. */
struct level {
	struct level *above; /* NULL: the top */
	int from, to; /* -1: closed while those below are walked */
	struct stat st; /* of `from` */
	dev_t to_dev;
	ino_t to_inode;
	char *path;
	char **below; /* names of directories */
	size_t nr, room, next; /* of `below`; `next`: to be entered next */
};

static void close_level(struct level *l)
{
	closep(&l->from);
	closep(&l->to);
	l->from = l->to = -1;
}

static void level_free(struct level *l)
{
	if (!l)
		return;
	close_level(l);
	for (size_t i = 0; i < l->nr; i++)
		free(l->below[i]);
	free(l->below);
	free(l->path);
	free(l);
}

/* Takes `path`. The descriptors are set by the caller. */
static struct level *level_new(struct level *above, char *path)
{
	struct level *l = path ? malloc(sizeof(*l)) : NULL;

	if (!l) {
		free(path);
		return NULL;
	}
	*l = (struct level){ .above = above, .from = -1, .to = -1, .path = path };
	return l;
}

static int identify(struct level *l)
{
	struct stat to;

	if (fstat(l->from, &l->st) < 0 || fstat(l->to, &to) < 0)
		return -errno;
	l->to_dev = to.st_dev;
	l->to_inode = to.st_ino;
	return 0;
}

static char *join(const char *path, const char *name)
{
	char *ret;

	return asprintf(&ret, "%s%s%s", path, path[0] ? "/" : "", name) < 0 ? NULL : ret;
}

static int add_below(struct level *l, const char *name)
{
	int r = list_grow(&l->below, l->nr, &l->room, sizeof(*l->below));

	if (r < 0)
		return r;
	l->below[l->nr] = strdup(name);
	if (!l->below[l->nr])
		return -ENOMEM;
	l->nr++;
	return 0;
}

static void set_path(struct run_walk *w, const char *path)
{
	if (!w->path[0])
		snprintf(w->path, sizeof(w->path), "%s", path);
}

static int visit_name(struct run_walk *w, struct level *l, const char *name)
{
	_cleanup_(freep) char *path = join(l->path, name);
	struct run_walk_name n = { .from = l->from, .to = l->to, .name = name, .path = path };
	int r;

	if (!path)
		return -ENOMEM;
	if (fstatat(l->from, name, &n.st, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	else
		r = S_ISDIR(n.st.st_mode) ? add_below(l, name) : w->visit(w->userdata, &n);
	if (r != 0)
		set_path(w, path);
	return r;
}

/* Visits all names in a directory, and lists its directories. */
static int read_level(struct run_walk *w, struct level *l)
{
	int own = openat(l->from, ".", DIRECTORY_FLAGS), r = 0;
	DIR *d = own < 0 ? NULL : fdopendir(own);
	const struct dirent *e;

	if (!d) {
		r = -errno;
		closep(&own);
		return r;
	}
	while (r == 0 && (errno = 0, e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = visit_name(w, l, e->d_name);
	if (r == 0)
		r = -errno;
	closedir(d);
	return r;
}

static int open_level(struct run_walk *w, struct level *l, const char *name)
{
	struct run_walk_name n = { .from = l->above->from, .to = l->above->to, .name = name, .path = l->path };
	int r;

	l->from = openat(n.from, name, DIRECTORY_FLAGS);
	if (l->from < 0 || fstat(l->from, &n.st) < 0)
		return -errno;
	r = w->enter(w->userdata, &n, &l->to);
	return r == 0 ? identify(l) : r;
}

/* Reopens the directory above, which has the level's names no longer if it was moved. */
static int reopen_above(const struct level *l)
{
	struct level *a = l->above, now = { 0 };
	int r;

	if (a->from >= 0)
		return 0;
	a->from = now.from = openat(l->from, "..", DIRECTORY_FLAGS);
	if (a->from < 0)
		return -errno;
	a->to = now.to = openat(l->to, "..", DIRECTORY_FLAGS);
	r = a->to < 0 ? -errno : identify(&now);
	if (r < 0)
		return r;
	return now.st.st_dev == a->st.st_dev && now.st.st_ino == a->st.st_ino && now.to_dev == a->to_dev &&
			       now.to_inode == a->to_inode ?
		       0 :
		       -ESTALE;
}

/* The next directory in it becomes the lowest level. */
static int go_down(struct run_walk *w, struct level **lowest)
{
	struct level *above = *lowest, *l;
	const char *name = above->below[above->next++];
	int r;

	l = level_new(above, join(above->path, name));
	if (!l)
		return -ENOMEM;
	*lowest = l;
	r = open_level(w, l, name);
	if (r == 0)
		r = read_level(w, l);
	if (r == 0 && l->nr > 0) /* else it is left at once */
		close_level(above);
	return r;
}

/* The attributes of a directory may forbid to open "..": it is opened before leave() sets them. */
static int go_up(struct run_walk *w, struct level **lowest)
{
	struct level *l = *lowest;
	int r = l->above ? reopen_above(l) : 0;

	if (r == 0)
		r = w->leave(w->userdata, l->from, l->to, &l->st);
	if (r != 0)
		return r;
	*lowest = l->above;
	level_free(l);
	return 0;
}

int run_walk(struct run_walk *w, int from, int to)
{
	struct level *lowest = level_new(NULL, strdup(""));
	int r = lowest ? 0 : -ENOMEM;

	w->path[0] = '\0';
	if (r == 0) {
		lowest->from = fcntl(from, F_DUPFD_CLOEXEC, 3);
		lowest->to = fcntl(to, F_DUPFD_CLOEXEC, 3);
		r = lowest->from < 0 || lowest->to < 0 ? -errno : identify(lowest);
	}
	if (r == 0)
		r = read_level(w, lowest);
	while (r == 0 && lowest)
		r = lowest->next < lowest->nr ? go_down(w, &lowest) : go_up(w, &lowest);
	if (r != 0 && lowest)
		set_path(w, lowest->path);
	while (lowest) {
		struct level *l = lowest;

		lowest = l->above;
		level_free(l);
	}
	return r;
}
