/*
 * The operations: each is chosen at random, applied to the model (so that the log knows it before the daemon does), done
 * on the mount, and its result compared. Each opens what it needs and closes it again, so its changes are in the
 * daemon's hands in order when it has ended.
 */
#include "model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NAME_POOL 24
#define MAX_DEPTH 4
#define PATH_SIZE 2048

/* ---- chance ---- */

static uint64_t roll(struct worker *w, uint64_t n)
{
	w->rng ^= w->rng << 13, w->rng ^= w->rng >> 7, w->rng ^= w->rng << 17;
	return (w->rng >> 11) % n;
}

static size_t random_len(struct worker *w, size_t max)
{
	static const size_t typical[] = { 1, 100, 4095, 4096, 4097, 8192, 65536, 131072, 1000000, 1048576 };
	size_t n = typical[roll(w, sizeof(typical) / sizeof(typical[0]))];

	if (roll(w, 2))
		n = 1 + roll(w, n);
	return n > max ? max : n;
}

static uint64_t random_off(struct worker *w, uint64_t size)
{
	uint64_t off = roll(w, 4) ? roll(w, size + 1) : size + roll(w, 300000);

	if (roll(w, 2))
		off &= ~(uint64_t)(PAGE - 1);
	return off < FILE_MAX_SIZE ? off : FILE_MAX_SIZE - 1;
}

/* Pages of one of few contents, zeros and unique ones, so that whatever shares pages has something to do. */
static void random_data(struct worker *w, uint8_t *p, uint64_t off, size_t len)
{
	size_t i = 0;

	while (i < len) {
		size_t in = (off + i) % PAGE, n = PAGE - in < len - i ? PAGE - in : len - i, k;
		unsigned kind = roll(w, 10);
		uint64_t x = kind < 4 ? 77 + roll(w, 12) : w->rng;

		if (kind < 6) {
			for (k = 0; k < n; k++) {
				uint64_t word = mix(x, (in + k) / 8);

				p[i + k] = word >> ((in + k) % 8 * 8);
			}
		} else if (kind < 8) {
			memset(p + i, 0, n);
		} else {
			for (k = 0; k < n; k++)
				p[i + k] = (x += 0x9e3779b97f4a7c15) >> 40;
		}
		i += n;
	}
}

static void random_name(struct worker *w, char *ret)
{
	unsigned k = roll(w, NAME_POOL);

	if (k >= 2) {
		snprintf(ret, NAME_SIZE, "n%u", k);
		return;
	}
	memset(ret, 'l', NAME_SIZE - 1);
	ret[0] = '0' + k;
	ret[NAME_SIZE - 1] = 0;
}

static int random_dent(struct worker *w, unsigned types)
{
	struct tree *t = w->tree;
	int i, found = -1;
	unsigned n = 0;

	for (i = 0; i < NR_DENTS; i++)
		if (t->dent[i].node >= 0 && (types >> t->node[t->dent[i].node].type & 1) && roll(w, ++n) == 0)
			found = i;
	return found;
}
#define A(type) (1u << NODE_##type)
#define ANY (A(FILE) | A(DIR) | A(SYMLINK) | A(FIFO))

static int random_dir(struct worker *w)
{
	int d = roll(w, 3) ? random_dent(w, A(DIR)) : -1;

	return d < 0 ? 0 : w->tree->dent[d].node;
}

/* ---- results ---- */

