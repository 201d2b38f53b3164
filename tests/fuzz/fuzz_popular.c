/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as a set of popular pages from a peer: refused, or a set that can be merged, with itself and with
 * nothing. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "mpi-agent/popular/popular_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint32_t hosts[64];
static const struct merge_conf conf = { .max = 1000, .nr_owners = 2, .nr_nodes = 64, .hosts = hosts };

static void look(const uint8_t *data, size_t size)
{
	struct popular_set s, empty = { 0 }, both;

	if (popular_decode(&conf, data, size, &s) < 0)
		return;
	assert(s.nr <= conf.max);
	if (popular_merge(&conf, &s, &empty, &both) == 0) {
		assert(both.nr == s.nr && memcmp(both.v, s.v, s.nr * sizeof(*s.v)) == 0);
		popular_set_release(&both);
	}
	popular_set_release(&s);
}

/* Once as it is, and once with checksums that are right. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct popular_header_disk *h;
	uint8_t *copy;
	size_t nr;

	look(data, size);
	if (size < sizeof(*h))
		return 0;
	copy = malloc(size);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	h = (struct popular_header_disk *)copy;
	nr = (size - sizeof(*h)) / popular_entry_len(&conf);
	memcpy(h->magic, POPULAR_MAGIC, sizeof(h->magic));
	h->version = le32_put(POPULAR_VERSION);
	h->error = le32_put(0);
	h->nr_owners = le32_put(conf.nr_owners);
	h->nr = le32_put((uint32_t)nr);
	h->crc32c = le32_put(crc32c(h + 1, nr * popular_entry_len(&conf)));
	h->header_crc32c = le32_put(crc32c(h, offsetof(struct popular_header_disk, header_crc32c)));
	look(copy, size);
	free(copy);
	return 0;
}
