/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Peers and their sealed directories: the known nodes, what each has sealed, and which of it has a replica here
 * (peer_replicas.h).
 *
 * A connected node is queried, and its answer is authoritative. For a node that is not connected, this store and all
 * other nodes may have replicas; the others are queried one after the other. Listings are cached for one second, so
 * that listing a directory queries once. An unresponsive node is treated as not connected (peer_query.h).
 *
 * Permissions of directories above a sealed one may change later. With every listing the node sends the current ones,
 * and the replica here is updated. For a lost node its last listing applies.
 *
 * Thread rule: any thread, holding no lock. Every query returns in bounded time, and an answer waits for no other node.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/namespace_table.h"

struct fs;
struct peer_list;

int peer_list_new(struct fs *fs, struct peer_list **ret); /* borrows fs */
void peer_list_free(struct peer_list *o); /* NULL is fine */

struct peer_list_node {
	uint8_t id[NS_STORE_ID_LEN];
	char name[NS_NODE_NAME_MAX + 1];
	bool is_live; /* connected now */
};
/* All known nodes except this one, each once; the caller frees them. */
int peer_list_nodes(struct peer_list *o, struct peer_list_node **ret, size_t *ret_nr);
/* NAME, which must be unique (among connected nodes first), or NAME~ID: 1/0/<0. */
int peer_list_find(struct peer_list *o, const char *name, struct peer_list_node *ret);
/* Displayed name: NAME, or NAME~ID if it is not unique. */
#define PEER_LIST_NAME_MAX (NS_NODE_NAME_MAX + 1 + 2 * NS_STORE_ID_LEN)
void peer_list_long_name(const struct peer_list_node *n, char ret[PEER_LIST_NAME_MAX + 1]); /* NAME~ID, always unique */
void peer_list_shown_name(const struct peer_list_node *all, size_t nr, size_t i, char ret[PEER_LIST_NAME_MAX + 1]);

struct peer_list_seal {
	uint8_t store[NS_STORE_ID_LEN], holder[NS_STORE_ID_LEN]; /* holder: has the catalog, unless `top` is set */
	char name[NS_NODE_NAME_MAX + 1];
	uint64_t ino;
	int64_t sealed_ns;
	uint64_t top; /* of the replica here; 0: none */
	uint8_t access; /* as received (struct answer_seal) */
	char *path;
};
struct peer_list_seals {
	struct peer_list_seal *v; /* sorted by path, for each path the latest seal only */
	size_t nr, room;
	bool is_cut; /* there are more */
};
void peer_list_seals_release(struct peer_list_seals *s);
/* Sealed directories of a node. Cached replicas of directories that the node no longer has are dropped. */
int peer_list_seals(struct peer_list *o, const uint8_t *id, struct peer_list_seals *ret);
/* Drop cached listings: the next call queries the nodes. */
void peer_list_forget(struct peer_list *o);
/* The top of its replica, created if there is none. -ENOENT: removed meanwhile. */
int peer_list_open(struct peer_list *o, const struct peer_list_seal *s, uint64_t *ret_top);

/* peer_replicas_abandon(), peer_replicas_is_abandoned() */
void peer_list_abandon(struct peer_list *o, const uint8_t *store, uint64_t ino, bool yes);
bool peer_list_is_abandoned(struct peer_list *o, const uint8_t *store, uint64_t ino);

/*
 * Drop cached replicas that the kernel no longer refers to and that are available again because their node is
 * connected, or are also kept here. Returns their number.
 */
int peer_list_trim(struct peer_list *o);
/*
 * Query the connected nodes of which there are cached replicas. Replicas of directories that are gone there are
 * dropped, even if the kernel refers to them. Returns their number.
 */
int peer_list_check(struct peer_list *o);
