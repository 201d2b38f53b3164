/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/report_walk.h"

#include <errno.h>
#include <ftw.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/stat/stat_ask.h"

#define NR_OPEN_DIRS 32

/* State of the current walk: nftw() passes no user data. */
static struct walking {
	struct walk w;
	size_t room; /* of w.files */
	size_t skip; /* length of the prefix of paths up to the mountpoint */
	void *names[WALK_LEVELS]; /* trees of struct directory_node */
	void *linked; /* tree of inode numbers of visited files with several names */
	struct progress progress;
	int error;
} now;

struct directory_node {
	char *name;
	unsigned number;
};

static int compare_nodes(const void *a, const void *b)
{
	return strcmp(((const struct directory_node *)a)->name, ((const struct directory_node *)b)->name);
}

static int compare_numbers(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void free_node(void *p)
{
	struct directory_node *n = p;

	free(n->name);
	free(n);
}

static void freed_directories(struct walk_directory *d, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		free(d[i].name);
	free(d);
}

void walk_release(struct walk *w)
{
	free(TAKE(w->files));
	for (unsigned l = 0; l < WALK_LEVELS; l++)
		freed_directories(TAKE(w->directories[l]), w->nr_directories[l]);
	for (size_t i = 0; i < w->nr_worst; i++)
		free(w->worst[i].name);
	for (size_t i = 0; i < w->nr_largest; i++)
		free(w->largest[i].name);
	*w = (struct walk){ 0 };
}

double walk_fragmentation(uint64_t frames, uint64_t mapped)
{
	return mapped ? (double)frames * (double)MiB(1) / (double)round_up(mapped, MiB(1)) : 0;
}

/* The first `levels` directories of a name: of "a/b/c/file", "a" or "a/b". */
static char *directory_of(const char *name, unsigned levels)
{
	const char *end = name, *slash = strchr(name, '/');

	for (; slash && levels > 0; levels--) {
		end = slash;
		slash = strchr(slash + 1, '/');
	}
	return strndup(name, (size_t)(end - name));
}

static int add_directory(unsigned level, const char *name, unsigned *ret)
{
	struct walk_directory *more =
		reallocarray(now.w.directories[level], now.w.nr_directories[level] + 1, sizeof(*more));

	if (!more)
		return -ENOMEM;
	now.w.directories[level] = more;
	more += now.w.nr_directories[level];
	*more = (struct walk_directory){ .name = strdup(name) };
	if (!more->name)
		return -ENOMEM;
	*ret = (unsigned)now.w.nr_directories[level]++;
	return 0;
}

static int find_directory(unsigned level, const char *name, unsigned *ret)
{
	struct directory_node key = { .name = directory_of(name, level + 1) }, *n, **slot;
	int r;

	if (!key.name)
		return -ENOMEM;
	slot = tfind(&key, &now.names[level], compare_nodes);
	if (slot) {
		free(key.name);
		*ret = (*slot)->number;
		return 0;
	}
	n = malloc(sizeof(*n));
	if (!n) {
		free(key.name);
		return -ENOMEM;
	}
	*n = key;
	r = add_directory(level, n->name, &n->number);
	if (r < 0 || !tsearch(n, &now.names[level], compare_nodes)) {
		free_node(n);
		return r < 0 ? r : -ENOMEM;
	}
	*ret = n->number;
	return 0;
}

/* Parses as many hex digits as fit; missing ones are zeros. */
static void take_fingerprint(const char *hex, uint8_t ret[WALK_FINGERPRINT])
{
	unsigned byte;

	for (unsigned i = 0; i < WALK_FINGERPRINT && sscanf(hex + 2 * i, "%2x", &byte) == 1; i++) {
		ret[i] = (uint8_t)byte;
		if (hex[2 * i + 1] == '\0' || hex[2 * i + 2] == '\0')
			break;
	}
}

static void add_class(double fragmentation, uint64_t mapped)
{
	unsigned class = 0;

	for (double limit = 1; class + 1 < WALK_CLASSES && fragmentation > limit; limit *= 2)
		class ++;
	now.w.class_files[class]++;
	now.w.class_mapped[class] += mapped;
}

static double worst_at(size_t i)
{
	return walk_fragmentation(now.w.worst[i].frames, now.w.worst[i].mapped);
}

/* Inserts in order; there are few. */
static int add_worst(const char *name, uint64_t frames, uint64_t mapped)
{
	struct walk *w = &now.w;
	double f = walk_fragmentation(frames, mapped);
	size_t at = w->nr_worst;
	char *copy;

	while (at > 0 && worst_at(at - 1) < f)
		at--;
	if (at == WALK_WORST || f <= 1)
		return 0;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	if (w->nr_worst == WALK_WORST)
		free(w->worst[--w->nr_worst].name);
	memmove(&w->worst[at + 1], &w->worst[at], (w->nr_worst - at) * sizeof(w->worst[0]));
	w->worst[at] = (struct walk_worst){ copy, mapped, frames };
	w->nr_worst++;
	return 0;
}

static int add_largest(const char *name, uint64_t mapped)
{
	struct walk *w = &now.w;
	size_t at = w->nr_largest;
	char *copy;

	while (at > 0 && w->largest[at - 1].mapped < mapped)
		at--;
	if (at == WALK_LARGEST || mapped == 0)
		return 0;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	if (w->nr_largest == WALK_LARGEST)
		free(w->largest[--w->nr_largest].name);
	memmove(&w->largest[at + 1], &w->largest[at], (w->nr_largest - at) * sizeof(w->largest[0]));
	w->largest[at] = (struct walk_largest){ copy, mapped };
	w->nr_largest++;
	return 0;
}

static int new_file(struct walk_file **ret)
{
	struct walk_file *more;
	size_t room;

	if (now.w.nr_files == now.room) {
		room = now.room ? 2 * now.room : 1024;
		more = reallocarray(now.w.files, room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		now.w.files = more;
		now.room = room;
	}
	*ret = &now.w.files[now.w.nr_files++];
	**ret = (struct walk_file){ 0 };
	return 0;
}

static int add_file(const char *name, const struct stat *st, const struct json_flat *j)
{
	uint64_t mapped = json_flat_u64(j, "mapped_bytes"), frames = json_flat_u64(j, "frames");
	struct walk_file *f;
	int r = new_file(&f);

	for (unsigned l = 0; l < WALK_LEVELS && r == 0; l++) {
		r = find_directory(l, name, &f->directory[l]);
		if (r == 0) {
			struct walk_directory *d = &now.w.directories[l][f->directory[l]];

			d->files++;
			d->mapped += mapped;
			d->frames += frames;
		}
	}
	if (r < 0)
		return r;
	f->mtime = st->st_mtime;
	f->mapped = mapped;
	take_fingerprint(json_flat_get(j, "fingerprint"), f->fingerprint);
	now.w.mapped += mapped;
	now.w.frames += frames;
	if (mapped > 0)
		add_class(walk_fragmentation(frames, mapped), mapped);
	r = add_largest(name, mapped);
	return r == 0 && mapped >= MiB(1) ? add_worst(name, frames, mapped) : r;
}

/* 1: the inode was visited under another name. */
static int seen_before(const struct stat *st)
{
	uint64_t key = st->st_ino, *copy;

	if (st->st_nlink < 2)
		return 0;
	if (tfind(&key, &now.linked, compare_numbers))
		return 1;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	*copy = key;
	if (tsearch(copy, &now.linked, compare_numbers))
		return 0;
	free(copy);
	return -ENOMEM;
}

static int look_at(const char *path, const struct stat *st)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	int r = seen_before(st);

	if (r != 0)
		return r < 0 ? r : 0;
	r = stat_ask(path, &a);
	if (r == -ENOENT)
		return 0; /* removed meanwhile */
	if (r < 0) {
		now.w.nr_unread++;
		stat_complain(path, r, 0);
		return r == -ENOTCONN || r == -ECONNABORTED ? r : 0;
	}
	return add_file(path + now.skip, st, &a.j);
}

static int visit(const char *path, const struct stat *st, int type, _unused_ struct FTW *at)
{
	progress_show(&now.progress, "Reading files:", now.w.nr_files, 0, false);
	if (interrupted())
		now.error = -EINTR;
	else if (type == FTW_F && S_ISREG(st->st_mode))
		now.error = look_at(path, st);
	else if (type == FTW_DNR || type == FTW_NS) {
		now.w.nr_unread++;
		stat_complain(path, -EACCES, 0);
	}
	return now.error != 0;
}

/* --- after the walk --- */

static int by_content(const void *a, const void *b)
{
	const struct walk_file *x = a, *y = b;
	int c = memcmp(x->fingerprint, y->fingerprint, WALK_FINGERPRINT);

	return c != 0 ? c : (x->mtime > y->mtime) - (x->mtime < y->mtime);
}

static int by_time(const void *a, const void *b)
{
	const struct walk_file *x = a, *y = b;

	return (x->mtime > y->mtime) - (x->mtime < y->mtime);
}

static int by_size(const void *a, const void *b)
{
	const struct walk_directory *x = a, *y = b;

	return (y->mapped > x->mapped) - (y->mapped < x->mapped);
}

static void mark_again(struct walk *w)
{
	for (size_t i = 1; i < w->nr_files; i++) {
		struct walk_file *f = &w->files[i];

		f->again = f->mapped > 0 && memcmp(f->fingerprint, f[-1].fingerprint, WALK_FINGERPRINT) == 0;
		if (!f->again)
			continue;
		w->again += f->mapped;
		for (unsigned l = 0; l < WALK_LEVELS; l++)
			w->directories[l][f->directory[l]].again += f->mapped;
	}
}

static void put_in_order(struct walk *w)
{
	if (w->nr_files > 0)
		qsort(w->files, w->nr_files, sizeof(w->files[0]), by_content);
	mark_again(w);
	if (w->nr_files > 0)
		qsort(w->files, w->nr_files, sizeof(w->files[0]), by_time);
	for (unsigned l = 0; l < WALK_LEVELS; l++) /* invalidates walk_file.directory */
		if (w->nr_directories[l] > 0)
			qsort(w->directories[l], w->nr_directories[l], sizeof(w->directories[l][0]), by_size);
}

int walk_mount(const char *mountpoint, struct walk *ret)
{
	now = (struct walking){ .skip = strlen(mountpoint) };
	while (now.skip > 0 && mountpoint[now.skip - 1] == '/')
		now.skip--;
	now.skip++;
	progress_init(&now.progress);
	if (nftw(mountpoint, visit, NR_OPEN_DIRS, FTW_PHYS | FTW_MOUNT) < 0) {
		now.error = -errno;
		stat_complain(mountpoint, now.error, 0);
	}
	progress_clear(&now.progress);
	for (unsigned l = 0; l < WALK_LEVELS; l++)
		tdestroy(now.names[l], free_node);
	tdestroy(now.linked, free);
	if (now.error != 0) {
		walk_release(&now.w);
		return now.error;
	}
	put_in_order(&now.w);
	*ret = now.w;
	now = (struct walking){ 0 };
	return 0;
}
