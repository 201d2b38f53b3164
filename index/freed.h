/*
 * What has been collected: chunks whose bytes are no longer in their pack, though its tables still name them, and packs
 * that are gone altogether. Part of the view like names and recipes, so it is as durable as the deletions that
 * caused it, and in their order: nothing is listed here before the last reference to it is gone for good.
 *
 *   'F'             -> totals, and where the collector goes on
 *   'F' pack        -> (version) the pack is gone
 *   'F' pack frame  -> which of its chunks are gone
 *
 * Decoders are pure functions of (bytes, length) and trust nothing: -EBADMSG.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/namespace.h"

struct buf;
struct db;

#define FREED_WORDS 4 /* of 64 bits: a frame has at most 256 chunks */

struct freed_frame {
	uint64_t gone[FREED_WORDS]; /* bit i % 64 of word i / 64: chunk i */
	bool punched; /* the disk has got the space back; else a crash may have come before */
};

struct freed_totals {
	uint64_t nr_chunks, bytes; /* gone, of all that the marks count */
	uint32_t next_pack; /* the collector has not been at this one since it last began; 0: at the beginning */
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
