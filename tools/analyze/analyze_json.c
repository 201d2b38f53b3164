#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"
#include "tools/analyze/analyze_report.h"

#define SCHEMA_VERSION 2

static void print_figures(uint64_t size, const struct scratch_figures *f)
{
	printf("\"zero_bytes\":%" PRIu64 ",\"previous_bytes\":%" PRIu64 ",\"elsewhere_bytes\":%" PRIu64
	       ",\"new_bytes\":%" PRIu64,
	       size - MIN(size, f->previous + f->known + f->new), f->previous, f->known, f->new);
}

static void print_file(const struct report *r, size_t i)
{
	const struct file *f = &r->files->file[i];

	fputs("{\"path\":", stdout);
	json_print_string(stdout, f->path);
	fputs(",\"series\":", stdout);
	json_print_string(stdout, f->series_name);
	printf(",\"size_bytes\":%" PRIu64 ",\"hole_bytes\":%" PRIu64, f->size, f->holes);
	if (f->error < 0) {
		fputs(",\"error\":", stdout);
		json_print_string(stdout, strerror(-f->error));
	}
	fputs(",\"stores\":[", stdout);
	for (size_t k = 0; k < r->stores->nr && r->stores->is_measured[i]; k++) {
		fputs(k > 0 ? ",{" : "{", stdout);
		print_figures(f->size, &r->stores->figure[k].file[i]);
		putchar('}');
	}
	fputs("]}", stdout);
}

static uint64_t measured_size(const struct report *r)
{
	uint64_t size = 0;

	for (size_t i = 0; i < r->files->nr; i++)
		size += r->stores->is_measured[i] ? r->files->file[i].size : 0;
	return size;
}

static void print_stores(const struct report *r)
{
	const struct stores *st = r->stores;
	uint64_t size = st->nr > 0 ? measured_size(r) : 0;

	printf(",\n\"measured\":{\"files\":%zu,\"data_bytes\":%" PRIu64 ",\"stores\":[", st->nr_files, st->measured);
	for (size_t i = 0; i < st->nr; i++) {
		const struct store_figure *f = &st->figure[i];

		printf("%s{\"chunking\":\"%s\",\"compress\":\"%s\",\"options\":\"%s\",", i > 0 ? ",\n" : "\n", f->chunking,
		       f->compress, f->options);
		print_figures(size, &f->all);
		printf(",\"store_bytes\":%" PRIu64, f->bytes);
		if (st->compacted)
			printf(",\"compacted_bytes\":%" PRIu64, f->compacted);
		putchar('}');
	}
	fputs("]}", stdout);
}

static void print_recommended(const struct stores *st)
{
	struct store_choice c = stores_choose(st);

	printf(",\n\"recommended\":{\"options\":\"%s\",\"compact\":%s,\"expected_bytes\":%" PRIu64
	       ",\"why\":\"%s\"}",
	       st->figure[c.figure].options, c.compact ? "true" : "false", c.bytes, REPORT_WHY);
}

static void print_rivals(const struct rival *rivals)
{
	fputs(",\n\"rivals\":[", stdout);
	for (size_t i = 0; i < NR_RIVALS; i++)
		printf("%s{\"name\":\"%s\",\"coded_bytes\":%" PRIu64 ",\"encode_ns\":%" PRIu64 "}", i > 0 ? "," : "",
		       rivals[i].name, rivals[i].coded, rivals[i].ns);
	putchar(']');
}

void report_json(const struct report *r)
{
	const struct stores *st = r->stores;

	printf("{\"schema_version\":%d,\"complete\":%s,\"dedup\":\"%s\",\"fsync\":%s,\"files\":[", SCHEMA_VERSION,
	       st->complete ? "true" : "false", dedup_names[r->dedup], r->fsync ? "true" : "false");
	for (size_t i = 0; i < r->files->nr; i++) {
		fputs(i > 0 ? ",\n" : "\n", stdout);
		print_file(r, i);
	}
	printf("],\n\"total\":{\"files\":%zu,\"series\":%zu,\"size_bytes\":%" PRIu64 ",\"hole_bytes\":%" PRIu64 "}",
	       r->files->nr, r->files->nr_series, r->files->size, r->files->holes);
	print_stores(r);
	if (st->nr > 0)
		print_recommended(st);
	if (r->variables && st->nr > 0 && st->compacted) {
		printf(",\n\"compacted\":{\"options\":\"%s\",\"report\":", st->figure[st->rows_of].options);
		compact_rows_json(&st->rows);
		putchar('}');
	}
	if (r->rivals)
		print_rivals(r->rivals);
	if (r->images)
		images_json(r->images);
	puts("}");
}
