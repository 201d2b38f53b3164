/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Two real stores of one cluster, without agents or a kernel in between: "other" has a sealed directory, of which the
 * tests make replicas in the store HERE. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/util.h"
#include "fs/fs.h"
#include "fs/mount_options.h"
#include "mpi-agent/daemon/replica/replica.h"

#define PAGE 4096u
#define BYTES (MiB(2) + 5 * PAGE + 123)
#define SPARSE MiB(100) /* where BYTES begin in another file */

enum { OTHER, HERE, NR_STORES };

struct replica_pair {
	char dir[64], path[NR_STORES][96], key[96];
	struct options o[NR_STORES];
	struct fs *fs[NR_STORES];
	struct cluster_calls calls;
	bool is_remote; /* the other node */
	uint64_t nr_fetched;
	uint8_t *bytes;
	struct ns_seal seal;
	struct nodes_seal s;
	struct cluster_node owner;
	struct buf catalog;
	uint64_t top; /* there */
};

/* The bytes of a catalog, and how they are read. */
struct pair_reading {
	const uint8_t *p;
	size_t len, at, step;
	size_t crash_at; /* after so many bytes; 0: not at all */
	int error; /* at the end */
	struct replica_pair *w;
};

extern const struct cred pair_owner;

/* Of cmocka. After the last stores are checked. */
int pair_set_up(void **state);
int pair_tear_down(void **state);

void pair_mount(struct replica_pair *w, unsigned i);
void pair_unmount(struct replica_pair *w, unsigned i);
void pair_check(struct replica_pair *w, unsigned i); /* fsck of the store, which is not open, finds nothing */
uint64_t pair_make(struct fs *fs, uint64_t dir, const char *name, uint32_t mode, const char *target);
struct file *pair_open(struct fs *fs, uint64_t ino, int flags);
uint64_t pair_look_up(struct fs *fs, uint64_t dir, const char *name);
void pair_encode_catalog(struct fs *fs, uint64_t dir, struct buf *ret);
void pair_seal(struct replica_pair *w);
void pair_unseal(struct replica_pair *w);
void pair_seal_again(struct replica_pair *w, const char *more); /* with one more file of this name */

int pair_take_bytes(struct replica_pair *w, struct pair_reading *r); /* as nodes_take() */
int pair_take(struct replica_pair *w); /* the whole catalog */
uint64_t pair_replica(struct replica_pair *w, struct ns_replica *ret); /* the only one, and its note */
unsigned pair_nr_notes(struct replica_pair *w);
void pair_expect_bytes(struct replica_pair *w, uint64_t ino, uint64_t off);
/* The replica has the same names, attributes, times, links, extended attributes, holes and chunks. */
void pair_expect_whole(struct replica_pair *w);
void pair_wait_for_reaper(struct replica_pair *w); /* which erases large files in the background */
void pair_expect_nothing(struct replica_pair *w); /* neither replicas nor inodes of any */
