/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/pack/pack_files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "store/pack/pack_format.h"

#define NR_BUCKETS 256u
#define NR_OPEN_MAX 256u /* unused open files; a quarter of the usual limit of a process */

struct pack_files {
	/* constant */
	int dirfd;
	const struct packs_conf *conf;

	_Atomic bool buffered; /* a file was opened without O_DIRECT */

	struct mutex lock; /* leaf: taken inside packs.lock */
	struct pack_file *buckets[NR_BUCKETS] GUARDED_BY(lock);
	struct pack_file lru GUARDED_BY(lock); /* head of a ring, least recently used first */
	unsigned nr_idle GUARDED_BY(lock);
};

int pack_files_new(int dirfd, const struct packs_conf *conf, struct pack_files **ret)
{
	struct pack_files *fs = calloc(1, sizeof(*fs));

	if (!fs)
		return -ENOMEM;
	fs->dirfd = dirfd;
	fs->conf = conf;
	fs->lru.lru_prev = fs->lru.lru_next = &fs->lru;
	mutex_init(&fs->lock);
	*ret = fs;
	return 0;
}

static void file_free(struct pack_file *f)
{
	if (!f)
		return;
	closep(&f->fd);
	free(f);
}

static void file_freep(struct pack_file **f)
{
	file_free(*f);
}

void pack_files_free(struct pack_files *fs)
{
	if (!fs)
		return;
	for (unsigned b = 0; b < NR_BUCKETS; b++)
		for (struct pack_file *f = fs->buckets[b], *next; f; f = next) {
			next = f->next_in_bucket;
			assert(f->nr_refs == 0);
			file_free(f);
		}
	mutex_release(&fs->lock);
	free(fs);
}

static struct pack_file *find_file(struct pack_files *fs, uint32_t pack) REQUIRES(fs->lock)
{
	struct pack_file *f = fs->buckets[pack % NR_BUCKETS];

	while (f && f->pack != pack)
		f = f->next_in_bucket;
	return f;
}

static void ref(struct pack_files *fs, struct pack_file *f) REQUIRES(fs->lock)
{
	if (f->nr_refs++ > 0)
		return;
	f->lru_prev->lru_next = f->lru_next;
	f->lru_next->lru_prev = f->lru_prev;
	fs->nr_idle--;
}

static void bucket_remove(struct pack_files *fs, struct pack_file *f) REQUIRES(fs->lock)
{
	struct pack_file **at = &fs->buckets[f->pack % NR_BUCKETS];

	while (*at != f)
		at = &(*at)->next_in_bucket;
	*at = f->next_in_bucket;
}

/* Takes the least recently used file out if there are too many; the caller closes it after unlocking. */
static struct pack_file *unref(struct pack_files *fs, struct pack_file *f) REQUIRES(fs->lock)
{
	struct pack_file *old;

	assert(f->nr_refs > 0);
	if (--f->nr_refs > 0)
		return NULL;
	if (f->forgotten)
		return f;
	f->lru_next = &fs->lru;
	f->lru_prev = fs->lru.lru_prev;
	f->lru_prev->lru_next = fs->lru.lru_prev = f;
	if (++fs->nr_idle <= NR_OPEN_MAX)
		return NULL;
	old = fs->lru.lru_next;
	ref(fs, old);
	bucket_remove(fs, old);
	return old;
}

/* Adds f with one reference; if another thread has added the pack meanwhile, frees f and returns that one. */
static struct pack_file *add_file(struct pack_files *fs, struct pack_file *f)
{
	struct pack_file *there;

	mutex_lock(&fs->lock);
	there = find_file(fs, f->pack);
	if (there) {
		ref(fs, there);
	} else {
		f->nr_refs = 1;
		f->next_in_bucket = fs->buckets[f->pack % NR_BUCKETS];
		fs->buckets[f->pack % NR_BUCKETS] = f;
	}
	mutex_unlock(&fs->lock);
	if (!there)
		return f;
	file_free(f);
	return there;
}

struct pack_file *pack_file_ref(struct pack_files *fs, struct pack_file *f)
{
	mutex_lock(&fs->lock);
	ref(fs, f);
	mutex_unlock(&fs->lock);
	return f;
}

void pack_file_put(struct pack_files *fs, struct pack_file *f)
{
	struct pack_file *old;

	if (!f)
		return;
	mutex_lock(&fs->lock);
	old = unref(fs, f);
	mutex_unlock(&fs->lock);
	file_free(old);
}

