/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as a message of another node, with a valid MAC: refused, or one that gives the same bytes when it
 * is encoded. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "mpi-agent/wire/peer_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct mac_key key;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(buf_release) struct buf sealed = BUF_EMPTY, b = BUF_EMPTY;
	const size_t at = sizeof(struct peer_header_wire);
	struct peer_header h;

	if (peer_decode(&key, data, size, &h) < 0 && size >= at) {
		buf_add(&sealed, data, size);
		if (buf_error(&sealed) < 0)
			return 0;
		mac_compute_of(&key, sealed.data + MAC_LEN, at - MAC_LEN, sealed.data + at, size - at, sealed.data);
		data = sealed.data;
	}
	if (peer_decode(&key, data, size, &h) < 0)
		return 0;
	peer_encode(&key, &h, data + at, size - at, &b);
	assert(buf_error(&b) < 0 || (b.len == size && memcmp(b.data, data, size) == 0));
	return 0;
}
