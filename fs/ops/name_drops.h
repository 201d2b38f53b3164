/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names that the kernel must drop from its cache because the daemon created or removed them itself.
 *
 * The kernel takes the directory's lock for that, and the wait cannot be interrupted. Any user that can read a directory
 * can hold its lock for any time: with getdents(2) into memory backed by a filesystem of their own. The lock may also
 * belong to a request that waits for another request to this daemon. So a drop is given to a thread that serves nothing
 * else, and holds no place of the long requests (fs/long_requests.h). At most one thread waits for a directory; further
 * drops in it are queued, and so are those of a user beyond a limit (fs/places.h). A drop waits only for its own
 * directory and for drops of the same user, unless several users together have occupied all threads.
 *
 * The request that made or removed the name has no place then; it is answered after the drop, or when its client is
 * killed. A daemon that ends waits two seconds for the threads, then abandons them: it closes the store, aborts the
 * session and exits. The kernel keeps such a thread until the lock is released.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct name_drops;

typedef void name_drop_fn(void *userdata, uint64_t dir, const char *name); /* blocks in the kernel */

#define NAME_DROPS_OF_DAEMON UINT32_MAX /* no user has this number */

int name_drops_new(name_drop_fn *fn, void *userdata, struct name_drops **ret);
/*
 * Completes the drops that can be; later ones are done at once, without `fn`. Requests must still be served meanwhile.
 * false: some threads are still in the kernel at `until_ns` and were abandoned, as by notify_thread_join().
 */
bool name_drops_stop(struct name_drops *all, uint64_t until_ns);
void name_drops_free(struct name_drops *all); /* after name_drops_stop() has returned true, or NULL */

/*
 * Does not block. `uid` has caused the drop; `is_root`: it may take the reserved threads. `done` is called once, after
 * the drop, in any thread; NULL: none. -ENOMEM: neither is done.
 */
int name_drops_add(struct name_drops *all, uint32_t uid, bool is_root, uint64_t dir, const char *name,
		   void (*done)(void *arg), void *arg);
