/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Operations on attributes, and those that only look. */
#include "model_op.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

int op_attributes(struct worker *w)
{
	struct tree *t = w->tree;
	char path[PATH_SIZE];
	int d = random_dent(w, ANY & ~A(SYMLINK));
	struct node *x;

	if (d < 0)
		return OP_OK;
	dent_path(w, d, path);
	x = &t->node[t->dent[d].node];
	if (roll(w, 3) == 0) {
		struct timespec ts[2] = {
			{ roll(w, 1000000), roll(w, 1000000000) },
			{ roll(w, 2000000000), roll(w, 1000000000) },
		};

		step_begin(t, "utimens");
		x->mtime_ns = x->late_writes ? -1 : ts[1].tv_sec * 1000000000LL + ts[1].tv_nsec;
		node_changed(t, t->dent[d].node);
		DO(utimensat(w->dirfd, path, ts, 0));
	} else if (roll(w, 3) == 0) {
		step_begin(t, "chown");
		x->uid = roll(w, 5), x->gid = roll(w, 5);
		node_changed(t, t->dent[d].node);
		DO(fchownat(w->dirfd, path, x->uid, x->gid, 0));
	} else {
		step_begin(t, "chmod");
		x->mode = roll(w, 02000);
		node_changed(t, t->dent[d].node);
		DO(fchmodat(w->dirfd, path, x->mode, 0));
	}
	return OP_OK;
}

int op_xattr(struct worker *w)
{
	struct tree *t = w->tree;
	int d = random_dent(w, A(FILE) | A(DIR)), fd, i = roll(w, NR_XATTRS);
	char path[PATH_SIZE], name[32];
	struct node *x;
	size_t len;
	ssize_t r;

	if (d < 0)
		return OP_OK;
	dent_path(w, d, path);
	x = &t->node[t->dent[d].node];
	snprintf(name, sizeof(name), "user.m%d", i);
	DO(fd = openat(w->dirfd, path, O_RDONLY));
	r = fgetxattr(fd, name, w->buf, PAGE);
	if (r < 0 && errno != ENODATA)
		DO(r);
	IS(r < 0 ? 0 : hash(w->buf, r), x->xattr[i]);
	if (roll(w, 3)) {
		len = 1 + roll(w, 800); /* four of them fit into a block of ext4 */
		random_data(w, w->buf, roll(w, 100000), len);
		step_begin(t, "setxattr");
		x->xattr[i] = hash(w->buf, len);
		node_changed(t, t->dent[d].node);
		DO(fsetxattr(fd, name, w->buf, len, 0));
	} else if (r >= 0) {
		step_begin(t, "removexattr");
		x->xattr[i] = 0;
		node_changed(t, t->dent[d].node);
		DO(fremovexattr(fd, name));
	} else {
		FAILS(ENODATA, fremovexattr(fd, name));
	}
	DO(close(fd));
	return OP_OK;
}

int op_fsync(struct worker *w)
{
	char path[PATH_SIZE];
	int d = random_dent(w, A(FILE) | A(DIR)), fd;

	if (d < 0 || w->no_sync)
		return OP_OK;
	dent_path(w, d, path);
	DO(fd = openat(w->dirfd, path, O_RDONLY));
	step_begin(w->tree, "fsync");
	DO(fsync(fd));
	acknowledged(w);
	DO(close(fd));
	return OP_OK;
}

int op_read(struct worker *w)
{
	char path[PATH_SIZE];
	uint64_t size, off, want;
	size_t len;
	int n, fd;
	bool direct = roll(w, 4) == 0;

	if (!random_file(w, &n, path))
		return OP_OK;
	size = w->tree->node[n].size;
	off = random_off(w, size);
	len = roll(w, 3) ? random_len(w, FILE_MAX_SIZE) : FILE_MAX_SIZE;
	if (direct) {
		off &= ~(uint64_t)(PAGE - 1);
		len = (len + PAGE - 1) & ~(size_t)(PAGE - 1);
	}
	want = off >= size ? 0 : size - off < len ? size - off : len;
	DO(fd = openat(w->dirfd, path, direct ? O_RDONLY | O_DIRECT : O_RDONLY));
	IS(pread(fd, w->buf, len, off), want);
	DONE(same_bytes(w, path, w->buf, data_of(w->tree, n) + off, off, want));
	DO(close(fd));
	return OP_OK;
}

int op_stat(struct worker *w)
{
	char path[PATH_SIZE];
	int d = random_dent(w, ANY);
	struct node *x;
	struct stat st;

	if (d < 0)
		return OP_OK;
	dent_path(w, d, path);
	x = &w->tree->node[w->tree->dent[d].node];
	DO(fstatat(w->dirfd, path, &st, AT_SYMLINK_NOFOLLOW));
	IS(st.st_ino, x->ino);
	IS(st.st_mode & 07777, x->mode);
	IS(st.st_uid, x->uid);
	IS(st.st_gid, x->gid);
	IS(st.st_nlink, x->nlink);
	if (x->type == NODE_FILE)
		IS(st.st_size, x->size);
	if (x->type == NODE_SYMLINK)
		IS(st.st_size, strlen(x->target));
	if (x->mtime_ns >= 0)
		IS(st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec, x->mtime_ns);
	return OP_OK;
}

int op_readdir(struct worker *w)
{
	struct tree *t = w->tree;
	int dir = random_dir(w), fd, i, want = 0, got = 0, d;
	char path[PATH_SIZE];
	struct dirent *e;
	DIR *stream;

	for (i = 0; i < NR_DENTS; i++)
		want += t->dent[i].node >= 0 && t->dent[i].dir == dir;
	path_of(t, dir, ".", path, sizeof(path));
	DO(fd = openat(w->dirfd, path, O_RDONLY | O_DIRECTORY));
	DO((stream = fdopendir(fd)) ? 0 : -1);
	while (errno = 0, e = readdir(stream)) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		d = dent_find(t, dir, e->d_name);
		if (d < 0)
			return differs(w, __LINE__, "%s: %s should not be there", path, e->d_name);
		IS(e->d_ino, t->node[t->dent[d].node].ino);
		got++;
	}
	IS(errno, 0);
	IS(got, want);
	closedir(stream);
	return OP_OK;
}

/* What is called a hole must be zeros; data may be zeros as well. */
int op_seek(struct worker *w)
{
	char path[PATH_SIZE];
	off_t hole = 0, data, size;
	int n, fd;

	if (!random_file(w, &n, path))
		return OP_OK;
	size = w->tree->node[n].size;
	DO(fd = openat(w->dirfd, path, O_RDONLY));
	/* The kernel does not send dirty pages of a map before it asks for holes. */
	if (w->tree->node[n].late_writes && !w->no_sync)
		DO(fsync(fd));
	while (hole < size) {
		off_t i;

		data = lseek(fd, hole, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			data = size;
		DO(data);
		if (data < hole || data > size)
			return differs(w, __LINE__, "%s: data at %lld, sought from %lld of %lld", path, (long long)data,
				       (long long)hole, (long long)size);
		for (i = hole; i < data; i++)
			if (data_of(w->tree, n)[i])
				return differs(w, __LINE__, "%s: %lld is said to be a hole", path, (long long)i);
		if (data == size)
			break;
		DO(hole = lseek(fd, data, SEEK_HOLE));
		if (hole <= data || hole > size)
			return differs(w, __LINE__, "%s: hole at %lld, sought from %lld", path, (long long)hole,
				       (long long)data);
	}
	FAILS(ENXIO, lseek(fd, size, SEEK_DATA));
	DO(close(fd));
	return OP_OK;
}
