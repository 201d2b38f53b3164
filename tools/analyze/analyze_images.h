/*
 * What is saved on images of processes (ELF core files, pages of CRIU, DMTCP), by what the memory was: heap, stack,
 * code... The areas of each kind are written into a scratch store, each area as a file of its own, so that pages are
 * counted from where areas begin, wherever that is in the image. All areas together are one more kind.
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
	/* now and then, with the work that has been done, out of the size of all files; false: stop */
	bool (*step)(void *userdata, uint64_t bytes);
	void *userdata;
};

/* Bytes of chunks that no image before has, nor this one twice; and of these with zstd. */
struct image_way_figures {
	uint64_t new, new_zstd;
};

struct image_kind {
	uint64_t original, zero;
	struct image_way_figures by[NR_IMAGE_WAYS];
};

struct image {
	const struct file *file;
	struct image_kind kind[NR_SEGMENT_KINDS]; /* that of SEGMENT_NONE is all of it */
};

struct images {
	struct images_conf conf;
	struct image *image;
	size_t nr;
	size_t nr_others; /* files that are no images */
	struct image_kind total[NR_SEGMENT_KINDS];
	bool complete;
};

/* All files, which have been arranged and examined. One that cannot be read is left out, and `complete` false. -ENOMEM
 * and others, after a complaint. */
int images_run(struct images *is, const struct images_conf *conf, const struct files *files);
void images_release(struct images *is);

/* What part of the original is not stored: of `stored` bytes that are left. */
static inline double image_redundancy(uint64_t original, uint64_t stored)
{
	return original > 0 && stored < original ? 1 - (double)stored / (double)original : 0;
}

void images_text(const struct images *is);
void images_add_json(const struct images *is, struct json *j, const char *key);
