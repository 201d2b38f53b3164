/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Savings on process images (ELF core files, CRIU, DMTCP) by kind of memory: heap, stack, code... The areas of each
 * kind are written into a scratch store. Each area is a file of its own, so that pages are aligned to the start of the
 * area, not to that of the image. All areas together are one more kind.
 */
#pragma once

#include "store/classify/typed.h"
#include "tools/analyze/analyze_files.h"
#include "tools/analyze/analyze_scratch.h"

enum image_way { IMAGE_PAGES, IMAGE_BY_CONTENT, NR_IMAGE_WAYS };

struct json;

struct images_conf {
	const char *where; /* a directory for scratch stores */
	uint32_t page;
	struct cdc_params cdc;
	const char *helper; /* ckptfs-classify */
	/* called regularly with the work done, scaled to the size of all files; false: stop */
	bool (*step)(void *userdata, uint64_t bytes);
	void *userdata;
};

/* Bytes of chunks that no earlier image has, each counted once; and their size with zstd. */
struct image_way_figures {
	uint64_t new, new_zstd;
};

struct image_kind {
	uint64_t original, zero;
	struct image_way_figures by[NR_IMAGE_WAYS];
};

struct image {
	const struct file *file;
	struct image_kind kind[NR_SEGMENT_KINDS]; /* SEGMENT_NONE: all areas */
};

struct images {
	struct images_conf conf;
	struct image *image;
	size_t nr;
	size_t nr_others; /* files that are not images */
	struct image_kind total[NR_SEGMENT_KINDS];
	bool complete;
	bool stopped; /* by `step` */
};

/* `files` must be arranged and examined. A file that cannot be read is skipped and clears `complete`. -ENOMEM; other
 * errors are reported. */
int images_run(struct images *is, const struct images_conf *conf, const struct files *files);
void images_release(struct images *is);

/* The fraction of the original that need not be stored. */
static inline double image_redundancy(uint64_t original, uint64_t stored)
{
	return original > 0 && stored < original ? 1 - (double)stored / (double)original : 0;
}

void images_text(const struct images *is);
void images_add_json(const struct images *is, struct json *j, const char *key);
