/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Invariants of the view as pure functions: no I/O, no memory but what is passed in. The passes in check_*.c gather the
 * facts, these functions judge them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/fp.h"
#include "index/namespace_table.h"
#include "store/pack/pack.h"

/* Returns what is wrong with a single entry of the view; NULL: nothing. */
const char *check_entry(const struct fp_key *key, const void *k, size_t k_len, const void *v, size_t v_len);
bool check_table_is_known(uint8_t letter);

/* Everything in the view under one inode number. */
struct inode_facts {
	uint64_t ino;
	bool has_inode, has_content, has_symlink, is_orphan, has_seal, has_replica, is_away;
	struct ns_inode in;
	struct ns_content content;
	struct ns_away away;
	uint64_t nr_segments, mapped, end; /* of its recipe: number of segments, sum and end of the extents */
	uint64_t nr_xattrs;
	uint64_t nr_entries, nr_subdirs, nr_shared_cookies; /* of names in it, if it is a directory */
	uint64_t next_number; /* of the store: inode numbers from here on were never assigned */
	bool shared_hash; /* of the store: flag of the root that cookies are shared */
};

#define CHECK_PROBLEMS_MAX 12
#define CHECK_TEXT 200
struct check_problems {
	unsigned nr;
	struct {
		bool of_content; /* else of names and attributes */
		char text[CHECK_TEXT];
	} v[CHECK_PROBLEMS_MAX];
};
void check_inode(const struct inode_facts *f, struct check_problems *ret);

/* The place of a byte in a pack: its frame, and the offset in the frame's data. false: in a header or table. */
bool check_place(uint32_t off, uint32_t *ret_frame, uint32_t *ret_in);

/*
 * Bytes of chunks in each frame of some packs, and a sum to compare two sets of chunks with: twelve bytes for each MiB
 * of the store. Filled in order.
 */
#define FRAME_DAMAGED UINT32_MAX /* its table is damaged */
struct frame_map {
	uint32_t first, end; /* packs in it */
	struct frame_map_pack {
		uint32_t *lens; /* 0: there is no such frame */
		uint64_t *sums;
		uint32_t nr;
	} * packs; /* end - first of them */
	size_t nr_packs, bytes; /* of memory */
};
int frame_map_add_pack(struct frame_map *m, uint32_t pack); /* the next pack; the first one sets `first` */
int frame_map_add(struct frame_map *m, uint32_t pack, uint32_t frame, uint32_t len); /* of a pack added before */
uint64_t *frame_map_sum(struct frame_map *m, uint32_t pack, uint32_t frame); /* NULL: no such frame */
void frame_map_release(struct frame_map *m);

enum extent_state {
	EXTENT_FINE,
	EXTENT_UNMAPPED, /* in a pack that is not in the map */
	EXTENT_NOWHERE, /* not a valid place for chunks, or of another node */
	EXTENT_CROSSES, /* not inside one frame */
	EXTENT_NO_FRAME,
	EXTENT_NO_CHUNK, /* beyond the end of the frame */
	EXTENT_NO_TABLE, /* the frame's table is damaged */
};
enum extent_state check_extent(const struct frame_map *m, struct addr a, uint32_t len);
