/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sealing and telling a directory of a real store, without a kernel in between. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/fs.h"
#include "fs/mount_options.h"
#include "fs/posix/acl.h"
#include "fs/posix/attr.h"
#include "fs/posix/file.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "fs/posix/xattr.h"
#include "fs/seal/seal.h"
#include "fs/seal/seal_catalog.h"
#include "store/catalog/catalog_format.h"
#include "tests/unit/place.h"

#define PAGE 4096u
#define BYTES (3 * PAGE + 100)
#define SECOND (MiB(3) + 5 * PAGE) /* where they begin again */

struct world {
	char path[64];
	struct options o;
	struct fs *fs;
	uint64_t top, sub, file, empty;
};

static const struct cred owner = { .uid = 1000, .gid = 100 }, other = { .uid = 1001, .gid = 100 },
			 root = { .pid = PID_ANSWERED };

static uint64_t make(struct world *w, uint64_t dir, const char *name, uint32_t mode, const char *target)
{
	struct names_new n = { .mode = mode, .target = target };
	struct stat st;

	assert_int_equal(names_make(w->fs, dir, name, &n, &owner, &st), 0);
	return st.st_ino;
}

/* With the zeros that the last page is stored with. */
static void bytes_of(uint8_t ret[4 * PAGE])
{
	memset(ret, 0, 4 * PAGE);
	for (size_t i = 0; i < BYTES; i++)
		ret[i] = (uint8_t)(i * 7 + i / PAGE);
}

static struct file *open_for(struct world *w, uint64_t ino, int flags)
{
	struct file *f;

	assert_int_equal(file_open(w->fs, ino, flags, &f), 0);
	return f;
}

/* Three pages, a hole, and BYTES. */
static void write_file(struct world *w, uint64_t ino)
{
	struct file *f = open_for(w, ino, O_RDWR);
	uint8_t bytes[4 * PAGE];

	bytes_of(bytes);
	assert_int_equal(content_write(f->content, bytes, 3 * PAGE, 0), 0);
	assert_int_equal(content_write(f->content, bytes, BYTES, SECOND), 0);
	assert_int_equal(content_flush(f->content), 0);
	file_close(w->fs, f);
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct inode *i;
	struct engine *e;
	struct stat st;

	snprintf(w->path, sizeof(w->path), "%s/ckptfs-unit-XXXXXX", test_place());
	assert_non_null(mkdtemp(w->path));
	assert_int_equal(options_init(&w->o), 0);
	w->o.store = w->o.mountpoint = w->path;
	assert_int_equal(engine_open(w->path, &w->o.engine, &e), 0);
	assert_int_equal(fs_open(e, &w->o, NULL, &w->fs), 0);
	w->top = make(w, NS_ROOT_INO, "top", S_IFDIR | 0755, NULL);
	w->sub = make(w, w->top, "sub", S_IFDIR | 0700, NULL);
	w->file = make(w, w->sub, "file", S_IFREG | 0640, NULL);
	make(w, w->top, "soft", S_IFLNK | 0777, "sub/file");
	w->empty = make(w, w->top, "empty", S_IFREG | 0600, NULL);
	write_file(w, w->file);
	assert_int_equal(names_link(w->fs, w->file, w->top, "twin", NULL, &st), 0);
	assert_int_equal(inode_get(w->fs->inodes, w->file, &i), 0);
	assert_int_equal(xattr_set(w->fs, i, 0, "user.step", "seven", 5, 0, false), 0);
	names_put(w->fs, i);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;
	char command[128];

	assert_int_equal(fs_close(w->fs), 0);
	options_release(&w->o);
	snprintf(command, sizeof(command), "rm -rf %s", w->path);
	assert_int_equal(system(command), 0);
	free(w);
	return 0;
}

static int collect(void *userdata, const void *p, size_t len)
{
	struct buf *b = userdata;

	buf_add(b, p, len);
	return buf_error(b);
}

static int refuse(void *userdata _unused_, const void *p _unused_, size_t len _unused_)
{
	return -ENOSPC;
}

static int seal(struct world *w, const struct cred *cred, struct ns_seal *ret, const char *culprit)
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	int r = seal_directory(w->fs, w->top, cred, ret, &path);

	assert_int_equal(path.len, strlen(culprit));
	if (path.len > 0)
		assert_memory_equal(path.data, culprit, path.len);
	return r;
}

static int unseal(struct world *w, const struct cred *cred)
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;

	return seal_undo(w->fs, w->top, cred, &path);
}

