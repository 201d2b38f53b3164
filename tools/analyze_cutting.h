/*
 * One way of cutting files into chunks, and what becomes of them: zeros are nothing, a chunk that was seen before is
 * nothing new, and of new ones it is seen how they compress.
 *
 * A file's bytes come in windows, in order. Belongs to one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cdc.h"
#include "base/fp.h"
#include "tools/analyze_block.h"
#include "tools/analyze_distinct.h"
#include "tools/analyze_files.h"

#define WINDOW (1u << 20) /* no page and no chunk is longer */

struct cutting {
	uint32_t page;	/* 0: cut by content */
	struct cdc cdc; /* where page is 0 */
	struct fp_key key;
	struct distinct distinct;
	struct block block;

	const struct files *files;
	uint32_t file;
	struct fp tweak; /* of the file's domain */
	struct figures *figures;
	uint8_t *pending; /* bytes behind the last cut, and room for a window; where page is 0 */
	size_t nr_pending;
};

/* page 0: by content, as `cdc` says. `memory` is for fingerprints. */
int cutting_init(struct cutting *c, uint32_t page, const struct cdc_params *cdc, size_t memory);
void cutting_release(struct cutting *c);

/* All below is about a file of `files`, borrowed until cutting_finish(), and its figures. -ENOMEM, -EIO. */
void cutting_begin(struct cutting *c, const struct files *files, uint32_t file, struct figures *figures);
/* The next `len` bytes: a whole window, or the last one of a file, which is filled up with zeros to WINDOW bytes. */
int cutting_add(struct cutting *c, const uint8_t *window, size_t len);
/* The same for many bytes of zeros, without them being there: whole windows, or all up to the end of the file. */
int cutting_add_zeros(struct cutting *c, uint64_t len);
int cutting_end(struct cutting *c);

/* After the last file. */
int cutting_finish(struct cutting *c);
