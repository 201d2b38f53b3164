/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as what a classifier says, with a checksum that holds: refused, or extents in the file. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "store/classify/typed_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct typed_head_disk *d;
	char reason[TYPED_REASON_MAX + 1];
	struct typed t;
	uint64_t size;

	if (len < sizeof(*d))
		return 0;
	d = malloc(len);
	memcpy(d, p, len);
	memcpy(d->magic, TYPED_MAGIC, 4);
	d->version = le32_put(TYPED_VERSION);
	d->reserved = le16_put(0);
	size = le64_get(d->size);
	d->crc = le32_put(crc32c_add(crc32c(d + 1, len - sizeof(*d)), d, offsetof(struct typed_head_disk, crc)));
	if (typed_decode(d, len, size, &t, reason) > 0) {
		for (size_t i = 0; i < t.nr_extents; i++)
			assert(t.extent[i].off <= size && t.extent[i].len <= size - t.extent[i].off &&
			       t.extent[i].variable < t.nr_variables);
		typed_release(&t);
	}
	free(d);
	return 0;
}
