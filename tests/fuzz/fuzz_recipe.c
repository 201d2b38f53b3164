/*
 * The decoder of recipes. What is accepted has extents in order, inside the segment and inside a pack, and
 * encodes to the same bytes again, or, of version 1, to others that hold the same.
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
	size_t nr, nr_again;
	uint64_t end = 0;

	if (recipe_decode(p, len, &x, &nr) < 0)
		return;
	assert(nr <= len && (nr > 0) == (x != NULL));
	for (size_t i = 0; i < nr; i++) {
		assert(x[i].off >= end && x[i].len > 0 && !addr_is_none(x[i].addr));
		end = (uint64_t)x[i].off + x[i].len;
		assert(end <= SEGMENT_SIZE && (uint64_t)x[i].addr.off + x[i].len <= UINT64_C(1) << 32);
	}
	recipe_encode(x, nr, &b);
	if (buf_error(&b) < 0)
		return;
	if (p[0] == 2)
		assert(b.len == len && memcmp(b.data, p, len) == 0);
	assert(recipe_decode(b.data, b.len, &again, &nr_again) == 0 && nr_again == nr);
	for (size_t i = 0; i < nr; i++)
		assert(again[i].off == x[i].off && again[i].len == x[i].len && addr_equal(again[i].addr, x[i].addr));
}

static void try_key(const uint8_t *p, size_t len)
{
	uint64_t ino, segment;
	struct ns_key k;

	if (recipe_key_decode(p, len, &ino, &segment) < 0)
		return;
	k = recipe_key(ino, segment);
	assert(k.len == len && memcmp(k.b, p, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	try_value(p, len);
	try_key(p, len);
	return 0;
}
