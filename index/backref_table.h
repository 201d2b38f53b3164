/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Back-references from frames of packs to files: the inverse of the recipes. Part of the view and derived from the
 * recipes alone, so it is changed in the same batch as they are, and is neither journalled nor part of snapshots.
 *
 *   'B' pack frames inode segments -> (empty)
 *
 * `frames` are BACKREF_FRAMES frames in a row, `segments` BACKREF_SEGMENTS segments: neighbours in a pack are
 * neighbours in a file, so a file needs an entry for 16 MiB where one per frame and segment would be 16, or hundreds
 * if it is made of many checkpoints. Every reference has an entry, but an entry may be stale: the recipes decide.
 *
 * Inode and segments have variable length, behind a byte with the length: they still sort, and a key has about 13
 * bytes. Decoding is pure, trusts nothing: -EBADMSG.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "index/namespace_table.h"

#define BACKREF_FRAMES 16u
#define BACKREF_SEGMENTS 64u

struct backref {
	uint32_t pack;
	uint32_t frames; /* the first one / BACKREF_FRAMES, < 2^16 */
	uint64_t ino;
	uint64_t segments; /* the first one / BACKREF_SEGMENTS */
};

struct ns_key backref_key(const struct backref *r);
struct ns_key backref_prefix(void); /* of all */
int backref_key_decode(const void *key, size_t len, struct backref *ret);
