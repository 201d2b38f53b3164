/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/popular/popular_format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"

#define ERROR_MAX 4095 /* as the kernel has it */

static void encode_header(const struct merge_conf *conf, uint32_t error, uint32_t nr, uint32_t crc, void *ret)
{
	struct popular_header_disk h = {
		.magic = POPULAR_MAGIC,
		.version = le32_put(POPULAR_VERSION),
		.error = le32_put(error),
		.nr_owners = le32_put(conf->nr_owners),
		.nr = le32_put(nr),
		.crc32c = le32_put(crc),
	};

	h.header_crc32c = le32_put(crc32c(&h, offsetof(struct popular_header_disk, header_crc32c)));
	memcpy(ret, &h, sizeof(h));
}

void popular_encode(const struct merge_conf *conf, const struct popular_set *s, void *ret)
{
	uint8_t *entries = (uint8_t *)ret + sizeof(struct popular_header_disk), *at = entries;

	for (size_t i = 0; i < s->nr; i++, at += popular_entry_len(conf)) {
		struct popular_entry_disk *e = (struct popular_entry_disk *)at;

		fp_encode(s->v[i].fp, e->fp);
		e->nr_owners = (uint8_t)s->v[i].nr_owners;
		e->count = le32_put(s->v[i].count);
		for (uint32_t k = 0; k < conf->nr_owners; k++)
			e->owners[k] = le32_put(k >= s->v[i].nr_owners ? 0 :
							s->v[i].owners[k] | (s->v[i].has >> k & 1 ? POPULAR_HAS : 0));
	}
	encode_header(conf, 0, (uint32_t)s->nr, crc32c(entries, (size_t)(at - entries)), ret);
}

void popular_encode_error(const struct merge_conf *conf, int error, void *ret)
{
	encode_header(conf, (uint32_t)-error, 0, crc32c(NULL, 0), ret);
}

static int decode_entry(const struct merge_conf *conf, const struct popular_entry_disk *e, struct popular *ret)
{
	struct popular p = { .count = le32_get(e->count), .nr_owners = e->nr_owners };

	p.fp = fp_decode(e->fp);
	if (p.nr_owners < 1 || p.nr_owners > conf->nr_owners || p.count < p.nr_owners || p.count > conf->nr_nodes)
		return -EBADMSG;
	for (uint32_t k = 0; k < conf->nr_owners; k++) {
		uint32_t word = le32_get(e->owners[k]), owner = word & ~POPULAR_HAS;

		if (k >= p.nr_owners ? word != 0 : owner >= conf->nr_nodes || (k > 0 && owner <= p.owners[k - 1]))
			return -EBADMSG;
		if (k < p.nr_owners) {
			p.owners[k] = owner;
			p.has |= (uint32_t)(word != owner) << k;
		}
	}
	*ret = p;
	return 0;
}

static int decode_header(const struct merge_conf *conf, const void *p, size_t len, uint32_t *ret_nr)
{
	const struct popular_header_disk *h = p;
	uint32_t error;

	if (len < sizeof(*h) || memcmp(h->magic, POPULAR_MAGIC, sizeof(h->magic)) != 0 ||
	    crc32c(h, offsetof(struct popular_header_disk, header_crc32c)) != le32_get(h->header_crc32c))
		return -EBADMSG;
	if (le32_get(h->version) != POPULAR_VERSION)
		return -EOPNOTSUPP;
	error = le32_get(h->error);
	if (error != 0)
		return error <= ERROR_MAX ? -(int)error : -EBADMSG;
	*ret_nr = le32_get(h->nr);
	if (le32_get(h->nr_owners) != conf->nr_owners || *ret_nr > conf->max ||
	    *ret_nr > (len - sizeof(*h)) / popular_entry_len(conf) ||
	    crc32c(h + 1, *ret_nr * popular_entry_len(conf)) != le32_get(h->crc32c))
		return -EBADMSG;
	return 0;
}

int popular_decode(const struct merge_conf *conf, const void *p, size_t len, struct popular_set *ret)
{
	const uint8_t *at = (const uint8_t *)p + sizeof(struct popular_header_disk);
	_cleanup_(popular_set_release) struct popular_set s = { 0 };
	uint32_t nr;
	int r;

	r = decode_header(conf, p, len, &nr);
	if (r < 0)
		return r;
	s.v = malloc(MAX(nr, UINT32_C(1)) * sizeof(*s.v));
	if (!s.v)
		return -ENOMEM;
	for (; r == 0 && s.nr < nr; s.nr++, at += popular_entry_len(conf)) {
		r = decode_entry(conf, (const struct popular_entry_disk *)at, &s.v[s.nr]);
		if (r == 0 && s.nr > 0 && fp_compare(s.v[s.nr - 1].fp, s.v[s.nr].fp) >= 0)
			r = -EBADMSG;
	}
	if (r < 0)
		return r;
	*ret = s;
	s = (struct popular_set){ 0 };
	return 0;
}
