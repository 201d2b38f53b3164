/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A write-back hash table in front of RocksDB's memtable.
 *
 * A put into the memtable costs microseconds and a get not much less, and names change in bursts over the same few
 * keys: each new file changes its directory, and a short-lived file touches the same keys three or four times. Here a
 * change is a hash lookup, and only the last one per key is written to RocksDB, sorted by key, which is the fastest
 * order for the memtable.
 *
 *   apply ─▶ active ─ full, or all must be in RocksDB ─▶ draining ─ some with each apply, or all ─▶ RocksDB
 *   get: active, draining, RocksDB
 *
 * Lost with the process, like the memtable; the journal has the changes. All functions may be called from any thread.
 * Iterators and snapshots see RocksDB only: drain before creating them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct overlay;

struct overlay_change {
	const void *key, *value;
	size_t key_len, value_len;
	bool deleted;
};

/* Takes the changes that it is given, in this order, all or none. */
typedef int overlay_write_fn(void *userdata, const struct overlay_change *changes, size_t n);

int overlay_new(uint64_t bytes_max, overlay_write_fn *write, void *userdata, struct overlay **ret);
void overlay_free(struct overlay *o); /* NULL is fine; what is in it is dropped */

/* A list of changes, in `changes` as overlay_add() put them there. All or nothing: -ENOMEM. */
void overlay_add(struct buf *changes, const struct overlay_change *c);
int overlay_apply(struct overlay *o, const struct buf *changes);
/* 1: here, and appended to *ret (which may be NULL); OVERLAY_DELETED: deleted; 0: ask RocksDB; <0. */
#define OVERLAY_DELETED 2
int overlay_get(struct overlay *o, const void *key, size_t key_len, struct buf *ret);
int overlay_drain(struct overlay *o);
uint64_t overlay_bytes(struct overlay *o);
