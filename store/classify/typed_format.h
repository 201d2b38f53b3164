/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Wire format of the classifier's result. The classifier reads users' files and may have been compromised by one, so
 * nothing is trusted: types and lengths are checked, and that extents are within the file and do not overlap.
 * docs/format.md section 13 changes with this.
 */
#pragma once

#include "base/le.h"
#include "store/classify/typed.h"

#define TYPED_MAGIC "ckty"
#define TYPED_VERSION 1
#define TYPED_REASON_MAX 200
#define TYPED_BYTES_MAX (128u << 20)

enum typed_verdict { TYPED_KNOWN = 1, TYPED_UNKNOWN = 2, TYPED_REFUSED = 3 };

struct typed_head_disk {
	uint8_t magic[4];
	struct le32 version;
	struct le64 size;
	struct le32 nr_variables, nr_extents;
	uint8_t verdict, reason_len; /* the reason follows; only with TYPED_REFUSED */
	struct le16 reserved;
	struct le32 crc; /* of all bytes behind it, then of those before it */
};
static_assert(sizeof(struct typed_head_disk) == 32 && offsetof(struct typed_head_disk, crc) == 28, "on the wire");

struct typed_variable_disk {
	uint8_t type, parts;
	struct le16 key_len; /* the key follows */
	struct le32 row, plane;
	uint8_t kind, reserved[3];
};
static_assert(sizeof(struct typed_variable_disk) == 16, "on the wire");

struct typed_extent_disk {
	struct le32 variable, reserved;
	struct le64 off, len;
};
static_assert(sizeof(struct typed_extent_disk) == 24, "on the wire");

/* The caller frees *ret. If the verdict is unknown or refused, only the size of `t` is used. -ENOMEM, -E2BIG. */
int typed_encode(const struct typed *t, enum typed_verdict verdict, const char *reason, uint8_t **ret, size_t *ret_len);
/* Decode the result for a file of this size: the verdict; variables only with TYPED_KNOWN. -EBADMSG, -ENOMEM. */
int typed_decode(const void *p, size_t len, uint64_t size, struct typed *ret, char ret_reason[TYPED_REASON_MAX + 1]);
