/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Any bytes as a catalog: refused, or records that encode to the same bytes again. Once as they are, and once with
 * checksums that are right.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "store/catalog/catalog_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void encode_again(struct catalog_writer *w, const struct catalog_record *rec, struct buf *ret)
{
	if (rec->type == CATALOG_HEAD)
		catalog_head_encode(&rec->head, ret);
	else if (rec->type == CATALOG_END)
		catalog_end_encode(w, ret);
	else
		catalog_record_encode(w, rec, ret);
}

static void look(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf again = BUF_EMPTY;
	struct catalog_reader reader = { 0 };
	struct catalog_writer w = { 0 };
	struct catalog_record rec;
	size_t at = 0, used;

	while (catalog_reader_next(&reader, p + at, len - at, &used, &rec) > 0) {
		assert(used > 0 && used <= len - at && used <= CATALOG_RECORD_MAX + 16);
		buf_clear(&again);
		encode_again(&w, &rec, &again);
		assert(buf_error(&again) < 0 || (again.len == used && memcmp(again.data, p + at, used) == 0));
		at += used;
	}
	assert(!reader.at_end || reader.left == 0);
}

/* The head's checksum; and that of a record END at the very end, of all between. */
static void repair(uint8_t *p, size_t len)
{
	struct catalog_head_disk *h = (struct catalog_head_disk *)p;
	const size_t end = 2 + 1 + 4; /* of fewer than 128 entries */

	h->crc32c = le32_put(crc32c(p, offsetof(struct catalog_head_disk, crc32c)));
	if (len >= sizeof(*h) + end) {
		struct le32 crc = le32_put(crc32c(p + sizeof(*h), len - sizeof(*h) - end));

		memcpy(p + len - sizeof(crc), &crc, sizeof(crc));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	uint8_t *copy;

	look(p, len);
	if (len < sizeof(struct catalog_head_disk))
		return 0;
	copy = malloc(len);
	if (!copy)
		return 0;
	memcpy(copy, p, len);
	repair(copy, len);
	look(copy, len);
	free(copy);
	return 0;
}
