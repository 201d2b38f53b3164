#include "fs/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/util.h"
#include "fs/attr.h"
#include "fs/fs.h"
#include "fs/inode.h"
#include "fs/namespace.h"
#include "fs/series.h"
#include "fs/xattr.h"
#include "store/engine/engine.h"

static bool writable(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

static void file_free(struct fs *fs, struct file *f)
{
	if (f->content)
		inode_content_close(fs->inodes, f->inode);
	if (f->counts)
		attr_write_end(fs, f->inode);
	names_put(fs, f->inode);
	free(f);
}

bool file_is_for_writing(int flags)
{
	return writable(flags) || flags & O_TRUNC;
}

/* Takes the pin of `i`, and one writer if the flags are for writing, also if it fails. */
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
	f->flags = flags;
	f->direct = (flags & O_ACCMODE) == O_WRONLY;
	f->counts = file_is_for_writing(flags);
	f->inode = i;
	r = inode_content_open(fs->inodes, i, &f->content);
	if (r < 0) {
		file_free(fs, f);
		return r;
	}
	f->errors_seen = content_errors(f->content);
	if (writable(flags) && has_xattrs)
		r = xattr_apply_settings(fs, i->ino, f->content);
	if (r < 0) {
		file_free(fs, f);
		return r;
	}
	*ret = f;
	return 0;
}

/* From here on it counts as open. Files that write around the page cache want to know of those that use it. */
static void count_open(struct file *f, int by)
{
	if (!f->direct)
		f->inode->nr_cached += (uint32_t)by;
}

/* A change without bytes of its own, for which no write brings O_SYNC along. */
static int changed(struct fs *fs, const struct file *f)
{
	return fs->sync || f->flags & (O_SYNC | O_DSYNC) ? engine_sync(fs->engine) : 0;
}

/* As open(2) with O_TRUNC. 1: the mode has changed too. */
static int empty(struct fs *fs, struct file *f, bool kill_setid)
{
	int r = content_truncate(f->content, 0), mode_changed = 0;

	if (r == 0)
		r = mode_changed = attr_drop_privileges(fs, f->inode, kill_setid);
	if (r >= 0 && fs->sync)
		r = engine_sync(fs->engine);
	return r < 0 ? r : mode_changed;
}

/* The record, and who writes counts. */
static int begin(struct fs *fs, struct inode *i, int flags, struct ns_inode *ret)
{
	bool writes = file_is_for_writing(flags);
	int r = writes ? attr_write_begin(fs, i, ret) : attr_load(fs, i->ino, ret);

	if (r == 0 && !writes)
		r = -ENOENT;
	if (r < 0 || S_ISREG(ret->mode))
		return MIN(r, 0);
	if (writes)
		attr_write_end(fs, i);
	return -EINVAL; /* the kernel opens the others itself */
}

int file_open(struct fs *fs, uint64_t ino, int flags, bool kill_setid, bool *ret_mode_changed, struct file **ret)
{
	struct ns_inode in;
	struct inode *i;
	struct file *f;
	int r;

	r = inode_get(fs->inodes, ino, &i);
	if (r < 0)
		return r;
	r = begin(fs, i, flags, &in);
	if (r < 0) {
		names_put(fs, i);
		return r;
	}
	r = new_file(fs, i, flags, in.flags & INODE_HAS_XATTRS, &f);
	if (r < 0)
		return r;
	if (attr_privileged(&in))
		f->inode->privileged = true;
	if (flags & O_TRUNC && !fs->read_only)
		r = empty(fs, f, kill_setid);
	if (r < 0) {
		file_free(fs, f);
		return r;
	}
	*ret_mode_changed = r > 0;
	count_open(f, 1);
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
	count_open(f, 1);
	*ret = f;
	return 0;
}

static void forget_handle(struct fs *fs, struct file *f)
{
	struct file **at;

	mutex_lock(&fs->handles_lock);
	for (at = &fs->handles; *at != f; at = &(*at)->next)
		;
	*at = f->next;
	mutex_unlock(&fs->handles_lock);
}

