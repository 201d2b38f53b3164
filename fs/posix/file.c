/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/posix/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <search.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/util.h"
#include "fs/away/dropped.h"
#include "fs/posix/attr.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "fs/posix/series.h"
#include "fs/posix/xattr.h"
#include "store/engine.h"

static void list_file(struct fs *fs, struct file *f)
{
	mutex_lock(&fs->open_files_lock);
	f->behind = fs->open_files;
	if (f->behind)
		f->behind->before = f;
	fs->open_files = f;
	mutex_unlock(&fs->open_files_lock);
}

static void unlist_file(struct fs *fs, struct file *f)
{
	mutex_lock(&fs->open_files_lock);
	if (f->before)
		f->before->behind = f->behind;
	else
		fs->open_files = f->behind;
	if (f->behind)
		f->behind->before = f->before;
	mutex_unlock(&fs->open_files_lock);
}

static void file_free(struct fs *fs, struct file *f)
{
	unlist_file(fs, f);
	if (f->counts)
		attr_write_end(fs, f->inode);
	if (f->content) {
		if (f->counts && !inodes_has_writers(fs->inodes, f->inode->ino)) {
			content_allocate_end(f->content);
			f->inode->write_error = 0; /* the kernel has reported it to close(2) */
		}
		inode_content_close(fs->inodes, f->inode);
	}
	names_put(fs, f->inode);
	away_file_free(f->away);
	mutex_release(&f->champion_lock);
	free(f);
}

