/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Content of checkpoints of a tier, read on demand into bounded memory: tables of packs, and stretches of packs of up
 * to 4 MiB. Several threads share one cache. They wait for it, and not for the back end: each wait ends after the
 * timeout, or when the caller is interrupted.
 *
 * Every chunk is checked by its fingerprint when it arrives, and tables by the digest that is their pack's name. A
 * damaged chunk concerns the files that have it, and no others. What could not be read is not remembered: the next read
 * tries again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "store/tier/tier_format.h"
#include "store/tier/tier_tree.h"
#include "store/tier/tier_pool.h"

struct tier;
struct tier_cache;
struct tier_source;
struct span;

#define TIER_READ_MAX MiB(1)

struct tier_cache_conf {
	uint64_t bytes; /* of memory, for content and tables. Requests that are being answered may exceed it */
	uint64_t timeout_ns; /* for a request of a program; failing requests to the back end are repeated for this time */
};

/* Borrows both. The threads of the pool run all requests. */
int tier_cache_new(struct tier *t, struct tier_pool *pool, const struct tier_cache_conf *conf, struct tier_cache **ret);
void tier_cache_free(struct tier_cache *c); /* after the pool has been stopped; NULL is fine */
/* All waiting calls end with -EIO, also later ones. */
void tier_cache_stop(struct tier_cache *c);
/* Waiting calls ask again whether they are interrupted. */
void tier_cache_wake(struct tier_cache *c);

struct tier_cache_figures {
	uint64_t requests, bytes; /* sent to the back end since the start; received */
	uint64_t memory, memory_max; /* now */
	uint64_t damaged; /* chunks that did not match their fingerprints, since the start */
};
void tier_cache_figures(struct tier_cache *c, struct tier_cache_figures *ret);

/* The thread that waits. */
struct tier_waiter {
	bool (*is_interrupted)(void *userdata); /* NULL: never */
	void *userdata;
};

/* Get a whole object of up to `max` bytes, for callers on a thread of the pool; repeated like all requests. */
int tier_cache_get_some(struct tier_cache *c, const char *name, uint64_t off, void *buf, size_t len, size_t *ret_got);

/* The packs of a manifest. Borrows the manifest, until it is freed; not the key. */
int tier_source_new(struct tier_cache *c, const struct tier_manifest *m, const struct fp_key *key,
		    struct tier_source **ret);
void tier_source_free(struct tier_source *s); /* no call uses it; NULL is fine */
const struct fp_key *tier_source_key(const struct tier_source *s);

/* Tables of pack number i of the manifest, which stay in memory until the put. -EINTR, -EIO, -ETIMEDOUT, -EBADMSG. */
int tier_source_tables(struct tier_source *s, uint32_t i, const struct tier_waiter *w, const struct tier_tables **ret);
void tier_source_tables_put(struct tier_source *s, uint32_t i);

/* What is known about the reader of a file. Starts as zeros; guarded by the cache. */
struct tier_ahead {
	uint64_t high; /* end of what has been read */
	uint64_t upto; /* requested */
	uint64_t window;
	bool is_begun;
};

struct tier_range {
	struct tier_source *source;
	const struct tier_tree *tree;
	uint32_t inode; /* a regular file */
	uint64_t off;
	size_t len; /* up to TIER_READ_MAX, within the file */
	struct tier_ahead *ahead; /* NULL: read nothing ahead */
	uint64_t since_ns; /* what was received before this time of the monotonic clock is requested again; 0: nothing */
};

/* Bytes of a file, in memory of the cache. */
struct tier_bytes {
	struct iovec *iov;
	size_t nr;
	struct tier_part {
		struct span *span; /* NULL: zeros */
		uint64_t pos; /* in the data of the pack */
		size_t len;
	} * parts;
	size_t nr_parts, room;
};

/* What could not be read, for a message. */
struct tier_fault {
	struct tier_object_name object;
	const char *what; /* "is missing", "is damaged", ... */
};

/* 0: the caller releases *ret. -EBADMSG: damaged; -EIO: failed; both with *fault. -ETIMEDOUT; -EINTR; -ENOMEM. */
int tier_cache_read(struct tier_cache *c, const struct tier_range *range, const struct tier_waiter *w,
		    struct tier_bytes *ret, struct tier_fault *fault);
void tier_bytes_release(struct tier_cache *c, struct tier_bytes *b);
