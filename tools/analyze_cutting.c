#include "tools/analyze_cutting.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define CUTS 256

/* Nobody need keep it secret: the same files give the same figures, and samples, everywhere. */
static const uint8_t key_secret[FP_KEY_LEN] = "ckptfs-analyze: a fixed key....";
static const uint8_t zeros[WINDOW];

int cutting_init(struct cutting *c, uint32_t page, const struct cdc_params *cdc, size_t memory)
{
	int r;

	*c = (struct cutting){ .page = page };
	fp_key_init(&c->key, FP_CLMUL, key_secret);
	r = distinct_init(&c->distinct, memory);
	if (r == 0)
		r = block_init(&c->block);
	if (r < 0 || page > 0)
		return r;
	cdc_init(&c->cdc, cdc);
	c->pending = malloc(2 * WINDOW);
	return c->pending ? 0 : -ENOMEM;
}

void cutting_release(struct cutting *c)
{
	distinct_release(&c->distinct);
	block_release(&c->block);
	free(c->pending);
	*c = (struct cutting){ 0 };
}

void cutting_begin(struct cutting *c, const struct files *files, uint32_t file, struct figures *figures)
{
	c->files = files;
	c->file = file;
	c->tweak = fp_tweak(&c->key, files->file[file].domain);
	c->figures = figures;
	c->nr_pending = 0;
}

static bool is_zero(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

static int add_chunk(struct cutting *c, const uint8_t *p, size_t len)
{
	struct figures *f = c->figures;
	uint32_t last;
	uint64_t weight;

	if (is_zero(p, len)) {
		f->zero += len;
		return 0;
	}
	f->data += len;
	f->nr_chunks++;
	switch (distinct_add(&c->distinct, fp_xor(fp_of(&c->key, p, len), c->tweak), c->file, &last, &weight)) {
	case DISTINCT_KNOWN:
		f->source[files_relation(c->files, c->file, last)] += len * weight;
		return 0;
	case DISTINCT_NEW:
		f->source[NEW] += len * weight;
		return block_add(&c->block, p, len, weight, f);
	default:
		return 0;
	}
}

static int add_pages(struct cutting *c, const uint8_t *window, size_t len)
{
	int r = 0;

	for (size_t at = 0; at < len && r == 0; at += c->page)
		r = add_chunk(c, window + at, c->page);
	return r;
}

/* Cut what can be cut; the rest is pending, less than the longest chunk. */
static int add_by_content(struct cutting *c, const uint8_t *p, size_t len)
{
	size_t ends[CUTS], at = 0, begin, nr;
	int r = 0;

	memcpy(c->pending + c->nr_pending, p, len);
	c->nr_pending += len;
	do {
		begin = at;
		nr = cdc_cut_all(&c->cdc, c->pending + begin, c->nr_pending - begin, CUTS, ends);
		for (size_t i = 0; i < nr && r == 0; i++) {
			r = add_chunk(c, c->pending + at, begin + ends[i] - at);
			at = begin + ends[i];
		}
	} while (nr == CUTS && r == 0);
	c->nr_pending -= at;
	memmove(c->pending, c->pending + at, c->nr_pending);
	return r;
}

int cutting_add(struct cutting *c, const uint8_t *window, size_t len)
{
	assert(len <= WINDOW);
	return c->page > 0 ? add_pages(c, window, len) : add_by_content(c, window, len);
}

/*
 * Two windows of zeros are fed as bytes: behind them the last cut, and all that is pending, is among zeros. From
 * there on chunks of zeros are all of one length, so that whole ones are counted and the rest is fed again.
 */
static int add_zeros_by_content(struct cutting *c, uint64_t len)
{
	uint64_t chunk = cdc_cut(&c->cdc, zeros, WINDOW), n;
	int r = 0;

	for (unsigned i = 0; i < 2 && r == 0; i++, len -= n) {
		n = MIN(len, (uint64_t)WINDOW);
		r = add_by_content(c, zeros, n);
	}
	if (r < 0)
		return r;
	c->figures->zero += len - len % chunk;
	return add_by_content(c, zeros, len % chunk);
}

int cutting_add_zeros(struct cutting *c, uint64_t len)
{
	if (c->page == 0)
		return add_zeros_by_content(c, len);
	c->figures->zero += round_up(len, c->page);
	return 0;
}

int cutting_end(struct cutting *c)
{
	int r = c->nr_pending > 0 ? add_chunk(c, c->pending, c->nr_pending) : 0;

	c->nr_pending = 0;
	return r;
}

int cutting_finish(struct cutting *c)
{
	return block_flush(&c->block);
}
