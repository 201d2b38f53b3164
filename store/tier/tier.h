/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A tier: objects under names, in a shared directory (tier_dir.h) or an object store. The local store is the fast
 * level; sealed checkpoints are copied to the tier and read back on any machine.
 *
 * There are five verbs, and nothing else is assumed of a back end:
 *   put new  create an object as a whole; -EEXIST: the name is taken. Of any number of racing requests one succeeds
 *   put      create or replace an object as a whole
 *   get      bytes of an object from an offset on
 *   list     names with a prefix, in order
 *   delete   an object; it is no error if there is none
 * A reader never finds part of an object. When a put has succeeded, the object is durable and every later get finds
 * it; a list may miss it for a while. tier_probe.h tries this before a tier is used.
 *
 * A request that fails for another reason than -EEXIST or -ENOENT may have taken effect or may yet do so: the answer
 * of a back end can be lost. A repeated put new can therefore find the object of the first attempt. Callers name
 * objects by their content, or read the object to find out which request created it.
 *
 * Requests are asynchronous. A thread starts them through a queue of its own and takes the completed ones from it, in
 * any order. A back end is used by any number of threads and queues.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct tier;
struct tier_queue;

/*
 * Names are parts of letters, digits and `_ - .` with a slash between them. No part begins with a dot. All back ends
 * can store such names as they are, and a directory can keep temporary files beside them.
 */
#define TIER_NAME_MAX 200u
#define TIER_PART_MAX 100u
bool tier_name_is_valid(const char *name);
bool tier_prefix_is_valid(const char *prefix); /* "", or a name and a slash */

enum tier_op { TIER_PUT_NEW, TIER_PUT, TIER_GET, TIER_LIST, TIER_DELETE };

/* Everything that it points to is borrowed until the request is completed. */
struct tier_request {
	enum tier_op op;
	const char *name; /* LIST: the prefix */
	const void *data; /* PUT_NEW, PUT: the object */
	size_t len; /* PUT_NEW, PUT: of data; GET: bytes wanted */
	void *buf; /* GET */
	uint64_t off; /* GET */
	const char *after; /* LIST: names behind this one; NULL: all */
	void *userdata; /* of the caller */

	/*
	 * 0; -EEXIST: PUT_NEW found an object; -ENOENT: GET found none; -ENOSPC, -EDQUOT, -EACCES, -EROFS: as for
	 * files; -EAGAIN: the back end is overloaded; -EBADMSG: it returned other bytes than requested;
	 * -EOPNOTSUPP: it does not implement the request; others: see above. The back end has logged all but the
	 * first two.
	 */
	int result;
	size_t got; /* GET: fewer than wanted only at the end of the object */
	uint64_t size; /* GET: of the whole object */
	/* LIST: names, each with a zero byte, sorted by their bytes. The caller initialises and releases the buffer; a
	 * back end appends. */
	struct buf names;
	bool more; /* LIST: more may follow behind the last one of `names` */

	struct tier_queue *queue; /* of tier.c */
	struct tier_request *next; /* of the back end until tier_done(), then of tier.c */
};

/* Any thread may call this; the new queue belongs to one thread. It borrows the tier. */
int tier_queue_new(struct tier *t, struct tier_queue **ret);
/* Waits for the requests in flight. NULL is fine. */
void tier_queue_free(struct tier_queue *u);
void tier_queue_freep(struct tier_queue **u);
/* Does not wait for the back end. Invalid names complete with -EINVAL. */
void tier_start(struct tier_queue *u, struct tier_request *q);
/* Waits for a completed request; NULL: none is in flight. */
struct tier_request *tier_next(struct tier_queue *u);
struct tier_request *tier_completed(struct tier_queue *u); /* a completed request; NULL: none is. Does not wait */
unsigned tier_in_flight(const struct tier_queue *u); /* started, and not returned by the two above */

/* Requests one at a time, for callers that have nothing else to do meanwhile. */
int tier_call(struct tier *t, struct tier_request *q); /* q->result */
int tier_put_new(struct tier *t, const char *name, const void *data, size_t len);
/* -ENOENT; -EBADMSG: the object ends before off + len. */
int tier_get(struct tier *t, const char *name, uint64_t off, void *buf, size_t len);
/* A whole object of up to `max` bytes, appended to *ret. -EFBIG: it is larger. */
int tier_get_all(struct tier *t, const char *name, size_t max, struct buf *ret);
/* All names with a prefix, appended to *ret, in as many requests as it takes. */
int tier_list_all(struct tier *t, const char *prefix, struct buf *ret);

/*
 * Deletes the remains of interrupted puts of objects with this prefix, if the previous sweep has found them. A put that
 * is in flight during two sweeps may fail; it has no effect then, and can be repeated.
 */
int tier_sweep(struct tier *t, const char *prefix);

/* No request is in flight. NULL is fine. */
void tier_close(struct tier *t);
void tier_closep(struct tier **t);
/* Bytes of puts that the back end has sent in vain, and sends again. Any thread. */
uint64_t tier_repeated_bytes(const struct tier *t);
const char *tier_where(const struct tier *t); /* for messages, without credentials: "dir:/lustre/me/ckpt" */

/*
 * For back ends: a struct that begins with this one. start() does not wait for the back end. It calls tier_done() once
 * for each request, from any thread, also before it returns; afterwards the request is the caller's again. Names have
 * been checked.
 *
 * A back end without threads of its own has drive(). tier_next() calls it while none of its requests is completed; it
 * makes progress with those in flight. NULL: there are threads.
 *
 * If interrupted puts leave nothing behind, a back end has no sweep().
 */
struct tier_backend {
	void (*start)(struct tier *t, struct tier_request *q);
	void (*drive)(struct tier *t);
	int (*sweep)(struct tier *t, const char *prefix);
	void (*close)(struct tier *t);
};
struct tier {
	const struct tier_backend *backend;
	char *where; /* owned by the back end */
	_Atomic uint64_t repeated_bytes;
};
void tier_done(struct tier_request *q, int result);
