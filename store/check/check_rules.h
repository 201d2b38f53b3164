/*
 * What must hold in the view, as pure functions: no I/O, no memory but what is passed in. The passes of check_*.c
 * gather, these judge.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/fp.h"
#include "index/namespace.h"
#include "store/pack/pack.h"

/* What is wrong with an entry of the view taken by itself; NULL: nothing. */
const char *check_entry(const struct fp_key *key, const void *k, size_t k_len, const void *v, size_t v_len);
bool check_table_is_known(uint8_t letter);

/* All that the view has under one inode number. */
struct inode_facts {
	uint64_t ino;
	bool has_inode, has_content, has_symlink, is_orphan, has_seal, has_copy;
	struct ns_inode in;
	struct ns_content content;
	uint64_t nr_segments, mapped, end; /* of its recipe: segments, sum and end of the extents */
	uint64_t nr_xattrs;
	uint64_t nr_entries, nr_subdirs, nr_shared_cookies; /* names in it, as a directory */
	uint64_t next_number; /* of the store: numbers from here on were never given out */
	bool shared_hash; /* of the store: the root says that cookies are shared */
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

/* The place of a byte in a pack: its frame, and how far into the frame's data. false: a header, a table. */
bool check_place(uint32_t off, uint32_t *ret_frame, uint32_t *ret_in);

/*
 * Which frames of some packs have how many bytes of chunks, and a sum to compare two sets of chunks with: twelve bytes
 * for each MiB of the store. Filled in order.
 */
#define FRAME_DAMAGED UINT32_MAX /* its table is */
struct frame_map {
	uint32_t first, end; /* packs it knows of */
	struct frame_map_pack {
		uint32_t *lens; /* 0: there is no such frame */
		uint64_t *sums;
		uint32_t nr;
	} * packs; /* end - first of them */
	size_t nr_packs, bytes; /* of memory */
};
int frame_map_add_pack(struct frame_map *m, uint32_t pack); /* the next one; the first sets `first` */
int frame_map_add(struct frame_map *m, uint32_t pack, uint32_t frame, uint32_t len); /* a pack added before */
uint64_t *frame_map_sum(struct frame_map *m, uint32_t pack, uint32_t frame); /* NULL: it knows of no such frame */
void frame_map_release(struct frame_map *m);

enum extent_state {
	EXTENT_FINE,
	EXTENT_ELSEWHERE, /* a pack that the map does not know of */
	EXTENT_NOWHERE, /* no place for chunks, or of another node */
	EXTENT_CROSSES, /* does not lie inside one frame */
	EXTENT_NO_FRAME,
	EXTENT_NO_CHUNK, /* the frame ends before */
	EXTENT_NO_TABLE, /* the frame's table is damaged */
};
enum extent_state check_extent(const struct frame_map *m, struct addr a, uint32_t len);