static bool mount_is_dead(struct worker *w)
{
	struct statfs st;

	return fstatfs(w->dirfd, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

__attribute__((format(printf, 3, 4))) static int differs(struct worker *w, int line, const char *format, ...)
{
	char text[4096];
	va_list ap;

	if (w->may_die && mount_is_dead(w))
		return OP_DEAD;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	printf("not ok %s, operation %llu, line %d: %s\n", w->tree->name, (unsigned long long)w->tree->nr_ops, line, text);
	fflush(stdout);
	_exit(EXIT_FAILURE);
}

#define DO(expr)                                                                                    \
	do {                                                                                        \
		if ((expr) < 0)                                                                     \
			return differs(w, __LINE__, "%s (%s): %s", #expr, path, strerror(errno));   \
	} while (0)
#define FAILS(error, expr)                                                                          \
	do {                                                                                        \
		if ((expr) >= 0 || errno != (error))                                                \
			return differs(w, __LINE__, "%s (%s): %s, expected %s", #expr, path,        \
				       strerror(errno), strerror(error));                           \
	} while (0)
#define IS(expr, value)                                                                             \
	do {                                                                                        \
		int64_t is_ = (expr), want_ = (value);                                              \
		if (is_ != want_)                                                                   \
			return differs(w, __LINE__, "%s (%s): %lld, expected %lld (%s)", #expr,     \
				       path, (long long)is_, (long long)want_, strerror(errno));    \
	} while (0)
#define DONE(call)                                                                                  \
	do {                                                                                        \
		int done_ = (call);                                                                 \
		if (done_ != OP_OK)                                                                 \
			return done_;                                                               \
	} while (0)

static void dent_path(struct worker *w, int d, char *path)
{
	path_of(w->tree, w->tree->dent[d].dir, w->tree->dent[d].name, path, PATH_SIZE);
}

static int same_bytes(struct worker *w, const char *path, const uint8_t *got, const uint8_t *want, uint64_t off, size_t len)
{
	size_t i;

	for (i = 0; i < len && got[i] == want[i]; i++)
		;
	if (i < len)
		return differs(w, __LINE__, "%s: byte %llu is %#x, expected %#x (read of %zu at %llu)", path,
			       (unsigned long long)(off + i), got[i], want[i], len, (unsigned long long)off);
	return OP_OK;
}

/* ---- names ---- */

/* Something new under a free name: -1 if there is no room. Its ino comes with learn(). */
static int add_new(struct worker *w, enum node_type type, uint32_t mode, int dir, const char *name, const char *op)
{
	struct tree *t = w->tree;
	int n = node_new(t, type, mode);

	if (n < 0)
		return -1;
	step_begin(t, op);
	t->pending = t->node[n].id;
	if (!dent_add(t, dir, name, n)) {
		t->node[n].type = NODE_NONE;
		return -1;
	}
	return n;
}

static int learn(struct worker *w, int n, const char *path)
{
	struct stat st;

	DO(fstatat(w->dirfd, path, &st, AT_SYMLINK_NOFOLLOW));
	node_born(w->tree, n, st.st_ino);
	w->tree->pending = 0;
	return OP_OK;
}

static int op_create(struct worker *w)
{
	char name[NAME_SIZE], path[PATH_SIZE];
	int dir = random_dir(w), n, fd;

	random_name(w, name);
	path_of(w->tree, dir, name, path, sizeof(path));
	if (dent_find(w->tree, dir, name) >= 0) {
		FAILS(EEXIST, openat(w->dirfd, path, O_CREAT | O_EXCL | O_RDWR, 0644));
		return OP_OK;
	}
	n = add_new(w, NODE_FILE, 0640, dir, name, "create");
	if (n < 0)
		return OP_OK;
	DO(fd = openat(w->dirfd, path, O_CREAT | O_EXCL | O_RDWR, 0640));
	DO(close(fd));
	return learn(w, n, path);
}

static int op_mkdir(struct worker *w)
{
	char name[NAME_SIZE], path[PATH_SIZE];
	int dir = random_dir(w), n;

	random_name(w, name);
	path_of(w->tree, dir, name, path, sizeof(path));
	if (dent_find(w->tree, dir, name) >= 0) {
		FAILS(EEXIST, mkdirat(w->dirfd, path, 0755));
		return OP_OK;
	}
	if (depth_of(w->tree, dir) >= MAX_DEPTH)
		return OP_OK;
	n = add_new(w, NODE_DIR, 0750, dir, name, "mkdir");
	if (n < 0)
		return OP_OK;
	DO(mkdirat(w->dirfd, path, 0750));
	return learn(w, n, path);
}

static int op_special(struct worker *w)
{
	char name[NAME_SIZE], path[PATH_SIZE], target[TARGET_SIZE];
	int dir = random_dir(w), n;
	bool fifo = roll(w, 4) == 0;

	random_name(w, name);
	path_of(w->tree, dir, name, path, sizeof(path));
	memset(target, 'a' + roll(w, 26), sizeof(target));
	target[1 + roll(w, sizeof(target) - 1)] = 0;
	target[sizeof(target) - 1] = 0;
	if (dent_find(w->tree, dir, name) >= 0) {
		FAILS(EEXIST, symlinkat(target, w->dirfd, path));
		return OP_OK;
	}
	n = add_new(w, fifo ? NODE_FIFO : NODE_SYMLINK, fifo ? 0600 : 0777, dir, name, fifo ? "mkfifo" : "symlink");
	if (n < 0)
		return OP_OK;
	if (fifo) {
		DO(mkfifoat(w->dirfd, path, 0600));
		return learn(w, n, path);
	}
	strcpy(w->tree->node[n].target, target);
	node_changed(w->tree, n);
	DO(symlinkat(target, w->dirfd, path));
	return learn(w, n, path);
}

static int op_link(struct worker *w)
{
	char name[NAME_SIZE], path[PATH_SIZE], from[PATH_SIZE];
	int d = random_dent(w, A(FILE) | A(SYMLINK) | A(FIFO)), dir = random_dir(w);

	if (d < 0)
		return OP_OK;
	random_name(w, name);
	dent_path(w, d, from);
	path_of(w->tree, dir, name, path, sizeof(path));
	if (dent_find(w->tree, dir, name) >= 0) {
		FAILS(EEXIST, linkat(w->dirfd, from, w->dirfd, path, 0));
		return OP_OK;
	}
	step_begin(w->tree, "link");
	if (!dent_add(w->tree, dir, name, w->tree->dent[d].node))
		return OP_OK;
	DO(linkat(w->dirfd, from, w->dirfd, path, 0));
	return OP_OK;
}

static int op_unlink(struct worker *w)
{
	char path[PATH_SIZE];
	int d = random_dent(w, ANY);
	bool dir;

	if (d < 0)
		return OP_OK;
	dent_path(w, d, path);
	dir = w->tree->node[w->tree->dent[d].node].type == NODE_DIR;
	if (dir && !dir_is_empty(w->tree, w->tree->dent[d].node)) {
		FAILS(ENOTEMPTY, unlinkat(w->dirfd, path, AT_REMOVEDIR));
		return OP_OK;
	}
	step_begin(w->tree, dir ? "rmdir" : "unlink");
	dent_remove(w->tree, d);
	DO(unlinkat(w->dirfd, path, dir ? AT_REMOVEDIR : 0));
	return OP_OK;
}

/* What rename(2) says about moving d onto what `to` is, -1: nothing. 0: it works; -1: it does nothing. */
static int rename_error(const struct tree *t, int d, int dir, int to)
{
	int n = t->dent[d].node, m = to < 0 ? -1 : t->dent[to].node;
	bool is_dir = t->node[n].type == NODE_DIR;

	if (is_dir && is_below(t, dir, n))
		return to >= 0 && n == m ? -1 : EINVAL;
	if (m == n)
		return -1;
	if (m < 0)
		return 0;
	if (is_below(t, t->dent[d].dir, m) && m != 0)
		return ENOTEMPTY;
	if (is_dir && t->node[m].type != NODE_DIR)
		return ENOTDIR;
	if (!is_dir && t->node[m].type == NODE_DIR)
		return EISDIR;
	return is_dir && !dir_is_empty(t, m) ? ENOTEMPTY : 0;
}

static int op_rename(struct worker *w)
{
	struct tree *t = w->tree;
	char name[NAME_SIZE], path[PATH_SIZE], from[PATH_SIZE];
	int d = random_dent(w, ANY), dir = random_dir(w), to, error;
	bool noreplace = roll(w, 4) == 0;

	if (d < 0)
		return OP_OK;
	random_name(w, name);
	to = dent_find(t, dir, name);
	dent_path(w, d, from);
	path_of(t, dir, name, path, sizeof(path));
	if (t->node[t->dent[d].node].type == NODE_DIR && depth_of(t, dir) >= MAX_DEPTH - 1)
		return OP_OK; /* keeps paths short */
	error = rename_error(t, d, dir, to);
	if (noreplace && to >= 0) {
		if (error <= 0) /* which error comes first is not promised */
			FAILS(EEXIST, renameat2(w->dirfd, from, w->dirfd, path, RENAME_NOREPLACE));
		return OP_OK;
	}
	if (error > 0) {
		FAILS(error, renameat(w->dirfd, from, w->dirfd, path));
		return OP_OK;
	}
	if (error == 0) {
		step_begin(t, "rename");
		if (to >= 0)
			dent_remove(t, to);
		dent_move(t, d, dir, name);
	}
	DO(renameat2(w->dirfd, from, w->dirfd, path, noreplace ? RENAME_NOREPLACE : 0));
	return OP_OK;
}

static int op_exchange(struct worker *w)
{
	struct tree *t = w->tree;
	char path[PATH_SIZE], other[PATH_SIZE];
	int a = random_dent(w, ANY), b = random_dent(w, ANY);

	if (a < 0 || b < 0 || t->dent[a].node == t->dent[b].node)
		return OP_OK;
	dent_path(w, a, path);
	dent_path(w, b, other);
	if (is_below(t, t->dent[a].dir, t->dent[b].node) || is_below(t, t->dent[b].dir, t->dent[a].node)) {
		FAILS(EINVAL, renameat2(w->dirfd, path, w->dirfd, other, RENAME_EXCHANGE));
		return OP_OK;
	}
	if (t->node[t->dent[a].node].type == NODE_DIR || t->node[t->dent[b].node].type == NODE_DIR)
		if (depth_of(t, t->dent[a].dir) != depth_of(t, t->dent[b].dir))
			return OP_OK; /* keeps paths short */
	step_begin(t, "exchange");
	dent_exchange(t, a, b);
	DO(renameat2(w->dirfd, path, w->dirfd, other, RENAME_EXCHANGE));
	return OP_OK;
}

/* ---- bytes ---- */

static bool random_file(struct worker *w, int *ret_node, char *path)
{
	int d = random_dent(w, A(FILE));

	if (d < 0)
		return false;
	*ret_node = w->tree->dent[d].node;
	dent_path(w, d, path);
	return true;
}

/* Bytes in the model: buf goes to [off, off + len). */
static void put_bytes(struct worker *w, int n, const uint8_t *p, uint64_t off, size_t len, const char *op)
{
	struct node *x = &w->tree->node[n];
	uint64_t end = off + len;

	step_begin(w->tree, op);
	if (w->tree->logging)
		w->tree->steps[w->tree->nr_steps - 1].may_tear = true;
	memcpy(data_of(w->tree, n) + off, p, len);
	file_changed(w->tree, n, off, len, end > x->size ? end : x->size);
}

static void acknowledged(struct worker *w)
{
	if (w->tree->logging)
		w->tree->steps[w->tree->nr_steps - 1].synced = true;
}

static int write_once(struct worker *w, int fd, int n, const char *path, bool append, bool direct)
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

static int op_write(struct worker *w)
{
	static const int modes[] = { O_WRONLY, O_RDWR, O_WRONLY | O_APPEND, O_RDWR | O_APPEND, O_RDWR | O_DIRECT,
				     O_WRONLY | O_DIRECT, O_WRONLY | O_SYNC, O_WRONLY, O_RDWR };
	int mode = modes[roll(w, sizeof(modes) / sizeof(modes[0]))], n, fd, i, times = roll(w, 5) ? 1 : 5;
	char path[PATH_SIZE];

	if (!random_file(w, &n, path))
		return OP_OK;
	DO(fd = openat(w->dirfd, path, mode));
	for (i = 0; i < times; i++) {
		DONE(write_once(w, fd, n, path, mode & O_APPEND, mode & O_DIRECT));
		if (mode & O_SYNC)
			acknowledged(w);
	}
	if (roll(w, 8) == 0) {
		step_begin(w->tree, "fdatasync");
		DO(fdatasync(fd));
		acknowledged(w);
	}
	DO(close(fd));
	return OP_OK;
}

static int op_truncate(struct worker *w)
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

static int op_fallocate(struct worker *w)
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

static int op_clone(struct worker *w)
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
			return differs(w, __LINE__, "%s: copy_file_range stops with %llu to go", path, (unsigned long long)len);
		len -= r;
	}
	DO(close(in));
	DO(close(out));
	return OP_OK;
}

static sigjmp_buf bus_jump;

static void on_bus(int sig)
{
	(void)sig;
	siglongjmp(bus_jump, 1);
}

static int op_mmap(struct worker *w)
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
	signal(SIGBUS, on_bus);
	if (sigsetjmp(bus_jump, 1))
		return differs(w, __LINE__, "%s: SIGBUS inside the file", path);
	if (write_it) {
		random_data(w, w->buf, off, len);
		put_bytes(w, n, w->buf, off, len, "mmap write");
		memcpy(p + off, w->buf, len);
		if (roll(w, 2))
			DO(msync(p, size, MS_SYNC));
	}
	DONE(same_bytes(w, path, p, data_of(w->tree, n), 0, size));
	DO(munmap(p, size));
	DO(close(fd));
	return OP_OK;
}

