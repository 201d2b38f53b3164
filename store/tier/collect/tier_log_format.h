/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The objects of garbage collection in a tier as bytes (tier_collect.c). docs/format.md, section 16, changes with this.
 * All are immutable. Decoders are pure functions of (bytes, length) and trust nothing.
 *
 *   gc/<number>              entry of the log: a store that joins, or a generation. Numbered from 1 without gaps
 *   marks/<number>/<id>      marks of the generation of that number, named by the digest of their bytes
 *   sealed/<store>/<number>  fence, at the number of a manifest that cannot be put any more
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/le.h"
#include "store/tier/tier_format.h"

#define TIER_LOG_PREFIX "gc/"
#define TIER_MARKS_PREFIX "marks/"
#define TIER_MARKS_MAX ((size_t)1 << 30)
struct tier_object_name tier_log_name(uint64_t number);
bool tier_log_name_parse(const char *name, uint64_t *ret_number);
struct tier_object_name tier_marks_name(uint64_t number, const uint8_t id[TIER_ID_LEN]);
bool tier_marks_name_parse(const char *name, uint64_t *ret_number, uint8_t ret_id[TIER_ID_LEN]);
bool tier_pack_name_parse(const char *name, uint8_t ret_id[TIER_ID_LEN]);

/* --- entries of the log --- */

#define TIER_ENTRY_MAGIC "ckptTLOG"
#define TIER_ENTRIES_MAX UINT32_C(0xfffffffe) /* a generation and 1 fit into the number of a pack */

struct tier_entry_disk {
	uint8_t magic[8];
	struct le32 version, incompat;
	struct le64 number; /* the one in the name */
	struct le64 generation; /* the last one up to this entry, itself included; 0: none */
	uint8_t marks_id[TIER_ID_LEN]; /* of that generation */
	struct le64 marks_len;
	uint8_t store[TIER_ID_LEN]; /* that joins; of a generation zeros */
	struct le32 reserved, crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct tier_entry_disk) == 80, "in a tier");

struct tier_log_entry {
	uint64_t number, generation; /* equal: this entry is a generation */
	uint8_t marks_id[TIER_ID_LEN];
	uint64_t marks_len;
	uint8_t store[TIER_ID_LEN];
};
void tier_entry_encode(const struct tier_log_entry *e, struct tier_entry_disk *ret);
int tier_entry_decode(const void *p, size_t len, struct tier_log_entry *ret);

/* --- marks --- */

#define TIER_MARKS_MAGIC "ckptTMRK"

struct tier_marks_disk {
	uint8_t magic[8];
	struct le32 version, incompat;
	struct le64 number; /* of the generation */
	struct le64 previous; /* number of the generation before; 0: none */
	uint8_t previous_id[TIER_ID_LEN]; /* of its marks */
	struct le32 nr_stores, nr_dropped, nr_pending, reserved;
};
static_assert(sizeof(struct tier_marks_disk) == 64, "in a tier");

struct tier_seal_disk {
	struct le64 ino, sealed_ns;
};
static_assert(sizeof(struct tier_seal_disk) == 16, "in a tier");

struct tier_store_disk {
	uint8_t id[TIER_ID_LEN];
	struct le64 base; /* all numbers up to this one have been used */
	struct le64 last; /* number of the last manifest up to base; 0: none */
	struct tier_seal_disk last_seal; /* zeros: none, or it could not be read */
	struct le32 nr_kept, nr_removed; /* then numbers (struct le64), then seals (struct tier_seal_disk) */
};
static_assert(sizeof(struct tier_store_disk) == 56, "in a tier");

/* Removed seals that are recorded: the last ones of each store, and of all stores, which have equal shares. */
#define TIER_REMOVED_MAX 10000u
#define TIER_REMOVED_ALL_MAX (1u << 20)

struct tier_store_marks {
	uint8_t id[TIER_ID_LEN];
	uint64_t base, last, last_ino;
	int64_t last_sealed_ns;
	/* Borrowed from the bytes. */
	const struct le64 *kept; /* numbers of manifests up to base that are valid, ascending */
	uint32_t nr_kept, nr_removed;
	const struct tier_seal_disk *removed; /* seals that retention has removed; ascending */
};

struct tier_marks {
	uint64_t number, previous;
	uint8_t previous_id[TIER_ID_LEN];
	struct tier_store_marks *stores; /* by id, ascending */
	uint32_t nr_stores;
	/* Borrowed from the bytes: ids of packs, ascending. */
	const uint8_t (*dropped)[TIER_ID_LEN]; /* without a manifest for the second time: not to be used any more */
	const uint8_t (*pending)[TIER_ID_LEN]; /* without a manifest for the first time */
	uint32_t nr_dropped, nr_pending;
};
void tier_marks_encode(const struct tier_marks *m, struct buf *ret); /* appends */
/* The caller releases *ret, which borrows the bytes. */
int tier_marks_decode(const void *p, size_t len, struct tier_marks *ret);
void tier_marks_release(struct tier_marks *m);
void tier_marks_id(const void *p, size_t len, uint8_t ret[TIER_ID_LEN]);

const struct tier_store_marks *tier_marks_store(const struct tier_marks *m, const uint8_t store[TIER_ID_LEN]);
/* Of a store: is this number that of a valid manifest, if it is up to base? */
bool tier_marks_keep(const struct tier_store_marks *s, uint64_t number);
bool tier_marks_removed(const struct tier_store_marks *s, uint64_t ino, int64_t sealed_ns);
bool tier_id_is_in(const uint8_t (*ids)[TIER_ID_LEN], size_t nr, const uint8_t id[TIER_ID_LEN]); /* ascending */

/* --- fences --- */

struct tier_fence_disk {
	uint8_t magic[8]; /* TIER_FENCE_MAGIC, of tier_format.h */
	struct le32 version, incompat;
	uint8_t store[TIER_ID_LEN];
	struct le64 number; /* the one in the name */
	struct le64 generation; /* that put it */
	struct le32 reserved, crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct tier_fence_disk) == 56, "in a tier");

struct tier_fence {
	uint8_t store[TIER_ID_LEN];
	uint64_t number, generation;
};
void tier_fence_encode(const struct tier_fence *f, struct tier_fence_disk *ret);
int tier_fence_decode(const void *p, size_t len, struct tier_fence *ret);
