/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A journal in a scratch directory, and groups. The bytes of a group follow from its number and size. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/journal/journal.h"
#include "store/journal/journal_format.h"

#define RIG_GROUPS 8192
#define RIG_SNAPSHOT_RECORD 100 /* bytes of a snapshot's records, where a test does not say otherwise */

struct rig {
	char dir[64];
	int dirfd;
	struct journal_conf conf;
	struct journal *j;
	uint32_t large[RIG_GROUPS]; /* by number of the group: bytes of its large record, as last attempted */
	uint64_t acked;		    /* rig_live(): the last group that an append reported as durable */
};

extern const uint8_t rig_id[16];

void rig_init(struct rig *rig, uint64_t segment_bytes);
void rig_release(struct rig *rig);
void rig_open(struct rig *rig); /* closes it first, as rig_try_open() */
int rig_try_open(struct rig *rig);
void rig_close(struct rig *rig);

/* Files. */
void rig_wipe(struct rig *rig); /* all of them */
bool rig_has(struct rig *rig, const char *name);
uint64_t rig_size(struct rig *rig, const char *name);
uint8_t *rig_load(struct rig *rig, const char *name, size_t *ret_len); /* and one byte more; caller frees */
void rig_store(struct rig *rig, const char *name, const void *p, size_t len);
void rig_flip(struct rig *rig, const char *name, uint64_t off, uint8_t mask);

/* Bytes that no compressor makes smaller, so that sizes are what a test says. */
void rig_noise(uint64_t seed, uint8_t *p, size_t len);
/* The records of a group: a few hundred bytes, and one record of `large` bytes if that is not 0. */
void rig_records(uint64_t number, size_t large, struct buf *ret);
int rig_try_append(struct rig *rig, size_t large);
void rig_append(struct rig *rig, unsigned n);
/* A snapshot of `nr` records of `len` bytes that follow from its number. */
int rig_try_snapshot(struct rig *rig, uint64_t number, unsigned nr, size_t len);

struct rig_seen {
	uint64_t last, nr_groups, snapshot;
	unsigned nr_parts, nr_records;
};
/* Read what comes after `after`: all that comes must be exactly what was appended. Returns what the reader did. */
int rig_read(struct rig *rig, uint64_t after, size_t snapshot_len, struct rig_seen *seen);
/* Everything from `after` on to the last group is there and right. */
void rig_check(struct rig *rig, uint64_t after);

/*
 * A whole life, on segments of 8 KiB: openings, groups of several sizes, one larger than a segment, new segments,
 * snapshots. A step that fails must fail with `error` and change nothing that can be seen. Returns false if it stopped.
 */
#define RIG_LIFE_SEGMENT KiB(8)
enum rig_on_error {
	RIG_STOP,
	RIG_RETRY,  /* a group with fewer bytes; must work */
	RIG_REOPEN, /* must work, but for `error` once more */
};
bool rig_live(struct rig *rig, int error, enum rig_on_error on_error);
