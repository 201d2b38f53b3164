/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Requests that depend on data the kernel holds back.
 *
 * The kernel sends dirty pages when it likes: at fsync, at close, before copy_file_range(2) and O_DIRECT, but not before
 * an ioctl or lseek(SEEK_DATA). Pages are dirty through a shared mapping and, with the mount option `writeback`, after
 * write(2). Such a request on a file that is open for writing is therefore held until the kernel has written its dirty
 * pages back, which FUSE_NOTIFY_INVAL_INODE makes it do. Otherwise cp(1) would copy a mapped page as a hole. The same is
 * done for the other file that a clone or a comparison names, and for all files before CKPTFS_IOC_SYNC.
 *
 * The notification returns when the pages have been written, that is, when WRITE requests have been answered. So it is
 * sent by threads of this module, which serve nothing else: the threads of the loop stay free for these requests. The
 * thread that has flushed then serves the held request itself. There are more threads than long requests may run at a
 * time (fs/long_requests.h), so long ones do not delay others here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flush;
struct fs;
struct fuse_session;

typedef void (*flush_serve)(void *userdata, void *request, size_t len);

/* Borrows everything until flush_free(). `nr_long`: the most long requests that run at a time. */
int flush_new(struct fuse_session *se, struct fs *fs, flush_serve serve, void *userdata, unsigned nr_long,
	      struct flush **ret);
/* true: the request is copied and served later, by `serve`; false: it needs no flush, serve it now. Any thread. */
bool flush_take(struct flush *f, const void *request, size_t len);
/* Serves what was taken, then joins the threads, as notify_thread_join() (fs/ops/notify.h). Other requests must still be
 * served meanwhile. */
bool flush_stop(struct flush *f, uint64_t until_ns);
void flush_free(struct flush *f); /* stopped, or NULL */