static void sealing_is_for_the_owner_and_waits_for_no_writer_for_ever(void **state)
{
	struct world *w = *state;
	struct attr_change size = { .what = ATTR_SIZE, .size = 5 };
	struct ns_seal s;
	struct inode *i;
	struct file *f;
	struct stat st;

	assert_int_equal(seal(w, &other, &s, ""), -EPERM);
	f = open_for(w, w->empty, O_WRONLY);
	assert_int_equal(seal(w, &owner, &s, "top/empty"), -EBUSY);
	file_close(w->fs, f);
	f = open_for(w, w->file, O_RDONLY);
	assert_int_equal(seal(w, &owner, &s, ""), 0);
	assert_int_equal(s.files, 3); /* each once */
	assert_int_equal(s.directories, 2);
	assert_int_equal(s.bytes, SECOND + BYTES);
	assert_int_equal(seal(w, &owner, &s, ""), -EALREADY);
	assert_int_equal(file_open(w->fs, w->file, O_RDWR, &f), -EPERM);
	assert_int_equal(names_unlink(w->fs, w->sub, "file"), -EPERM);
	assert_int_equal(inode_get(w->fs->inodes, w->file, &i), 0);
	assert_int_equal(attr_change(w->fs, i, &size, &st), -EPERM);
	assert_int_equal(i->nr_writers, 0);
	names_put(w->fs, i);
	file_close(w->fs, f);
	assert_int_equal(unseal(w, &other), -EPERM);
	assert_int_equal(unseal(w, &root), 0);
	assert_int_equal(unseal(w, &root), -ENODATA);
	assert_int_equal(names_unlink(w->fs, w->sub, "file"), 0);
}

/* What a catalog says, compared with what was made. */
struct found {
	char dirs[4][64], files[8][64];
	unsigned nr_dirs, nr_files, nr_links, nr_xattrs;
	uint64_t at; /* in the file */
};

static void expect_chunks(struct world *w, const struct catalog_record *rec, struct found *f)
{
	struct cursor c = cursor_of(rec->data, rec->len);
	uint8_t bytes[4 * PAGE];
	struct content_piece p;

	bytes_of(bytes);
	while (catalog_piece_next(&c, &p) > 0) {
		if (p.chunk_len == 0) { /* told as one */
			assert_int_equal(f->at, 3 * PAGE);
			assert_int_equal(p.len, SECOND - 3 * PAGE);
		} else {
			uint64_t from = f->at < SECOND ? f->at : f->at - SECOND;

			assert_int_equal(p.from, 0);
			assert_true(fp_equal(p.fp, fp_of(w->fs->key, bytes + from, p.chunk_len)));
		}
		f->at += p.len;
	}
}

static void expect_record(struct world *w, const struct catalog_record *rec, struct found *f)
{
	char path[64 + NS_NAME_MAX + 2];

	snprintf(path, sizeof(path), "%s/%s", f->nr_dirs > 0 ? f->dirs[rec->dir] : "", rec->name);
	if (rec->type == CATALOG_INODE) {
		assert_int_equal(rec->in.uid, owner.uid);
		memcpy(S_ISDIR(rec->in.mode) ? f->dirs[f->nr_dirs++] : f->files[f->nr_files++], path, 63);
	}
	if (rec->type == CATALOG_INODE && S_ISLNK(rec->in.mode)) {
		assert_string_equal(path, "//soft");
		assert_int_equal(rec->len, 8);
		assert_memory_equal(rec->data, "sub/file", 8);
	}
	if (rec->type == CATALOG_LINK) {
		f->nr_links++;
		assert_true(strcmp(path, "//twin") == 0 || strcmp(path, "//sub/file") == 0);
		assert_true(strcmp(f->files[rec->file], "//twin") == 0 || strcmp(f->files[rec->file], "//sub/file") == 0);
	}
	if (rec->type == CATALOG_XATTR) {
		f->nr_xattrs++;
		assert_string_equal(rec->name, "user.step");
		assert_int_equal(rec->len, 5);
		assert_memory_equal(rec->data, "seven", 5);
	}
	if (rec->type == CATALOG_PIECES)
		expect_chunks(w, rec, f);
}

