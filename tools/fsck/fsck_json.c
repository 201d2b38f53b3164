#include "tools/fsck/fsck_json.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/text.h"
#include "base/util.h"
#include "store/check/check.h"

#define SCHEMA_VERSION 1

static bool any;

void fsck_json_begin(const char *store)
{
	printf("{\"schema_version\": %d, \"store\": ", SCHEMA_VERSION);
	json_print_string(stdout, store);
	fputs(", \"findings\": [", stdout);
}

void fsck_json_finding(const struct check_finding *f)
{
	printf("%s\n  {\"area\": \"%s\", \"mended\": %s, \"text\": ", any ? "," : "", check_area_name(f->area),
	       f->mended ? "true" : "false");
	json_print_string(stdout, f->text);
	if (f->len > 0) {
		fputs(", \"path\": ", stdout);
		if (f->path)
			json_print_string(stdout, f->path);
		else
			fputs("null", stdout);
		printf(", \"offset\": %" PRIu64 ", \"length\": %" PRIu64, f->off, f->len);
	}
	putchar('}');
	any = true;
}

void fsck_json_end(const struct check_result *r, int exit_code)
{
	printf("%s], \"mended\": %" PRIu64 ", \"left\": %" PRIu64 ", \"index_rebuilt\": %s, \"lost_files\": %" PRIu64
	       ", \"lost_bytes\": %" PRIu64 ", \"commit\": %" PRIu64 ", \"unapplied_commits\": %" PRIu64
	       ", \"journal_groups\": %" PRIu64 ", \"inodes\": %" PRIu64 ", \"names\": %" PRIu64 ", \"packs\": %" PRIu64
	       ", \"frames\": %" PRIu64 ", \"chunks\": %" PRIu64 ", \"chunk_bytes\": %" PRIu64
	       ", \"read_bytes\": %" PRIu64 ", \"exit_code\": %d}\n",
	       any ? "\n" : "", r->nr_mended, r->nr_left, r->rebuilt ? "true" : "false", r->nr_lost_files,
	       r->lost_bytes, r->commit, r->unapplied, r->nr_groups, r->nr_inodes, r->nr_names, r->nr_packs,
	       r->nr_frames, r->nr_chunks, r->chunk_bytes, r->read_bytes, exit_code);
}
