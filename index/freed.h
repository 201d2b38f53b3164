/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Collected space: chunks that are no longer in their pack, though its tables still list them, and packs that are
 * removed. Part of the view like names and recipes, so it is as durable as the deletions that caused it, and in their
 * order: nothing is listed here before the last reference to it is durably gone.
 *
 *   'F'             -> totals, and where the collector continues
 *   'F' pack        -> (version) the pack is removed
 *   'F' pack frame  -> the chunks of the frame that are freed
 *
 * Decoders are pure functions of (bytes, length) and trust nothing: -EBADMSG.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/namespace_table.h"

struct buf;
struct db;

#define FREED_WORDS 4 /* of 64 bits: a frame has at most 256 chunks */

struct freed_frame {
	uint64_t gone[FREED_WORDS]; /* bit i % 64 of word i / 64: chunk i */
	bool punched; /* the space was returned to the filesystem; otherwise a crash may have prevented it */
};

struct freed_totals {
	uint64_t nr_chunks, bytes; /* gone, of all that the marks count */
	uint32_t next_pack; /* where the collector continues; 0: at the beginning */
};

struct ns_key freed_key(uint32_t pack, uint32_t frame);
struct ns_key freed_key_pack(uint32_t pack);
struct ns_key freed_key_totals(void); /* also the prefix of all */
/* What a key of the table stands for: -EBADMSG, or 0 with *ret_frame UINT32_MAX for a whole pack. Totals: *ret_pack
 * 0. */
int freed_key_decode(const void *key, size_t len, uint32_t *ret_pack, uint32_t *ret_frame);

void freed_frame_encode(const struct freed_frame *f, struct buf *ret);
int freed_frame_decode(const void *p, size_t len, struct freed_frame *ret);
void freed_pack_encode(struct buf *ret);
int freed_pack_decode(const void *p, size_t len);
void freed_totals_encode(const struct freed_totals *t, struct buf *ret);
int freed_totals_decode(const void *p, size_t len, struct freed_totals *ret);

/* 1 found, 0 absent: nothing of it is gone, <0. */
int freed_get(struct db *db, uint32_t pack, uint32_t frame, struct freed_frame *ret);
int freed_get_pack(struct db *db, uint32_t pack); /* 1: all of it is gone */
int freed_get_totals(struct db *db, struct freed_totals *ret);
