/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Queries among the mounts of a cluster about sealed directories, and their answers. Agents forward them without
 * decoding (LINK_QUERY). docs/format.md changes with this.
 *
 *   SEALS     list sealed directories, own ones and replicas: as many as fit, and where to continue
 *   CATALOG   the catalog of one of them, from `off` on
 *   HOLD      pin its chunks that are here, for the nodes that refer to them; the answer is empty
 * Errors are errnos. -ENODATA: not here; -EINPROGRESS: being prepared, ask again; -EAGAIN, for HOLD: some chunks cannot
 * be pinned now.
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
#include "index/namespace_table.h"

#define QUESTION_VERSION 1u
#define QUESTION_AT_END UINT64_MAX /* no more entries of that table */

enum question_kind {
	QUESTION_SEALS = 1,
	QUESTION_CATALOG = 2,
	QUESTION_HOLD = 3,
};

struct question_wire {
	struct le32 version, kind;
	struct le64 seals_after, replicas_after; /* SEALS: continue after these, and all fields below are 0; else 0 */
	uint8_t store[NS_STORE_ID_LEN]; /* node that owns the directory, ... */
	struct le64 ino, sealed_ns; /* its inode there, and time of the seal */
	struct le64 off; /* CATALOG */
};
static_assert(sizeof(struct question_wire) == 64, "on the wire");

struct question {
	enum question_kind kind;
	uint64_t seals_after, replicas_after;
	uint8_t store[NS_STORE_ID_LEN];
	uint64_t ino;
	int64_t sealed_ns;
	uint64_t off;
};

void question_encode(const struct question *q, struct buf *ret);
int question_decode(const void *p, size_t len, struct question *ret);

/* Answer to SEALS: two le64 where to continue, then for each directory: */
struct answer_seal_wire {
	uint8_t store[NS_STORE_ID_LEN];
	struct le64 ino, sealed_ns;
	uint8_t name_len; /* name of the node: 1 to 63 */
	uint8_t access; /* ANSWER_ACCESS_KNOWN and current permissions of group and others; 0: not sent */
	struct le16 path_len; /* 0 to 4095; both follow */
};
static_assert(sizeof(struct answer_seal_wire) == 36, "on the wire");
#define ANSWER_ACCESS_KNOWN 0x80u

struct answer_seal {
	uint8_t store[NS_STORE_ID_LEN];
	char name[NS_NODE_NAME_MAX + 1];
	uint64_t ino;
	int64_t sealed_ns;
	uint8_t access; /* as on the wire; sent by the owning node only */
	char path[NS_PATH_MAX + 1];
};
void answer_head_encode(uint64_t seals_after, uint64_t replicas_after, struct buf *ret);
void answer_seal_encode(const struct answer_seal *s, struct buf *ret);
int answer_head_decode(struct cursor *c, uint64_t *ret_seals_after, uint64_t *ret_replicas_after);
int answer_seal_next(struct cursor *c, struct answer_seal *ret); /* 1/0 */

/* Answer to CATALOG: one byte, 1 in the last part; then the bytes. */
void answer_catalog_encode(bool is_last, const void *p, size_t len, struct buf *ret);
int answer_catalog_decode(const void *p, size_t len, bool *ret_is_last, const void **ret, size_t *ret_len);
