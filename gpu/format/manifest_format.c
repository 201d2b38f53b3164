/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/format/manifest_format.h"

#include <errno.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "gpu/format/delta_format.h"

static const uint8_t zeros[8];

void manifest_add(struct buf *ret, const struct manifest_entry *entry)
{
	struct manifest_entry_disk d = {
		.off = le64_put(entry->off),
		.len = le64_put(entry->len),
		.name_len = le32_put(entry->name_len),
		.info_len = le32_put(entry->info_len),
	};
	uint64_t len = (uint64_t)entry->name_len + entry->info_len;

	buf_add(ret, &d, sizeof(d));
	buf_add(ret, entry->name, entry->name_len);
	buf_add(ret, entry->info, entry->info_len);
	buf_add(ret, zeros, round_up(len, sizeof(zeros)) - len);
}

void manifest_end(struct buf *ret, uint64_t off, uint64_t nr)
{
	struct manifest_footer_disk d = {
		.magic = MANIFEST_MAGIC,
		.version = le32_put(MANIFEST_VERSION),
		.entries_crc32c = le32_put(crc32c(ret->data, ret->len)),
		.off = le64_put(off),
		.nr = le64_put(nr),
	};

	d.crc32c = le32_put(crc32c(&d, offsetof(struct manifest_footer_disk, crc32c)));
	buf_add(ret, &d, sizeof(d));
}

int manifest_footer_decode(const void *p, size_t len, uint64_t file_len, struct manifest_footer *ret)
{
	const struct manifest_footer_disk *d = p;
	struct manifest_footer f;

	if (len != sizeof(*d) || memcmp(d->magic, MANIFEST_MAGIC, sizeof(d->magic)) != 0 ||
	    crc32c(d, offsetof(struct manifest_footer_disk, crc32c)) != le32_get(d->crc32c))
		return -EBADMSG;
	if (le32_get(d->version) != MANIFEST_VERSION || (le32_get(d->incompat) & ~MANIFEST_INCOMPAT_KNOWN) != 0)
		return -EOPNOTSUPP;
	f = (struct manifest_footer){
		.off = le64_get(d->off),
		.nr = le64_get(d->nr),
		.entries_crc = le32_get(d->entries_crc32c),
	};
	if (file_len < sizeof(*d) || f.off % DELTA_PAGE != 0 || f.off > file_len - sizeof(*d) ||
	    file_len - sizeof(*d) - f.off > MANIFEST_LEN_MAX ||
	    f.nr > (file_len - sizeof(*d) - f.off) / sizeof(struct manifest_entry_disk))
		return -EBADMSG;
	*ret = f;
	return 0;
}

int manifest_next(struct manifest_iter *it, struct manifest_entry *ret)
{
	const struct manifest_entry_disk *d;
	uint64_t len;

	if (it->nr == 0)
		return 0;
	d = cursor_take(&it->cursor, sizeof(*d));
	if (!d)
		return -EBADMSG;
	*ret = (struct manifest_entry){
		.off = le64_get(d->off),
		.len = le64_get(d->len),
		.name_len = le32_get(d->name_len),
		.info_len = le32_get(d->info_len),
	};
	len = (uint64_t)ret->name_len + ret->info_len;
	ret->name = cursor_take(&it->cursor, round_up(len, sizeof(zeros)));
	if (!ret->name)
		return -EBADMSG;
	ret->info = ret->name + ret->name_len;
	it->nr--;
	return 1;
}

int manifest_decode(const struct manifest_footer *footer, const void *p, size_t len, struct manifest_iter *ret)
{
	struct manifest_iter it = { .cursor = cursor_of(p, len), .nr = footer->nr };
	struct manifest_entry entry;
	int r;

	if (crc32c(p, len) != footer->entries_crc)
		return -EBADMSG;
	*ret = it;
	while ((r = manifest_next(&it, &entry)) > 0)
		if (entry.name_len == 0 || entry.name_len > MANIFEST_NAME_MAX ||
		    memchr(entry.name, '\0', entry.name_len) != NULL || entry.off % DELTA_PAGE != 0 ||
		    entry.off > footer->off || entry.len > footer->off - entry.off)
			return -EBADMSG;
	return r < 0 || !cursor_done(&it.cursor) ? -EBADMSG : 0;
}
