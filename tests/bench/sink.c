/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A FUSE filesystem that throws data away: names and sizes live in memory, written bytes are dropped, reads give
 * zeros. It is the ceiling that the kernel's FUSE allows a daemon which copies each request once, so it uses what
 * ckptfs uses: 1 MiB requests, FOPEN_DIRECT_IO for files opened write-only, long attribute timeouts, one /dev/fuse
 * clone per thread.
 *
 * Usage: sink MOUNTPOINT [writeback | fingerprint]   (stays in the foreground; ends when unmounted)
 * With `writeback` the kernel collects writes, and no file is FOPEN_DIRECT_IO. With `fingerprint` every 4 KiB page is
 * fingerprinted before it is dropped, as ckptfs does with a new store's default hash.
 */
#define FUSE_USE_VERSION 314
#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fp.h"

#define NR_BUCKETS (1u << 16)
#define REQUEST_SIZE (1u << 20)
#define TIMEOUT_S 86400.0
#define PAGE 4096u
#define MAX_THREADS 64u

/* One name is one inode: no hard links here. Its address is its inode number; it lives until forgotten and unlinked. */
struct node {
	struct node *next; /* in its bucket */
	struct node *parent;
	struct stat st;
	uint64_t nr_lookups;
	char name[]; /* empty: unlinked */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards everything below and in all nodes */
static struct node root, *buckets[NR_BUCKETS];
static char zeros[REQUEST_SIZE];
static bool writeback, fingerprint;
static struct fp_key key;

static struct node *node_of(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? &root : (struct node *)ino;
}

static struct node **find(struct node *parent, const char *name)
{
	uint64_t h = (uintptr_t)parent * 0x9e3779b97f4a7c15;
	struct node **p;

	for (const char *c = name; *c; c++)
		h = (h ^ (uint8_t)*c) * 0x100000001b3;
	for (p = &buckets[(h ^ h >> 32) % NR_BUCKETS]; *p; p = &(*p)->next)
		if ((*p)->parent == parent && strcmp((*p)->name, name) == 0)
			break;
	return p;
}

static struct fuse_entry_param entry_of(struct node *n)
{
	return (struct fuse_entry_param){ .ino = (fuse_ino_t)n, .attr = n->st, .attr_timeout = TIMEOUT_S,
					  .entry_timeout = TIMEOUT_S };
}

/* A new name with one look-up on it, or the errno. */
static int add(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_entry_param *ret)
{
	struct node *n = calloc(1, sizeof(*n) + strlen(name) + 1), **slot;
	int r = 0;

	if (!n)
		return ENOMEM;
	strcpy(n->name, name);
	n->parent = node_of(parent);
	n->nr_lookups = 1;
	n->st = (struct stat){ .st_ino = (ino_t)(uintptr_t)n, .st_mode = mode, .st_nlink = 1,
			       .st_uid = fuse_req_ctx(req)->uid, .st_gid = fuse_req_ctx(req)->gid };
	clock_gettime(CLOCK_REALTIME, &n->st.st_mtim);
	pthread_mutex_lock(&lock);
	slot = find(n->parent, name);
	if (*slot)
		r = EEXIST;
	else
		*slot = n;
	pthread_mutex_unlock(&lock);
	if (r != 0) {
		free(n);
		return r;
	}
	*ret = entry_of(n);
	return 0;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->max_write = REQUEST_SIZE;
	conn->max_readahead = REQUEST_SIZE;
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
	if (writeback)
		conn->want |= FUSE_CAP_WRITEBACK_CACHE;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .entry_timeout = TIMEOUT_S }; /* absent: remembered by the kernel */
	struct node *n;

