#include <inttypes.h>
#include <stdio.h>

#include "base/conf.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/analyze/analyze_images.h"

static const char *kind_name(size_t kind)
{
	return kind == SEGMENT_NONE ? "all" : segment_kind_name(kind);
}

/* Kinds in their order, what is all of them last. */
static size_t nth_kind(size_t i)
{
	return i + 1 < NR_SEGMENT_KINDS ? i + 1 : SEGMENT_NONE;
}

static void print_size(uint64_t bytes)
{
	printf(" %11s", human_size(bytes).s);
}

static void print_kind(const struct image_kind *k, size_t kind)
{
	const struct image_way_figures *pages = &k->by[IMAGE_PAGES], *content = &k->by[IMAGE_BY_CONTENT];

	printf("  %-10s", kind_name(kind));
	print_size(k->original);
	print_size(k->zero);
	print_size(pages->new);
	print_size(pages->new_zstd);
	printf(" %9.2f %%", 100 * image_redundancy(k->original, pages->new));
	print_size(content->new);
	print_size(content->new_zstd);
	putchar('\n');
}

static void print_kinds_text(const struct image_kind kinds[NR_SEGMENT_KINDS])
{
	printf("%-12s %11s %11s %11s %11s %11s %11s %11s\n", "", "original", "zeros", "new pages", "and zstd", "redundant",
	       "by content", "and zstd");
	for (size_t i = 0; i < NR_SEGMENT_KINDS; i++)
		if (kinds[nth_kind(i)].original > 0)
			print_kind(&kinds[nth_kind(i)], nth_kind(i));
}

void images_text(const struct images *is)
{
	printf("\nImages of processes: %zu%s. Pages of %s from where areas begin:\n", is->nr,
	       is->complete ? "" : "; not everything could be read", human_size(is->conf.page).s);
	for (size_t i = 0; i < is->nr; i++) {
		json_print_string(stdout, is->image[i].file->path);
		fputs(i > 0 ? ", what those before it do not have:\n" : ":\n", stdout);
		print_kinds_text(is->image[i].kind);
	}
	if (is->nr == 0)
		return;
	puts("All images together:");
	print_kinds_text(is->total);
}

static void print_kinds_json(const struct image_kind kinds[NR_SEGMENT_KINDS])
{
	const char *between = "";

	for (size_t i = 0; i < NR_SEGMENT_KINDS; i++) {
		const struct image_kind *k = &kinds[nth_kind(i)];
		const struct image_way_figures *pages = &k->by[IMAGE_PAGES], *content = &k->by[IMAGE_BY_CONTENT];

		if (k->original == 0)
			continue;
		printf("%s{\"kind\":\"%s\",\"original_bytes\":%" PRIu64 ",\"zero_bytes\":%" PRIu64, between,
		       kind_name(nth_kind(i)), k->original, k->zero);
		printf(",\"new_bytes\":%" PRIu64 ",\"new_zstd_bytes\":%" PRIu64 ",\"redundancy\":%.6f", pages->new,
		       pages->new_zstd, image_redundancy(k->original, pages->new));
		printf(",\"by_content_bytes\":%" PRIu64 ",\"by_content_zstd_bytes\":%" PRIu64 "}", content->new,
		       content->new_zstd);
		between = ",";
	}
}

void images_json(const struct images *is)
{
	printf(",\n\"images\":{\"complete\":%s,\"other_files\":%zu,\"images\":[", is->complete ? "true" : "false",
	       is->nr_others);
	for (size_t i = 0; i < is->nr; i++) {
		fputs(i > 0 ? ",\n{\"path\":" : "\n{\"path\":", stdout);
		json_print_string(stdout, is->image[i].file->path);
		fputs(",\"kinds\":[", stdout);
		print_kinds_json(is->image[i].kind);
		fputs("]}", stdout);
	}
	fputs("],\n\"together\":[", stdout);
	print_kinds_json(is->total);
	fputs("]}", stdout);
}
