/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Open files: the layer between a request and the engine's content.
 *
 * A file opened for writing only bypasses the page cache (nothing can map it): requests of up to 1 MiB then arrive as
 * one copy, in the buffer that is passed on to the packs. All others use the page cache, which is kept from open to
 * open because content changes only through this mount.
 *
 * A write that bypasses the cache must leave no older page of its range there. The kernel drops cached pages before it
 * sends such a write (only since Linux 6.6), but a reader may cache them again until the write takes effect. So they
 * are dropped after the write has taken effect and before the reply. That is sufficient: the kernel adds a page to the
 * cache, locked, before it requests its content, and dropping waits for the lock. A page filled with old bytes is
 * therefore already there, and one that is added later is filled with new bytes. file_write() returns which pages to
 * drop:
 *   - the range, while a file that uses the cache is open;
 *   - all pages, if such a file was open since they were last dropped (it may have been opened, read and closed between
 *     the moment the kernel sent the write and the moment the write took effect);
 *   - otherwise none, which is the case for every new file.
 * Writes through O_DIRECT on other descriptors are left to the kernel, which does the same as long as they are
 * synchronous (docs/decisions/fuse.md, "Page cache coherence").
 *
 * One loss cannot be prevented here: a write that extends a page which is dirty through a mapping (ckptfs(5),
 * tests/mount/append.c). Since Linux 6.17 write-back zeroes the part of a page beyond i_size in the cache, with the
 * page locked (iomap_writeback_handle_eof()). fuse_perform_write() unlocks the page when the new bytes are in it, the
 * WRITE request refers to the page, and i_size changes after the reply. Write-back in between zeroes the bytes before
 * the daemon has read them, or, after it has, in the cache alone. Rejected:
 *   - O_RDWR files bypass the cache as well: every read would be a request, and the loss remains, as it does for
 *     O_WRONLY. A page that is dropped and faulted in again has the new bytes, but i_size is old until the reply, and
 *     write-back zeroes them in the cache.
 *   - Drop the page after the write: it may be dirty, and dropping it writes the zeros to the store.
 *   - Raise i_size before the reply (FUSE_NOTIFY_STORE): the page may be locked until the reply, and most of the time
 *     the zeros are in the request already.
 * With fs.writeback the kernel changes i_size before it unlocks the page.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/mutex.h"
#include "store/engine.h"

struct caller;
struct content;
struct engine_buffer;
struct fs;
struct inode;
struct job;

/* State of an open file in fs/control/delta.c. */
enum file_delta { FILE_DELTA_NONE, FILE_DELTA_BEGUN, FILE_DELTA_BUSY, FILE_DELTA_COMMITTED };

struct file {
	/* Constant. */
	struct inode *inode; /* pinned */
	struct content *content; /* one reference to the inode's content */
	uint64_t dir; /* the directory it was created in, 0: unknown */
	int flags; /* of open(2); requests to read and write have those of the moment, which fcntl(2) may have changed */
	bool direct;
	bool counts; /* counted as a writer of the inode */

	atomic_bool wrote;
	/* Held by the first write while it looks up champions in the index; concurrent writes need the result. Taken with no
	 * lock held. */
	struct mutex champion_lock;
	atomic_bool champion_chosen; /* set under champion_lock */
	_Atomic uint64_t errors_seen; /* errors of the content already reported by an fsync of this open file */
	_Atomic uint32_t write_errors_seen; /* of inode.nr_write_errors: from before the open, or reported by a write */

	struct away_file *_Atomic away; /* of fs/away/dropped.h; NULL: not used yet */

	atomic_int delta; /* enum file_delta */
	uint32_t delta_number, delta_parent; /* constant once the delta has begun */

	uint64_t handle; /* under fs.handles_lock; 0: none, else fs.handles refers to it */

	struct file *before, *behind; /* in fs.open_files */
};

bool file_is_for_writing(int flags);
bool file_is_synchronous(int flags); /* of open(2), or of a write */
/* O_TRUNC arrives as a separate SETATTR. */
int file_open(struct fs *fs, uint64_t ino, int flags, struct file **ret);
/*
 * Open a file that names_make() has just created under `dir`. names_make() has counted a writer if `flags` are for
 * writing; that count is dropped on failure.
 */
