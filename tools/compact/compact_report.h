/* What became of variables, added up by their keys, and how it is shown. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "client/ioctl.h"
#include "store/codec/coding.h"

struct json;

struct compact_row {
	char *key; /* "": what no variable has, or whole files */
	struct code_type type;
	uint64_t plain, coded, before, after, kept, known, code_ns;
	uint64_t turns; /* coded bytes of files that took turns */
	char coder[sizeof(((struct ckptfs_compact_result *)0)->coder)]; /* of most of it: */
	uint64_t most; /* coded bytes of one result */
};

struct compact_rows {
	bool dry_run, aware, complete;
	uint64_t nr_files;
	uint64_t freed, written; /* bytes of the store, as its disk counts them; of a dry run 0 */
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
