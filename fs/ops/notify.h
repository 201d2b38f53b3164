/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Notifications that make the kernel drop pages, sent from a separate thread. Names: name_drops.h.
 *
 * Dropping a page waits for its lock, which is held while another request to this daemon reads or writes the page. If
 * all threads that serve requests waited here, they could wait for a request that no thread is left to serve. So this
 * work is queued; the notification thread replies to the request once the pages are gone, and the loop continues
 * meanwhile.
 *
 * A request that waits here must not occupy one of the kernel's background slots: the pages it waits for may be read by
 * a background request that the kernel holds back until a slot is free.
 *
 * Dropping attributes does not block and may be done from any thread.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fuse_lowlevel.h>

struct file;
struct notify;

/*
 * A thread that sends notifications. In the kernel these wait for locks. The wait cannot be interrupted, and a user may
 * hold such a lock for any time. A daemon that shuts down abandons the thread there: if the kernel does return, the
 * thread stops and touches nothing that has been freed.
 */
struct notify_thread {
	pthread_t thread;
	_Atomic int state;
};
void notify_thread_enter(struct notify_thread *t); /* before a notification: entering the kernel */
void notify_thread_leave(struct notify_thread *t);
void notify_thread_end(struct notify_thread *t); /* the last call the thread makes */
/*
 * Send `signal`, unless 0, until the thread has ended. false: it is still in the kernel at `until_ns` and was
 * abandoned.
 */
bool notify_thread_join(struct notify_thread *t, int signal, uint64_t until_ns);

int notify_new(struct fuse_session *se, struct notify **ret);
/*
 * Completes the queued work; later requests are answered at once. Requests must still be served meanwhile. Returns as
 * notify_thread_join().
 */
bool notify_stop(struct notify *n, uint64_t until_ns);
void notify_free(struct notify *n); /* after notify_stop(), or NULL */

/* Make the kernel fetch the attributes again because the mode or the number of blocks has changed. Does not block. */
void notify_attributes_changed(struct notify *n, uint64_t ino);

/* Drop the pages of [off, off+len), then reply to the write with `result`: bytes, or the error of a write whose bytes
 * are in the file all the same. */
void notify_range_then_reply_write(struct notify *n, fuse_req_t req, uint64_t ino, uint64_t off, size_t len,
				   ssize_t result);
/* Drop all pages, call file_pages_dropped(), then reply likewise. */
void notify_all_then_reply_write(struct notify *n, fuse_req_t req, uint64_t ino, struct file *f, uint32_t opens,
				 ssize_t result);
/*
 * The same for an ioctl that has changed the range; *out (copied) is its reply unless `error` is one. If the file has
 * grown to `size`, its `last` byte is stored in the page cache, which updates the kernel's i_size.
 */
struct notify_growth {
	uint64_t size; /* 0: not grown */
	uint8_t last;
};
void notify_then_reply_ioctl(struct notify *n, fuse_req_t req, uint64_t ino, uint64_t off, uint64_t len,
			     struct notify_growth growth, int error, const void *out, size_t out_len);
