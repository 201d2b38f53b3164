/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Results of compaction, summed by variable key, as text and as JSON. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "client/ioctl.h"
#include "store/codec/coding.h"

struct json;

struct compact_row {
	char *key; /* "": bytes of no variable, or whole files */
	struct code_type type;
	uint64_t plain, coded, before, after, kept, known, code_ns;
	uint64_t turns; /* coded bytes of interleaved files */
	char coder[sizeof(((struct ckptfs_compact_result *)0)->coder)]; /* of the largest result: */
	uint64_t most; /* its coded bytes */
};

struct compact_rows {
	bool dry_run, aware, complete;
	uint64_t nr_files;
	uint64_t freed, written; /* bytes on disk; 0 for a dry run */
	double seconds;
	struct compact_row *row; /* by key */
	size_t nr, room;
};

void compact_rows_release(struct compact_rows *r);
/* -ENOMEM */
int compact_rows_add(struct compact_rows *r, const char *key, struct code_type type,
		     const struct ckptfs_compact_result *res);
void compact_rows_text(const struct compact_rows *r);
void compact_rows_json(const struct compact_rows *r);
void compact_rows_add_json(const struct compact_rows *r, struct json *j, const char *key);
