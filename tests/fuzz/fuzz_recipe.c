/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The decoder of recipes and layers. What is accepted has extents in order, inside the segment and inside a pack, and
 * encodes to the same bytes again.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "index/recipes.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void try_value(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct extent *x = NULL, *again = NULL;
	uint64_t end = 0, layer, layer_again;
	size_t nr, nr_again;

	if (recipe_decode_over(p, len, &layer, &x, &nr) < 0)
		return;
	assert((layer > 0) == ((p[0] & 0x80) != 0));
	assert(nr <= len && (nr > 0) == (x != NULL));
	for (size_t i = 0; i < nr; i++) {
		assert(x[i].off >= end && x[i].len > 0 && !addr_is_none(x[i].addr));
		end = (uint64_t)x[i].off + x[i].len;
		assert(end <= SEGMENT_SIZE && (uint64_t)x[i].addr.off + x[i].len <= UINT64_C(1) << 32);
	}
	recipe_encode_over(layer, x, nr, &b);
	if (buf_error(&b) < 0)
		return;
	assert(b.len == len && memcmp(b.data, p, len) == 0);
	assert(recipe_decode_over(b.data, b.len, &layer_again, &again, &nr_again) == 0 && nr_again == nr);
	assert(layer_again == layer);
	for (size_t i = 0; i < nr; i++)
		assert(again[i].off == x[i].off && again[i].len == x[i].len && addr_equal(again[i].addr, x[i].addr));
}

static void try_key(const uint8_t *p, size_t len)
{
	uint64_t ino, segment, layer;
	struct ns_key k;

	if (recipe_key_decode(p, len, &ino, &segment) == 0) {
		k = recipe_key(ino, segment);
		assert(k.len == len && memcmp(k.b, p, len) == 0);
	}
	if (layer_key_decode(p, len, &layer) == 0) {
		k = layer_key(layer);
		assert(layer > 0 && k.len == len && memcmp(k.b, p, len) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	try_value(p, len);
	try_key(p, len);
	return 0;
}