void pack_files_forget(struct pack_files *fs, uint32_t pack)
{
	struct pack_file *f, *unused = NULL;

	mutex_lock(&fs->lock);
	f = find_file(fs, pack);
	if (f) {
		ref(fs, f);
		bucket_remove(fs, f);
		f->forgotten = true;
		unused = unref(fs, f);
	}
	mutex_unlock(&fs->lock);
	file_free(unused);
}

bool pack_files_direct(struct pack_files *fs)
{
	return !atomic_load(&fs->buffered);
}

/* -ENOENT is not logged. */
static int file_open(struct pack_files *fs, uint32_t pack, int flags, struct pack_file **ret)
{
	_cleanup_(file_freep) struct pack_file *f = calloc(1, sizeof(*f));
	struct pack_name name = pack_name(pack);

	if (!f)
		return -ENOMEM;
	f->pack = pack;
	f->fd = io_open(fs->dirfd, name.s, flags | O_DIRECT, 0600);
	if (f->fd == -EINVAL) { /* the filesystem does not support O_DIRECT */
		f->fd = io_open(fs->dirfd, name.s, flags, 0600);
		if (f->fd >= 0 && !atomic_exchange(&fs->buffered, true))
			log_notice("pack %" PRIu32 ": filesystem has no direct I/O, packs go through the page cache",
				   pack);
	}
	if (f->fd == -ENOENT)
		return -ENOENT;
	if (f->fd < 0)
		return log_errno(f->fd, "pack %" PRIu32 ": cannot open", pack);
	*ret = TAKE(f);
	return 0;
}

/* A damaged header loses nothing but its own contents: tables carry their pack and version. */
static int file_check_header(struct pack_files *fs, struct pack_file *f)
{
	_Alignas(PACK_BLOCK) uint8_t block[PACK_BLOCK];
	struct pack_header h;
	ssize_t n;
	int r;

	n = io_pread(f->fd, block, sizeof(block), 0);
	r = n < 0 && n != -EINVAL ? (int)n : pack_header_decode(block, n < 0 ? 0 : (size_t)n, &h);
	if (r == -EOPNOTSUPP)
		return log_errno(r, "pack %" PRIu32 ": made by another version", f->pack);
	if (r == 0 && (h.pack != f->pack || memcmp(h.store_id, fs->conf->store_id, sizeof(h.store_id)) != 0))
		r = -EBADMSG;
	f->header_error = r;
	if (r == 0)
		f->stream = h.stream;
	return 0;
}

int pack_files_get(struct pack_files *fs, uint32_t pack, struct pack_file **ret)
{
	_cleanup_(file_freep) struct pack_file *f = NULL;
	struct pack_file *there;
	struct stat st;
	int r;

	mutex_lock(&fs->lock);
	there = find_file(fs, pack);
	if (there)
		ref(fs, there);
	mutex_unlock(&fs->lock);
	if (there) {
		*ret = there;
		return 1;
	}

	r = file_open(fs, pack, fs->conf->read_only ? O_RDONLY : O_RDWR, &f);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (fstat(f->fd, &st) < 0)
		return log_errno(-errno, "pack %" PRIu32 ": cannot stat", pack);
	f->disk_bytes = (uint64_t)st.st_blocks * 512;
	r = file_check_header(fs, f);
	if (r < 0)
		return r;
	*ret = add_file(fs, TAKE(f));
	return 1;
}

int pack_file_write_header(struct pack_files *fs, const struct pack_file *f)
{
	_Alignas(PACK_BLOCK) struct pack_header_disk block;
	struct pack_header h = {
		.pack = f->pack,
		.node = fs->conf->node,
		.stream = f->stream,
		.created_ns = now_ns(),
	};

	memcpy(h.store_id, fs->conf->store_id, sizeof(h.store_id));
	pack_header_encode(&h, &block);
	return io_pwrite(f->fd, &block, sizeof(block), 0);
}

int pack_files_create(struct pack_files *fs, uint32_t pack, enum pack_stream stream, struct pack_file **ret)
{
	_cleanup_(file_freep) struct pack_file *f = NULL;
	int r;

	r = file_open(fs, pack, O_RDWR | O_CREAT | O_TRUNC, &f);
	if (r == -ENOENT)
		return log_errno(r, "pack %" PRIu32 ": cannot create", pack);
	if (r < 0)
		return r;
	f->stream = stream;
	r = pack_file_write_header(fs, f);
	if (r < 0) {
		io_unlink(fs->dirfd, pack_name(pack).s); /* if this fails, the next pack_files_create() truncates it */
		return log_errno(r, "pack %" PRIu32 ": cannot write header", pack);
	}
	*ret = add_file(fs, TAKE(f));
	assert((*ret)->nr_refs == 1);
	return 0;
}
