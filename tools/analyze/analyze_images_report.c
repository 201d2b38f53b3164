/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <inttypes.h>
#include <stdio.h>

#include "base/conf.h"
#include "base/json/json_write.h"
#include "base/util.h"
#include "tools/analyze/analyze_images.h"

static const char *kind_name(size_t kind)
{
	return kind == SEGMENT_NONE ? "all" : segment_kind_name(kind);
}

/* Kinds in order, with the total last. */
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
	printf("\nProcess images: %zu%s. Pages of %s, from the start of each memory area:\n", is->nr,
	       is->stopped  ? "; interrupted" :
	       is->complete ? "" :
			      "; not everything could be read",
	       human_size(is->conf.page).s);
	for (size_t i = 0; i < is->nr; i++) {
		json_string(&(struct json){ .to = stdout }, NULL, is->image[i].file->path);
		fputs(i > 0 ? ", bytes that are not in earlier images:\n" : ":\n", stdout);
		print_kinds_text(is->image[i].kind);
	}
	if (is->nr == 0)
		return;
	puts("All images together:");
	print_kinds_text(is->total);
}

static void add_kinds(struct json *j, const char *key, const struct image_kind kinds[NR_SEGMENT_KINDS])
{
	json_open_array(j, key);
	for (size_t i = 0; i < NR_SEGMENT_KINDS; i++) {
		const struct image_kind *k = &kinds[nth_kind(i)];
		const struct image_way_figures *pages = &k->by[IMAGE_PAGES], *content = &k->by[IMAGE_BY_CONTENT];

		if (k->original == 0)
			continue;
		json_open(j, NULL);
		json_string(j, "kind", kind_name(nth_kind(i)));
		json_u64(j, "original_bytes", k->original);
		json_u64(j, "zero_bytes", k->zero);
		json_u64(j, "new_bytes", pages->new);
		json_u64(j, "new_zstd_bytes", pages->new_zstd);
		json_real(j, "redundancy", image_redundancy(k->original, pages->new), 6);
		json_u64(j, "by_content_bytes", content->new);
		json_u64(j, "by_content_zstd_bytes", content->new_zstd);
		json_close(j);
	}
	json_close_array(j);
}

void images_add_json(const struct images *is, struct json *j, const char *key)
{
	json_line(j);
	json_open(j, key);
	json_bool(j, "complete", is->complete);
	json_u64(j, "other_files", is->nr_others);
	json_open_array(j, "images");
	for (size_t i = 0; i < is->nr; i++) {
		json_line(j);
		json_open(j, NULL);
		json_string(j, "path", is->image[i].file->path);
		add_kinds(j, "kinds", is->image[i].kind);
		json_close(j);
	}
	json_close_array(j);
	json_line(j);
	add_kinds(j, "together", is->total);
	json_close(j);
}
