#include <inttypes.h>
#include <stdio.h>

#include "base/conf.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/analyze_images.h"

static const char *kind_name(size_t kind)
{
	return kind == SEGMENT_NONE ? "all" : segment_kind_name(kind);
}

/* Of estimates not more than there is. */
static uint64_t stored(const struct image_kind *k, enum image_way way)
{
	return MIN(k->by[way].source[NEW], k->original);
}

static uint64_t coded(const struct image_kind *k, enum image_way way)
{
	struct figures f = figures_estimate(&k->by[way]);

	return figures_coded(&f, CODEC_ZSTD);
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

static void print_kind(const struct image_kind *k, size_t kind, enum image_way way)
{
	printf("  %-10s", kind_name(kind));
	print_size(k->original);
	print_size(k->by[way].zero);
	print_size(figures_coded(&k->plain, CODEC_ZSTD));
	print_size(stored(k, way));
	print_size(coded(k, way));
	printf(" %9.2f %%", 100 * image_redundancy(k->original, stored(k, way)));
}

static void print_heads(const char *name)
{
	printf("%-12s %11s %11s %11s %11s %11s %11s", name, "original", "zeros", "zstd:3", "dedup", "and zstd:3",
	       "redundant");
}

void images_text(const struct images *is)
{
	printf("\nImages of processes: %zu%s%s. Pages of 4 KiB from where segments begin:\n", is->nr,
	       is->exact ? "" : ", by estimate", is->complete ? "" : "; not everything could be read");
	for (size_t i = 0; i < is->nr; i++) {
		json_print_string(stdout, is->image[i].file->path);
		fputs(", by itself:\n", stdout);
		print_heads("");
		putchar('\n');
		for (size_t k = 0; k < NR_SEGMENT_KINDS; k++) {
			const struct image_kind *kind = &is->image[i].kind[nth_kind(k)];

			if (kind->original == 0)
				continue;
			print_kind(kind, nth_kind(k), IMAGE_ALONE);
			putchar('\n');
		}
	}
	if (is->nr == 0)
		return;
	puts("All images together:");
	print_heads("");
	printf(" %11s %11s\n", "by content", "and zstd:3");
	for (size_t k = 0; k < NR_SEGMENT_KINDS; k++) {
		const struct image_kind *kind = &is->total[nth_kind(k)];

		if (kind->original == 0)
			continue;
		print_kind(kind, nth_kind(k), IMAGE_TOGETHER);
		print_size(stored(kind, IMAGE_BY_CONTENT));
		print_size(coded(kind, IMAGE_BY_CONTENT));
		putchar('\n');
	}
}

static void print_kinds(const struct image_kind kinds[NR_SEGMENT_KINDS], enum image_way way)
{
	const char *between = "";

	for (size_t i = 0; i < NR_SEGMENT_KINDS; i++) {
		const struct image_kind *k = &kinds[nth_kind(i)];

		if (k->original == 0)
			continue;
		printf("%s{\"kind\":\"%s\",\"original_bytes\":%" PRIu64 ",\"zero_bytes\":%" PRIu64
		       ",\"zstd_bytes\":%" PRIu64,
		       between, kind_name(nth_kind(i)), k->original, k->by[way].zero,
		       figures_coded(&k->plain, CODEC_ZSTD));
		printf(",\"deduplicated_bytes\":%" PRIu64 ",\"deduplicated_zstd_bytes\":%" PRIu64 ",\"redundancy\":%.6f",
		       stored(k, way), coded(k, way), image_redundancy(k->original, stored(k, way)));
		if (way == IMAGE_TOGETHER)
			printf(",\"by_content_bytes\":%" PRIu64 ",\"by_content_zstd_bytes\":%" PRIu64,
			       stored(k, IMAGE_BY_CONTENT), coded(k, IMAGE_BY_CONTENT));
		putchar('}');
		between = ",";
	}
}

void images_json(const struct images *is)
{
	printf(",\n\"images\":{\"complete\":%s,\"exact\":%s,\"other_files\":%zu,\"images\":[",
	       is->complete ? "true" : "false", is->exact ? "true" : "false", is->nr_others);
	for (size_t i = 0; i < is->nr; i++) {
		fputs(i > 0 ? ",\n{\"path\":" : "\n{\"path\":", stdout);
		json_print_string(stdout, is->image[i].file->path);
		fputs(",\"kinds\":[", stdout);
		print_kinds(is->image[i].kind, IMAGE_ALONE);
		fputs("]}", stdout);
	}
	fputs("],\n\"together\":[", stdout);
	print_kinds(is->total, IMAGE_TOGETHER);
	fputs("]}", stdout);
}
