#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "tools/analyze_report.h"

#define SCHEMA_VERSION 1

/* Bytes of the valid UTF-8 character that s begins with; 0: it is none. */
static size_t utf8_length(const unsigned char *s)
{
	/* By its first byte, and what the second may be: no character has two forms. */
	static const struct {
		unsigned char first, last, low, high;
		size_t len;
	} forms[] = {
		{ 0x01, 0x7f, 0, 0, 1 },       { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
		{ 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		if (s[0] < forms[i].first || s[0] > forms[i].last)
			continue;
		for (size_t k = 1; k < forms[i].len; k++)
			if (s[k] < (k == 1 ? forms[i].low : 0x80) || s[k] > (k == 1 ? forms[i].high : 0xbf))
				return 0;
		return forms[i].len;
	}
	return 0;
}

/* A byte of a name that is not UTF-8 becomes half of a surrogate pair, as Python has it: what reads it gets it back. */
static void print_string(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	putchar('"');
	for (size_t len; *s; s += MAX(len, (size_t)1)) {
		len = utf8_length(s);
		if (len == 0)
			printf("\\udc%02x", *s);
		else if (*s < 0x20)
			printf("\\u%04x", *s);
		else
			printf("%s%.*s", *s == '"' || *s == '\\' ? "\\" : "", (int)len, (const char *)s);
	}
	putchar('"');
}

static void print_cutting(const struct cutting *c)
{
	if (c->page > 0)
		printf("{\"chunking\":\"page\",\"page_bytes\":%" PRIu32, c->page);
	else
		printf("{\"chunking\":\"cdc\",\"min_bytes\":%" PRIu32 ",\"avg_bytes\":%" PRIu32 ",\"max_bytes\":%" PRIu32,
		       c->cdc.params.min, c->cdc.params.avg, c->cdc.params.max);
}

static void print_figures(const struct analysis *a, const struct figures *all)
{
	printf("\"by_chunking\":[");
	for (size_t i = 0; i < a->nr_cuttings; i++) {
		struct figures f = figures_estimate(&all[i]);
		const struct {
			const char *name;
			uint64_t value;
		} values[] = {
			{ "chunks", f.nr_chunks },
			{ "zero_bytes", f.zero },
			{ "same_file_bytes", f.source[FROM_SELF] },
			{ "same_series_bytes", f.source[FROM_SERIES] },
			{ "other_ranks_bytes", f.source[FROM_RANKS] },
			{ "other_files_bytes", f.source[FROM_OTHERS] },
			{ "new_bytes", f.source[NEW] },
			{ "new_lz4_bytes", figures_coded(&f, CODEC_LZ4) },
			{ "new_zstd_bytes", figures_coded(&f, CODEC_ZSTD) },
		};

		fputs(i > 0 ? "," : "", stdout);
		print_cutting(&a->cutting[i]);
		for (size_t k = 0; k < ARRAY_SIZE(values); k++)
			printf(",\"%s\":%" PRIu64, values[k].name, values[k].value);
		printf(",\"exact\":%s,\"sampling_rate\":%.10g}", a->cutting[i].distinct.bits == 0 ? "true" : "false",
		       1 / (double)distinct_weight(&a->cutting[i].distinct));
	}
	putchar(']');
}

static void print_file(const struct analysis *a, const struct file *f)
{
	fputs("{\"path\":", stdout);
	print_string(f->path);
	fputs(",\"series\":", stdout);
	print_string(f->series_name);
	printf(",\"size_bytes\":%" PRIu64 ",\"hole_bytes\":%" PRIu64 ",\"zero_bytes\":%" PRIu64 ",", f->size, f->holes,
	       figures_zero(&f->figures[0], f->size));
	if (f->error < 0) {
		fputs("\"error\":", stdout);
		print_string(strerror(-f->error));
		putchar(',');
	}
	print_figures(a, f->figures);
	putchar('}');
}

void report_json(const struct analysis *a, const struct files *files, const struct setting *s)
{
	printf("{\"schema_version\":%d,\"complete\":%s,\"exact\":%s,\"files\":[", SCHEMA_VERSION,
	       a->complete ? "true" : "false", analysis_is_exact(a) ? "true" : "false");
	for (size_t i = 0; i < files->nr; i++) {
		fputs(i > 0 ? ",\n" : "\n", stdout);
		print_file(a, &files->file[i]);
	}
	printf("],\n\"total\":{\"files\":%zu,\"series\":%zu,\"size_bytes\":%" PRIu64 ",\"hole_bytes\":%" PRIu64
	       ",\"zero_bytes\":%" PRIu64 ",",
	       files->nr, files->nr_series, a->size, a->holes, figures_zero(&a->total[0], a->size));
	print_figures(a, a->total);
	printf("},\n\"recommended\":{\"options\":\"%s\",\"expected_bytes\":%" PRIu64 ",\"why\":\"%s\"}}\n", s->options,
	       s->expected, s->why);
}
