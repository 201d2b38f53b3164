/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Chunks that a store of a cluster shares with other nodes: pinned chunks of its packs, which others refer to, and
 * remote chunks, which have a place here while other nodes have their bytes. Part of the view like freed chunks
 * (freed.h), and for the same reason.
 *
 *   'E'             -> totals
 *   'E' 0 number    -> a node, by the number that this store has given it
 *   'E' pack frame  -> the chunks of the frame that are pinned (`pinned`) and remote (`remote`)
 *
 * Decoders are pure functions of (bytes, length) and trust nothing: -EBADMSG.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/namespace_table.h"

struct buf;
struct db;

#define SHARE_WORDS 4 /* of 64 bits: a frame has at most 256 chunks */
#define SHARE_CHUNKS (64 * SHARE_WORDS)
#define SHARE_OWNERS_MAX 4
#define SHARE_ID_LEN 16
#define SHARE_NAME_MAX 63

/* The nodes that have the bytes of a remote chunk. */
struct share_owners {
	uint8_t nr;
	uint16_t node[SHARE_OWNERS_MAX];
};

struct share_frame {
	uint64_t pinned[SHARE_WORDS]; /* pinned: bit i % 64 of word i / 64: chunk i is here, other nodes refer to it */
	uint64_t remote[SHARE_WORDS]; /* remote: its bytes are on other nodes */
	bool settled; /* other nodes have confirmed the remote chunks; otherwise these count as lost */
	bool unconfirmed; /* known from a catalog only: the owners have not confirmed a pin */
	struct share_owners owners[SHARE_CHUNKS]; /* of remote chunks, if settled */
};

struct share_node {
	uint8_t id[SHARE_ID_LEN];
	char name[SHARE_NAME_MAX + 1];
	bool is_forgotten; /* declared lost, or never connected: not waited for */
};

struct share_totals {
	uint64_t pinned_bytes, remote_bytes, nr_pinned, nr_remote; /* settled ones */
	uint32_t nr_nodes; /* that have a number: from 0 on */
	bool any_unconfirmed; /* there is, or was, a frame with `unconfirmed` */
};

static inline bool share_bit(const uint64_t words[SHARE_WORDS], uint32_t i)
{
	return words[i / 64] >> i % 64 & 1;
}

static inline void share_set(uint64_t words[SHARE_WORDS], uint32_t i)
{
	words[i / 64] |= UINT64_C(1) << i % 64;
}

static inline void share_unset(uint64_t words[SHARE_WORDS], uint32_t i)
{
	words[i / 64] &= ~(UINT64_C(1) << i % 64);
}

static inline bool share_any(const uint64_t words[SHARE_WORDS])
{
	return words[0] | words[1] | words[2] | words[3];
}

struct ns_key share_key_totals(void); /* also the prefix of all */
struct ns_key share_key_node(uint16_t number);
struct ns_key share_key_pack(uint32_t pack); /* the prefix of its frames */
struct ns_key share_key(uint32_t pack, uint32_t frame);
/* What a key stands for: totals (*ret_pack 0, *ret_frame UINT32_MAX), a node (pack 0, its number) or a frame.
 * -EBADMSG */
int share_key_decode(const void *key, size_t len, uint32_t *ret_pack, uint32_t *ret_frame);

void share_frame_encode(const struct share_frame *f, struct buf *ret);
int share_frame_decode(const void *p, size_t len, struct share_frame *ret);
void share_node_encode(const struct share_node *n, struct buf *ret);
int share_node_decode(const void *p, size_t len, struct share_node *ret);
void share_totals_encode(const struct share_totals *t, struct buf *ret);
int share_totals_decode(const void *p, size_t len, struct share_totals *ret);

/* 1 found, 0 absent, <0. */
int share_get(struct db *db, uint32_t pack, uint32_t frame, struct share_frame *ret);
int share_get_node(struct db *db, uint16_t number, struct share_node *ret);
int share_get_totals(struct db *db, struct share_totals *ret);
