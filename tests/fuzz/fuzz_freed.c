/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The decoders of what has been collected. What is accepted encodes to the same bytes again. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "index/freed.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void same(const struct buf *b, const uint8_t *p, size_t len)
{
	assert(buf_error(b) < 0 || (b->len == len && memcmp(b->data, p, len) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct freed_totals totals;
	struct freed_frame frame;
	uint32_t pack, number;
	struct ns_key k;

	if (freed_frame_decode(p, len, &frame) == 0) {
		freed_frame_encode(&frame, &b);
		same(&b, p, len);
	}
	buf_clear(&b);
	if (freed_totals_decode(p, len, &totals) == 0) {
		freed_totals_encode(&totals, &b);
		same(&b, p, len);
	}
	buf_clear(&b);
	if (freed_pack_decode(p, len) == 0) {
		freed_pack_encode(&b);
		same(&b, p, len);
	}
	if (freed_key_decode(p, len, &pack, &number) == 0 && len > 1) {
		k = len == 5 ? freed_key_pack(pack) : freed_key(pack, number);
		assert(k.len == len && memcmp(k.b, p, len) == 0);
	}
	return 0;
}