	pthread_mutex_lock(&lock);
	n = *find(node_of(parent), name);
	if (n) {
		n->nr_lookups++;
		e = entry_of(n);
	}
	pthread_mutex_unlock(&lock);
	fuse_reply_entry(req, &e);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nr)
{
	struct node *n = node_of(ino);
	bool gone;

	pthread_mutex_lock(&lock);
	n->nr_lookups -= nr;
	gone = n->nr_lookups == 0 && n->name[0] == '\0' && n != &root;
	pthread_mutex_unlock(&lock);
	if (gone)
		free(n);
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	pthread_mutex_lock(&lock);
	st = node_of(ino)->st;
	pthread_mutex_unlock(&lock);
	fuse_reply_attr(req, &st, TIMEOUT_S);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi)
{
	if (to_set & FUSE_SET_ATTR_SIZE) {
		pthread_mutex_lock(&lock);
		node_of(ino)->st.st_size = st->st_size;
		pthread_mutex_unlock(&lock);
	}
	op_getattr(req, ino, fi);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct fuse_entry_param e;
	int r = add(req, parent, name, S_IFDIR | mode, &e);

	if (r != 0)
		fuse_reply_err(req, r);
	else
		fuse_reply_entry(req, &e);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->direct_io = (fi->flags & O_ACCMODE) == O_WRONLY && !writeback;
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct fuse_entry_param e;
	int r = add(req, parent, name, S_IFREG | mode, &e);

	fi->direct_io = (fi->flags & O_ACCMODE) == O_WRONLY && !writeback;
	fi->keep_cache = 1;
	if (r != 0)
		fuse_reply_err(req, r);
	else
		fuse_reply_create(req, &e, fi);
}

/* Also rmdir: an empty directory is taken on trust. */
static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct node **slot, *n;

	pthread_mutex_lock(&lock);
	slot = find(node_of(parent), name);
	n = *slot;
	if (n) {
		*slot = n->next;
		n->name[0] = '\0';
	}
	pthread_mutex_unlock(&lock);
	fuse_reply_err(req, n ? 0 : ENOENT);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *p, size_t len, off_t off, struct fuse_file_info *fi)
{
	struct stat *st = &node_of(ino)->st;
	struct fp fps[REQUEST_SIZE / PAGE];

	(void)fi;
	if (fingerprint)
		fp_of_each(&key, p, PAGE, len / PAGE, fps);
	pthread_mutex_lock(&lock);
	if (st->st_size < off + (off_t)len)
		st->st_size = off + (off_t)len;
	pthread_mutex_unlock(&lock);
	fuse_reply_write(req, len);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t len, off_t off, struct fuse_file_info *fi)
{
	(void)ino;
	(void)off; /* the kernel cuts at the size it knows */
	(void)fi;
	fuse_reply_buf(req, zeros, len < sizeof(zeros) ? len : sizeof(zeros));
}

static void op_sync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)ino;
	(void)datasync;
	(void)fi;
	fuse_reply_err(req, 0);
}

/* No op for flush: the kernel hears ENOSYS once and stops asking. */
static const struct fuse_lowlevel_ops ops = {
	.init = op_init, .lookup = op_lookup, .forget = op_forget, .getattr = op_getattr, .setattr = op_setattr,
	.mkdir = op_mkdir, .unlink = op_unlink, .rmdir = op_unlink, .create = op_create, .open = op_open,
	.write = op_write, .read = op_read, .fsync = op_sync,
};

int main(int argc, char **argv)
{
	char *fuse_argv[] = { argv[0], (char *)"-ofsname=sink,subtype=sink,allow_other,default_permissions", NULL };
	struct fuse_args args = FUSE_ARGS_INIT(2, fuse_argv);
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	static const uint8_t secret[FP_KEY_LEN] = "thirty-two bytes, whichever ...";
	struct fuse_session *se;
	int r = 1;

	writeback = argc == 3 && strcmp(argv[2], "writeback") == 0;
	fingerprint = argc == 3 && strcmp(argv[2], "fingerprint") == 0;
	if (argc != 2 + (writeback || fingerprint) || !config) {
		fprintf(stderr, "Usage: %s MOUNTPOINT [writeback | fingerprint]\n", argv[0]);
		return 1;
	}
	root.st = (struct stat){ .st_ino = FUSE_ROOT_ID, .st_mode = S_IFDIR | 0777, .st_nlink = 2 };
	fuse_loop_cfg_set_clone_fd(config, 1);
	fuse_loop_cfg_set_max_threads(config, MAX_THREADS);
	fp_key_init(&key, FP_CLMUL, secret);
	se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (se && fuse_session_mount(se, argv[1]) == 0) {
		r = fuse_session_loop_mt(se, config) != 0;
		fuse_session_unmount(se);
	}
	if (se)
		fuse_session_destroy(se);
	fuse_loop_cfg_destroy(config);
	return r;
}
