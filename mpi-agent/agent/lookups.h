/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Single duplicates: pages that only one node has stored in an earlier round, and that another node offers now. Each
 * page has a *home*, a node determined by its fingerprint.
 *
 *   after a round     ANNOUNCE: announces pages that only this node has stored to their homes, which cache them
 *   in the next       ASK ──▶ home ──▶ FOUND      nodes that may have the pages unknown here
 *                     PIN ─▶ holder ─▶ PINNED      its daemon durably pins the pages that it has
 *
 * A home that receives more than a few pages from two nodes informs both (TWICE): they store the same data, which a
 * round would deduplicate.
 *
 * Only PINNED counts: the cache of a home is a hint. If a node does not answer in time, or does not have the page any
 * more, the page counts as not found. Pages that were pinned in vain stay pinned, which costs space only. One lookup is
 * in progress at a time, of at most LOOKUPS_MAX pages.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fp;
struct holders;
struct link;
struct lookups;
struct peer_header;
struct peers;
struct waits;
struct world;

#define LOOKUPS_MAX (1u << 18) /* 4 MiB of fingerprints, and as much for answers */
#define LOOKUPS_TWICE_PART 256u /* TWICE is sent if at least one in this many announced pages is shared */

struct lookups_figures {
	uint64_t asked; /* pages looked up */
	uint64_t found; /* of these, pages that a node has pinned */
	uint64_t announced; /* pages announced to homes */
	uint64_t pinned; /* pages pinned for peers; counted per request */
	uint64_t known; /* cached pages that this node is home of */
};

/* Borrows all arguments. `remember`: bytes of the cache. */
int lookups_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits, size_t remember,
		struct lookups **ret);
void lookups_free(struct lookups *ls); /* NULL is fine */
void lookups_forget(struct lookups *ls); /* drops all cached announcements */

/*
 * Looks up the pages, ascending, for which had[i] is empty. Both are borrowed until lookups_progress() has returned 1,
 * or lookups_stop(). Nodes on different hosts that have pinned a page are added to had[i]. -ENOMEM, -EIO
 */
int lookups_begin(struct lookups *ls, uint64_t round, const struct fp *pages, struct holders *had, uint32_t nr);
int lookups_progress(struct lookups *ls, uint64_t now_ns); /* 1: done; 0; <0 */
void lookups_stop(struct lookups *ls);
/* Announces pages of this node, in any order. */
int lookups_announce(struct lookups *ls, uint64_t round, const struct fp *pages, uint32_t nr);
/* Notes announcements of other nodes when that is unlikely to delay anything (homes.h). -ENOMEM, -EIO */
int lookups_note(struct lookups *ls, uint64_t now_ns);

/* Messages of other nodes: ASK, FOUND, ANNOUNCE, TWICE, PIN, PINNED. -EBADMSG: malformed. */
int lookups_receive(struct lookups *ls, const struct peer_header *h, const void *body, size_t len);
/* The daemon's PINNED. */
int lookups_pinned(struct lookups *ls, uint64_t number, const void *body, size_t len);
const struct lookups_figures *lookups_figures(struct lookups *ls);
