/*
 * What is saved on images of processes (ELF core files, pages of CRIU, DMTCP), by what the memory was: heap, stack,
 * code... Pages are counted from where segments begin, wherever that is in the file. Memory does not depend on the size
 * of files.
 */
#pragma once

#include "store/classify/typed.h"
#include "tools/analyze_cutting.h"

/* How segments are cut, and what they are compared with. */
enum image_way { IMAGE_ALONE, IMAGE_TOGETHER, IMAGE_BY_CONTENT, NR_IMAGE_WAYS };

struct images_conf {
	struct cdc_params cdc;
	uint64_t memory; /* for fingerprints */
	const char *helper; /* ckptfs-classify */

	bool (*step)(void *userdata, uint64_t bytes); /* as in analyze.h */
	void *userdata;
};

struct image_kind {
	uint64_t original;
	struct figures plain; /* of all bytes, known or not: how they compress */
	/* pages that the same image has not had before; that no image has; chunks by content likewise */
	struct figures by[NR_IMAGE_WAYS];
};

struct image {
	const struct file *file;
	struct image_kind kind[NR_SEGMENT_KINDS]; /* that of SEGMENT_NONE is all of it */
};

struct images {
	struct images_conf conf;
	struct cutting cutting[NR_SEGMENT_KINDS][NR_IMAGE_WAYS];
	struct block plain[NR_SEGMENT_KINDS];
	uint8_t *window;

	struct image *image;
	size_t nr;
	size_t nr_others; /* files that are no images */
	struct image_kind total[NR_SEGMENT_KINDS];
	uint64_t looked_at;
	bool exact, complete;
};

int images_init(struct images *is, const struct images_conf *conf);
void images_release(struct images *is);
/* All files, which have been arranged. One that cannot be read is left out, and `complete` false. -ENOMEM and others,
 * after a complaint. */
int images_run(struct images *is, const struct files *files);

/* What part of the original is not stored: of `stored` bytes that are left. */
static inline double image_redundancy(uint64_t original, uint64_t stored)
{
	return original > 0 && stored < original ? 1 - (double)stored / (double)original : 0;
}

void images_text(const struct images *is);
void images_json(const struct images *is);
