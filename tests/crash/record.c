/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"

#define NO_OBJ UINT32_MAX
#define MAX_FDS 65536

struct name {
	uint32_t dir, obj;
	char *name;
};

static atomic_bool recording, sparse, full;
static _Atomic uint32_t fd_obj[MAX_FDS]; /* object + 1, 0: not watched */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all below */
static char root[PATH_MAX];
static size_t root_len;
static struct name *names;
static size_t nr_names;
static uint32_t nr_objs;
static struct oplog oplog;
static bool incomplete;
static record_fault fault;
static void *fault_userdata;

static uint32_t object_of(uint32_t dir, const char *name)
{
	for (size_t i = 0; i < nr_names; i++)
		if (names[i].dir == dir && strcmp(names[i].name, name) == 0)
			return names[i].obj;
	return NO_OBJ;
}

static void drop_name(uint32_t dir, const char *name)
{
	for (size_t i = 0; i < nr_names; i++)
		if (names[i].dir == dir && strcmp(names[i].name, name) == 0) {
			free(names[i].name);
			names[i] = names[--nr_names];
			return;
		}
}

static void set_name(uint32_t dir, const char *name, uint32_t obj)
{
	struct name *more;
	char *copy = strdup(name);

	drop_name(dir, name);
	more = realloc(names, (nr_names + 1) * sizeof(*names));
	if (more)
		names = more;
	if (!copy || !more) {
		free(copy);
		incomplete = true;
		return;
	}
	names[nr_names++] = (struct name){ dir, obj, copy };
}

static void add_op(const struct op *op)
{
	if (oplog_add(&oplog, op) < 0)
		incomplete = true;
}

/* The path of an object below the root, for the fault filter and relative names. Appends to `ret`. */
static void path_of(uint32_t obj, char *ret, size_t size)
{
	if (obj == 0)
		return;
	for (size_t i = 0; i < nr_names; i++)
		if (names[i].obj == obj) {
			size_t len;

			path_of(names[i].dir, ret, size);
			len = strlen(ret);
			snprintf(ret + len, size - len, "%s%s", len ? "/" : "", names[i].name);
			return;
		}
}

static uint32_t parent_of(uint32_t dir)
{
	for (size_t i = 0; i < nr_names; i++)
		if (names[i].obj == dir)
			return names[i].dir;
	return NO_OBJ; /* above the root */
}

/* `path` below the root. false: elsewhere. Directory on the way missing: elsewhere too, the call will fail. */
static bool resolve(int dirfd, const char *path, uint32_t *ret_dir, char name[256], uint32_t *ret_obj)
{
	uint32_t dir = 0, obj = 0;

	if (path[0] == '/') {
		if (strncmp(path, root, root_len) != 0 || (path[root_len] != '/' && path[root_len] != 0))
			return false;
		path += root_len;
	} else {
		if (dirfd < 0 || dirfd >= MAX_FDS || fd_obj[dirfd] == 0)
			return false;
		obj = fd_obj[dirfd] - 1;
	}
	name[0] = 0;
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len > 0 && !(len == 1 && path[0] == '.')) {
			if (len > 255 || obj == NO_OBJ)
				return false;
			memcpy(name, path, len);
			name[len] = 0;
			dir = obj;
			obj = strcmp(name, "..") == 0 ? parent_of(dir) : object_of(dir, name);
		}
		path += len;
		path += *path == '/';
	}
	*ret_dir = dir;
	*ret_obj = obj;
	return strcmp(name, "..") != 0 || obj != NO_OBJ;
}

static bool is_info_log(const char *name)
{
	return strcmp(name, "LOG") == 0 || strncmp(name, "LOG.old.", 8) == 0;
}

static int ask_fault(const struct record_call *c)
{
	char path[PATH_MAX] = "";

	if (!fault)
		return 0;
	if (c->name[0]) {
		size_t len;

		path_of(c->dir, path, sizeof(path));
		len = strlen(path);
		snprintf(path + len, sizeof(path) - len, "%s%s", len ? "/" : "", c->name);
	} else {
		path_of(c->obj, path, sizeof(path));
	}
	return fault(fault_userdata, c->kind, path);
}

bool record_begin(struct record_call *c, enum op_kind kind, int fd)
{
	if (!atomic_load(&recording) || fd < 0 || fd >= MAX_FDS || fd_obj[fd] == 0)
		return false;
	pthread_mutex_lock(&lock);
	*c = (struct record_call){ .kind = kind, .obj = fd_obj[fd] - 1 };
	c->error = ask_fault(c);
	return true;
}

