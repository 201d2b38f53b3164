/* SPDX-License-Identifier: BSD-3-Clause */
/* Retention policies: which sealed checkpoints of a directory are kept, by its attribute user.ckptfs.keep or by options
 * of ckptfs-gc. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEEP_XATTR "user.ckptfs.keep"
#define KEEP_AUTHOR_XATTR "user.ckptfs.keep_uid" /* read-only: the uid of the user that set the policy, in decimal */
#define KEEP_LEN_MAX 256u

/* A checkpoint is kept if any of these keeps it; 0 and false keep none. */
struct keep_policy {
	uint64_t last; /* the newest so many */
	/* those with a number, the last one in their name, that is a multiple of this, and those without a number */
	uint64_t every;
	uint64_t within_ns; /* those sealed less than this ago */
	/* those that a symbolic link in the same directory points to, or with the extended attribute user.tag */
	bool tagged;
};

/* "last=5,every=100,within=7d,tagged": one or more of these, each once. Not NUL-terminated. -EINVAL */
int keep_parse(const char *p, size_t len, struct keep_policy *ret);
/*
 * A policy as stored: the text, a NUL, and the uid of the user that set it, which users cannot write (docs/format.md
 * section 5).
 */
#define KEEP_AUTHOR_LEN 5u
void keep_author_encode(uint32_t uid, uint8_t ret[KEEP_AUTHOR_LEN]);
/* The length of the text, and the author. -EBADMSG: there is no author. */
int keep_stored_decode(const void *p, size_t len, size_t *ret_len, uint32_t *ret_uid);
bool keep_is_empty(const struct keep_policy *p);
