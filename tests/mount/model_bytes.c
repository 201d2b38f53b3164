/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Operations on the bytes of files. */
#include "model_op.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes in the model: buf goes to [off, off + len). */
void put_bytes(struct worker *w, int n, const uint8_t *p, uint64_t off, size_t len, const char *op)
{
	struct node *x = &w->tree->node[n];
	uint64_t end = off + len;

	step_begin(w->tree, op);
	keep_bytes(w->tree, n, off, len, false);
	memcpy(data_of(w->tree, n) + off, p, len);
	keep_bytes(w->tree, n, off, len, true);
	file_changed(w->tree, n, off, len, end > x->size ? end : x->size);
}

void acknowledged(struct worker *w)
{
	if (w->tree->logging)
		w->tree->steps[w->tree->nr_steps - 1].synced = true;
}

int write_once(struct worker *w, int fd, int n, const char *path, bool append, bool direct)
{
	struct node *x = &w->tree->node[n];
	uint64_t off = append ? x->size : random_off(w, x->size);
	size_t len;

	if (direct)
		off &= ~(uint64_t)(PAGE - 1);
	if (off >= FILE_MAX_SIZE)
		return OP_OK;
	len = random_len(w, FILE_MAX_SIZE - off);
	if (direct)
		len = len < PAGE ? PAGE : len & ~(size_t)(PAGE - 1);
	random_data(w, w->buf, off, len);
	put_bytes(w, n, w->buf, off, len, "write");
	if (append)
		IS(write(fd, w->buf, len), len);
	else
		IS(pwrite(fd, w->buf, len, off), len);
	return OP_OK;
}

int op_write(struct worker *w)
{
	static const int modes[] = { O_WRONLY, O_RDWR, O_WRONLY | O_APPEND, O_RDWR | O_APPEND, O_RDWR | O_DIRECT,
				     O_WRONLY | O_DIRECT, O_WRONLY | O_SYNC, O_WRONLY, O_RDWR };
	int mode = modes[roll(w, sizeof(modes) / sizeof(modes[0]))], n, fd, i, times = roll(w, 5) ? 1 : 5;
	char path[PATH_SIZE];

	if (!random_file(w, &n, path))
		return OP_OK;
	if (w->no_sync)
		mode &= ~O_SYNC;
	DO(fd = openat(w->dirfd, path, mode));
	for (i = 0; i < times; i++) {
		DONE(write_once(w, fd, n, path, mode & O_APPEND, mode & O_DIRECT));
		if (mode & O_SYNC)
			acknowledged(w);
	}
	if (roll(w, 8) == 0 && !w->no_sync) {
		step_begin(w->tree, "fdatasync");
		DO(fdatasync(fd));
		acknowledged(w);
	}
	DO(close(fd));
	return OP_OK;
}

int op_truncate(struct worker *w)
{
	char path[PATH_SIZE];
	uint64_t size, old, from, to;
	int n, fd;

	if (!random_file(w, &n, path))
		return OP_OK;
	old = w->tree->node[n].size;
	size = roll(w, 4) ? random_off(w, old) : 0;
	from = size < old ? size : old;
	to = size < old ? old : size;
	step_begin(w->tree, "truncate");
	memset(data_of(w->tree, n) + from, 0, to - from);
	file_changed(w->tree, n, from, to - from, size);
	DO(fd = openat(w->dirfd, path, size == 0 ? O_WRONLY | O_TRUNC : O_WRONLY));
	if (size)
		DO(ftruncate(fd, size));
	DO(close(fd));
	return OP_OK;
}

