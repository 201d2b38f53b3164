/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "index/db.h"
#include "tests/crash/tree.h"

struct entries {
	struct ns_dirent *v;
	size_t nr;
};

static void entries_release(struct entries *l)
{
	free(l->v);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ns_dirent *)a)->name, ((const struct ns_dirent *)b)->name);
}

static int read_dir(struct engine *e, uint64_t dir, struct entries *ret)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	_cleanup_(entries_release) struct entries l = { 0 };
	struct ns_dirent d;
	int r;

	r = ns_readdir_open(engine_db(e), dir, 0, &it);
	if (r < 0)
		return r;
	while ((r = ns_readdir_next(it, &d)) > 0) {
		struct ns_dirent *more = realloc(l.v, (l.nr + 1) * sizeof(d));

		if (!more)
			return -ENOMEM;
		l.v = more;
		l.v[l.nr++] = d;
	}
	if (r < 0)
		return r;
	if (l.nr > 0)
		qsort(l.v, l.nr, sizeof(d), by_name);
	ret->nr = l.nr;
	ret->v = TAKE(l.v);
	return 0;
}

void tree_line_add(const struct tree_line *line, struct buf *ret)
{
	char text[1200], time[32];
	int n;

	if (line->mtime_ns >= TREE_TIME_NOW)
		snprintf(time, sizeof(time), "now");
	else
		snprintf(time, sizeof(time), "%" PRId64, line->mtime_ns);
	n = snprintf(text, sizeof(text), "%s %o nlink %" PRIu32 " uid %" PRIu32, line->name, line->mode, line->nlink,
		     line->uid);
	if (S_ISREG(line->mode))
		n += snprintf(text + n, sizeof(text) - (size_t)n, " size %" PRIu64 " mtime %s %016" PRIx64, line->size,
			      time, line->hash);
	n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%s%s%s\n", line->target ? " -> " : "",
		      line->target ? line->target : "", line->xattr ? " user.a=" : "", line->xattr ? line->xattr : "");
	buf_add(ret, text, (size_t)n);
}

static int read_bytes(struct engine *e, uint64_t ino, struct tree_line *line)
{
	_cleanup_(freep) uint8_t *bytes = NULL;
	struct ns_content st;
	struct content *c;
	ssize_t n;
	int r;

	r = content_open(e, ino, &c);
	if (r < 0)
		return r;
	content_stat(c, &st);
	bytes = malloc(st.size + 1);
	n = bytes ? content_read(c, bytes, st.size + 1, 0) : -ENOMEM; /* one more: there is nothing behind the end */
	content_close(c);
	if (n < 0)
		return (int)n;
	if ((uint64_t)n != st.size)
		return -EBADMSG;
	line->size = st.size;
	line->hash = tree_hash(bytes, st.size);
	line->mtime_ns = st.mtime_ns;
	return 0;
}

static int list_one(struct engine *e, const struct ns_inode *in, const char *path, struct buf *ret)
{
	_cleanup_(buf_release) struct buf target = BUF_EMPTY, xattr = BUF_EMPTY;
	struct tree_line line = { .name = path, .mode = in->mode, .nlink = in->nlink, .uid = in->uid };
	int r = 0;

	if (S_ISREG(in->mode))
		r = read_bytes(e, in->ino, &line);
	if (r >= 0 && S_ISLNK(in->mode)) {
		r = ns_get_symlink(engine_db(e), in->ino, &target);
		buf_add_u8(&target, 0);
		line.target = (const char *)target.data;
	}
	if (r >= 0)
		r = ns_get_xattr(engine_db(e), in->ino, "user.a", &xattr);
	if (r < 0)
		return r;
	buf_add_u8(&xattr, 0);
	if (r > 0)
		line.xattr = (const char *)xattr.data;
	tree_line_add(&line, ret);
	return 0;
}

static int list_dir(struct engine *e, uint64_t dir, const char *prefix, bool damaged, struct buf *ret);

static int list_entry(struct engine *e, uint64_t ino, const char *path, bool damaged, struct buf *ret)
{
	struct ns_inode in;
	int r = ns_get_inode(engine_db(e), ino, &in);

	if (r <= 0)
		return r < 0 ? r : -EBADMSG; /* a name without an inode */
	r = list_one(e, &in, path, ret);
	return r == 0 && S_ISDIR(in.mode) ? list_dir(e, in.ino, path, damaged, ret) : r;
}

static int list_dir(struct engine *e, uint64_t dir, const char *prefix, bool damaged, struct buf *ret)
{
	_cleanup_(entries_release) struct entries l = { 0 };
	int r = read_dir(e, dir, &l);

	for (size_t i = 0; r == 0 && i < l.nr; i++) {
		char path[1024];

		snprintf(path, sizeof(path), "%s%s%s", prefix, prefix[0] ? "/" : "", l.v[i].name);
		r = list_entry(e, l.v[i].ino, path, damaged, ret);
		if (r < 0 && damaged) {
			buf_add(ret, path, strlen(path));
			buf_add(ret, " !\n", 3);
			r = 0;
		}
	}
	return r;
}

static int list(struct engine *e, const char *path, bool damaged, struct buf *ret)
{
	_cleanup_(buf_release) struct buf text = BUF_EMPTY;
	uint64_t dir = NS_ROOT_INO;
	struct ns_inode root;
	int r = ns_get_inode(engine_db(e), NS_ROOT_INO, &root);

	if (r > 0 && path[0]) {
		struct ns_dirent d;

		r = ns_find(engine_db(e), engine_key(e), NS_ROOT_INO, path, &d);
		dir = r > 0 ? d.ino : 0;
	}
	if (r > 0)
		r = list_dir(e, dir, "", damaged, &text);
	if (r < 0)
		return r;
	buf_add_u8(&text, 0);
	r = buf_error(&text);
	if (r == 0)
		buf_move(ret, &text);
	return r;
}

int tree_list(struct engine *e, const char *path, struct buf *ret)
{
	return list(e, path, false, ret);
}

int tree_list_damaged(struct engine *e, const char *path, struct buf *ret)
{
	return list(e, path, true, ret);
}

/* The line that starts with these bytes; NULL: none. */
static const char *find_line(const char *text, const char *start, size_t len)
{
	while (*text) {
		const char *next = strchrnul(text, '\n');

		if (strncmp(text, start, len) == 0)
			return text;
		text = *next ? next + 1 : next;
	}
	return NULL;
}

static bool is_unreadable(const char *found, const char *path, size_t len)
{
	char line[1024];

	len = (size_t)snprintf(line, sizeof(line), "%.*s !", (int)len, path);
	return find_line(found, line, len);
}

/* Each line of `a` is in `b` too, unless its path or the directory of it could not be read in `found`. */
static bool lines_agree(const char *a, const char *b, const char *found, FILE *to)
{
	while (*a) {
		size_t path_len = strcspn(a, " "), len = strcspn(a, "\n");
		const char *there = find_line(b, a, path_len + 1), *slash = memchr(a, '/', path_len);
		bool excused =
			is_unreadable(found, a, path_len) || (slash && is_unreadable(found, a, (size_t)(slash - a)));

		if (!excused && (!there || strncmp(a, there, len + 1) != 0)) {
			fprintf(to, "differs:\n  %.*s\n  %.*s\n", (int)len, a, there ? (int)strcspn(there, "\n") : 6,
				there ? there : "(none)");
			return false;
		}
		a += len + (a[len] == '\n');
	}
	return true;
}

bool tree_agrees(const char *expected, const char *found, FILE *to)
{
	return lines_agree(expected, found, found, to) && lines_agree(found, expected, found, to);
}
