#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"
#include "tools/analyze_report.h"

#define SCHEMA_VERSION 1

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
	json_print_string(stdout, f->path);
	fputs(",\"series\":", stdout);
	json_print_string(stdout, f->series_name);
	printf(",\"size_bytes\":%" PRIu64 ",\"hole_bytes\":%" PRIu64 ",\"zero_bytes\":%" PRIu64 ",", f->size, f->holes,
	       figures_zero(&f->figures[0], f->size));
	if (f->error < 0) {
		fputs("\"error\":", stdout);
		json_print_string(stdout, strerror(-f->error));
		putchar(',');
	}
	print_figures(a, f->figures);
	putchar('}');
}

void report_json(const struct analysis *a, const struct files *files, const struct setting *s,
		 const struct variables *v, const struct rival *rivals, const struct images *images)
{
	printf("{\"schema_version\":%d,\"complete\":%s,\"exact\":%s,\"dedup\":\"%s\",\"files\":[", SCHEMA_VERSION,
	       a->complete ? "true" : "false", analysis_is_exact(a) ? "true" : "false", domains_names[files->domains]);
	for (size_t i = 0; i < files->nr; i++) {
		fputs(i > 0 ? ",\n" : "\n", stdout);
		print_file(a, &files->file[i]);
	}
	printf("],\n\"total\":{\"files\":%zu,\"series\":%zu,\"size_bytes\":%" PRIu64 ",\"hole_bytes\":%" PRIu64
	       ",\"zero_bytes\":%" PRIu64 ",",
	       files->nr, files->nr_series, a->size, a->holes, figures_zero(&a->total[0], a->size));
	print_figures(a, a->total);
	printf("},\n\"recommended\":{\"options\":\"%s\",\"expected_bytes\":%" PRIu64 ",\"why\":\"%s\"}", s->options,
	       s->expected, s->why);
	if (v)
		variables_json(v, rivals);
	if (images)
		images_json(images);
	puts("}");
}