static int op_tmpfile(struct worker *w)
{
	char name[NAME_SIZE], path[PATH_SIZE], dir_path[PATH_SIZE], link[64];
	int dir = random_dir(w), n, fd, i;
	size_t len = random_len(w, FILE_MAX_SIZE);
	struct stat st;

	random_name(w, name);
	if (dent_find(w->tree, dir, name) >= 0)
		return OP_OK;
	path_of(w->tree, dir, name, path, sizeof(path));
	path_of(w->tree, dir, ".", dir_path, sizeof(dir_path));
	DO(fd = openat(w->dirfd, dir_path, O_TMPFILE | O_RDWR, 0604));
	random_data(w, w->buf, 0, len);
	for (i = 0; i < 2; i++)
		IS(pwrite(fd, w->buf + i * (len / 2), i ? len - len / 2 : len / 2, i * (len / 2)), i ? len - len / 2 : len / 2);
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
static int op_replace(struct worker *w)
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
	if (roll(w, 3) == 0) {
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
static int op_orphan(struct worker *w)
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

/* ---- attributes ---- */

static int op_attributes(struct worker *w)
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
		struct timespec ts[2] = { { roll(w, 1000000), roll(w, 1000000000) }, { roll(w, 2000000000), roll(w, 1000000000) } };

		step_begin(t, "utimens");
		x->mtime_ns = ts[1].tv_sec * 1000000000LL + ts[1].tv_nsec;
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

static int op_xattr(struct worker *w)
{
	struct tree *t = w->tree;
	int d = random_dent(w, A(FILE) | A(DIR)), fd, i = roll(w, NR_XATTRS);
	char path[PATH_SIZE], name[16];
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

static int op_fsync(struct worker *w)
{
	char path[PATH_SIZE];
	int d = random_dent(w, A(FILE) | A(DIR)), fd;

	if (d < 0)
		return OP_OK;
	dent_path(w, d, path);
	DO(fd = openat(w->dirfd, path, O_RDONLY));
	step_begin(w->tree, "fsync");
	DO(fsync(fd));
	acknowledged(w);
	DO(close(fd));
	return OP_OK;
}

/* ---- looking ---- */

static int op_read(struct worker *w)
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

static int op_stat(struct worker *w)
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

static int op_readdir(struct worker *w)
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
	stream = fdopendir(fd);
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
static int op_seek(struct worker *w)
{
	char path[PATH_SIZE];
	off_t hole = 0, data, size;
	int n, fd;

	if (!random_file(w, &n, path))
		return OP_OK;
	size = w->tree->node[n].size;
	DO(fd = openat(w->dirfd, path, O_RDONLY));
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
			return differs(w, __LINE__, "%s: hole at %lld, sought from %lld", path, (long long)hole, (long long)data);
	}
	FAILS(ENXIO, lseek(fd, size, SEEK_DATA));
	DO(close(fd));
	return OP_OK;
}

int op_random(struct worker *w)
{
	static const struct {
		int (*run)(struct worker *w);
		unsigned weight;
	} ops[] = {
		{ op_create, 9 },     { op_mkdir, 4 },	 { op_special, 3 },    { op_link, 3 },	    { op_unlink, 8 },
		{ op_rename, 7 },     { op_exchange, 2 }, { op_write, 22 },    { op_truncate, 6 },  { op_fallocate, 7 },
		{ op_clone, 7 },      { op_mmap, 8 },	 { op_tmpfile, 2 },    { op_replace, 4 },   { op_orphan, 2 },
		{ op_attributes, 5 }, { op_xattr, 4 },	 { op_fsync, 2 },      { op_read, 12 },	    { op_stat, 6 },
		{ op_readdir, 4 },    { op_seek, 3 },
	};
	unsigned i, sum = 0, pick;
	int r;

	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		sum += ops[i].weight;
	pick = roll(w, sum);
	for (i = 0; pick >= ops[i].weight; i++)
		pick -= ops[i].weight;
	r = ops[i].run(w);
	if (r == OP_OK)
		op_end(w->tree);
	return r;
}
