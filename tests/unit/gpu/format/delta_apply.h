/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Applies a delta object to the versions it refers to: the reference for what a mount makes of it. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpu/format/leaf_hash.h"

/* Reads from a version of the lineage: how many bytes, fewer than `len` only at its end, or a negative errno. */
typedef ssize_t delta_read_fn(void *userdata, uint32_t version, uint64_t off, void *p, size_t len);

/*
 * Writes the new version to `content`. -EBADMSG: the object is damaged, refers to missing bytes, or does not match its
 * fingerprint; -EOPNOTSUPP: later version of the format; -EINVAL: content_len differs from the header's. After an error
 * `content` is undefined.
 */
int delta_apply(const void *object, size_t len, const struct leaf_key *key, delta_read_fn *read, void *userdata,
		void *content, size_t content_len);
