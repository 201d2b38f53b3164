/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/classify/zip.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/le.h"
#include "base/util.h"

#define LOCAL "PK\3\4"
#define ENTRY "PK\1\2"
#define END "PK\5\6"
#define END64 "PK\6\6"
#define LOCATOR64 "PK\6\7"
#define LOCAL_BYTES 30u
#define ENTRY_BYTES 46u
#define END_BYTES 22u
#define END64_BYTES 56u
#define LOCATOR64_BYTES 20u
#define COMMENT_MAX 65535u
#define FLAG_ENCRYPTED 1u

static uint64_t number_at(const uint8_t *p, unsigned bytes)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < bytes; i++)
		n |= (uint64_t)p[i] << 8 * i;
	return n;
}

static bool within(uint64_t off, uint64_t bytes, uint64_t len)
{
	return off <= len && bytes <= len - off;
}

static bool has_magic(const struct zip_iter *it, uint64_t off, const char *magic, uint64_t bytes)
{
	return within(off, bytes, it->len) && memcmp(it->p + off, magic, 4) == 0;
}

static int find_end(const struct zip_iter *it, uint64_t *ret)
{
	uint64_t least = it->len > END_BYTES + COMMENT_MAX ? it->len - END_BYTES - COMMENT_MAX : 0;

	if (it->len < END_BYTES)
		return 0;
	for (uint64_t at = it->len - END_BYTES + 1; at-- > least;)
		if (memcmp(it->p + at, END, 4) == 0 && number_at(it->p + at + 20, 2) == it->len - at - END_BYTES) {
			*ret = at;
			return 1;
		}
	return -EBADMSG;
}

/* If numbers are too large for the old end record, a locator before it points to the zip64 end record. */
static int find_directory(struct zip_iter *it, uint64_t end)
{
	uint64_t bytes = number_at(it->p + end + 12, 4), at64;

	it->nr_left = number_at(it->p + end + 10, 2);
	it->at = number_at(it->p + end + 16, 4);
	if (end >= LOCATOR64_BYTES && has_magic(it, end - LOCATOR64_BYTES, LOCATOR64, LOCATOR64_BYTES)) {
		at64 = number_at(it->p + end - LOCATOR64_BYTES + 8, 8);
		if (!has_magic(it, at64, END64, END64_BYTES))
			return -EBADMSG;
		it->nr_left = number_at(it->p + at64 + 32, 8);
		bytes = number_at(it->p + at64 + 40, 8);
		it->at = number_at(it->p + at64 + 48, 8);
	}
	if (!within(it->at, bytes, it->len))
		return -EBADMSG;
	it->end = it->at + bytes;
	return 1;
}

int zip_open(const uint8_t *p, uint64_t len, struct zip_iter *ret)
{
	struct zip_iter it = { .p = p, .len = len };
	uint64_t end;
	int r;

	if (!has_magic(&it, 0, LOCAL, LOCAL_BYTES))
		return 0;
	r = find_end(&it, &end);
	if (r > 0)
		r = find_directory(&it, end);
	if (r > 0)
		*ret = it;
	return r;
}

/* Numbers that are all ones are in extra field 1, in this order, 8 bytes each. */
static int extra64(const uint8_t *extra, size_t len, uint64_t *numbers[3])
{
	size_t at = 0;

	while (len - at >= 4) {
		size_t id = (size_t)number_at(extra + at, 2), bytes = (size_t)number_at(extra + at + 2, 2), from = at + 4;

		if (bytes > len - from)
			return -EBADMSG;
		at = from + bytes;
		for (int i = 0; i < 3 && id == 1; i++) {
			if (*numbers[i] != UINT32_MAX)
				continue;
			if (at - from < 8)
				return -EBADMSG;
			*numbers[i] = number_at(extra + from, 8);
			from += 8;
		}
	}
	return 0;
}

int zip_next(struct zip_iter *it, struct zip_entry *ret)
{
	const uint8_t *e = it->p + it->at;
	uint64_t plain, stored, local, name, extra, comment;

	if (it->nr_left == 0)
		return 0;
	if (it->end - it->at < ENTRY_BYTES || memcmp(e, ENTRY, 4) != 0)
		return -EBADMSG;
	stored = number_at(e + 20, 4);
	plain = number_at(e + 24, 4);
	name = number_at(e + 28, 2);
	extra = number_at(e + 30, 2);
	comment = number_at(e + 32, 2);
	local = number_at(e + 42, 4);
	if (name + extra + comment > it->end - it->at - ENTRY_BYTES)
		return -EBADMSG;
	if (extra64(e + ENTRY_BYTES + name, (size_t)extra, (uint64_t *[]){ &plain, &stored, &local }) < 0)
		return -EBADMSG;
	if (!has_magic(it, local, LOCAL, LOCAL_BYTES))
		return -EBADMSG;
	*ret = (struct zip_entry){ .name = (const char *)e + ENTRY_BYTES, .name_len = (size_t)name };
	ret->off = local + LOCAL_BYTES + number_at(it->p + local + 26, 2) + number_at(it->p + local + 28, 2);
	if (!within(ret->off, stored, it->len))
		return -EBADMSG;
	if (number_at(e + 10, 2) == 0 && (number_at(e + 8, 2) & FLAG_ENCRYPTED) == 0) {
		if (plain != stored)
			return -EBADMSG;
		ret->len = plain;
	}
	it->at += ENTRY_BYTES + name + extra + comment;
	it->nr_left--;
	return 1;
}
