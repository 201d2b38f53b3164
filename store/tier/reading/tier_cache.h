/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Caches content of checkpoints of a tier, read on demand into bounded memory: tables of packs, and stretches of packs
 * of up to 4 MiB. Several threads share one cache. They never wait for the back end without a limit: a wait ends after
 * the timeout, or when the caller is interrupted.
 *
 * Every chunk is verified by its fingerprint when it is received, and the tables by the digest in the name of the pack.
 * A damaged chunk affects only the files that contain it. Errors are not cached: the next read tries again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "store/tier/reading/tier_pool.h"
#include "store/tier/reading/tier_tree.h"
#include "store/tier/tier_format.h"

struct tier;
struct tier_cache;
struct tier_source;
struct span;

#define TIER_READ_MAX MiB(1)

struct tier_cache_conf {
	uint64_t bytes; /* of memory, for content and tables. Reads in progress may exceed it */
	uint64_t timeout_ns; /* for a request of a program; also limits retries at the back end */
};

/* Borrows both. The threads of the pool run all requests. */
int tier_cache_new(struct tier *t, struct tier_pool *pool, const struct tier_cache_conf *conf, struct tier_cache **ret);
void tier_cache_free(struct tier_cache *c); /* after the pool has been stopped; NULL is fine */
/* Ends waiting calls and later ones with -EIO. */
void tier_cache_stop(struct tier_cache *c);
struct tier_cache_figures {
	uint64_t requests, bytes; /* sent to the back end since the start; received */
	uint64_t memory, memory_max; /* now */
	uint64_t damaged; /* chunks that did not match their fingerprints, since the start */
};
void tier_cache_figures(struct tier_cache *c, struct tier_cache_figures *ret);

#define TIER_LOOK_NS UINT64_C(50000000)

/* The thread that waits. */
struct tier_waiter {
	bool (*is_interrupted)(void *userdata); /* called every TIER_LOOK_NS, without locks; NULL: never */
	void *userdata;
	bool must_not_wait; /* calls return -EINPROGRESS instead of waiting, and send no requests */
};

/* The packs of a manifest. Borrows the manifest; copies the key. */
int tier_source_new(struct tier_cache *c, const struct tier_manifest *m, const struct fp_key *key,
		    struct tier_source **ret);
void tier_source_free(struct tier_source *s); /* not in use by a call; NULL is fine */
/* From here on tables that are in memory are requested once more before their first use. Before the first call. */
void tier_source_read_again(struct tier_source *s);
const struct fp_key *tier_source_key(const struct tier_source *s);

/* Tables of pack number i of the manifest, which stay in memory until the put. -EINTR, -EIO, -ETIMEDOUT, -EBADMSG,
 * -EINPROGRESS. */
int tier_source_tables(struct tier_source *s, uint32_t i, const struct tier_waiter *w, const struct tier_tables **ret);
void tier_source_tables_put(struct tier_source *s, uint32_t i);

/* State of reading ahead in an open file. Initially zeros; guarded by the cache. */
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
	uint64_t since_ns; /* monotonic; data received earlier is requested again; 0: none */
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

/* Object and cause of a failed read, for a message. */
struct tier_fault {
	struct tier_object_name object;
	const char *what; /* "is missing", "is damaged", ... */
};

/* 0: the caller releases *ret. -EBADMSG: damaged; -EIO: failed; both with *fault. -ETIMEDOUT; -EINTR; -EINPROGRESS;
 * -ENOMEM. */
int tier_cache_read(struct tier_cache *c, const struct tier_range *range, const struct tier_waiter *w,
		    struct tier_bytes *ret, struct tier_fault *fault);
void tier_bytes_release(struct tier_cache *c, struct tier_bytes *b);
