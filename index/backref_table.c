/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "index/backref_table.h"

#include <assert.h>
#include <errno.h>

#include "base/le.h"
#include "base/util.h"
#include "index/index_format.h"

#define FRAMES_END 7 /* letter, pack, frames */

struct ns_key backref_prefix(void)
{
	return (struct ns_key){ .b = { VIEW_BACKREF }, .len = 1 };
}

/* How many bytes, then those, the highest first. */
static void put_number(struct ns_key *k, uint64_t n)
{
	uint8_t len = 0;

	while (len < 8 && n >> 8 * len)
		len++;
	k->b[k->len++] = len;
	while (len > 0)
		k->b[k->len++] = (uint8_t)(n >> 8 * --len);
}

struct ns_key backref_key(const struct backref *r)
{
	struct ns_key k = backref_prefix();

	assert(r->frames <= UINT16_MAX);
	be32_put(k.b + 1, r->pack);
	k.b[5] = (uint8_t)(r->frames >> 8);
	k.b[6] = (uint8_t)r->frames;
	k.len = FRAMES_END;
	put_number(&k, r->ino);
	put_number(&k, r->segments);
	return k;
}

static int get_number(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	uint64_t n = 0;
	uint8_t len;

	if (*p == end)
		return -EBADMSG;
	len = *(*p)++;
	if (len > 8 || end - *p < len || (len > 0 && **p == 0))
		return -EBADMSG;
	while (len-- > 0)
		n = n << 8 | *(*p)++;
	*ret = n;
	return 0;
}

int backref_key_decode(const void *key, size_t len, struct backref *ret)
{
	const uint8_t *k = key, *p = k + FRAMES_END, *end = k + len;
	struct backref r;

	if (len < FRAMES_END || k[0] != VIEW_BACKREF)
		return -EBADMSG;
	r.pack = be32_get(k + 1);
	r.frames = (uint32_t)k[5] << 8 | k[6];
	if (r.pack == 0 || get_number(&p, end, &r.ino) < 0 || get_number(&p, end, &r.segments) < 0 || p != end)
		return -EBADMSG;
	*ret = r;
	return 0;
}
