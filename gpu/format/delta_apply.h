/* A delta object and the versions it refers to make the bytes of the next one. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpu/leaf_hash.h"

/* Reads from a version of the lineage: how many bytes, fewer than `len` only at its end, or a negative errno. */
typedef ssize_t delta_read_fn(void *userdata, uint32_t version, uint64_t off, void *p, size_t len);

/*
 * Makes the content in `content`, of as many bytes as the header says. -EBADMSG: the object is damaged, refers to bytes
 * that are not there, or its content has another fingerprint; -EOPNOTSUPP: of a later version; -EINVAL: content_len is
 * not the header's. After an error `content` holds anything.
 */
int delta_apply(const void *object, size_t len, const struct leaf_key *key, delta_read_fn *read, void *userdata,
		void *content, size_t content_len);
