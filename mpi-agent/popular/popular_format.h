/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The bytes of a set of popular pages on its way between agents: a header and `nr` entries of 20 bytes and 4 for each
 * owner there may be, by fingerprint. docs/format.md ("Between nodes") changes with this.
 *
 * Decoding is a pure function of (bytes, length) that trusts nothing: -EBADMSG for bytes that are no set or lie,
 * -EOPNOTSUPP for a later version.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/le.h"
#include "mpi-agent/popular/popular_merge.h"

#define POPULAR_MAGIC "ckptPOPU"
#define POPULAR_VERSION 1u
#define POPULAR_HAS (1u << 31) /* of an owner: it has the page already */

struct popular_header_disk {
	uint8_t magic[8];
	struct le32 version;
	struct le32 error; /* an errno: a merge on the way has failed, and there are no entries; 0: none has */
	struct le32 nr_owners; /* that an entry has room for */
	struct le32 nr;
	struct le32 crc32c; /* over the entries */
	struct le32 header_crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct popular_header_disk) == 32, "on the wire");

struct popular_entry_disk {
	uint8_t fp[FP_LEN];
	uint8_t nr_owners; /* that it has, at least 1; zeros in place of the others */
	struct le32 count;
	struct le32 owners[]; /* ascending, each perhaps with POPULAR_HAS */
};
static_assert(sizeof(struct popular_entry_disk) == 20, "on the wire");

static inline size_t popular_entry_len(const struct merge_conf *conf)
{
	return sizeof(struct popular_entry_disk) + conf->nr_owners * sizeof(struct le32);
}

/* Bytes that a set of `nr` takes. */
static inline size_t popular_encoded_len(const struct merge_conf *conf, size_t nr)
{
	return sizeof(struct popular_header_disk) + nr * popular_entry_len(conf);
}

void popular_encode(const struct merge_conf *conf, const struct popular_set *s, void *ret);
void popular_encode_error(const struct merge_conf *conf, int error, void *ret); /* the header alone */
/* `len` may be more than it takes. A set that says it has failed: that error, negative. -ENOMEM. */
int popular_decode(const struct merge_conf *conf, const void *p, size_t len, struct popular_set *ret);