bool file_is_for_writing(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

bool file_is_synchronous(int flags)
{
	return flags & (O_SYNC | O_DSYNC);
}

/* Consumes the pin of `i`, and one writer if the flags are for writing, also on failure. */
static int new_file(struct fs *fs, struct inode *i, int flags, bool has_xattrs, struct file **ret)
{
	struct file *f = calloc(1, sizeof(*f));
	int r;

	if (!f) {
		if (file_is_for_writing(flags))
			attr_write_end(fs, i);
		names_put(fs, i);
		return -ENOMEM;
	}
	mutex_init(&f->champion_lock);
	f->flags = flags;
	f->direct = (flags & O_ACCMODE) == O_WRONLY && !fs->writeback;
	f->counts = file_is_for_writing(flags);
	f->inode = i;
	list_file(fs, f);
	r = inode_content_open(fs->inodes, i, &f->content);
	if (r < 0) {
		file_free(fs, f);
		return r;
	}
	f->errors_seen = content_errors(f->content);
	f->write_errors_seen = i->nr_write_errors;
	if (file_is_for_writing(flags) && has_xattrs)
		r = xattr_apply_settings(fs, i->ino, f->content);
	if (r < 0) {
		file_free(fs, f);
		return r;
	}
	*ret = f;
	return 0;
}

/* The order matters, see stale_pages(). */
static void count_open(struct file *f)
{
	if (f->direct)
		return;
	f->inode->nr_cached++;
	f->inode->cached_opens++;
}

static void count_close(struct file *f)
{
	if (!f->direct)
		f->inode->nr_cached--;
}

/*
 * Call after a write has taken effect. Opens not counted in `opens` read content from here on only. If none of the
 * counted ones is still open, all pages they cached are already in the page cache. One drop of all pages is therefore
 * sufficient until the next such open.
 */
static enum file_stale stale_pages(const struct file *f, uint32_t *ret_opens)
{
	struct inode *i = f->inode;

	*ret_opens = i->cached_opens;
	if (!f->direct)
		return FILE_STALE_NONE;
	if (i->nr_cached > 0)
		return FILE_STALE_RANGE;
	return *ret_opens == i->dropped_opens ? FILE_STALE_NONE : FILE_STALE_ALL;
}

void file_write_failed(struct file *f, int r)
{
	f->inode->write_error = r;
	f->inode->last_write_error = r;
	f->inode->nr_write_errors++;
}

int file_take_write_error(struct file *f)
{
	return atomic_exchange(&f->inode->write_error, 0);
}

int file_take_next_write_error(struct file *f)
{
	uint32_t nr = f->inode->nr_write_errors;

	if (!file_is_for_writing(f->flags) || atomic_exchange(&f->write_errors_seen, nr) == nr)
		return 0;
	return f->inode->last_write_error;
}

void file_pages_dropped(struct file *f, uint32_t opens)
{
	f->inode->dropped_opens = opens;
}

/*
 * With fs.writeback the kernel owns the times. It sends them before FLUSH, FSYNC and RELEASE unless they equal those it
 * sent last; then the times set by the daemon must be replaced by the recorded ones. Data may also arrive after the
 * times that belong to it.
 */
static int settle_times(struct fs *fs, struct file *f)
{
	struct ns_inode in;
	int r;

	if (!fs->writeback || !f->counts)
		return 0;
	r = attr_load(fs, f->inode->ino, &in);
	return r <= 0 ? r : content_restore_times(f->content, in.mtime_ns, in.ctime_ns);
}

bool file_syncs_changes(struct fs *fs, const struct file *f)
{
	return fs->sync || file_is_synchronous(f->flags);
}

/* After a change that carries no data. 1: the mode has changed too. */
static int finish_change(struct fs *fs, struct file *f, struct caller *caller)
{
	f->wrote = true;
	return attr_drop_privileges(fs, f->inode, caller);
}

/* Load the record, and count a writer if the flags are for writing. */
static int begin_open(struct fs *fs, struct inode *i, int flags, struct ns_inode *ret)
{
	bool writes = file_is_for_writing(flags);
	int r = writes ? attr_write_begin(fs, i, ret) : attr_load(fs, i->ino, ret);

	if (r == 0 && !writes)
		r = -ENOENT;
	if (r < 0 || S_ISREG(ret->mode))
		return MIN(r, 0);
	if (writes)
		attr_write_end(fs, i);
	return -EINVAL; /* the kernel opens other types itself */
}

int file_open(struct fs *fs, uint64_t ino, int flags, struct file **ret)
{
	struct ns_inode in;
	struct inode *i;
	struct file *f;
	int r;

	r = inode_get(fs->inodes, ino, &i);
	if (r < 0)
		return r;
	r = begin_open(fs, i, flags, &in);
	if (r < 0) {
		names_put(fs, i);
		return r;
	}
	r = new_file(fs, i, flags, in.flags & INODE_HAS_XATTRS, &f);
	if (r < 0)
		return r;
	if (attr_privileged(&in))
		f->inode->privileged = true;
	count_open(f);
	*ret = f;
	return 0;
}

int file_open_new(struct fs *fs, uint64_t ino, uint64_t dir, int flags, struct file **ret)
{
	struct ns_inode in;
	struct inode *i = inode_find(fs->inodes, ino); /* names_make() has counted a look-up */
	struct file *f;
	int r = attr_load(fs, ino, &in);

	assert(i);
	if (r <= 0) {
		if (file_is_for_writing(flags))
			attr_write_end(fs, i);
		names_put(fs, i);
		return r < 0 ? r : -ENOENT;
	}
	r = new_file(fs, i, flags, in.flags & INODE_HAS_XATTRS, &f);
	if (r < 0)
		return r;
	f->dir = dir;
	count_open(f);
	*ret = f;
	return 0;
}

static int compare_handles(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void forget_handle(struct fs *fs, struct file *f)
{
	mutex_lock(&fs->handles_lock);
	tdelete(&f->handle, &fs->handles, compare_handles);
	mutex_unlock(&fs->handles_lock);
}

void file_close(struct fs *fs, struct file *f)
{
	if (f->wrote)
		content_flush(f->content); /* for stat() by name; file_flush() has reported errors to close(2) */
	settle_times(fs, f);
	if (f->champion_chosen)
		content_set_champions(f->content, NULL, 0);
	if (f->handle != 0)
		forget_handle(fs, f);
	count_close(f);
	file_free(fs, f);
}

void file_close_all(struct fs *fs)
{
	struct file *f;

	do {
		mutex_lock(&fs->open_files_lock);
		f = fs->open_files;
		mutex_unlock(&fs->open_files_lock);
		if (f)
			file_close(fs, f);
	} while (f);
}

/* Only if the file is empty. */
static void choose_champions(struct fs *fs, struct file *f)
{
	uint64_t inos[SERIES_MAX];
	struct ns_content c;

	content_stat(f->content, &c);
	if (c.size > 0)
		return; /* overwritten bytes are compared first */
	content_set_champions(f->content, inos, series_champions(fs, f->inode->ino, f->dir, inos));
}

/*
 * Once per open file. Several first writes may arrive concurrently, especially with a write-back cache; all of them
 * wait until the previous versions (champions) are chosen.
 */
static void ensure_champions(struct fs *fs, struct file *f)
{
	if (f->champion_chosen)
		return;
	mutex_lock(&f->champion_lock);
	if (!f->champion_chosen) {
		choose_champions(fs, f);
		f->champion_chosen = true;
	}
	mutex_unlock(&f->champion_lock);
}

int file_write(struct fs *fs, struct file *f, struct engine_buffer **b, const void *p, size_t len, uint64_t off,
	       struct caller *caller, struct job **remaining, struct file_written *ret)
{
	bool privileged = f->inode->privileged; /* read once, see below */
	int r;

	*remaining = NULL;
	*ret = (struct file_written){ .stale = FILE_STALE_NONE };
	if (off > INT64_MAX - len)
		return -EFBIG;
	ensure_champions(fs, f);
	r = b ? content_write_buffer(f->content, b, p, len, off, remaining) : content_write(f->content, p, len, off);
	if (r < 0)
		return r;
	if (privileged)
		job_queue(TAKE(*remaining)); /* the call below blocks, possibly on a thread that waits for this job */
	f->wrote = true;
	ret->stale = stale_pages(f, &ret->opens);
	r = privileged ? attr_drop_privileges(fs, f->inode, caller) : 0;
	ret->mode_changed = r > 0;
	return MIN(r, 0);
}

ssize_t file_read(struct fs *fs, struct file *f, int flags, void *p, size_t len, uint64_t off, bool may_wait)
{
	ssize_t n = content_read(f->content, p, len, off);

	if (n == -EREMOTE)
		n = away_read(fs, f->inode->ino, &f->away, p, len, off, may_wait);

	if (n > 0 && !(flags & O_NOATIME))
		attr_touch(fs, f->inode);
	return n;
}

int file_seek(struct file *f, uint64_t off, int whence, uint64_t *ret)
{
	int r = content_seek(f->content, off, whence, ret);
	struct ns_content c;

	if (r != -EREMOTE)
		return r;
	content_stat(f->content, &c);
	if (off >= c.size)
		return -ENXIO;
	*ret = whence == SEEK_DATA ? off : c.size;
	return 0;
}

static void synced(struct engine_waiter *w, int r)
{
	struct file_sync *s = container_of(w, struct file_sync, w);

	s->f->errors_seen = s->seen;
	s->done(s, r);
}

void file_sync_data_then(struct file *f, struct file_sync *s)
{
	s->w.done = synced;
	s->f = f;
	s->seen = f->errors_seen;
	content_sync_then(f->content, &s->seen, &s->w);
}

void file_sync_then(struct fs *fs, struct file *f, struct file_sync *s)
{
	int r = settle_times(fs, f);

	if (r < 0)
		s->done(s, r);
	else
		file_sync_data_then(f, s);
}

/* Small writes are buffered for more bytes of the same file and are not in the log yet. */
static int flush_inode(struct fs *fs, uint64_t ino)
{
	struct inode *i = inode_find(fs->inodes, ino);
	struct content *c;
	int r;

	if (!i)
		return 0; /* closed meanwhile, which flushed it */
	r = inode_content_open(fs->inodes, i, &c);
	if (r == 0) {
		r = content_flush(c);
		inode_content_close(fs->inodes, i);
	}
	if (r == 0)
		r = atomic_exchange(&i->write_error, 0);
	names_put(fs, i);
	return r;
}

int file_flush_all(struct fs *fs)
{
	uint64_t *inos;
	size_t nr;
	int r;

	r = inodes_with_writers(fs->inodes, &inos, &nr);
	if (r < 0)
		return r;
	for (size_t i = 0; i < nr; i++) {
		int flushed = flush_inode(fs, inos[i]);

		r = r < 0 ? r : flushed;
	}
	free(inos);
	return r;
}

int file_flush(struct fs *fs, struct file *f)
{
	int r;

	if (f->wrote)
		series_closed(fs, f->inode->ino); /* close(2) waits for FLUSH, so the next write finds this version */
	if (!file_is_for_writing(f->flags))
		return 0;
	r = content_flush(f->content);
	return r < 0 ? r : settle_times(fs, f);
}

bool file_is_large(struct fs *fs, uint64_t ino)
{
	struct ns_content c;

	return content_peek(fs->engine, ino, &c) == 0 && c.size > GiB(1);
}

static int allocate(struct content *c, int mode, uint64_t off, uint64_t len)
{
	bool keep_size = mode & FALLOC_FL_KEEP_SIZE;
	int r;

	switch (mode & ~FALLOC_FL_KEEP_SIZE) {
	case 0:
		return content_allocate(c, off, len, !keep_size);
	case FALLOC_FL_PUNCH_HOLE:
		return keep_size ? content_punch(c, off, len) : -EOPNOTSUPP;
	case FALLOC_FL_ZERO_RANGE:
		r = content_allocate(c, off, len, !keep_size); /* first: it may fail, and leaves the bytes as they are */
		return r < 0 ? r : content_punch(c, off, len);
	default:
		return -EOPNOTSUPP;
	}
}

int file_allocate(struct fs *fs, struct file *f, int mode, uint64_t off, uint64_t len, struct caller *caller)
{
	int r;

	if (!file_is_for_writing(f->flags))
		return -EBADF;
	if (off > INT64_MAX - len)
		return -EFBIG;
	r = allocate(f->content, mode, off, len);
	return r < 0 ? r : finish_change(fs, f, caller);
}

/*
 * Chunks of a replica may be stored on the owning node alone, and only for as long as that node keeps them, so a local
 * file must not refer to them. On -EXDEV the kernel copies the bytes instead, which stores them here.
 */
static int may_share(struct fs *fs, const struct inode *from)
{
	struct ns_inode in;
	int r = attr_load(fs, from->ino, &in);

	return r <= 0 ? MIN(r, 0) : in.flags & INODE_REPLICA ? -EXDEV : 0;
}

typedef int clone_fn(struct content *from, uint64_t from_off, struct content *to, uint64_t to_off, uint64_t len,
		     uint64_t *ret);

static int share(struct fs *fs, struct inode *from, struct content *content, uint64_t from_off, struct file *to,
		 uint64_t to_off, uint64_t len, struct caller *caller, clone_fn *clone, uint64_t *ret)
{
	int r;

	if (!file_is_for_writing(to->flags))
		return -EBADF;
	if (from_off > INT64_MAX - len || to_off > INT64_MAX - len)
		return -EFBIG;
	if (from == to->inode && from_off < to_off + len && to_off < from_off + len)
		return -EINVAL;
	r = may_share(fs, from);
	if (r < 0)
		return r;
	r = clone(content, from_off, to->content, to_off, len, ret);
	if (r == -EREMOTE)
		r = -EXDEV; /* the bytes are in the tier: as for those of a replica */
	return r < 0 ? r : finish_change(fs, to, caller);
}

int file_copy_some(struct fs *fs, struct file *from, uint64_t from_off, struct file *to, uint64_t to_off, uint64_t len,
		   struct caller *caller, uint64_t *ret)
{
	return share(fs, from->inode, from->content, from_off, to, to_off, len, caller, content_clone_some, ret);
}

static int new_handle(struct fs *fs, struct file *f) REQUIRES(fs->handles_lock)
{
	uint64_t **at;

	do {
		if (getrandom(&f->handle, sizeof(f->handle), 0) != sizeof(f->handle)) {
			f->handle = 0;
			return -EIO;
		}
	} while (f->handle == 0 || tfind(&f->handle, &fs->handles, compare_handles));
	at = tsearch(&f->handle, &fs->handles, compare_handles);
	if (!at)
		f->handle = 0;
	return at ? 0 : -ENOMEM;
}

int file_handle(struct fs *fs, struct file *f, uint64_t *ret)
{
	int r;

	mutex_lock(&fs->handles_lock);
	r = f->handle == 0 ? new_handle(fs, f) : 0;
	if (r == 0)
		*ret = f->handle;
	mutex_unlock(&fs->handles_lock);
	return r;
}

/* Pins the inode, because the file may be closed meanwhile. */
static struct inode *inode_of_handle(struct fs *fs, uint64_t handle)
{
	struct inode *i = NULL;
	uint64_t **at;

	mutex_lock(&fs->handles_lock);
	at = tfind(&handle, &fs->handles, compare_handles);
	if (at)
		i = inode_find(fs->inodes, container_of(*at, struct file, handle)->inode->ino);
	mutex_unlock(&fs->handles_lock);
	return i;
}

uint64_t file_of_handle(struct fs *fs, uint64_t handle)
{
	struct inode *i = inode_of_handle(fs, handle);
	uint64_t ino = i ? i->ino : 0;

	if (i)
		names_put(fs, i);
	return ino;
}

int file_clone_handle(struct fs *fs, uint64_t handle, uint64_t from_off, struct file *to, uint64_t to_off, uint64_t len,
		      struct caller *caller, uint64_t *ret)
{
	struct inode *from;
	struct ns_content c;
	struct content *content;
	int r;

	if (to->flags & O_APPEND) /* for copy_file_range(2) the kernel checks that, with the flags of the moment */
		return -EBADF;
	from = inode_of_handle(fs, handle);
	if (!from)
		return -ESTALE;
	r = inode_content_open(fs->inodes, from, &content);
	if (r == 0) {
		content_stat(content, &c);
		if (len == 0)
			len = c.size > from_off ? c.size - from_off : 0;
		r = share(fs, from, content, from_off, to, to_off, len, caller, content_clone, ret);
		content_keep_times(to->content); /* the kernel sends no times for an ioctl */
		inode_content_close(fs->inodes, from);
	}
	names_put(fs, from);
	if (r >= 0 && file_syncs_changes(fs, to)) { /* the request has a place (fs/long_requests.h) and may wait */
		int synced = engine_sync(fs->engine);

		r = synced < 0 ? synced : r;
	}
	return r;
}

int file_compare_handle(struct fs *fs, struct file *f, uint64_t handle, uint64_t off, uint64_t len,
			struct content_sameness *ret)
{
	struct inode *with;
	struct content *content;
	int r;

	if (off > INT64_MAX || len > INT64_MAX)
		return -EINVAL;
	with = inode_of_handle(fs, handle);
	if (!with)
		return -ESTALE;
	r = inode_content_open(fs->inodes, with, &content);
	if (r == 0) {
		r = content_compare(f->content, content, off, off + len, ret);
		if (r == -EREMOTE) { /* nothing is known about them */
			*ret = (struct content_sameness){ off, off + len };
			r = 0;
		}
		inode_content_close(fs->inodes, with);
	}
	names_put(fs, with);
	return r;
}
