/*
 * Telling the kernel to drop pages and names, from a thread of its own.
 *
 * Dropping a page waits for its lock, which is held while the page is being read or written through another request to
 * us, and dropping a name waits for that of its directory. If the threads that serve requests waited here, the last of
 * them could wait for a request that nobody serves. So such work is queued, and this thread answers the request when
 * the pages are gone; meanwhile the loop goes on.
 * Dropping attributes waits for nothing and may be done from anywhere.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <fuse_lowlevel.h>

struct notify;

int notify_new(struct fuse_session *se, struct notify **ret);
/* Work queued so far is done first; what comes later is answered at once. Requests must still be served meanwhile. */
void notify_stop(struct notify *n);
void notify_free(struct notify *n); /* stopped, or NULL */

/* Let the kernel ask for the attributes again, as it does not know that set-id bits went. Waits for nothing. */
void notify_mode_changed(struct notify *n, uint64_t ino);

/* Drop a name, and what lies below it, as far as nobody uses it: the kernel forgets these inodes. Waits for nothing. */
void notify_drop_name(struct notify *n, uint64_t dir, const char *name);

/* Drop the pages of [off, off+len), then answer the write of len bytes. */
void notify_then_reply_write(struct notify *n, fuse_req_t req, uint64_t ino, uint64_t off, size_t len);
/*
 * The same for an ioctl that has changed the range; *out (copied) is its answer. The kernel, which does not know that
 * the file has grown to `size`, is told by storing its `last` byte in the cache.
 */
struct notify_growth {
	uint64_t size; /* 0: it has not grown */
	uint8_t last;
};
void notify_then_reply_ioctl(struct notify *n, fuse_req_t req, uint64_t ino, uint64_t off, uint64_t len,
			     struct notify_growth growth, const void *out, size_t out_len);
/* The same for one that has made a name: the kernel may remember that there was none, and what the directory was like.
 * `r` below 0 is the answer instead of *out. */
#define NOTIFY_NAME_MAX 256
void notify_name_then_reply_ioctl(struct notify *n, fuse_req_t req, uint64_t dir, const char *name, int r,
				  const void *out, size_t out_len);
