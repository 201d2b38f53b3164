#include "tools/fsck_json.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/util.h"
#include "store/engine/check.h"

#define SCHEMA_VERSION 1

static bool any;

/* Bytes of a valid UTF-8 sequence at s; 0: none. */
static unsigned utf8_length(const unsigned char *s)
{
	static const struct {
		unsigned char mask, bits;
		unsigned n;
		uint32_t min;
	} kinds[] = { { 0xe0, 0xc0, 2, 0x80 }, { 0xf0, 0xe0, 3, 0x800 }, { 0xf8, 0xf0, 4, 0x10000 } };

	for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++) {
		uint32_t c = s[0] & (unsigned char)~kinds[k].mask;

		if ((s[0] & kinds[k].mask) != kinds[k].bits)
			continue;
		for (unsigned i = 1; i < kinds[k].n; i++) {
			if ((s[i] & 0xc0) != 0x80) /* also the end of the string */
				return 0;
			c = c << 6 | (s[i] & 0x3f);
		}
		return c < kinds[k].min || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? 0 : kinds[k].n;
	}
	return 0;
}

/* Names are bytes: one that is no UTF-8 is shown as U+00XX. */
static void put_string(const char *string)
{
	const unsigned char *s = (const unsigned char *)string;

	putchar('"');
	while (*s) {
		unsigned n = utf8_length(s);

		if (n > 0) {
			fwrite(s, 1, n, stdout);
			s += n;
			continue;
		}
		if (*s == '"' || *s == '\\')
			printf("\\%c", *s);
		else if (*s < ' ' || *s >= 0x7f)
			printf("\\u%04x", *s);
		else
			putchar(*s);
		s++;
	}
	putchar('"');
}

void fsck_json_begin(const char *store)
{
	printf("{\"schema_version\": %d, \"store\": ", SCHEMA_VERSION);
	put_string(store);
	fputs(", \"findings\": [", stdout);
}

void fsck_json_finding(const struct check_finding *f)
{
	printf("%s\n  {\"area\": \"%s\", \"mended\": %s, \"text\": ", any ? "," : "", check_area_name(f->area),
	       f->mended ? "true" : "false");
	put_string(f->text);
	if (f->len > 0) {
		fputs(", \"path\": ", stdout);
		if (f->path)
			put_string(f->path);
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
