/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/analyze/analyze_scratch.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/util.h"
#include "tools/analyze/analyze_complain.h"

#define MEMORY MiB(64)
#define OVERHEAD MiB(64) /* journal and index; approximate */
#define DIRECTORY 2 /* inode number of the directory of all files */
#define CALL MiB(1) /* largest write of the kernel */

void scratch_figures_add(struct scratch_figures *to, const struct scratch_figures *f)
{
	to->previous += f->previous;
	to->known += f->known;
	to->new += f->new;
}

static struct scratch_figures figures_of(struct engine *e)
{
	struct engine_stats st;

	engine_stats(e, &st);
	return (struct scratch_figures){ .previous = st.champion + st.shifted,
					 .known = st.successor + st.memory + st.indexed,
					 .new = st.fresh };
}

int scratch_check_room(const char *where, uint64_t bytes)
{
	uint64_t needed = bytes + OVERHEAD, room;
	struct statvfs v;

	if (statvfs(where, &v) < 0)
		return complain(-errno, "%s: scratch stores cannot be created there; set TMPDIR", where);
	room = (uint64_t)v.f_bavail * v.f_frsize;
	if (room >= needed)
		return 0;
	refuse("%s: a scratch store needs %s, but only %s is free: set TMPDIR, or give a smaller --measure", where,
	       human_size(needed).s, human_size(room).s);
	return -ENOSPC;
}

static int open_engine(struct scratch *s)
{
	int r = engine_open(s->path, &s->conf, &s->e);

	return r < 0 ? complain(r, "%s: cannot open the scratch store", s->path) : 0;
}

int scratch_open(struct scratch *s, const char *where, const struct engine_conf *conf)
{
	*s = (struct scratch){ .conf = *conf };
	s->conf.cache = s->conf.dirty = MEMORY;
	snprintf(s->path, sizeof(s->path), "%s/ckptfs-analyze.XXXXXX", where);
	if (!mkdtemp(s->path)) {
		s->path[0] = '\0';
		return complain(-errno, "%s: cannot create a scratch store", where);
	}
	return open_engine(s);
}

static void put_inode(struct engine_tx *tx, const struct ns_inode *in, struct buf *value)
{
	buf_clear(value);
	ns_inode_encode(in, value);
	engine_tx_put(tx, ns_key_inode(in->ino), value->data, value->len);
}

/* Logs the records of a created file, as a mount does: the inode, the name, and the times of the directory. With dedup=
 * the engine looks up the owner in the inode. */
static int create_file(struct scratch *s, const struct scratch_file *f)
{
	const struct ns_inode in = { .ino = f->ino, .mode = S_IFREG | 0600, .nlink = 1, .uid = f->uid, .gid = f->gid };
	const struct ns_inode dir = { .ino = DIRECTORY, .mode = S_IFDIR | 0700, .nlink = 2 };
	const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
	struct ns_dirent entry = { .ino = f->ino, .type = DT_REG, .name_len = (uint8_t)strnlen(name, NS_NAME_MAX) };
	struct engine_tx tx = ENGINE_TX_GROWING;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r;

	memcpy(entry.name, name, entry.name_len);
	put_inode(&tx, &in, &value);
	put_inode(&tx, &dir, &value);
	buf_clear(&value);
	ns_dirent_encode(&entry, &value);
	engine_tx_put(&tx, ns_key_dirent(DIRECTORY, f->ino), value.data, value.len); /* any unique number will do */
	r = buf_error(&value);
	if (r == 0)
		r = engine_tx_apply(s->e, &tx);
	engine_tx_release(&tx);
	return r;
}

/* Reads up to CALL bytes of data at or after *off, skipping holes, and sets *off. Returns the number; 0: no more. */
static ssize_t read_data(const struct scratch_file *f, uint8_t *p, uint64_t *off)
{
	off_t data;
	ssize_t n;

	if (*off >= f->len)
		return 0;
	data = lseek(f->fd, (off_t)(f->off + *off), SEEK_DATA);
	if (data < 0 && errno == ENXIO)
		return 0;
	if (data > (off_t)(f->off + *off)) /* keep *off aligned */
		*off = round_down((uint64_t)data - f->off, CALL);
	if (*off >= f->len)
		return 0;
	n = pread(f->fd, p, MIN(f->len - *off, CALL), (off_t)(f->off + *off));
	return n < 0 ? complain(-errno, "%s: cannot read at offset %ju", f->path, (uintmax_t)(f->off + *off)) : n;
}

static int write_pieces(const struct scratch_file *f, struct content *c, uint8_t *p,
			bool (*step)(void *userdata, uint64_t done), void *userdata, int *ret_error)
{
	uint64_t off = 0;
	ssize_t n;
	int r = 0;

	while (r == 0 && step(userdata, off)) {
		n = read_data(f, p, &off);
		if (n <= 0) {
			*ret_error = (int)n;
			break;
		}
		r = content_write(c, p, (size_t)n, off);
		off += (uint64_t)n;
	}
	return r;
}

int scratch_write(struct scratch *s, const struct scratch_file *f, bool (*step)(void *userdata, uint64_t done),
		  void *userdata, struct scratch_figures *ret, int *ret_error)
{
	_cleanup_(freep) uint8_t *p = malloc(CALL);
	struct scratch_figures before = figures_of(s->e), after;
	struct content *c = NULL;
	int r = p ? create_file(s, f) : -ENOMEM, q;

	*ret_error = 0;
	if (r == 0)
		r = content_open(s->e, f->ino, &c);
	if (r == 0) {
		content_set_champions(c, &f->previous, f->previous != 0);
		r = write_pieces(f, c, p, step, userdata, ret_error);
		q = content_flush(c);
		if (q == 0 && s->fsync)
			q = engine_sync(s->e);
		r = r < 0 ? r : q;
		content_set_champions(c, NULL, 0);
		content_close(c);
	}
	if (r < 0)
		return complain(r, "%s: cannot write to the scratch store", s->path);
	after = figures_of(s->e);
	*ret = (struct scratch_figures){ .previous = after.previous - before.previous,
					 .known = after.known - before.known,
					 .new = after.new - before.new };
	return 0;
}

static _Thread_local uint64_t tree_bytes;

static int add_bytes(_unused_ const char *path, const struct stat *st, _unused_ int type, _unused_ struct FTW *ftw)
{
	tree_bytes += (uint64_t)st->st_blocks * 512;
	return 0;
}

static int remove_one(const char *path, _unused_ const struct stat *st, _unused_ int type, _unused_ struct FTW *ftw)
{
	return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

int scratch_measure(struct scratch *s, uint64_t *ret)
{
	int r = engine_close(TAKE(s->e));

	tree_bytes = 0;
	if (r == 0 && nftw(s->path, add_bytes, 16, FTW_PHYS) < 0)
		r = -errno;
	if (r < 0)
		return complain(r, "%s: cannot close the scratch store", s->path);
	*ret = tree_bytes;
	return open_engine(s);
}

void scratch_remove(struct scratch *s)
{
	engine_close(TAKE(s->e));
	if (s->path[0])
		nftw(s->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	s->path[0] = '\0';
}
