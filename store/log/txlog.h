/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The ordered log of all changes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct db_batch;
struct engine;
struct engine_stats;
struct txlog;

struct txlog *txlog_new(void); /* NULL: -ENOMEM */
void txlog_free(struct txlog *l); /* NULL is fine; uncommitted records are lost */
void log_stats(struct engine *e, struct engine_stats *ret); /* sets unsynced_age_ns and journal_number */
bool log_is_committed(struct engine *e, uint64_t end); /* is everything before this position durable? */

int log_append(struct engine *e, uint8_t type, const struct buf *record, uint64_t *ret_end);
/* records made by journal_record_add() */
int log_append_records(struct engine *e, const struct buf *records, uint64_t *ret_end);
/* Also apply a batch to the view, or do neither. Needs view_lock shared. */
int log_append_with_batch(struct engine *e, const struct buf *records, struct db_batch *batch, uint64_t *ret_end);
void log_throttle(struct engine *e); /* bounds the log in memory; no lock held */
#define RECORD_BYTES 64 /* approximate size of a record; more with many extents */
int log_admit_growth(struct engine *e, size_t len); /* for all changes except deletions; may commit: no lock held */
int log_apply_record(struct engine *e, uint8_t type, const void *p, size_t len, struct db_batch *batch);