static void a_catalog_reports_all_of_a_sealed_directory(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, again = BUF_EMPTY;
	struct world *w = *state;
	struct catalog_reader reader = { 0 };
	struct catalog_record rec;
	struct found f = { 0 };
	struct ns_seal s;
	size_t at = 0, used;

	assert_int_equal(catalog_write(w->fs, w->top, &(struct catalog_sink){ collect, &b }), -ENODATA);
	assert_int_equal(seal(w, &owner, &s, ""), 0);
	assert_int_equal(catalog_write(w->fs, w->sub, &(struct catalog_sink){ collect, &b }), -ENODATA);
	assert_int_equal(catalog_write(w->fs, w->top, &(struct catalog_sink){ refuse, NULL }), -ENOSPC);
	assert_int_equal(b.len, 0);
	assert_int_equal(catalog_write(w->fs, w->top, &(struct catalog_sink){ collect, &b }), 0);
	while (catalog_reader_next(&reader, b.data + at, b.len - at, &used, &rec) > 0) {
		at += used;
		if (rec.type == CATALOG_HEAD) {
			assert_int_equal(rec.head.ino, w->top);
			assert_int_equal(rec.head.sealed_ns, s.sealed_ns);
			assert_memory_equal(rec.head.store, engine_store_id(w->fs->engine), NS_STORE_ID_LEN);
		} else {
			expect_record(w, &rec, &f);
		}
	}
	assert_true(reader.at_end);
	assert_int_equal(at, b.len);
	assert_int_equal(f.nr_dirs, 2);
	assert_int_equal(f.nr_files, 3);
	assert_int_equal(f.nr_links, 1);
	assert_int_equal(f.nr_xattrs, 1);
	assert_int_equal(f.at, SECOND + BYTES);
	assert_int_equal(catalog_write(w->fs, w->top, &(struct catalog_sink){ collect, &again }), 0);
	assert_int_equal(again.len, b.len);
	assert_memory_equal(again.data, b.data, b.len);
}

/* A sink that reads the chunks of each record. */
struct reading {
	struct world *w;
	struct buf whole; /* the catalog */
	struct content *c; /* of the next record; NULL: it has no chunks */
	uint64_t off;
	struct content_piece pieces[CATALOG_PIECES_MAX];
	size_t nr, nr_read, nr_records;
};

static void locate(void *userdata, struct content *c, uint64_t off, const struct content_piece *p, size_t nr)
{
	struct reading *g = userdata;

	assert_true(nr <= ARRAY_SIZE(g->pieces));
	g->c = c;
	g->off = off;
	g->nr = nr;
	memcpy(g->pieces, p, nr * sizeof(*p));
}

static void read_chunk(struct reading *g, const struct content_piece *p, uint64_t off)
{
	_cleanup_(freep) uint8_t *bytes = malloc(p->chunk_len);
	const struct content_chunk chunk = { off, p->fp, p->chunk_len, bytes };

	assert_int_equal(content_read_chunks(g->c, &chunk, 1), 0);
	assert_true(fp_is_of(g->w->fs->key, p->fp, bytes, p->chunk_len));
	g->nr_read++;
}

static int read_chunks(void *userdata, const void *p, size_t len)
{
	struct reading *g = userdata;
	uint64_t off = g->off;

	buf_add(&g->whole, p, len);
	if (g->nr > 0)
		assert_int_equal(*(const uint8_t *)p, CATALOG_PIECES); /* and nothing else */
	g->nr_records += g->nr > 0;
	for (size_t i = 0; i < g->nr; off += g->pieces[i++].len)
		if (g->pieces[i].chunk_len > 0)
			read_chunk(g, &g->pieces[i], off);
	g->nr = 0;
	return 0;
}

static void chunks_are_located(void **state)
{
	struct reading g = { .w = *state };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct world *w = *state;
	struct ns_seal s;

	assert_int_equal(seal(w, &owner, &s, ""), 0);
	assert_int_equal(catalog_write(w->fs, w->top, &(struct catalog_sink){ collect, &b }), 0);
	assert_int_equal(catalog_write_located(w->fs, w->top, &(struct catalog_sink){ read_chunks, &g }, locate), 0);
	assert_int_equal(g.whole.len, b.len);
	assert_memory_equal(g.whole.data, b.data, b.len);
	assert_int_equal(g.nr_read, 3 + 4);
	buf_release(&g.whole);
}

