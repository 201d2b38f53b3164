/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/gpu/format/delta_apply.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "gpu/format/delta_format.h"
#include "tests/unit/gpu/format/whole_object.h"

struct source {
	const struct delta_tables *t;
	const uint8_t *payload;
	delta_read_fn *read;
	void *userdata;
};

/* All of the parent, and zeros behind it. */
static int fill_from_parent(const struct source *s, uint8_t *content, size_t content_len)
{
	ssize_t n = 0;

	if (content_len > 0 && s->t->header.parent != DELTA_NO_PARENT)
		n = s->read(s->userdata, s->t->header.parent, 0, content, content_len);
	if (n < 0)
		return (int)n;
	if (content_len > 0)
		memset(content + n, 0, content_len - (size_t)n);
	return 0;
}

static int copy_shifted(const struct source *s, const struct delta_region *r, uint8_t *content)
{
	size_t len = r->kind == DELTA_REPEATED ? s->t->header.chunk_len : r->len;
	ssize_t n;

	if (r->version == s->t->header.number) {
		memcpy(content + r->off, content + r->src_off, len);
	} else {
		n = s->read(s->userdata, r->version, r->src_off, content + r->off, len);
		if (n < 0)
			return (int)n;
		if ((size_t)n != len)
			return -EBADMSG;
	}
	for (uint64_t done = len; done < r->len; done += len)
		memcpy(content + r->off + done, content + r->off, len);
	return 0;
}

/* First what the payload has, then what may refer to it. */
static int copy_regions(const struct source *s, bool shifted, uint8_t *content)
{
	struct delta_iter it = delta_iter(s->t);
	struct delta_region region;
	int r;

	while ((r = delta_iter_next(&it, &region)) > 0) {
		if ((region.kind == DELTA_SHIFTED || region.kind == DELTA_REPEATED) != shifted)
			continue;
		if (!shifted)
			memcpy(content + region.off, s->payload + region.payload_off, region.len);
		else if ((r = copy_shifted(s, &region, content)) < 0)
			return r;
	}
	return r;
}

int delta_apply(const void *object, size_t len, const struct leaf_key *key, delta_read_fn *read, void *userdata,
		void *content, size_t content_len)
{
	struct delta_tables t;
	struct source s = { .t = &t, .read = read, .userdata = userdata };
	struct content_hash hash;
	int r;

	r = delta_decode(object, len, &t);
	if (r < 0)
		return r;
	if (t.header.content_len != content_len)
		return -EINVAL;
	s.payload = (const uint8_t *)object + delta_payload_off(&t.header);
	r = fill_from_parent(&s, content, content_len);
	if (r < 0)
		return r;
	r = copy_regions(&s, false, content);
	if (r < 0)
		return r;
	r = copy_regions(&s, true, content);
	if (r < 0)
		return r;
	content_hash_init(&hash, key, t.header.chunk_len);
	content_hash_add(&hash, content, content_len);
	return digest_equal(content_hash_finish(&hash, content_len), t.header.fingerprint) ? 0 : -EBADMSG;
}
