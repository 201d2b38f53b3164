/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * tier_restore TIER OUT: writes every checkpoint of a tier as plain files, with the library's reader, below
 * OUT/STORE/NUMBER, and its path to OUT/STORE/NUMBER.path. Types, names and bytes; hard links are files of their own.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/util.h"
#include "store/catalog/catalog_format.h"
#include "store/tier/collect/tier_log.h"
#include "store/tier/tier.h"
#include "store/tier/tier_open.h"
#include "tests/unit/store/tier/restore.h"

struct restore {
	struct restore *reader;
	const char *top;
	char **dirs, **files;
	size_t nr_dirs, nr_files, room_dirs, room_files;
	int fd; /* of the file whose pieces follow */
	uint64_t off;
};

static _Noreturn void die(const char *what, int r)
{
	fprintf(stderr, "tier_restore: %s: %s\n", what, strerror(-r));
	exit(1);
}

static void check(const char *what, int r)
{
	if (r < 0)
		die(what, r);
}

static int collect(void *userdata, const void *p, size_t len)
{
	buf_add(userdata, p, len);
	return buf_error(userdata);
}

static char *path_of(const struct restore *t, const struct catalog_record *rec)
{
	char *path;

	if (rec->name[0] == '\0')
		return strdup(t->top);
	if (rec->dir >= t->nr_dirs || asprintf(&path, "%s/%s", t->dirs[rec->dir], rec->name) < 0)
		die(rec->name, -EBADMSG);
	return path;
}

static void note(char ***list, size_t *nr, size_t *room, char *path)
{
	check(path, list_grow(list, *nr, room, sizeof(**list)));
	(*list)[(*nr)++] = path;
}

static void make_inode(struct restore *t, const struct catalog_record *rec)
{
	char *path = path_of(t, rec), target[CATALOG_TARGET_MAX + 1];

	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	t->off = 0;
	if (S_ISDIR(rec->in.mode)) {
		check(path, mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0);
		note(&t->dirs, &t->nr_dirs, &t->room_dirs, path);
		return;
	}
	note(&t->files, &t->nr_files, &t->room_files, path);
	if (S_ISLNK(rec->in.mode)) {
		memcpy(target, rec->data, rec->len);
		target[rec->len] = '\0';
		check(path, symlink(target, path) < 0 ? -errno : 0);
	} else if (S_ISREG(rec->in.mode)) {
		t->fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
		check(path, t->fd < 0 || ftruncate(t->fd, (off_t)rec->size) < 0 ? -errno : 0);
	} else {
		check(path, mknod(path, rec->in.mode & (S_IFMT | 0777), rec->in.rdev) < 0 ? -errno : 0);
	}
}

static void write_pieces(struct restore *t, const struct catalog_record *rec)
{
	static struct content_piece v[CATALOG_PIECES_MAX];
	static struct tier_want wants[CATALOG_PIECES_MAX];
	struct cursor c = cursor_of(rec->data, rec->len);
	size_t nr = 0, nr_wants = 0;
	int r;

	while ((r = catalog_piece_next(&c, &v[nr])) > 0) {
		if (v[nr].chunk_len > 0)
			wants[nr_wants++] = (struct tier_want){ v[nr].fp, v[nr].chunk_len, malloc(v[nr].chunk_len) };
		if (++nr == CATALOG_PIECES_MAX)
			break;
	}
	check("pieces", r);
	check("chunks", restore_chunks(t->reader, wants, nr_wants));
	nr_wants = 0;
	for (size_t i = 0; i < nr; t->off += v[i++].len) {
		const uint8_t *bytes = v[i].chunk_len > 0 ? wants[nr_wants].buf : NULL;

		if (bytes && pwrite(t->fd, bytes + v[i].from, v[i].len, (off_t)t->off) != (ssize_t)v[i].len)
			die("write", -EIO);
		if (bytes)
			free(wants[nr_wants++].buf);
	}
}

static void make_link(struct restore *t, const struct catalog_record *rec)
{
	char *path = path_of(t, rec);

	if (rec->file >= t->nr_files)
		die(path, -EBADMSG);
	check(path, link(t->files[rec->file], path) < 0 ? -errno : 0);
	free(path);
}

static void restore(struct tier *tier, const char *name, const char *out)
{
	struct restore t = { .fd = -1 };
	struct catalog_reader reader = { 0 };
	struct buf catalog = BUF_EMPTY;
	const struct tier_manifest *m;
	struct catalog_record rec;
	size_t at = 0, used;
	char *top, *path;
	FILE *f;
	int r;

	r = restore_open(tier, name, &t.reader);
	if (r == -ENOENT)
		return; /* the fence of a collection */
	check(name, r);
	m = restore_manifest(t.reader);
	check(name, restore_catalog(t.reader, &(struct tier_sink){ collect, &catalog }));
	if (asprintf(&top, "%s/%s", out, name + strlen(TIER_SEALED_PREFIX)) < 0)
		die(name, -ENOMEM);
	*strrchr(top, '/') = '\0';
	check(top, mkdir(top, 0755) < 0 && errno != EEXIST ? -errno : 0);
	top[strlen(top)] = '/';
	if (asprintf(&path, "%s.path", top) < 0)
		die(name, -ENOMEM);
	t.top = top;
	while ((r = catalog_reader_next(&reader, catalog.data + at, catalog.len - at, &used, &rec)) > 0) {
		if (rec.type == CATALOG_INODE)
			make_inode(&t, &rec);
		else if (rec.type == CATALOG_PIECES)
			write_pieces(&t, &rec);
		else if (rec.type == CATALOG_LINK)
			make_link(&t, &rec);
		at += used;
	}
	check(name, r < 0 ? r : reader.at_end ? 0 : -EBADMSG);
	f = fopen(path, "w");
	if (!f || fprintf(f, "%.*s\n", (int)m->path_len, m->path) < 0 || fclose(f) != 0)
		die(path, -EIO);
	if (t.fd >= 0)
		close(t.fd);
	for (size_t i = 0; i < t.nr_dirs; i++)
		free(t.dirs[i]);
	for (size_t i = 0; i < t.nr_files; i++)
		free(t.files[i]);
	free(t.dirs);
	free(t.files);
	free(path);
	free(top);
	buf_release(&catalog);
	restore_close(t.reader);
}

int main(int argc, char *argv[])
{
	uint8_t store[TIER_ID_LEN];
	struct tier_log log;
	uint64_t number;
	struct buf names = BUF_EMPTY;
	struct tier *t;

	if (argc != 3)
		die("usage: tier_restore TIER OUT", -EINVAL);
	check(argv[1], tier_open(argv[1], &(struct tier_conf){ 0 }, &t));
	check(argv[1], tier_list_all(t, TIER_SEALED_PREFIX, &names));
	check(argv[1], tier_log_read(t, &log));
	for (size_t at = 0; at < names.len; at += strlen((char *)names.data + at) + 1)
		if (tier_manifest_name_parse((char *)names.data + at, store, &number) && tier_log_keeps(&log, store, number))
			restore(t, (char *)names.data + at, argv[2]);
	tier_log_release(&log);
	buf_release(&names);
	tier_close(t);
	return 0;
}