/* A flush to a tier waits once for each record. */
static void records_are_large(void **state)
{
	struct reading g = { .w = *state };
	struct world *w = *state;
	uint64_t page[PAGE / 8];
	struct file *f;
	struct ns_seal s;

	f = open_for(w, w->empty, O_RDWR);
	for (unsigned i = 0; i < 1200; i++) {
		for (unsigned k = 0; k < ARRAY_SIZE(page); k++)
			page[k] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + k;
		assert_int_equal(content_write(f->content, page, PAGE, (uint64_t)i * PAGE), 0);
	}
	assert_int_equal(content_flush(f->content), 0);
	file_close(w->fs, f);
	assert_int_equal(seal(w, &owner, &s, ""), 0);
	assert_int_equal(catalog_write_located(w->fs, w->top, &(struct catalog_sink){ read_chunks, &g }, locate), 0);
	assert_int_equal(g.nr_read, 1200 + 3 + 4);
	assert_int_equal(g.nr_records, 2 + 1);
	buf_release(&g.whole);
}

/* Unseals while it is being told. */
static int disturb(void *userdata, const void *p _unused_, size_t len _unused_)
{
	assert_int_equal(unseal(userdata, &owner), 0);
	return 0;
}

static void what_is_unsealed_meanwhile_is_not_reported(void **state)
{
	struct world *w = *state;
	struct ns_seal s;

	assert_int_equal(seal(w, &owner, &s, ""), 0);
	assert_int_equal(catalog_write(w->fs, w->top, &(struct catalog_sink){ disturb, w }), -ESTALE);
}

static void reopen(struct world *w)
{
	struct engine *e;

	assert_int_equal(fs_close(w->fs), 0);
	assert_int_equal(engine_open(w->path, &w->o.engine, &e), 0);
	assert_int_equal(fs_open(e, &w->o, NULL, &w->fs), 0);
}

/* As a crash leaves it that comes when the marks are durable and the root is not known yet. */
static void half_a_seal_is_no_seal_and_is_taken_back(void **state)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY, path = BUF_EMPTY;
	struct world *w = *state;
	uint8_t now[NS_SEAL_ROOT_LEN];
	struct ns_inode in;
	struct ns_seal s;
	uint64_t ino;

	assert_int_equal(seal(w, &owner, &s, ""), 0);
	assert_int_equal(seal_check(w->fs, w->top, owner.uid, &s, now), 0);
	s.is_complete = false;
	ns_seal_encode(&s, &value);
	engine_tx_put(&tx, ns_key_seal(w->top), value.data, value.len);
	assert_int_equal(engine_tx_apply(w->fs->engine, &tx), 0);
	assert_int_equal(seal_next(w->fs, 0, 0, &ino, &s, &path), 0);
	assert_int_equal(seal_check(w->fs, w->top, owner.uid, &s, now), -ENODATA);
	assert_int_equal(catalog_write(w->fs, w->top, &(struct catalog_sink){ refuse, NULL }), -ENODATA);
	assert_int_equal(seal(w, &owner, &s, ""), -EBUSY);
	assert_int_equal(names_unlink(w->fs, w->sub, "file"), -EPERM);
	reopen(w);
	assert_int_equal(ns_get_seal(w->fs->db, w->top, &s), 0);
	assert_int_equal(attr_load(w->fs, w->file, &in), 1);
	assert_int_equal(in.flags & INODE_SEALED, 0);
	assert_int_equal(seal(w, &owner, &s, ""), 0);
}

/* As a clock makes it that is a day ahead, and is set right then. */
static void a_seal_is_later_than_those_before_it_whatever_the_clock_says(void **state)
{
	const int64_t ahead = (int64_t)now_ns() + INT64_C(86400000000000);
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY, path = BUF_EMPTY;
	struct world *w = *state;
	struct ns_seal s;

	assert_int_equal(seal(w, &owner, &s, ""), 0);
	assert_true(s.sealed_ns < ahead);
	s.sealed_ns = ahead;
	ns_seal_encode(&s, &value);
	engine_tx_put(&tx, ns_key_seal(w->top), value.data, value.len);
	assert_int_equal(engine_tx_apply(w->fs->engine, &tx), 0);
	reopen(w);
	for (int i = 1; i < 3; i++) {
		char name[] = { 'n', (char)('0' + i), '\0' };
		uint64_t dir = make(w, NS_ROOT_INO, name, S_IFDIR | 0755, NULL);

		assert_int_equal(seal_directory(w->fs, dir, &owner, &s, &path), 0);
		assert_int_equal(s.sealed_ns, ahead + i);
	}
}