bool record_begin_names(struct record_call *c, enum op_kind kind, int dirfd, const char *path, int new_dirfd,
			const char *new_path)
{
	bool ours;

	if (!atomic_load(&recording))
		return false;
	pthread_mutex_lock(&lock);
	*c = (struct record_call){ .kind = kind };
	ours = resolve(dirfd, path, &c->dir, c->name, &c->obj) && (c->name[0] || kind == OP_CREATE) &&
	       !is_info_log(c->name);
	if (ours && new_path) {
		uint32_t obj;

		ours = resolve(new_dirfd, new_path, &c->new_dir, c->new_name, &obj) && c->new_name[0];
		c->new_present = obj != NO_OBJ;
	}
	if (!ours) {
		pthread_mutex_unlock(&lock);
		return false;
	}
	c->present = c->obj != NO_OBJ;
	if (kind == OP_CREATE && c->present)
		c->kind = OP_OPEN;
	c->error = ask_fault(c);
	return true;
}

bool record_begin_name(struct record_call *c, enum op_kind kind, int dirfd, const char *path)
{
	return record_begin_names(c, kind, dirfd, path, -1, NULL);
}

static void end_names(struct record_call *c)
{
	switch (c->kind) {
	case OP_MKDIR:
		c->obj = nr_objs++;
		set_name(c->dir, c->name, c->obj);
		break;
	case OP_UNLINK:
		drop_name(c->dir, c->name);
		break;
	case OP_RENAME:
		drop_name(c->dir, c->name);
		set_name(c->new_dir, c->new_name, c->obj);
		break;
	case OP_LINK: /* link(path, new_path): the log tells of the new name */
		set_name(c->new_dir, c->new_name, c->obj);
		c->dir = c->new_dir;
		snprintf(c->name, sizeof(c->name), "%s", c->new_name);
		c->new_name[0] = 0;
		break;
	default:
		break;
	}
}

void record_end(struct record_call *c, bool ok, uint64_t off, uint64_t len)
{
	if (ok && c->kind != OP_READ && c->kind != OP_OPEN && (!c->name[0] || c->present || c->kind == OP_MKDIR)) {
		end_names(c);
		add_op(&(struct op){ .kind = c->kind,
				     .obj = c->obj,
				     .dir = c->dir,
				     .new_dir = c->new_dir,
				     .off = off,
				     .len = len,
				     .name = c->name[0] ? c->name : NULL,
				     .new_name = c->new_name[0] ? c->new_name : NULL });
	}
	pthread_mutex_unlock(&lock);
}

void record_end_write(struct record_call *c, int64_t result, uint64_t off, const struct iovec *iov, int iovcnt)
{
	struct op op = { .kind = OP_WRITE, .obj = c->obj, .off = off };
	_cleanup_(freep) uint8_t *joined = NULL;

	if (result > 0) {
		joined = malloc((size_t)result);
		incomplete |= !joined;
	}
	for (int i = 0; joined && i < iovcnt; i++) {
		size_t len = MIN((size_t)result - op.len, iov[i].iov_len);

		memcpy(joined + op.len, iov[i].iov_base, len);
		op.len += len;
	}
	op.data = joined;
	if (joined)
		add_op(&op);
	pthread_mutex_unlock(&lock);
}

void record_end_open(struct record_call *c, int fd, int flags)
{
	if (fd >= 0 && fd < MAX_FDS) {
		if (!c->present && (flags & O_CREAT)) {
			c->obj = nr_objs++;
			set_name(c->dir, c->name, c->obj);
			add_op(&(struct op){ .kind = OP_CREATE, .obj = c->obj, .dir = c->dir, .name = c->name });
		} else if (c->present && (flags & O_TRUNC)) {
			add_op(&(struct op){ .kind = OP_TRUNCATE, .obj = c->obj });
		}
		fd_obj[fd] = c->obj == NO_OBJ ? 0 : c->obj + 1;
	}
	pthread_mutex_unlock(&lock);
}

void record_forget(int fd)
{
	if (fd >= 0 && fd < MAX_FDS)
		fd_obj[fd] = 0;
}

void record_mark(uint64_t a, uint64_t b)
{
	pthread_mutex_lock(&lock);
	if (atomic_load(&recording))
		add_op(&(struct op){ .kind = OP_MARK, .off = a, .len = b });
	pthread_mutex_unlock(&lock);
}

size_t record_length(void)
{
	size_t n;

	pthread_mutex_lock(&lock);
	n = oplog.nr;
	pthread_mutex_unlock(&lock);
	return n;
}

void record_set_fault(record_fault f, void *userdata)
{
	pthread_mutex_lock(&lock);
	fault = f;
	fault_userdata = userdata;
	pthread_mutex_unlock(&lock);
}

/* What all operations on `obj` before `end` have left of [off, off + len), where the file was zeros at first. */
static void replay(uint32_t obj, size_t end, uint64_t off, uint64_t len, uint8_t *ret)
{
	memset(ret, 0, len);
	for (size_t i = 0; i < end; i++) {
		const struct op *o = &oplog.ops[i];
		uint64_t from = MAX(o->off, off), to = MIN(o->off + o->len, off + len);

		if (o->obj != obj)
			continue;
		if (o->kind == OP_TRUNCATE && o->len < off + len)
			memset(ret + (MAX(o->len, off) - off), 0, off + len - MAX(o->len, off));
		else if (o->kind == OP_WRITE && from < to)
			memcpy(ret + (from - off), o->data + (from - o->off), to - from);
		else if (o->kind == OP_PUNCH && from < to)
			memset(ret + (from - off), 0, to - from);
	}
}