int op_fallocate(struct worker *w)
{
	static const struct {
		int mode;
		const char *op;
	} kinds[] = {
		{ FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, "punch" },
		{ FALLOC_FL_ZERO_RANGE, "zero" },
		{ FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, "zero" },
		{ 0, "allocate" },
		{ FALLOC_FL_KEEP_SIZE, "allocate" },
	};
	unsigned kind = roll(w, sizeof(kinds) / sizeof(kinds[0]));
	uint64_t off, len, size, end;
	char path[PATH_SIZE];
	int n, fd;

	if (!random_file(w, &n, path))
		return OP_OK;
	size = w->tree->node[n].size;
	off = random_off(w, size);
	len = random_len(w, FILE_MAX_SIZE - off);
	end = kinds[kind].mode & FALLOC_FL_KEEP_SIZE ? size : off + len > size ? off + len : size;
	step_begin(w->tree, kinds[kind].op);
	if (w->tree->logging)
		w->tree->steps[w->tree->nr_steps - 1].may_tear = true;
	if (kinds[kind].mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		memset(data_of(w->tree, n) + off, 0, len);
	file_changed(w->tree, n, off, len, end);
	DO(fd = openat(w->dirfd, path, O_RDWR));
	DO(fallocate(fd, kinds[kind].mode, off, len));
	DO(close(fd));
	return OP_OK;
}

int op_clone(struct worker *w)
{
	char path[PATH_SIZE], from[PATH_SIZE];
	int a, b, in, out;
	uint64_t src, dst, len;
	off_t x, y;

	if (!random_file(w, &a, from) || !random_file(w, &b, path) || w->tree->node[a].size == 0)
		return OP_OK;
	src = roll(w, w->tree->node[a].size);
	dst = random_off(w, w->tree->node[b].size);
	if (roll(w, 2)) /* aligned to each other, as a clone of whole pages would be */
		src &= ~(uint64_t)(PAGE - 1), dst &= ~(uint64_t)(PAGE - 1);
	len = w->tree->node[a].size - src;
	if (roll(w, 2))
		len = random_len(w, len);
	if (len > FILE_MAX_SIZE - dst)
		len = FILE_MAX_SIZE - dst;
	if (a == b && src < dst + len && dst < src + len)
		return OP_OK;
	memcpy(w->buf, data_of(w->tree, a) + src, len);
	put_bytes(w, b, w->buf, dst, len, "clone");
	DO(in = openat(w->dirfd, from, O_RDONLY));
	DO(out = openat(w->dirfd, path, roll(w, 2) ? O_RDWR : O_WRONLY));
	for (x = src, y = dst; len > 0;) {
		ssize_t r;

		DO(r = copy_file_range(in, &x, out, &y, len, 0));
		if (r == 0)
			return differs(w, __LINE__, "%s: copy_file_range stops with %llu to go", path,
				       (unsigned long long)len);
		len -= r;
	}
	DO(close(in));
	DO(close(out));
	return OP_OK;
}

int op_mmap(struct worker *w)
{
	char path[PATH_SIZE];
	uint64_t size, off;
	size_t len;
	uint8_t *p;
	int n, fd;
	bool write_it = roll(w, 3) != 0;

	if (!random_file(w, &n, path))
		return OP_OK;
	size = w->tree->node[n].size;
	if (size == 0)
		return OP_OK;
	off = roll(w, size);
	len = random_len(w, size - off);
	DO(fd = openat(w->dirfd, path, O_RDWR));
	p = mmap(NULL, size, write_it ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return differs(w, __LINE__, "mmap (%s): %s", path, strerror(errno));
	catch_bus();
	if (sigsetjmp(bus_jump, 1))
		return differs(w, __LINE__, "%s: SIGBUS inside the file", path);
	if (write_it) {
		random_data(w, w->buf, off, len);
		put_bytes(w, n, w->buf, off, len, "mmap write");
		memcpy(p + off, w->buf, len);
		if (roll(w, 2) && !w->no_sync)
			DO(msync(p, size, MS_SYNC));
	}
	DONE(same_bytes(w, path, p, data_of(w->tree, n), 0, size));
	DO(munmap(p, size));
	DO(close(fd));
	return OP_OK;
}

int op_tmpfile(struct worker *w)
{
	char name[NAME_SIZE], path[PATH_SIZE], dir_path[PATH_SIZE], link[64];
	int dir = random_dir(w), n, fd;
	size_t len = random_len(w, FILE_MAX_SIZE);
	struct stat st;

	random_name(w, name);
	if (dent_find(w->tree, dir, name) >= 0)
		return OP_OK;
	path_of(w->tree, dir, name, path, sizeof(path));
	path_of(w->tree, dir, ".", dir_path, sizeof(dir_path));
	DO(fd = openat(w->dirfd, dir_path, O_TMPFILE | O_RDWR, 0604));
	random_data(w, w->buf, 0, len);
	IS(pwrite(fd, w->buf, len / 2, 0), len / 2);
	IS(pwrite(fd, w->buf + len / 2, len - len / 2, len / 2), len - len / 2);
	n = add_new(w, NODE_FILE, 0604, dir, name, "link of a tmpfile");
	if (n < 0)
		return OP_OK;
	memcpy(data_of(w->tree, n), w->buf, len);
	file_changed(w->tree, n, 0, len, len);
	DO(fstat(fd, &st));
	node_born(w->tree, n, st.st_ino);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	DO(linkat(AT_FDCWD, link, w->dirfd, path, AT_SYMLINK_FOLLOW));
	DO(close(fd));
	return OP_OK;
}

/* How programs save: a new file beside the old one, renamed over it; with or without fsync before. */
int op_replace(struct worker *w)
{
	struct tree *t = w->tree;
	char name[NAME_SIZE], path[PATH_SIZE], temp[PATH_SIZE];
	int dir = random_dir(w), n, fd, to;

	random_name(w, name);
	to = dent_find(t, dir, name);
	if (dent_find(t, dir, "temp") >= 0 || (to >= 0 && t->node[t->dent[to].node].type == NODE_DIR))
		return OP_OK;
	path_of(t, dir, "temp", temp, sizeof(temp));
	path_of(t, dir, name, path, sizeof(path));
	n = add_new(w, NODE_FILE, 0644, dir, "temp", "create");
	if (n < 0)
		return OP_OK;
	DO(fd = openat(w->dirfd, temp, O_CREAT | O_EXCL | O_WRONLY, 0644));
	DONE(learn(w, n, temp));
	DONE(write_once(w, fd, n, temp, true, false));
	DONE(write_once(w, fd, n, temp, false, false));
	if (roll(w, 3) == 0 && !w->no_sync) {
		step_begin(t, "fsync");
		DO(fsync(fd));
		acknowledged(w);
	}
	DO(close(fd));
	step_begin(t, "rename");
	to = dent_find(t, dir, name);
	if (to >= 0)
		dent_remove(t, to);
	dent_move(t, dent_find(t, dir, "temp"), dir, name);
	DO(renameat(w->dirfd, temp, w->dirfd, path));
	return OP_OK;
}

/* A file goes on being used after its last name has gone. */
int op_orphan(struct worker *w)
{
	char path[PATH_SIZE];
	uint64_t size;
	size_t len;
	int n, fd, d = random_dent(w, A(FILE));

	if (d < 0)
		return OP_OK;
	n = w->tree->dent[d].node;
	dent_path(w, d, path);
	size = w->tree->node[n].size;
	memcpy(w->buf2, data_of(w->tree, n), size);
	DO(fd = openat(w->dirfd, path, O_RDWR));
	step_begin(w->tree, "unlink");
	dent_remove(w->tree, d);
	DO(unlinkat(w->dirfd, path, 0));
	IS(pread(fd, w->buf, FILE_MAX_SIZE, 0), size);
	DONE(same_bytes(w, path, w->buf, w->buf2, 0, size));
	if (w->tree->node[n].type == NODE_NONE) {
		len = random_len(w, FILE_MAX_SIZE);
		random_data(w, w->buf, 0, len);
		IS(pwrite(fd, w->buf, len, 0), len);
		IS(pread(fd, w->buf2, len, 0), len);
		DONE(same_bytes(w, path, w->buf2, w->buf, 0, len));
	}
	DO(close(fd));
	return OP_OK;
}

/* ---- files kept open ---- */

static int hold(struct worker *w, struct held *h)
{
	char path[PATH_SIZE];
	int n;

	if (!random_file(w, &n, path))
		return OP_OK;
	h->writable = roll(w, 2);
	DO(h->fd = openat(w->dirfd, path, h->writable ? O_RDWR : O_RDONLY));
	h->tree = w->tree;
	h->node = n;
	h->id = w->tree->node[n].id;
	h->map_len = roll(w, 2) ? w->tree->node[n].size : 0;
	if (h->map_len == 0)
		return OP_OK;
	h->map = mmap(NULL, h->map_len, PROT_READ | (h->writable ? PROT_WRITE : 0), MAP_SHARED, h->fd, 0);
	if (h->map == MAP_FAILED)
		return differs(w, __LINE__, "mmap (%s): %s", path, strerror(errno));
	return OP_OK;
}

static int release_one(struct worker *w, struct held *h)
{
	const char *path = "held";

	if (h->map_len)
		DO(munmap(h->map, h->map_len));
	DO(close(h->fd));
	h->tree = NULL;
	return OP_OK;
}

/* Change a held file without closing it; never when the mount may die, since it is unknown when this takes effect. */
static int change_held(struct worker *w, struct held *h)
{
	struct node *x = &w->tree->node[h->node];
	size_t limit = h->map_len < x->size ? h->map_len : x->size, len;
	uint64_t off;

	x->late_writes = true;
	if (limit == 0)
		return write_once(w, h->fd, h->node, "held", false, false);
	off = roll(w, limit);
	len = random_len(w, limit - off);
	random_data(w, w->buf, off, len);
	put_bytes(w, h->node, w->buf, off, len, "held map");
	memcpy(h->map + off, w->buf, len);
	return OP_OK;
}

int op_held(struct worker *w)
{
	struct held *h = &w->held[roll(w, NR_HELD)];
	const char *path = "held";
	size_t limit;
	struct node *x;

	if (!h->tree)
		return hold(w, h);
	if (h->tree != w->tree)
		return OP_OK;
	x = &w->tree->node[h->node];
	if (x->type != NODE_FILE || x->id != h->id || roll(w, 8) == 0)
		return release_one(w, h);
	catch_bus();
	if (sigsetjmp(bus_jump, 1))
		return differs(w, __LINE__, "held: SIGBUS inside the file");
	if (h->writable && !w->may_die && roll(w, 2))
		DONE(change_held(w, h));
	limit = h->map_len < x->size ? h->map_len : x->size;
	if (h->map_len)
		DONE(same_bytes(w, "held map", h->map, data_of(w->tree, h->node), 0, limit));
	IS(pread(h->fd, w->buf, FILE_MAX_SIZE, 0), x->size);
	return same_bytes(w, "held file", w->buf, data_of(w->tree, h->node), 0, x->size);
}
