/*
 * Open files: between a request and the engine's content.
 *
 * A file opened for writing only bypasses the page cache (nothing can map it): requests of up to 1 MiB then come as
 * one copy into the buffer that goes on to the packs. All others use the page cache, which is kept from open to open
 * because content changes only through this mount. Where both kinds are open at once, what was written directly must
 * be dropped from the cache before the write is answered: file_write() says when.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "store/engine/engine.h"

struct content;
struct engine_buffer;
struct fs;
struct inode;
struct job;

/* What an open file is to fs/delta.c. */
enum file_delta { FILE_DELTA_NONE, FILE_DELTA_BEGUN, FILE_DELTA_BUSY, FILE_DELTA_COMMITTED };

struct file {
	/* Constant. */
	struct inode *inode; /* pinned */
	struct content *content; /* one use of the inode's */
	uint64_t dir; /* the directory it was created in, 0: not known */
	int flags; /* of open(2) */
	bool direct;
	bool counts; /* among the writers of the inode */

	atomic_bool wrote, champion_chosen;
	_Atomic uint64_t errors_seen; /* of the content's, by an fsync of this open file */

	atomic_int delta; /* enum file_delta */
	uint32_t delta_number, delta_parent; /* constant once it has begun */

	uint64_t handle; /* under fs.handles_lock, 0: none */
	struct file *next; /* in fs.handles */
};

/* `kill_setid`: O_TRUNC takes set-id bits away. *ret_mode_changed: it did. */
bool file_is_for_writing(int flags);
int file_open(struct fs *fs, uint64_t ino, int flags, bool kill_setid, bool *ret_mode_changed, struct file **ret);
/* Made just now under `dir`, by names_make(), which has counted a writer if `flags` are for writing; he goes if this
 * fails. */
int file_open_new(struct fs *fs, uint64_t ino, uint64_t dir, int flags, struct file **ret);
void file_close(struct fs *fs, struct file *f);

struct file_written {
	bool invalidate; /* pages of the range may be cached and are old */
	bool mode_changed; /* set-id bits are gone */
};
/*
 * `p` lies in (*b)->data or, with b NULL, anywhere. *b may be taken, then it is NULL afterwards, and *later, if not
 * NULL, is the caller's to run or queue (content_write_buffer()) after its answer.
 */
int file_write(struct fs *fs, struct file *f, struct engine_buffer **b, const void *p, size_t len, uint64_t off,
	       int flags, bool kill_setid, struct job **later, struct file_written *ret);
ssize_t file_read(struct fs *fs, struct file *f, void *p, size_t len, uint64_t off);
int file_flush(struct fs *fs, struct file *f); /* at each close(2) */
int file_sync(struct file *f);
/* Answers by `done`, see engine_sync_then(). `f` must stay open until then. */
struct file_sync {
	struct engine_waiter w;
	void (*done)(struct file_sync *s, int r);
	struct file *f;
	uint64_t seen;
};
void file_sync_then(struct file *f, struct file_sync *s);
int file_allocate(struct fs *fs, struct file *f, int mode, uint64_t off, uint64_t len, bool kill_setid);
int file_clone(struct fs *fs, struct file *from, uint64_t from_off, struct file *to, uint64_t to_off, uint64_t len,
	       bool kill_setid, uint64_t *ret);

/* A number by which other requests may refer to this file while it is open. -EBADF unless it is open for reading. */
int file_handle(struct fs *fs, struct file *f, uint64_t *ret);
/* content_compare() with the file that has this handle, of 1 GiB at most. -EBADF unless this one is open for
 * reading. */
int file_compare_handle(struct fs *fs, struct file *f, uint64_t handle, uint64_t off, uint64_t len,
			struct content_sameness *ret);
/* As file_clone() from the file that has this handle; len 0: to its end. -ESTALE: there is none. */
int file_clone_handle(struct fs *fs, uint64_t handle, uint64_t from_off, struct file *to, uint64_t to_off, uint64_t len,
		      bool kill_setid, uint64_t *ret);