/* By system calls, around interpose.c, which would ask for the lock; not with O_DIRECT, if the file was opened so. */
static int open_object(uint32_t obj)
{
	char path[2 * PATH_MAX], below[PATH_MAX] = "";

	path_of(obj, below, sizeof(below));
	snprintf(path, sizeof(path), "%s/%s", root, below);
	return (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
}

static void drop_write(size_t i, size_t synced)
{
	const struct op *o = &oplog.ops[i];
	_cleanup_(freep) uint8_t *before = malloc(o->len);
	int fd = open_object(o->obj);

	if (!before)
		abort();
	replay(o->obj, synced, o->off, o->len, before);
	if (fd >= 0 && syscall(SYS_pwrite64, fd, before, o->len, o->off) != (long)o->len)
		abort();
	if (fd >= 0)
		syscall(SYS_close, fd);
	/* It has not happened: what is dropped next is dropped to here. */
	memcpy((uint8_t *)(uintptr_t)o->data, before, o->len);
}

/* The operations on `obj` that are durable: all before this one. */
static size_t synced_end(uint32_t obj)
{
	for (size_t i = oplog.nr; i > 0; i--)
		if (oplog.ops[i - 1].obj == obj && oplog.ops[i - 1].kind == OP_SYNC)
			return i;
	return 0;
}

static bool is_under(uint32_t obj, const char *const *under)
{
	char path[PATH_MAX] = "";

	path_of(obj, path, sizeof(path));
	while (*under && !strstr(path, *under))
		under++;
	return *under;
}

void record_drop_unsynced(const char *const *under)
{
	for (size_t i = 0; i < oplog.nr; i++) {
		const struct op *o = &oplog.ops[i];
		size_t synced;

		if (o->kind != OP_WRITE || !is_under(o->obj, under))
			continue;
		synced = synced_end(o->obj);
		if (i >= synced)
			drop_write(i, synced);
	}
}

void record_set_sparse(bool on)
{
	atomic_store(&sparse, on);
}

bool record_is_sparse(void)
{
	return atomic_load(&sparse);
}

void record_set_full(bool on)
{
	atomic_store(&full, on);
}

bool record_is_full(void)
{
	return atomic_load(&full);
}

static int import_file(int dirfd, const char *name, uint32_t obj)
{
	static uint8_t block[1 << 16];
	_cleanup_(closep) int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
	uint64_t off = 0;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	add_op(&(struct op){ .kind = OP_TRUNCATE, .obj = obj, .len = (uint64_t)st.st_size });
	while ((n = pread(fd, block, sizeof(block), (off_t)off)) > 0) {
		if (block[0] != 0 || memcmp(block, block + 1, (size_t)n - 1) != 0)
			add_op(&(struct op){ .kind = OP_WRITE, .obj = obj, .off = off, .len = (uint64_t)n, .data = block });
		off += (uint64_t)n;
	}
	return n < 0 ? -errno : 0;
}

/* Takes the descriptor. */
static int import_dir(int fd, uint32_t dir)
{
	DIR *d = fdopendir(fd);
	struct dirent *e;
	int r = 0;

	if (!d)
		return -errno;
	while (r == 0 && (e = readdir(d))) {
		bool is_dir = e->d_type == DT_DIR;
		uint32_t obj;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || is_info_log(e->d_name))
			continue;
		obj = nr_objs++;
		set_name(dir, e->d_name, obj);
		add_op(&(struct op){ .kind = is_dir ? OP_MKDIR : OP_CREATE, .obj = obj, .dir = dir, .name = e->d_name });
		if (is_dir) {
			int sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			r = sub < 0 ? -errno : import_dir(sub, obj);
		} else {
			r = import_file(dirfd(d), e->d_name, obj);
		}
		add_op(&(struct op){ .kind = OP_SYNC, .obj = obj });
	}
	add_op(&(struct op){ .kind = OP_SYNC, .obj = dir });
	closedir(d);
	return r;
}

int record_start(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	root_len = (size_t)snprintf(root, sizeof(root), "%s", dir);
	nr_objs = 1;
	incomplete = false;
	r = import_dir(fd, 0);
	if (r == 0)
		atomic_store(&recording, true);
	return r;
}

int record_stop(struct oplog *ret)
{
	int r;

	pthread_mutex_lock(&lock);
	atomic_store(&recording, false);
	for (size_t i = 0; i < nr_names; i++)
		free(names[i].name);
	free(names);
	names = NULL;
	nr_names = 0;
	for (size_t i = 0; i < MAX_FDS; i++)
		fd_obj[i] = 0;
	r = incomplete ? -ENOMEM : 0;
	*ret = oplog;
	oplog = OPLOG_EMPTY;
	pthread_mutex_unlock(&lock);
	return r;
}
