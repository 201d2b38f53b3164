/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The decoders of shared chunks and of holders of replicas. What is accepted encodes to the same bytes again. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "index/guards.h"
#include "index/pin_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void same(struct buf *b, const uint8_t *p, size_t len)
{
	assert(buf_error(b) < 0 || (b->len == len && memcmp(b->data, p, len) == 0));
	buf_clear(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	static struct share_frame frame;
	struct share_totals totals;
	struct share_node node;
	uint32_t pack, number;
	struct guard guard;
	struct ns_key k;

	if (guard_decode(p, len, &guard) == 0) {
		guard_encode(&guard, &b);
		same(&b, p, len);
	}
	if (share_frame_decode(p, len, &frame) == 0) {
		share_frame_encode(&frame, &b);
		same(&b, p, len);
	}
	if (share_node_decode(p, len, &node) == 0) {
		share_node_encode(&node, &b);
		same(&b, p, len);
	}
	if (share_totals_decode(p, len, &totals) == 0) {
		share_totals_encode(&totals, &b);
		same(&b, p, len);
	}
	if (share_key_decode(p, len, &pack, &number) == 0) {
		k = len == 1 ? share_key_totals() : share_key(pack, number);
		assert(k.len == len && memcmp(k.b, p, len) == 0);
	}
	return 0;
}
