/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/analyze/analyze_report.h"

#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "base/text.h"
#include "base/util.h"

const char *const dedup_names[NR_FP_DOMAIN_KINDS] = { "global", "group", "user" };

#define NAME_WIDTH_MAX 48
#define SMALL KiB(64) /* smaller files share one line */
#define FSYNC_BYTES KiB(4) /* cost of a synced file: a frame of its own, with a table */
#define FSYNC_PART 50 /* that cost is mentioned from 1/50 of the store on */

/* Escapes control characters. */
static void print_name(const char *path, int width)
{
	int columns = (int)text_print(stdout, path);

	printf("%*s", MAX(width - columns, 0), "");
}

static void print_size(uint64_t bytes)
{
	if (bytes == 0)
		printf("%11s", "-");
	else
		printf("%11s", human_size(bytes).s);
}

/* The columns of a file: its size, and its bytes by result of deduplication. */
enum { SIZE, ZEROS, PREVIOUS, KNOWN, NEW, NR_COLUMNS };
static const char *const column_names[NR_COLUMNS] = { "size", "zeros", "previous", "known", "new" };

static void columns(uint64_t size, const struct scratch_figures *f, uint64_t ret[NR_COLUMNS])
{
	ret[SIZE] = size;
	ret[PREVIOUS] = f->previous;
	ret[KNOWN] = f->known;
	ret[NEW] = f->new;
	ret[ZEROS] = size - MIN(size, f->previous + f->known + f->new);
}

/* A file that could not be read has its own line, whatever its size. */
static bool is_small(const struct file *f)
{
	return f->size < SMALL && f->error == 0;
}

static void print_row(const uint64_t column[NR_COLUMNS], bool is_measured)
{
	for (size_t k = 0; k < NR_COLUMNS; k++)
		if (k == SIZE || is_measured)
			print_size(column[k]);
		else
			printf("%11s", "");
}

static void print_small(const struct files *files, const struct stores *st, size_t store, int width)
{
	uint64_t column[NR_COLUMNS], sum[NR_COLUMNS] = { 0 };
	char label[64];
	size_t nr = 0;

	for (size_t i = 0; i < files->nr; i++) {
		if (!is_small(&files->file[i]))
			continue;
		nr++;
		columns(files->file[i].size, &st->figure[store].file[i], column);
		for (size_t k = 0; k < NR_COLUMNS; k++)
			sum[k] += column[k];
	}
	if (nr == 0)
		return;
	snprintf(label, sizeof(label), "%zu below %s", nr, human_size(SMALL).s);
	print_name(label, width);
	print_row(sum, true);
	putchar('\n');
}

static void print_files(const struct files *files, const struct stores *st, size_t store)
{
	int width = (int)strlen("1000000 below 64 KiB");
	uint64_t column[NR_COLUMNS];

	for (size_t i = 0; i < files->nr; i++)
		if (!is_small(&files->file[i]))
			width = MAX(width, (int)text_columns(files->file[i].path));
	width = MIN(width, NAME_WIDTH_MAX);
	printf("\nWhere the bytes of each file were found with %s, before compression:\n%-*s", st->figure[store].options,
	       width, "file");
	for (size_t k = 0; k < NR_COLUMNS; k++)
		printf("%11s", column_names[k]);
	putchar('\n');
	for (size_t i = 0; i < files->nr; i++) {
		const struct file *f = &files->file[i];

		if (is_small(f))
			continue;
		columns(f->size, &st->figure[store].file[i], column);
		print_name(f->path, width);
		print_row(column, st->is_measured[i]);
		puts(f->error < 0 ? "  not read completely" : st->is_measured[i] ? "" : "  not measured");
	}
	print_small(files, st, store, width);
}

static void print_left_out(const struct report *r)
{
	if (r->stores->stopped)
		puts("Interrupted: the figures are of the stores completed by then.");
	else if (!r->stores->complete)
		puts("Some files could not be read or measured and are not in the figures.");
	if (r->files->nr_links > 0)
		printf("Skipped: %s to files already listed\n", human_nr(r->files->nr_links, "hard link").s);
	if (r->files->nr_special > 0)
		printf("Skipped: %s, neither file nor directory\n", human_nr(r->files->nr_special, "name").s);
}

static void print_stores(const struct stores *st, const struct files *files)
{
	uint64_t column[NR_COLUMNS];

	printf("Scratch stores of %s with %s of data%s:\n%-10s %-10s", human_nr(st->nr_files, "file").s,
	       human_size(st->measured).s,
	       st->nr_files < files->nr ? ", the newest steps only (raise --measure for more)" : "", "chunking", "compress");
	for (size_t k = PREVIOUS; k < NR_COLUMNS; k++)
		printf("%11s", column_names[k]);
	printf("%11s%s\n", "disk", st->compacted ? "  compacted" : "");
	for (size_t i = 0; i < st->nr; i++) {
		const struct store_figure *f = &st->figure[i];

		printf("%-10s %-10s", f->chunking, f->compress);
		columns(0, &f->all, column);
		for (size_t k = PREVIOUS; k < NR_COLUMNS; k++)
			print_size(column[k]);
		print_size(f->bytes);
		if (st->compacted)
			print_size(f->compacted);
		putchar('\n');
	}
}

static void print_rivals(const struct report *r)
{
	puts("\nAll files as one stream:");
	for (size_t i = 0; i < NR_RIVALS; i++)
		printf("%-10s %12s %9.3f CPU s\n", r->rivals[i].name, human_size(r->rivals[i].coded).s,
		       (double)r->rivals[i].ns / 1e9);
}

void report_text(const struct report *r)
{
	const struct stores *st = r->stores;
	const struct files *files = r->files;
	struct store_choice c;

	printf("%s in %zu series: %s, of which %s in holes\n", human_nr(files->nr, "file").s, files->nr_series,
	       human_size(files->size).s, human_size(files->holes).s);
	print_left_out(r);
	if (st->nr > 0) {
		c = stores_choose(st);
		printf("\nRecommended: -o %s%s\n  %s\n", st->figure[c.figure].options,
		       c.compact ? ", then ckptfs compact" : "", REPORT_WHY);
		printf("  Expected: %s%s.\n", human_size(c.bytes).s,
		       st->nr_files < files->nr ? ", for the measured files" : "");
		if (!r->fsync && st->nr_files * FSYNC_BYTES > c.bytes / FSYNC_PART)
			puts("  Programs that sync each file need noticeably more space: measure with --fsync.");
		putchar('\n');
		print_stores(st, files);
		print_files(files, st, c.figure);
	}
	if (r->variables && st->nr > 0 && st->compacted) {
		printf("\nVariables, compacted in the store with %s:\n", st->figure[st->rows_of].options);
		compact_rows_text(&st->rows);
	}
	if (r->rivals)
		print_rivals(r);
	if (r->images)
		images_text(r->images);
}
