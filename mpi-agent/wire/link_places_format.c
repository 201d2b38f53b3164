/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Messages about answers in shared memory: PLACES and THERE of link_format.h. */
#include <errno.h>

#include "base/buf.h"
#include "mpi-agent/wire/link_format_internal.h"

void link_encode_places(uint64_t number, const void *base, const void *const *chunks, uint32_t nr, struct buf *ret)
{
	link_add_header(ret, LINK_PLACES, number, nr * sizeof(struct le64));
	buf_reserve(ret, nr * sizeof(struct le64));
	for (uint32_t i = 0; i < nr; i++)
		buf_add_le64(ret, chunks[i] ? (uint64_t)((const uint8_t *)chunks[i] - (const uint8_t *)base) : 0);
}

/* Checks everything first: on error chunks[] is unchanged. */
int link_decode_places(const void *p, size_t len, const struct link_want *wants, uint32_t nr, const void *base,
		       size_t base_len, const void **chunks)
{
	const struct le64 *at = p;

	if (len != nr * sizeof(*at))
		return -EBADMSG;
	for (uint32_t i = 0; i < nr; i++)
		if (le64_get(at[i]) > base_len || base_len - le64_get(at[i]) < wants[i].len)
			return -EBADMSG;
	for (uint32_t i = 0; i < nr; i++)
		chunks[i] = le64_get(at[i]) > 0 ? (const uint8_t *)base + le64_get(at[i]) : NULL;
	return 0;
}

void link_encode_there(uint64_t number, uint64_t off, uint32_t len, struct buf *ret)
{
	struct link_there_wire d = { .off = le64_put(off), .len = le32_put(len) };

	link_add_header(ret, LINK_THERE, number, sizeof(d));
	buf_add(ret, &d, sizeof(d));
}

int link_decode_there(const void *p, size_t len, size_t base_len, uint64_t *ret_off, uint32_t *ret_len)
{
	const struct link_there_wire *d = p;

	if (len != sizeof(*d) || le64_get(d->off) > base_len || base_len - le64_get(d->off) < le32_get(d->len))
		return -EBADMSG;
	*ret_off = le64_get(d->off);
	*ret_len = le32_get(d->len);
	return 0;
}