void file_close(struct fs *fs, struct file *f)
{
	if (f->wrote)
		content_flush(f->content); /* for stat() by name; close(2) has had its answer from file_flush() */
	if (f->champion_chosen)
		content_set_champions(f->content, NULL, 0);
	if (f->handle != 0)
		forget_handle(fs, f);
	count_open(f, -1);
	file_free(fs, f);
}

/* Once per open file, at its first write, if it starts from nothing. */
static void choose_champions(struct fs *fs, struct file *f)
{
	uint64_t inos[SERIES_MAX];
	struct ns_content c;

	if (atomic_exchange(&f->champion_chosen, true))
		return;
	content_stat(f->content, &c);
	if (c.size > 0)
		return; /* what is being overwritten is compared with first */
	content_set_champions(f->content, inos, series_champions(fs, f->inode->ino, f->dir, inos));
}

int file_write(struct fs *fs, struct file *f, struct engine_buffer **b, const void *p, size_t len, uint64_t off,
	       int flags, bool kill_setid, struct job **later, struct file_written *ret)
{
	bool privileged = f->inode->privileged; /* once: see below */
	int r;

	*later = NULL;
	if (off > INT64_MAX - len)
		return -EFBIG;
	if (!f->champion_chosen)
		choose_champions(fs, f);
	r = b ? content_write_buffer(f->content, b, p, len, off, later) : content_write(f->content, p, len, off);
	if (r < 0)
		return r;
	if (*later && flags & (O_SYNC | O_DSYNC))
		job_run(TAKE(*later)); /* it is waited for below */
	else if (privileged)
		job_queue(TAKE(*later)); /* what follows waits, perhaps for somebody who waits for it */
	f->wrote = true;
	r = privileged ? attr_drop_privileges(fs, f->inode, kill_setid) : 0;
	if (r < 0)
		return r;
	*ret = (struct file_written){ .invalidate = f->direct && f->inode->nr_cached > 0, .mode_changed = r > 0 };
	return flags & (O_SYNC | O_DSYNC) ? file_sync(f) : 0;
}

ssize_t file_read(struct fs *fs, struct file *f, void *p, size_t len, uint64_t off)
{
	ssize_t n = content_read(f->content, p, len, off);

	if (n > 0)
		attr_touch(fs, f->inode);
	return n;
}

int file_sync(struct file *f)
{
	uint64_t seen = f->errors_seen;
	int r = content_sync(f->content, &seen);

	f->errors_seen = seen;
	return r;
}

static void synced(struct engine_waiter *w, int r)
{
	struct file_sync *s = container_of(w, struct file_sync, w);

	s->f->errors_seen = s->seen;
	s->done(s, r);
}

void file_sync_then(struct file *f, struct file_sync *s)
{
	s->w.done = synced;
	s->f = f;
	s->seen = f->errors_seen;
	content_sync_then(f->content, &s->seen, &s->w);
}

int file_flush(struct fs *fs, struct file *f)
{
	if (f->wrote)
		series_closed(fs, f->inode->ino); /* here, as close(2) waits for this: what is written next finds it */
	return writable(f->flags) ? content_flush(f->content) : 0;
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
		r = content_punch(c, off, len);
		return r < 0 || keep_size ? r : content_allocate(c, off, len, true);
	default:
		return -EOPNOTSUPP;
	}
}

int file_allocate(struct fs *fs, struct file *f, int mode, uint64_t off, uint64_t len, bool kill_setid)
{
	int r;

	if (!writable(f->flags))
		return -EBADF;
	if (off > INT64_MAX - len)
		return -EFBIG;
	r = allocate(f->content, mode, off, len);
	if (r < 0)
		return r;
	f->wrote = true;
	r = attr_drop_privileges(fs, f->inode, kill_setid);
	return r < 0 ? r : changed(fs, f);
}

/* Chunks of a copy of another node's directory may be with that node alone, and for as long as it has them: a file of
 * this one must not refer to them. Whoever copies bytes, as the kernel does when it hears this, has them stored. */
