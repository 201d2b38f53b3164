/*
 * What other nodes of the cluster have sealed: who they are, what each has, and copies of it here (fs/nodes.h) for
 * whoever wants to look.
 *
 * A node that takes part is asked, and what it says is so. Of one that does not, this store may have copies, and so may
 * all others: they are asked, one after the other. What was heard is believed for a second, so that listing a directory
 * asks once. One that does not answer in time counts as one that does not take part, for 2 s at first and up to a minute
 * when it goes on.
 *
 * A copy that is made here is made of references. Then whoever gave the catalog is to lend what it has of it (HOLD):
 * references first, so that from then on a collection of all nodes finds them, and then lending, in which the directory
 * is found to be still there. In this order no chunk is given up in between, whatever is unsealed, deleted and
 * collected meanwhile. If it cannot lend all of it, because it collects at that moment, the copy is good as long as the
 * directory is there, and then what is read is right or EIO.
 *
 * What lies above a sealed directory may be closed later, or opened: its node tells with every list who may read it, and
 * a copy here follows. Of a node that is gone, what it told last is so.
 *
 * Thread rule: any thread, with no lock. Everything that asks returns in bounded time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/namespace.h"

struct fs;
struct others;

int others_new(struct fs *fs, struct others **ret); /* borrows it */
void others_free(struct others *o); /* NULL is fine */

struct others_node {
	uint8_t id[NS_STORE_ID_LEN];
	char name[NS_NODE_NAME_MAX + 1];
	bool is_live; /* takes part now */
};
/* All that are known, each once, but not this one; for the caller to free. */
int others_nodes(struct others *o, struct others_node **ret, size_t *ret_nr);
/* NAME, which must be that of one node alone (first of those that take part), or NAME~ID: 1/0/<0. */
int others_find(struct others *o, const char *name, struct others_node *ret);
/* How it is shown: NAME, or NAME~ID if another one is called so. */
#define OTHERS_NAME_MAX (NS_NODE_NAME_MAX + 1 + 2 * NS_STORE_ID_LEN)
void others_long_name(const struct others_node *n, char ret[OTHERS_NAME_MAX + 1]); /* NAME~ID, which is always right */
void others_shown_name(const struct others_node *all, size_t nr, size_t i, char ret[OTHERS_NAME_MAX + 1]);

struct others_seal {
	uint8_t store[NS_STORE_ID_LEN], holder[NS_STORE_ID_LEN]; /* holder: who has the catalog, if it is not here */
	char name[NS_NODE_NAME_MAX + 1];
	uint64_t ino;
	int64_t sealed_ns;
	uint64_t top; /* of a copy that is here; 0: none */
	uint8_t access; /* as told (struct told_seal) */
	char *path;
};
struct others_seals {
	struct others_seal *v; /* by path, each once: what was sealed last */
	size_t nr, room;
	bool is_cut; /* there are more */
};
void others_seals_release(struct others_seals *s);
/* Of a node. Copies that were made because somebody looked, of what it says it has no more, are dropped. */
int others_seals(struct others *o, const uint8_t *id, struct others_seals *ret);
/* What was heard is not believed any more: the next who wants to know asks. */
void others_forget(struct others *o);
/* The top of a copy of it, which is made if there is none. -ENOENT: it is gone meanwhile. */
int others_open(struct others *o, const struct others_seal *s, uint64_t *ret_top);

/*
 * What nobody is to have any more (fs/abandon.h) no copy is made of for as long as it takes until all others have
 * dropped theirs: else whoever looks at it meanwhile would have it back from one that has not yet. `yes` false: it is
 * wanted after all.
 */
void others_abandon(struct others *o, const uint8_t *store, uint64_t ino, bool yes);
bool others_is_abandoned(struct others *o, const uint8_t *store, uint64_t ino);

/* Copies that were made because somebody looked, that the kernel does not refer to any more, and that can be had again,
 * since their nodes take part, or are kept here, too, are dropped: how many. */
int others_trim(struct others *o);
/* Nodes of which there are such copies are asked for what they have, if they take part: what is gone there is dropped
 * also if the kernel refers to it. How many. */
int others_check(struct others *o);
