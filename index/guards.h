/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The holders of replicas: which node has, or is about to have, a replica of a directory that is sealed here, or of a
 * lost node's directory that this store has a replica of. Part of the view:
 *
 *   'G' inode  -> a guard
 *
 * Decoding is a pure function of (bytes, length) and trusts nothing: -EBADMSG.
 */
#pragma once

#include <stdint.h>

#include "index/namespace_table.h"

enum guard_state {
	GUARD_BEGUN = 1, /* the holder may have a part of it */
	GUARD_DONE = 2, /* the holder has all of it */
	GUARD_RELEASED = 3, /* likewise, and this node has released its bytes */
};

#define GUARD_MORE_MAX (NS_REPLICA_SLOTS_MAX - 1)

struct guard {
	enum guard_state state;
	uint8_t holder[NS_STORE_ID_LEN];
	char holder_name[NS_NODE_NAME_MAX + 1];
	/* Identifies it for the holder: the origin node, and the directory and its seal there. */
	uint8_t origin[NS_STORE_ID_LEN];
	char origin_name[NS_NODE_NAME_MAX + 1];
	uint64_t ino;
	int64_t sealed_ns;
	/* The holder is the first of several; each has a replica and, with parity, covers a part of the chunks. */
	uint32_t nr_more;
	struct guard_holder {
		uint8_t id[NS_STORE_ID_LEN];
		char name[NS_NODE_NAME_MAX + 1];
	} more[GUARD_MORE_MAX];
};

struct ns_key guard_key(uint64_t ino);
void guard_encode(const struct guard *g, struct buf *ret);
int guard_decode(const void *p, size_t len, struct guard *ret);

/* 1 found, 0 absent, <0. */
int guard_get(struct db *db, uint64_t ino, struct guard *ret);
int guard_next(struct db *db, uint64_t after, uint64_t *ret_ino, struct guard *ret); /* the first behind `after` */
