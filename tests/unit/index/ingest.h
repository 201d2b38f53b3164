/* SPDX-License-Identifier: GPL-3.0-or-later */
#pragma once

#include "index/db.h"

/* One table of fingerprints from arrays of keys and values, which are sorted, distinct and equally long. */
static inline int ingest_all(struct db *db, const void *keys, size_t key_len, const void *values, size_t value_len,
			     size_t n)
{
	struct db_ingestion *in;
	int r = db_ingestion_new(db, &in);

	if (r < 0)
		return r;
	r = db_ingestion_add(in, keys, key_len, values, value_len, n);
	if (r == 0)
		r = db_ingestion_commit(in);
	db_ingestion_free(in);
	return r;
}
