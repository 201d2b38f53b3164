/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A file as it is written, in pieces of a length that the first two bytes say: where its pages begin is told for every
 * byte, and the same when asked twice. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "store/classify/image_cuts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct grid g = GRID_OF_FILE, again;
	uint64_t at, start, end;
	size_t step;

	if (size < 3)
		return 0;
	step = (size_t)(data[0] | data[1] << 8) + 1;
	at = data[2] & 1 ? 64 : 0; /* what gdb writes first */
	data += 3;
	size -= 3;
	for (uint64_t written = 0; at < size; written = at) {
		size_t len = MIN(step, size - (size_t)at);

		grid_follow(&image_cuts, &g, data + at, len, at, written, 4096);
		again = g;
		grid_follow(&image_cuts, &again, data + at, len, at, written, 4096);
		assert(again.format == g.format && again.from == g.from && again.next == g.next &&
		       again.nr_head == g.nr_head && again.wanted == g.wanted);
		assert(g.from <= g.next);
		grid_part(&g, at, &start, &end);
		assert(start <= at && at < end);
		at += MIN((uint64_t)len, end - at);
	}
	return 0;
}
