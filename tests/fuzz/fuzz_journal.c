/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Decoders of the journal: file header, groups, records. The input is taken as a file, as a group and as records;
 * then once more with all checksums made right, because by chance they never are.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "store/journal/journal.h"
#include "store/journal/journal_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void read_records(const void *records, size_t len)
{
	struct journal_iter it = journal_iter(records, len);
	size_t n, sum = 0;
	const void *p;
	uint8_t type;

	while (journal_iter_next(&it, &type, &p, &n) > 0) {
		assert((const uint8_t *)p >= (const uint8_t *)records && n <= len);
		assert((const uint8_t *)p + n <= (const uint8_t *)records + len);
		sum += 2 + n;
	}
	assert(sum <= len);
}

/* What is accepted encodes to the same bytes, but for reserved ones and, where padding is not zeros, checksums. */
static void check_group(const uint8_t *p, const struct journal_group *g, const void *payload)
{
	struct journal_group again = *g;
	struct journal_group_disk disk;

	journal_group_encode(&again, payload, g->payload_len, &disk);
	if (le32_get(((const struct journal_group_disk *)p)->reserved) == 0 &&
	    ((g->flags & JOURNAL_GROUP_ZSTD) || le32_get(((const struct journal_group_disk *)p)->records_len) == 0))
		assert(memcmp(&disk, p, offsetof(struct journal_group_disk, payload_crc32c)) == 0);
	assert(journal_group_bytes(g->payload_len) % JOURNAL_BLOCK == 0);
}

/* At most as much as takes no time to fill. */
#define RECORDS_MAX MiB(1)

static void read_payload(const struct journal_group *g, const void *payload)
{
	_cleanup_(freep) uint8_t *records = NULL;

	if (!(g->flags & JOURNAL_GROUP_ZSTD)) {
		read_records(payload, g->records_len);
		return;
	}
	assert(g->payload_len < g->records_len);
	records = g->records_len <= RECORDS_MAX ? malloc(g->records_len) : NULL;
	if (records && journal_payload_decompress(g, payload, records) == 0)
		read_records(records, g->records_len);
}

/* Groups from `off` on, as a reader walks them. */
static void read_groups(const uint8_t *p, size_t len, size_t off)
{
	struct journal_group g;
	const void *payload;

	while (off < len && journal_group_decode(p + off, len - off, &g, &payload) == 0) {
		check_group(p + off, &g, payload);
		read_payload(&g, payload);
		off += (size_t)journal_group_bytes(g.payload_len);
	}
}

static void read_file(const uint8_t *p, size_t len)
{
	struct journal_file f;

	if (journal_file_decode(p, len, &f) == 0) {
		assert(f.number > 0);
		read_groups(p, len, JOURNAL_BLOCK);
	}
	read_groups(p, len, 0);
	read_records(p, len);
}

static void repair_group(uint8_t *p, size_t len)
{
	struct journal_group_disk *d = (struct journal_group_disk *)p;
	uint64_t bytes = journal_group_bytes(le32_get(d->payload_len));

	memcpy(d->magic, JOURNAL_GROUP_MAGIC, sizeof(d->magic));
	if (bytes <= len)
		d->payload_crc32c = le32_put(crc32c(p + sizeof(*d), (size_t)bytes - sizeof(*d)));
	d->crc32c = le32_put(crc32c(d, offsetof(struct journal_group_disk, crc32c)));
}

/* Makes the checksums right, block by block: a group's payload is mended before its header is. */
static void repair(uint8_t *p, size_t len)
{
	struct journal_file_disk *d = (struct journal_file_disk *)p;

	for (size_t off = round_down(len, JOURNAL_BLOCK); off >= JOURNAL_BLOCK; off -= JOURNAL_BLOCK)
		if (len - off >= sizeof(struct journal_group_disk))
			repair_group(p + off, len - off);
	if (len >= sizeof(*d)) {
		memcpy(d->magic, len % 2 ? JOURNAL_LOG_MAGIC : JOURNAL_SNAP_MAGIC, sizeof(d->magic));
		d->crc32c = le32_put(crc32c(d, offsetof(struct journal_file_disk, crc32c)));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	_cleanup_(freep) uint8_t *repaired = malloc(len + 1);

	read_file(p, len);
	if (!repaired)
		return 0;
	memcpy(repaired, p, len);
	repair(repaired, len);
	read_file(repaired, len);
	return 0;
}
