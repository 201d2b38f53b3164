/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Codes a block of a variable, using its element type, the shape of the array, and the bytes of the same variable in
 * the previous time step (the base). Lossless for any bytes at any address, of any length up to CODE_PLAIN_MAX. Pure
 * except for the working memory, which is kept in a `struct code_work`.
 *
 * Thread rule: any thread; a code_work belongs to one thread at a time.
 */
#pragma once

#include "store/codec/code_format.h"

/* Room for a block of len bytes: it is stored uncoded if no coding makes it smaller. */
#define CODE_BLOCK_MAX(len) ((len) + sizeof(struct code_header_disk))

/* How to code: the steps of the format, and the effort. */
struct coder_spec {
	struct code_header steps; /* without lengths and checksums */
	int level; /* of zstd; lz4 has only one */
};
/*
 * Instead of a level: Huffman coding alone. In a plane of exponents, matches occur by chance and cost more than they
 * save. Without them the result is a sixth smaller, three times as fast to code and 1.5 times as fast to decode. The
 * output is regular zstd for the decoder.
 */
#define CODE_LEVEL_SYMBOLS 0

struct code_work;
struct code_work *code_work_new(void); /* NULL: no memory. About 1 MiB. */
void code_work_free(struct code_work *w); /* NULL is fine */
#define CODE_NAME_MAX 80

/*
 * `ret` has room for CODE_BLOCK_MAX(len). The base is NULL and 0 if the steps do not use one; it may be shorter (padded
 * with zeros) or longer than the block. Returns the length of the block, or -ENOMEM.
 */
int code_encode(struct code_work *w, const struct coder_spec *spec, const void *p, size_t len, const void *base,
		size_t base_len, void *ret);
/*
 * Decode a whole block to `ret`, which has `room`. Returns the plain length. -EBADMSG: damaged, or the base differs
 * from the one it was coded with, and `ret` is undefined; -EOPNOTSUPP: of a later version; -ENOBUFS: too little room;
 * -ENOMEM. Blocks with CODE_BASE_MATCHED are decoded by match.h: -EBADMSG here.
 */
int code_decode(struct code_work *w, const void *p, size_t len, const void *base, size_t base_len, void *ret,
		size_t room);

/*
 * The same with the first stored bytes of the base's block instead of the base, which need not be complete:
 * code_levels_end() returns how many. Both blocks are coded by levels. These bytes are not verified by themselves, but
 * the block has a checksum of its base's levels: -EBADMSG if they differ.
 */
int code_decode_by_levels(struct code_work *w, const void *p, size_t len, const void *base_block, size_t base_len,
			  void *ret, size_t room);
/* Where the levels end in a block by levels without a base; 0: not such a block. */
size_t code_levels_end(const void *p, size_t len);

/* "sub-base delta(1,64) zigzag bytes zstd:1" */
struct code_name {
	char s[CODE_NAME_MAX];
};
struct code_name code_name(const struct coder_spec *spec);
/* "F32LE" */
struct code_type_name {
	char s[8];
};
struct code_type_name code_type_name(struct code_type type);
