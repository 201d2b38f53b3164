#include "tools/analyze_files.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "tools/analyze_complain.h"
#include "tools/analyze_names.h"

#define NR_FILES_MAX ((size_t)UINT32_MAX)

const char *const domains_names[NR_FP_DOMAIN_KINDS] = { "global", "group", "user" };

static struct fp_domain domain_of(enum fp_domain_kind kind, const struct stat *st)
{
	return (struct fp_domain){ kind, kind == FP_OF_USER ? st->st_uid : kind == FP_OF_GROUP ? st->st_gid : 0 };
}

/* `path`, if it is to be called otherwise than where it is. */
static char *name_for(const char *path, const char *below, const char *as)
{
	char *name;

	return asprintf(&name, "%s%s", as, path + strlen(below)) < 0 ? NULL : name;
}

/* below, as: what files_add_as() was called with; as NULL: files_add() was */
static int add(struct files *fs, const char *path, const struct stat *st, const char *below, const char *as)
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
	*f = (struct file){ .path = as ? name_for(path, below, as) : strdup(path), .from = as ? strdup(path) : NULL, .size = (uint64_t)st->st_size, .dev = st->st_dev, .ino = st->st_ino, .domain = domain_of(fs->domains, st) };
	fs->nr++;
	return f->path && (f->from || !as) ? 0 : -ENOMEM;
}

static int add_entry(struct files *fs, const FTSENT *e, const char *below, const char *as)
{
	switch (e->fts_info) {
	case FTS_F:
		return add(fs, e->fts_path, e->fts_statp, below, as);
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		return complain(-e->fts_errno, "%s", e->fts_path);
	case FTS_D:
	case FTS_DP:
		return 0;
	case FTS_DC:
		return complain(-ELOOP, "%s: is a directory above itself", e->fts_path);
	default:
		if (e->fts_level == FTS_ROOTLEVEL)
			return refuse("%s: neither a file nor a directory; give one of them", e->fts_path);
		fs->nr_special++;
		return 0;
	}
}

int files_add(struct files *fs, const char *path)
{
	return files_add_as(fs, path, NULL);
}

int files_add_as(struct files *fs, const char *path, const char *as)
{
	char *paths[] = { (char *)path, NULL };
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
	FTSENT *e;
	int r = 0, one;

	if (!fts)
		return complain(-errno, "%s", path);
	while (r != -ENOMEM && (errno = 0, e = fts_read(fts))) {
		one = add_entry(fs, e, path, as);
		r = one < 0 ? one : r;
	}
	if (r != -ENOMEM && errno)
		r = complain(-errno, "%s", path);
	fts_close(fts);
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

/* In which numbers of their names the files of a family differ. */
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

/* file[0] to file[n - 1] are all of a family. */
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

void files_release(struct files *fs)
{
	for (size_t i = 0; i < fs->nr; i++)
		release(&fs->file[i]);
	free(fs->file);
	*fs = (struct files){ 0 };
}

enum source files_relation(const struct files *fs, uint32_t file, uint32_t last)
{
	const struct file *a = &fs->file[file], *b = &fs->file[last];

	return a == b		      ? FROM_SELF :
	       a->series == b->series ? FROM_SERIES :
	       a->family == b->family ? FROM_RANKS :
					FROM_OTHERS;
}
