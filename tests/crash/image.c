/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/util.h"

struct image_page {
	unsigned refs;
	bool hashed;
	uint64_t hash; /* 0: all zeros */
	uint8_t data[IMAGE_PAGE];
};

static void page_put(struct image_page *p)
{
	if (p && --p->refs == 0)
		free(p);
}

void image_release(struct image *m)
{
	for (size_t i = 0; i < m->nr_pages; i++)
		page_put(m->pages[i]);
	free(m->pages);
	*m = IMAGE_EMPTY;
}

int image_copy(const struct image *from, struct image *ret)
{
	struct image m = { .nr_pages = from->nr_pages, .size = from->size };

	m.pages = malloc((from->nr_pages + 1) * sizeof(*m.pages));
	if (!m.pages)
		return -ENOMEM;
	for (size_t i = 0; i < m.nr_pages; i++) {
		m.pages[i] = from->pages[i];
		if (m.pages[i])
			m.pages[i]->refs++;
	}
	*ret = m;
	return 0;
}

/* The page at index i, to be written into. */
static struct image_page *page_own(struct image *m, size_t i)
{
	struct image_page *old = m->pages[i], *p = old;

	if (!old || old->refs > 1) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return NULL;
		if (old)
			memcpy(p->data, old->data, sizeof(p->data));
		page_put(old);
		p->refs = 1;
		m->pages[i] = p;
	}
	p->hashed = false;
	return p;
}

int image_resize(struct image *m, uint64_t size)
{
	size_t nr = (size_t)((size + IMAGE_PAGE - 1) / IMAGE_PAGE);

	if (size < m->size && size % IMAGE_PAGE != 0 && nr <= m->nr_pages && m->pages[nr - 1]) {
		struct image_page *p = page_own(m, nr - 1);

		if (!p)
			return -ENOMEM;
		memset(p->data + size % IMAGE_PAGE, 0, IMAGE_PAGE - size % IMAGE_PAGE);
	}
	for (size_t i = nr; i < m->nr_pages; i++)
		page_put(m->pages[i]);
	if (nr != m->nr_pages) {
		struct image_page **pages = realloc(m->pages, (nr + 1) * sizeof(*pages));

		if (!pages)
			return -ENOMEM;
		m->pages = pages;
		if (nr > m->nr_pages)
			memset(pages + m->nr_pages, 0, (nr - m->nr_pages) * sizeof(*pages));
		m->nr_pages = nr;
	}
	m->size = size;
	return 0;
}

int image_write(struct image *m, const void *p, uint64_t len, uint64_t off)
{
	const uint8_t *from = p;
	int r;

	if (off + len > m->size) {
		r = image_resize(m, off + len);
		if (r < 0)
			return r;
	}
	while (len > 0) {
		uint64_t n = MIN(len, IMAGE_PAGE - off % IMAGE_PAGE);
		size_t i = (size_t)(off / IMAGE_PAGE);

		if (from || m->pages[i]) {
			struct image_page *page = page_own(m, i);

			if (!page)
				return -ENOMEM;
			if (from)
				memcpy(page->data + off % IMAGE_PAGE, from, n);
			else
				memset(page->data + off % IMAGE_PAGE, 0, n);
		}
		from = from ? from + n : NULL;
		off += n;
		len -= n;
	}
	return 0;
}

int image_punch(struct image *m, uint64_t off, uint64_t len)
{
	if (off >= m->size)
		return 0;
	return image_write(m, NULL, MIN(len, m->size - off), off);
}

static uint64_t page_hash(struct image_page *p)
{
	static const uint8_t zeros[IMAGE_PAGE];

	if (!p->hashed) {
		p->hash = memcmp(p->data, zeros, IMAGE_PAGE) == 0 ? 0 : XXH3_64bits(p->data, IMAGE_PAGE) | 1;
		p->hashed = true;
	}
	return p->hash;
}

uint64_t image_hash(const struct image *m)
{
	uint64_t h = XXH3_64bits(&m->size, sizeof(m->size));

	for (size_t i = 0; i < m->nr_pages; i++)
		if (m->pages[i] && page_hash(m->pages[i]) != 0) {
			uint64_t pair[2] = { i, m->pages[i]->hash };

			h = XXH3_64bits_withSeed(pair, sizeof(pair), h);
		}
	return h;
}

int image_store(const struct image *m, int dirfd, const char *name)
{
	_cleanup_(closep) int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || ftruncate(fd, (off_t)m->size) < 0)
		return -errno;
	for (size_t i = 0; i < m->nr_pages; i++) {
		uint64_t off = (uint64_t)i * IMAGE_PAGE;
		uint64_t len = MIN(m->size - off, IMAGE_PAGE);

		if (m->pages[i] && page_hash(m->pages[i]) != 0 &&
		    pwrite(fd, m->pages[i]->data, len, (off_t)off) != (ssize_t)len)
			return errno ? -errno : -EIO;
	}
	return 0;
}