int file_open_new(struct fs *fs, uint64_t ino, uint64_t dir, int flags, struct file **ret);
void file_close(struct fs *fs, struct file *f);
/* Close the files that the kernel will not release: it sends no more requests after the session has been severed. */
void file_close_all(struct fs *fs);

enum file_stale { FILE_STALE_NONE, FILE_STALE_RANGE, FILE_STALE_ALL };
struct file_written {
	enum file_stale stale; /* pages to drop from the page cache before replying to the write */
	uint32_t opens; /* with FILE_STALE_ALL, for file_pages_dropped() */
	bool mode_changed; /* set-id bits were dropped */
};
/*
 * `p` points into (*b)->data or, with b NULL, anywhere. If *b is consumed it is NULL on return. If *remaining is not
 * NULL, the caller runs or queues it (content_write_buffer()) after sending its reply. A synchronous write is followed
 * by file_sync_data_then(), before which *remaining is run or queued. *ret is valid also on an error, which may follow
 * the change of the bytes.
 */
int file_write(struct fs *fs, struct file *f, struct engine_buffer **b, const void *p, size_t len, uint64_t off,
	       struct caller *caller, struct job **remaining, struct file_written *ret);
/*
 * With fs.writeback: record a failed write that no program waits for. The kernel reports it at fsync and close. An
 * ioctl that depends on the data takes the error from here, and so does the next write(2): see op_getattr().
 */
void file_write_failed(struct file *f, int r);
int file_take_write_error(struct file *f); /* 0: none */
/* The same for a write(2). 0: none since `f` was opened or last asked, or `f` is read-only. */
int file_take_next_write_error(struct file *f);
/* All pages were dropped, as FILE_STALE_ALL requested. */
void file_pages_dropped(struct file *f, uint32_t opens);
/*
 * -EINPROGRESS: the bytes were dropped (fs/away/dropped.h) and have to be read from the tier, which takes long; not if
 * `may_wait` is set.
 */
ssize_t file_read(struct fs *fs, struct file *f, int flags, void *p, size_t len, uint64_t off, bool may_wait);
int file_seek(struct file *f, uint64_t off, int whence, uint64_t *ret); /* where holes of dropped files are is not known */
int file_flush(struct fs *fs, struct file *f); /* at each close(2) */
/* Completes through `done`, see engine_sync_then(). `f` must stay open until then. */
struct file_sync {
	struct engine_waiter w;
	void (*done)(struct file_sync *s, int r);
	struct file *f;
	uint64_t seen;
};
void file_sync_then(struct fs *fs, struct file *f, struct file_sync *s);
void file_sync_data_then(struct file *f, struct file_sync *s); /* without the times that the kernel has not sent yet */
int file_flush_all(struct fs *fs); /* writes all buffered bytes of open files to the log */
bool file_is_large(struct fs *fs, uint64_t ino); /* removing its data, or allocating more, may take long */
/* After a change by one of the next two: does the reply wait for engine_sync_then()? */
bool file_syncs_changes(struct fs *fs, const struct file *f);
/* These return 1 if set-id bits were dropped. */
int file_allocate(struct fs *fs, struct file *f, int mode, uint64_t off, uint64_t len, struct caller *caller);
/* Shares the bytes, and may end early (content_clone_some()): the kernel holds the lock of `to` meanwhile. */
int file_copy_some(struct fs *fs, struct file *from, uint64_t from_off, struct file *to, uint64_t to_off, uint64_t len,
		   struct caller *caller, uint64_t *ret);

/* A number by which other requests can refer to this file, which must be open for reading, while it is open. */
int file_handle(struct fs *fs, struct file *f, uint64_t *ret);
/* The inode of the file with this handle, 0: none. */
uint64_t file_of_handle(struct fs *fs, uint64_t handle);
/* content_compare() with the file that has this handle, at most 1 GiB. */
int file_compare_handle(struct fs *fs, struct file *f, uint64_t handle, uint64_t off, uint64_t len,
			struct content_sameness *ret);
/* The same from the file with this handle, and all of it; len 0: to its end. -ESTALE: no such handle. */
int file_clone_handle(struct fs *fs, uint64_t handle, uint64_t from_off, struct file *to, uint64_t to_off, uint64_t len,
		      struct caller *caller, uint64_t *ret);