static int may_share(struct fs *fs, const struct inode *from)
{
	struct ns_inode in;
	int r = attr_load(fs, from->ino, &in);

	return r <= 0 ? MIN(r, 0) : in.flags & INODE_COPY ? -EXDEV : 0;
}

static int share(struct fs *fs, struct inode *from, struct content *content, uint64_t from_off, struct file *to,
		 uint64_t to_off, uint64_t len, bool kill_setid, uint64_t *ret)
{
	int r;

	if (!writable(to->flags))
		return -EBADF;
	if (from_off > INT64_MAX - len || to_off > INT64_MAX - len)
		return -EFBIG;
	if (from == to->inode && from_off < to_off + len && to_off < from_off + len)
		return -EINVAL;
	r = may_share(fs, from);
	if (r < 0)
		return r;
	r = content_clone(content, from_off, to->content, to_off, len, ret);
	if (r < 0)
		return r;
	to->wrote = true;
	r = attr_drop_privileges(fs, to->inode, kill_setid);
	return r < 0 ? r : changed(fs, to);
}

int file_clone(struct fs *fs, struct file *from, uint64_t from_off, struct file *to, uint64_t to_off, uint64_t len,
	       bool kill_setid, uint64_t *ret)
{
	return share(fs, from->inode, from->content, from_off, to, to_off, len, kill_setid, ret);
}

int file_handle(struct fs *fs, struct file *f, uint64_t *ret)
{
	if ((f->flags & O_ACCMODE) == O_WRONLY)
		return -EBADF;
	mutex_lock(&fs->handles_lock);
	while (f->handle == 0) {
		if (getrandom(&f->handle, sizeof(f->handle), 0) != sizeof(f->handle)) {
			f->handle = 0;
			break;
		}
		if (f->handle != 0) {
			f->next = fs->handles;
			fs->handles = f;
		}
	}
	*ret = f->handle;
	mutex_unlock(&fs->handles_lock);
	return *ret != 0 ? 0 : -EIO;
}

/* Pin the inode, for the file may be closed meanwhile. */
static struct inode *inode_of_handle(struct fs *fs, uint64_t handle)
{
	struct inode *i = NULL;

	mutex_lock(&fs->handles_lock);
	for (struct file *f = fs->handles; f && !i; f = f->next)
		if (f->handle == handle)
			i = inode_find(fs->inodes, f->inode->ino);
	mutex_unlock(&fs->handles_lock);
	return i;
}

int file_clone_handle(struct fs *fs, uint64_t handle, uint64_t from_off, struct file *to, uint64_t to_off, uint64_t len,
		      bool kill_setid, uint64_t *ret)
{
	struct inode *from = inode_of_handle(fs, handle);
	struct ns_content c;
	struct content *content;
	int r;

	if (!from)
		return -ESTALE;
	r = inode_content_open(fs->inodes, from, &content);
	if (r == 0) {
		content_stat(content, &c);
		if (len == 0)
			len = c.size > from_off ? c.size - from_off : 0;
		r = share(fs, from, content, from_off, to, to_off, len, kill_setid, ret);
		inode_content_close(fs->inodes, from);
	}
	names_put(fs, from);
	return r;
}

#define COMPARE_MAX GiB(1) /* then the thread is free for somebody else */

int file_compare_handle(struct fs *fs, struct file *f, uint64_t handle, uint64_t off, uint64_t len,
			struct content_sameness *ret)
{
	struct inode *with;
	struct content *content;
	int r;

	if ((f->flags & O_ACCMODE) == O_WRONLY)
		return -EBADF;
	if (off > INT64_MAX || len > INT64_MAX)
		return -EINVAL;
	with = inode_of_handle(fs, handle);
	if (!with)
		return -ESTALE;
	r = inode_content_open(fs->inodes, with, &content);
	if (r == 0) {
		r = content_compare(f->content, content, off, off + MIN(len, COMPARE_MAX), ret);
		inode_content_close(fs->inodes, with);
	}
	names_put(fs, with);
	return r;
}
