/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reads content back from the checkpoints that one store has put in a tier. The store keeps for each file the number of
 * a manifest, the digest of that manifest, and the number of the inode in it. So a reader gets the bytes that were put,
 * or an error, whatever happens to the tier: the manifest is compared with the digest, it names packs by digests of
 * their tables, and each chunk is compared with its fingerprint there.
 *
 * Any thread. No thread, connection or memory is used before the first call that needs the tier. Only threads of a pool
 * call the back end; callers wait for them with a time limit, or until they are interrupted. Errors are not cached.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/tier/reading/tier_cache.h"
#include "store/tier/tier_format.h"

struct tier;
struct tier_recall;

struct tier_recall_conf {
	const char *url, *config_file; /* copied; the latter of tier_open(), or NULL */
	int (*open)(const char *url, struct tier **ret); /* in a thread of the pool; NULL: tier_open() with the URL */
	unsigned nr_in_flight; /* requests; 0: 8 */
	uint8_t store[TIER_ID_LEN];
	uint64_t cache; /* memory for content and tables */
	uint64_t trees; /* memory for manifests; those in use, the one used last, and one being loaded may exceed it */
	uint64_t timeout_ns; /* of a call */
};

int tier_recall_new(const struct tier_recall_conf *conf, struct tier_recall **ret);
/*
 * Ends waiting calls and later ones with -EIO. false: a thread waits for the back end and was left behind; it uses what
 * tier_recall_free() would free, and the process must end with _exit(2). NULL is fine, here and below.
 */
bool tier_recall_stop(struct tier_recall *r);
void tier_recall_free(struct tier_recall *r); /* after a stop that returned true */

/*
 * The number of the manifest of this seal. 1/0/<0; 0: the tier has none, or a collection has removed it. Lists the
 * manifests of the store; reads the heads of those that no call before has seen. -EINTR, -ETIMEDOUT, -EIO.
 */
int tier_recall_find(struct tier_recall *r, uint64_t ino, int64_t sealed_ns, const struct tier_waiter *w,
		     uint64_t *ret_number);

/* A manifest in memory. */
struct tier_recalled {
	const struct tier_manifest *m;
	const struct tier_tree *tree;
	struct tier_source *source;
};
/*
 * The manifest of this number, until tier_recall_leave(). `check`: its digest; NULL: any. -ENOENT: there is none;
 * -ESTALE: it has another digest; -EBADMSG: it is damaged; -EINTR, -ETIMEDOUT, -EIO. *why, which may be NULL, has the
 * cause of a failure, for a message.
 */
int tier_recall_enter(struct tier_recall *r, uint64_t number, const uint8_t *check, const struct tier_waiter *w,
		      struct tier_recalled **ret, const char **why);
/* As above, for a verification: the manifest, and tables of its packs, are read from the tier and not from memory. */
int tier_recall_read_again(struct tier_recall *r, uint64_t number, const uint8_t *check, const struct tier_waiter *w,
			   struct tier_recalled **ret, const char **why);
void tier_recall_leave(struct tier_recall *r, struct tier_recalled *e);

/* The place of a file. */
struct tier_place_of_file {
	uint64_t number;
	uint32_t index;
	uint8_t check[SHA256_LEN];
};
/*
 * Reads up to TIER_READ_MAX bytes of a file. Their number, less at the end of the file; or an error as above. *fault has
 * object and cause of a failure. `ahead`: state of an open file, initially zeros; NULL: read nothing ahead.
 */
ssize_t tier_recall_read(struct tier_recall *r, const struct tier_place_of_file *at, void *p, size_t len, uint64_t off,
			 struct tier_ahead *ahead, const struct tier_waiter *w, struct tier_fault *fault);