static void change(struct world *w, uint64_t ino, const struct attr_change *c)
{
	struct inode *i;
	struct stat st;

	assert_int_equal(inode_get(w->fs->inodes, ino, &i), 0);
	assert_int_equal(attr_change(w->fs, i, c, &st), 0);
	names_put(w->fs, i);
}

static void set_mode(struct world *w, uint64_t ino, uint32_t mode)
{
	change(w, ino, &(struct attr_change){ .what = ATTR_MODE, .mode = mode });
}

static uint32_t reported_mode(struct world *w)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct catalog_reader reader = { 0 };
	struct catalog_record rec;
	size_t at, used;

	assert_int_equal(catalog_write(w->fs, w->top, &(struct catalog_sink){ collect, &b }), 0);
	assert_int_equal(catalog_reader_next(&reader, b.data, b.len, &at, &rec), 1);
	assert_int_equal(catalog_reader_next(&reader, b.data + at, b.len - at, &used, &rec), 1);
	assert_int_equal(rec.type, CATALOG_INODE);
	return rec.in.mode;
}

/* Others make up the directories above, and let all pass. */
static void users_that_cannot_reach_it_here_cannot_read_it_there(void **state)
{
	static const struct {
		uint32_t above, reported;
	} cases[] = { { 0755, 0755 }, { 0711, 0755 }, { 0700, 0700 }, { 0750, 0700 }, { 0705, 0700 } };
	struct world *w = *state;
	struct ns_seal s;

	assert_int_equal(seal(w, &owner, &s, ""), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint32_t access;

		set_mode(w, NS_ROOT_INO, S_IFDIR | cases[i].above);
		assert_int_equal(reported_mode(w), S_IFDIR | cases[i].reported);
		assert_int_equal(catalog_access(w->fs, w->top, &access), 0);
		assert_int_equal(access, cases[i].reported & 077);
	}
}

/* Of the same group as what is above it. */
static void a_group_that_may_pass_is_reported(void **state)
{
	struct world *w = *state;
	uint64_t above = w->top;
	struct ns_seal s;

	w->top = make(w, above, "inner", S_IFDIR | 0755, NULL);
	set_mode(w, above, S_IFDIR | 0750);
	assert_int_equal(seal(w, &owner, &s, ""), 0);
	assert_int_equal(reported_mode(w), S_IFDIR | 0750);
}

static void set_xattr_named(struct world *w, uint64_t ino, const char *name, const void *value, size_t len)
{
	struct inode *i;

	assert_int_equal(inode_get(w->fs->inodes, ino, &i), 0);
	assert_int_equal(xattr_set(w->fs, i, 0, name, value, len, 0, false), 0);
	names_put(w->fs, i);
}

static void set_xattr(struct world *w, uint64_t ino, const char *value)
{
	set_xattr_named(w, ino, "user.step", value, strlen(value));
}

/* Its group may pass, but not all users that its list names; and by the list the group itself may do nothing, which the
 * mode alone does not tell. */
static void an_access_list_gives_nothing_if_not_all_can_reach_it(void **state)
{
	static const uint8_t list[] = {
		2,  0, 0, 0, /* version; then each: kind, permissions, id */
		1,  0, 7, 0, 255, 255, 255, 255, /* owner */
		2,  0, 7, 0, 5,	  0,   0,   0, /* user 5 */
		4,  0, 0, 0, 255, 255, 255, 255, /* group */
		16, 0, 7, 0, 255, 255, 255, 255, /* mask */
		32, 0, 5, 0, 255, 255, 255, 255, /* others */
	};
	struct world *w = *state;
	uint64_t above = w->top;
	struct ns_seal s;

	w->top = make(w, above, "inner", S_IFDIR | 0775, NULL);
	set_xattr_named(w, w->top, ACL_ACCESS_NAME, list, sizeof(list));
	assert_int_equal(seal(w, &owner, &s, ""), 0);
	assert_int_equal(reported_mode(w), S_IFDIR | 0775);
	set_mode(w, above, S_IFDIR | 0750);
	assert_int_equal(reported_mode(w), S_IFDIR | 0700);
	set_mode(w, above, S_IFDIR | 0755);
	assert_int_equal(reported_mode(w), S_IFDIR | 0775);
}

static void set_mtime(struct world *w, uint64_t ino, int64_t ns)
{
	change(w, ino, &(struct attr_change){ .what = ATTR_MTIME, .mtime_ns = ns });
}

