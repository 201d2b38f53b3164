/*
 * Coding a block of a variable with what is known of it: the type of its elements, the shape of the array and the same
 * variable's bytes of the step before, the base. Lossless for any bytes at any address and of any length up to
 * CODE_PLAIN_MAX. Pure but for the working memory, which is kept in a `struct code_work`.
 *
 * Thread rule: any thread; a work belongs to one thread at a time.
 */
#pragma once

#include "store/code/code_format.h"

/* Room for a block of len bytes: it is stored as it is where no coding makes it smaller. */
#define CODE_BLOCK_MAX(len) ((len) + sizeof(struct code_header_disk))

/* How to code: the steps of the format, and how hard to try. */
struct coder_spec {
	struct code_header steps; /* without lengths and sums */
	int level; /* of zstd; lz4 has one */
};
/*
 * Instead of a level: each byte by how often it occurs, Huffman's code alone. In a plane of exponents matches are found
 * by chance, and cost more than they save: it is a sixth smaller so, coded three times as fast and decoded half as fast
 * again. For whoever decodes it is zstd like any other.
 */
#define CODE_LEVEL_SYMBOLS 0

struct code_work;
struct code_work *code_work_new(void); /* NULL: no memory. About 1 MiB. */
void code_work_free(struct code_work *w); /* NULL is fine */
#define CODE_NAME_MAX 80

/*
 * `ret` has room for CODE_BLOCK_MAX(len). The base, NULL and 0 if the steps use none, may be shorter or longer: what it
 * lacks is zeros. Returns how many bytes the block has, or -ENOMEM.
 */
int code_encode(struct code_work *w, const struct coder_spec *spec, const void *p, size_t len, const void *base,
		size_t base_len, void *ret);
/*
 * A whole block to `ret`, which has `room`. Returns how many bytes it has. -EBADMSG: damaged, or the base has other
 * bytes than the one it was coded with, and `ret` holds anything; -EOPNOTSUPP: of a later version; -ENOBUFS: too little
 * room; -ENOMEM. One with CODE_BASE_MATCHED is not for this (match.h): -EBADMSG.
 */
int code_decode(struct code_work *w, const void *p, size_t len, const void *base, size_t base_len, void *ret,
		size_t room);

/*
 * The same with the first stored bytes of the base's block in place of the base, which need not be whole: as many as
 * code_levels_end() says. Both are by levels. These bytes are not checked by themselves: what comes of them is, if they
 * are others, -EBADMSG, as the block knows the levels of its base.
 */
int code_decode_by_levels(struct code_work *w, const void *p, size_t len, const void *base_block, size_t base_len,
			  void *ret, size_t room);
/* Where in a block by levels, without a base, these end; 0: it is no such block. */
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
