#include "tools/analyze_report.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "base/util.h"

#define NAME_WIDTH_MAX 48

static int columns_of(const char *utf8) /* a terminal shows */
{
	int n = 0;

	for (; *utf8; utf8++)
		n += ((unsigned char)*utf8 & 0xc0) != 0x80;
	return n;
}

/* A name may hold what would confuse a terminal. */
static void print_name(const char *path, int width)
{
	for (const char *s = path; *s; s++)
		putchar(iscntrl((unsigned char)*s) ? '?' : *s);
	printf("%*s", MAX(width - columns_of(path), 0), "");
}

static void print_size(uint64_t bytes)
{
	if (bytes == 0)
		printf("%11s", "-");
	else
		printf("%11s", human_size(bytes).s);
}

/* One line of the funnel: what is left of all bytes, for each way of cutting. */
static void print_line(const struct analysis *a, const char *label, uint64_t (*left)(const struct figures *f))
{
	printf("%-34s", label);
	for (size_t i = 0; i < a->nr_cuttings; i++) {
		struct figures f = figures_estimate(&a->total[i]);
		uint64_t bytes = left(&f);

		printf("%12s %5.1f %%", human_size(bytes).s, a->size > 0 ? 100 * (double)bytes / (double)a->size : 0);
	}
	putchar('\n');
}

static uint64_t without_zeros(const struct figures *f)
{
	return f->data;
}

static uint64_t files_alone(const struct figures *f)
{
	return f->data - f->source[FROM_SELF];
}

static uint64_t series_alone(const struct figures *f)
{
	return files_alone(f) - f->source[FROM_SERIES];
}

static uint64_t ranks_together(const struct figures *f)
{
	return series_alone(f) - f->source[FROM_RANKS];
}

static uint64_t all_together(const struct figures *f)
{
	return f->source[NEW];
}

static uint64_t with_lz4(const struct figures *f)
{
	return figures_coded(f, CODEC_LZ4);
}

static uint64_t with_zstd(const struct figures *f)
{
	return figures_coded(f, CODEC_ZSTD);
}

static void print_funnel(const struct analysis *a, const struct files *files)
{
	printf("%-34s", "What would be stored of them");
	for (size_t i = 0; i < a->nr_cuttings; i++) {
		const struct cutting *c = &a->cutting[i];
		char head[24];

		if (c->page > 0)
			snprintf(head, sizeof(head), "page=%" PRIu32 "K", c->page / 1024);
		else
			snprintf(head, sizeof(head), "cdc");
		printf("%20s", head);
	}
	putchar('\n');
	print_line(a, "  without zeros", without_zeros);
	print_line(a, "  each file by itself", files_alone);
	print_line(a, "  each series (steps of a rank)", series_alone);
	if (files->nr_families < files->nr_series)
		print_line(a, "  ranks together", ranks_together);
	print_line(a,
		   files->domains == FP_OF_USER	 ? "  all of a user together" :
		   files->domains == FP_OF_GROUP ? "  all of a group together" :
						   "  all together",
		   all_together);
	print_line(a, "    and lz4", with_lz4);
	print_line(a, "    and zstd:3", with_zstd);
}

/* The columns of a file: its size, zeros, where its bytes were seen before, what is new and how that compresses. */
enum { SIZE, ZEROS, SOURCES, CODED = SOURCES + NR_SOURCES, NR_COLUMNS = CODED + NR_CODECS };

static void columns(const struct file *f, size_t cutting, uint64_t ret[NR_COLUMNS])
{
	struct figures e = figures_estimate(&f->figures[cutting]);

	ret[SIZE] = f->size;
	ret[ZEROS] = figures_zero(&e, f->size);
	for (size_t i = 0; i < NR_SOURCES; i++)
		ret[SOURCES + i] = e.source[i];
	for (size_t i = 0; i < NR_CODECS; i++)
		ret[CODED + i] = figures_coded(&e, i);
}

static void print_heads(const struct files *files, size_t cutting, const char *what, int width,
			bool ret_shown[NR_COLUMNS])
{
	static const char *const heads[NR_COLUMNS] = { "size",	   "zeros",	"in itself", "in series", "in ranks",
						       "in others", "new", "lz4",	"zstd:3" };
	uint64_t column[NR_COLUMNS];

	for (size_t k = 0; k < NR_COLUMNS; k++)
		ret_shown[k] = k == SIZE || k >= SOURCES + NEW;
	for (size_t i = 0; i < files->nr; i++) {
		columns(&files->file[i], cutting, column);
		for (size_t k = 0; k < NR_COLUMNS; k++)
			ret_shown[k] |= column[k] > 0;
	}
	printf("Where the bytes of each file were seen before, in %s, in the order of reading:\n%-*s", what, width,
	       "file");
	for (size_t k = 0; k < NR_COLUMNS; k++)
		if (ret_shown[k])
			printf("%11s", heads[k]);
	putchar('\n');
}

static void print_files(const struct analysis *a, const struct files *files, size_t cutting)
{
	bool shown[NR_COLUMNS];
	uint64_t column[NR_COLUMNS];
	int width = 4;

	for (size_t i = 0; i < files->nr; i++)
		width = MAX(width, columns_of(files->file[i].path));
	width = MIN(width, NAME_WIDTH_MAX);
	print_heads(files, cutting, cutting_name(&a->cutting[cutting]).s, width, shown);
	for (size_t i = 0; i < files->nr; i++) {
		columns(&files->file[i], cutting, column);
		print_name(files->file[i].path, width);
		for (size_t k = 0; k < NR_COLUMNS; k++)
			if (shown[k])
				print_size(column[k]);
		puts(files->file[i].error < 0 ? "  not read to its end" : "");
	}
}

static void print_sampling(const struct analysis *a)
{
	if (analysis_is_exact(a))
		return;
	puts("ESTIMATES, as the memory for fingerprints was full (--memory takes more):");
	for (size_t i = 0; i < a->nr_cuttings; i++) {
		const struct distinct *d = &a->cutting[i].distinct;

		if (d->bits > 0)
			printf("  %s: 1 of %" PRIu64 " is kept; together right to about %.1f %%, single files less\n",
			       cutting_name(&a->cutting[i]).s, distinct_weight(d),
			       100 / sqrt((double)MAX(d->nr, (size_t)1)));
		else
			printf("  %s: exact\n", cutting_name(&a->cutting[i]).s);
	}
}

static void print_left_out(const struct analysis *a, const struct files *files)
{
	if (!a->complete)
		puts("Not everything could be read: the figures are of what was.");
	if (files->nr_links > 0)
		printf("Left out: %zu further names of files that are listed\n", files->nr_links);
	if (files->nr_special > 0)
		printf("Left out: %zu that are neither files nor directories\n", files->nr_special);
}

void report_text(const struct analysis *a, const struct files *files, const struct setting *s)
{
	print_files(a, files, s->cutting);
	printf("\n%zu files in %zu series: %s, of which %s are zeros", files->nr, files->nr_series,
	       human_size(a->size).s, human_size(figures_zero(&a->total[0], a->size)).s);
	printf(" (%s in holes)\n", human_size(a->holes).s);
	print_left_out(a, files);
	print_sampling(a);
	putchar('\n');
	print_funnel(a, files);
	printf("\nRecommended: -o %s\n  %s\n  Expected: %s%s.\n", s->options, s->why, human_size(s->expected).s,
	       analysis_is_exact(a) ? "" : ", by estimate");
}
