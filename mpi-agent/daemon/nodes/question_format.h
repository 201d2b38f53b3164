/*
 * What mounts of one cluster ask each other about sealed directories, and the answers. Agents carry them and do not
 * look (LINK_QUERY). docs/format.md changes with this.
 *
 *   SEALS     which sealed directories do you have, your own and copies of others'? As many as fit, and where to go on
 *   CATALOG   of one of them, from `off` on
 *   HOLD      lend what you have of it, to whoever refers to it: nothing follows
 * Why not is an errno: -ENODATA it is not here; -EINPROGRESS: being prepared, ask again; -EAGAIN: of HOLD, not all of
 * it can be lent now.
 *
 * Decoding is a pure function of (bytes, length) that trusts nothing: -EBADMSG.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/le.h"
#include "index/namespace.h"

#define QUESTION_VERSION 1u
#define QUESTION_AT_END UINT64_MAX /* nothing more of that table */

enum question_kind {
	QUESTION_SEALS = 1,
	QUESTION_CATALOG = 2,
	QUESTION_HOLD = 3,
};

struct question_wire {
	struct le32 version, kind;
	struct le64 seals_after, copies_after; /* SEALS: behind these; else zeros, as are all that follow there */
	uint8_t store[NS_STORE_ID_LEN]; /* whose directory, ... */
	struct le64 ino, sealed_ns; /* which, and since when */
	struct le64 off; /* CATALOG */
};
static_assert(sizeof(struct question_wire) == 64, "on the wire");

struct question {
	enum question_kind kind;
	uint64_t seals_after, copies_after;
	uint8_t store[NS_STORE_ID_LEN];
	uint64_t ino;
	int64_t sealed_ns;
	uint64_t off;
};

void question_encode(const struct question *q, struct buf *ret);
int question_decode(const void *p, size_t len, struct question *ret);

/* Answer to SEALS: le64 and le64 where to go on, then for each: */
struct told_seal_wire {
	uint8_t store[NS_STORE_ID_LEN];
	struct le64 ino, sealed_ns;
	uint8_t name_len; /* of the node: 1 to 63 */
	uint8_t access; /* TOLD_ACCESS_KNOWN and permissions of group and others, now; 0: not told */
	struct le16 path_len; /* 0 to 4095; both follow */
};
static_assert(sizeof(struct told_seal_wire) == 36, "on the wire");
#define TOLD_ACCESS_KNOWN 0x80u

struct told_seal {
	uint8_t store[NS_STORE_ID_LEN];
	char name[NS_NODE_NAME_MAX + 1];
	uint64_t ino;
	int64_t sealed_ns;
	uint8_t access; /* of whose own it is: as on the wire */
	char path[NS_PATH_MAX + 1];
};
void told_head_encode(uint64_t seals_after, uint64_t copies_after, struct buf *ret);
void told_seal_encode(const struct told_seal *s, struct buf *ret);
int told_head_decode(struct cursor *c, uint64_t *ret_seals_after, uint64_t *ret_copies_after);
int told_seal_next(struct cursor *c, struct told_seal *ret); /* 1/0 */

/* Answer to CATALOG: a byte, 1: these are the last; then bytes. */
void told_catalog_encode(bool is_last, const void *p, size_t len, struct buf *ret);
int told_catalog_decode(const void *p, size_t len, bool *ret_is_last, const void **ret, size_t *ret_len);
