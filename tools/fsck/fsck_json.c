/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/fsck/fsck_json.h"

#include <stdio.h>

#include "base/json/json_write.h"
#include "base/util.h"
#include "store/check/check.h"

#define SCHEMA_VERSION 1

static struct json j;

void fsck_json_begin(const char *store)
{
	j = json_to_file(stdout);
	json_open(&j, NULL);
	json_u64(&j, "schema_version", SCHEMA_VERSION);
	json_string(&j, "store", store);
	json_open_array(&j, "findings");
}

void fsck_json_finding(const struct check_finding *f)
{
	json_line(&j);
	json_open(&j, NULL);
	json_string(&j, "area", check_area_name(f->area));
	json_bool(&j, "repaired", f->repaired);
	json_string(&j, "text", f->text);
	if (f->len > 0) {
		json_string(&j, "path", f->path);
		json_u64(&j, "offset", f->off);
		json_u64(&j, "length", f->len);
	}
	json_close(&j);
}

void fsck_json_end(const struct check_result *r, int exit_code)
{
	json_close_array(&j);
	json_u64(&j, "repaired", r->nr_repaired);
	json_u64(&j, "left", r->nr_left);
	json_bool(&j, "index_rebuilt", r->rebuilt);
	json_u64(&j, "lost_files", r->nr_lost_files);
	json_u64(&j, "lost_bytes", r->lost_bytes);
	json_u64(&j, "commit", r->commit);
	json_u64(&j, "unapplied_commits", r->unapplied);
	json_u64(&j, "journal_groups", r->nr_groups);
	json_u64(&j, "inodes", r->nr_inodes);
	json_u64(&j, "names", r->nr_names);
	json_u64(&j, "packs", r->nr_packs);
	json_u64(&j, "frames", r->nr_frames);
	json_u64(&j, "chunks", r->nr_chunks);
	json_u64(&j, "chunk_bytes", r->chunk_bytes);
	json_u64(&j, "read_bytes", r->read_bytes);
	json_i64(&j, "exit_code", exit_code);
	json_end(&j);
}