static void write_byte(struct world *w, uint64_t ino, uint8_t byte)
{
	struct file *f = open_for(w, ino, O_RDWR);

	assert_int_equal(content_write(f->content, &byte, 1, 0), 0);
	assert_int_equal(content_flush(f->content), 0);
	file_close(w->fs, f);
	set_mtime(w, ino, 5);
}

static struct ns_seal resealed(struct world *w)
{
	uint8_t now[NS_SEAL_ROOT_LEN];
	struct ns_seal s, checked;

	assert_int_equal(seal(w, &owner, &s, ""), 0);
	assert_true(s.is_complete);
	assert_int_equal(seal_check(w->fs, w->top, owner.uid, &checked, now), 0);
	assert_memory_equal(now, s.root, sizeof(now));
	assert_memory_equal(checked.root, s.root, sizeof(now));
	assert_int_equal(seal_check(w->fs, w->top, other.uid, &checked, now), -EPERM);
	assert_int_equal(unseal(w, &owner), 0);
	return s;
}

/* Whatever is changed, and changed back. */
static void a_root_is_of_names_attributes_and_content(void **state)
{
	struct world *w = *state;
	struct ns_seal first, s;
	struct stat st;

	write_byte(w, w->file, 1);
	set_mtime(w, w->empty, 5);
	set_mtime(w, w->top, 7);
	set_mtime(w, w->sub, 7);
	first = resealed(w);
	assert_int_equal(first.new_bytes > 0, true);
#define expect_other(change, back)                                   \
	change;                                                      \
	set_mtime(w, w->top, 7);                                     \
	set_mtime(w, w->sub, 7);                                     \
	s = resealed(w);                                             \
	assert_memory_not_equal(s.root, first.root, sizeof(s.root)); \
	back;                                                        \
	set_mtime(w, w->top, 7);                                     \
	set_mtime(w, w->sub, 7);                                     \
	s = resealed(w);                                             \
	assert_memory_equal(s.root, first.root, sizeof(s.root))
	expect_other(set_mode(w, w->file, 0600), set_mode(w, w->file, 0640));
	expect_other(set_mode(w, w->top, 0700), set_mode(w, w->top, 0755));
	expect_other(set_mtime(w, w->file, 6), set_mtime(w, w->file, 5));
	expect_other(set_mtime(w, w->empty, 6), set_mtime(w, w->empty, 5));
	expect_other(set_xattr(w, w->file, "eight"), set_xattr(w, w->file, "seven"));
	expect_other(write_byte(w, w->file, 2), write_byte(w, w->file, 1));
	expect_other(assert_int_equal(names_link(w->fs, w->empty, w->sub, "more", NULL, &st), 0),
		     assert_int_equal(names_unlink(w->fs, w->sub, "more"), 0));
	reopen(w);
	s = resealed(w);
	assert_memory_equal(s.root, first.root, sizeof(s.root));
}

/* Half of what is in it is in a file elsewhere, too. */
static void new_is_what_nothing_else_has(void **state)
{
	struct world *w = *state;
	uint64_t copy = make(w, NS_ROOT_INO, "copy", S_IFREG | 0600, NULL);
	struct ns_seal is_only = resealed(w), shared;
	uint8_t bytes[4 * PAGE];
	struct file *f;

	assert_int_equal(is_only.new_bytes, 4 * PAGE); /* the last page is filled up */
	bytes_of(bytes);
	f = open_for(w, copy, O_RDWR);
	assert_int_equal(content_write(f->content, bytes, 2 * PAGE, 0), 0);
	assert_int_equal(content_flush(f->content), 0);
	file_close(w->fs, f);
	shared = resealed(w);
	assert_int_equal(shared.new_bytes, 2 * PAGE);
}

int main(void)
{
#define with_world(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		with_world(sealing_is_for_the_owner_and_waits_for_no_writer_for_ever),
		with_world(a_catalog_reports_all_of_a_sealed_directory),
		with_world(chunks_are_located),
		with_world(records_are_large),
		with_world(what_is_unsealed_meanwhile_is_not_reported),
		with_world(half_a_seal_is_no_seal_and_is_taken_back),
		with_world(a_seal_is_later_than_those_before_it_whatever_the_clock_says),
		with_world(a_root_is_of_names_attributes_and_content),
		with_world(new_is_what_nothing_else_has),
		with_world(users_that_cannot_reach_it_here_cannot_read_it_there),
		with_world(a_group_that_may_pass_is_reported),
		with_world(an_access_list_gives_nothing_if_not_all_can_reach_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
