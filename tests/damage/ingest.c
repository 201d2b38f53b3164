/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ingest: fingerprints go into the index while one read of their table after the other fails. Either the call says so,
 * or every fingerprint is found, at once and at the next opening; what failed can be done again.
 *
 * A key that was there before goes in again: RocksDB must not meet it twice when it walks through all of them.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/crash/record.h"
#include "tests/crash/scratch.h"
#include "tests/unit/index/ingest.h"

#define NR_KEYS 8
#define KEY_LEN 2

struct plan {
	uint64_t nth;
	_Atomic uint64_t nr_reads; /* of the table */
};

static int fail_read(void *userdata, enum op_kind kind, const char *path)
{
	struct plan *p = userdata;

	if (kind != OP_READ || !strstr(path, "/ingest/"))
		return 0;
	return atomic_fetch_add(&p->nr_reads, 1) + 1 == p->nth ? EIO : 0;
}

static int ingest(struct db *db, uint8_t value)
{
	uint8_t keys[NR_KEYS * KEY_LEN], values[NR_KEYS];

	for (size_t i = 0; i < NR_KEYS; i++) {
		keys[i * KEY_LEN] = 'k';
		keys[i * KEY_LEN + 1] = (uint8_t)i;
		values[i] = value;
	}
	return ingest_all(db, keys, KEY_LEN, values, 1, NR_KEYS);
}

/* All are there, with this value, each once. */
static bool holds(struct db *db, uint8_t value)
{
	uint8_t keys[(NR_KEYS + 1) * KEY_LEN], values[NR_KEYS + 1];
	size_t n;

	if (db_scan(db, DB_FINGERPRINTS, "\0\0", keys, KEY_LEN, values, 1, NR_KEYS + 1, &n) < 0 || n != NR_KEYS)
		return false;
	for (size_t i = 0; i < n; i++)
		if (values[i] != value)
			return false;
	return true;
}

/* 1: right, and there was an n-th read. 0: right, there was none. <0: wrong. */
static int try_read(const char *scratch, const char *dir, uint64_t nth)
{
	const struct db_conf conf = { .create = true, .cache = 8 << 20 };
	struct plan plan = { .nth = nth };
	struct oplog log;
	struct db *db;
	int r;

	if (scratch_empty(dir) < 0 || db_open(dir, &conf, &db) < 0 || ingest(db, 1) < 0 ||
	    db_compact(db, DB_FINGERPRINTS) < 0)
		return -EINVAL;
	if (record_start(scratch) < 0)
		return -EINVAL;
	record_set_fault(fail_read, &plan);
	r = ingest(db, 2);
	record_set_fault(NULL, NULL);
	if (record_stop(&log) == 0)
		oplog_release(&log);

	if (!holds(db, 2) && (r == 0 || !holds(db, 1)))
		return log_errno(-EBADMSG, "read %" PRIu64 ": ingestion said %d, other fingerprints are there", nth, r);
	if (r < 0 && ingest(db, 2) < 0)
		return log_errno(-EBADMSG, "read %" PRIu64 ": cannot be done again", nth);
	db_close(db);
	if (db_open(dir, &conf, &db) < 0 || !holds(db, 2) || db_compact(db, DB_FINGERPRINTS) < 0 || !holds(db, 2))
		return log_errno(-EBADMSG, "read %" PRIu64 ": lost by the next who opens", nth);
	db_close(db);
	return plan.nr_reads >= nth;
}

int main(void)
{
	char scratch[PATH_MAX], dir[PATH_MAX + 8];
	uint64_t nth = 1;
	int r;

	snprintf(scratch, sizeof(scratch), "/dev/shm/ckptfs-ingest.XXXXXX");
	if (!mkdtemp(scratch))
		return 1;
	snprintf(dir, sizeof(dir), "%s/index", scratch);
	while ((r = try_read(scratch, dir, nth)) > 0)
		nth++;
	scratch_remove(scratch);
	if (r == 0 && nth == 1)
		r = log_errno(-EINVAL, "no read was seen");
	printf("%" PRIu64 " reads failed: %s\n", nth - 1, r < 0 ? "WRONG" : "right");
	return r < 0;
}
