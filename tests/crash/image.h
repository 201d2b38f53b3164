/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A file's bytes in memory, sparse, cheap to copy: pages are shared until written. One thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define IMAGE_PAGE 4096u

struct image_page;
struct image {
	struct image_page **pages; /* NULL: zeros */
	size_t nr_pages;
	uint64_t size;
};

#define IMAGE_EMPTY ((struct image){ 0 })

void image_release(struct image *m);
int image_copy(const struct image *from, struct image *ret);
int image_write(struct image *m, const void *p, uint64_t len, uint64_t off); /* grows; p == NULL: zeros */
int image_resize(struct image *m, uint64_t size);
int image_punch(struct image *m, uint64_t off, uint64_t len); /* the size stays */
/* Of size and bytes; zeros count the same whether written or not. */
uint64_t image_hash(const struct image *m);
int image_store(const struct image *m, int dirfd, const char *name); /* a new file */
