/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/tier_read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/tier.h"

#define FIRST_GET ((size_t)64 << 10) /* of a manifest */

struct tier_reader {
	struct tier *tier;
	struct tier_object_name name;
	struct buf bytes; /* of the manifest */
	struct tier_manifest m; /* points into them */
	struct fp_key key;
	struct tier_tables *tables; /* of each pack; without frames: not read yet */
};

static int report_damaged(const struct tier_reader *r, const char *what)
{
	return log_errno(-EBADMSG, "tier %s: %s: %s", tier_where(r->tier), r->name.s, what);
}

/* --- manifest and key --- */

/* Reads the head first, which has the length of the manifest. So a large object that is no manifest takes no memory. */
static int get_bytes(struct tier_reader *r)
{
	struct tier_request q = { .op = TIER_GET, .name = r->name.s, .len = FIRST_GET };
	struct tier_manifest head;
	int k = buf_reserve(&r->bytes, q.len);

	if (k < 0)
		return k;
	q.buf = r->bytes.data;
	k = tier_call(r->tier, &q);
	if (k == 0)
		k = tier_manifest_head_decode(r->bytes.data, q.got, &head);
	if (k == 0 && (q.size > TIER_MANIFEST_MAX || !tier_manifest_has_size(&head, q.size)))
		k = -EBADMSG;
	if (k < 0)
		return k;
	r->bytes.len = q.got;
	if (q.got == q.size)
		return 0;
	k = buf_reserve(&r->bytes, (size_t)(q.size - q.got));
	if (k == 0)
		k = tier_get(r->tier, r->name.s, q.got, r->bytes.data + q.got, (size_t)(q.size - q.got));
	if (k == 0)
		r->bytes.len = (size_t)q.size;
	return k;
}

static int get_manifest(struct tier_reader *r, const char *name)
{
	uint8_t store[TIER_ID_LEN];
	uint64_t number;
	int k;

	if (!tier_manifest_name_parse(name, store, &number))
		return -EINVAL;
	r->name = tier_manifest_name(store, number);
	k = get_bytes(r);
	if (k == -ENODATA)
		return -ENOENT; /* a fence of a collection */
	if (k == 0)
		k = tier_manifest_decode(r->bytes.data, r->bytes.len, &r->m);
	else if (k != -EBADMSG && k != -EOPNOTSUPP)
		return k;
	if (k == -EOPNOTSUPP)
		return log_errno(k, "tier %s: %s: written by a newer version", tier_where(r->tier), r->name.s);
	if (k < 0)
		return report_damaged(r, "the manifest is damaged");
	if (memcmp(r->m.store, store, sizeof(store)) != 0 || r->m.number != number)
		return report_damaged(r, "the manifest is that of another checkpoint");
	return 0;
}

static int get_key(struct tier_reader *r)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct tier_key key;
	int k = tier_get_all(r->tier, tier_key_name(r->m.key_id).s, sizeof(struct tier_key_disk), &b);

	if (k < 0 && k != -ENOENT && k != -EFBIG)
		return k;
	if (k < 0 || tier_key_decode(b.data, b.len, &key) < 0 || memcmp(key.id, r->m.key_id, sizeof(key.id)) != 0)
		return report_damaged(r, "its key is missing or damaged");
	fp_key_init(&r->key, key.hash, key.secret);
	return 0;
}

int tier_reader_open(struct tier *t, const char *name, struct tier_reader **ret)
{
	_cleanup_(tier_reader_closep) struct tier_reader *r = calloc(1, sizeof(*r));
	int k;

	if (!r)
		return -ENOMEM;
	r->tier = t;
	k = get_manifest(r, name);
	if (k == 0)
		k = get_key(r);
	if (k < 0)
		return k;
	r->tables = calloc(MAX(r->m.nr_packs, 1u), sizeof(*r->tables));
	if (!r->tables)
		return -ENOMEM;
	*ret = TAKE(r);
	return 0;
}

void tier_reader_close(struct tier_reader *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; r->tables && i < r->m.nr_packs; i++)
		tier_tables_release(&r->tables[i]);
	free(r->tables);
	buf_release(&r->bytes);
	free(r);
}

void tier_reader_closep(struct tier_reader **r)
{
	tier_reader_close(*r);
}

const struct tier_manifest *tier_reader_manifest(const struct tier_reader *r)
{
	return &r->m;
}

const struct fp_key *tier_reader_key(const struct tier_reader *r)
{
	return &r->key;
}

/* --- tables --- */

int tier_reader_tables(struct tier_reader *r, uint32_t i, const struct tier_tables **ret)
{
	_cleanup_(freep) uint8_t *bytes = NULL;
	struct tier_footer f;
	size_t len;
	int k;

	if (i >= r->m.nr_packs)
		return report_damaged(r, "it refers to a pack that it does not name");
	*ret = &r->tables[i];
	if (r->tables[i].frames)
		return 0;
	k = tier_manifest_pack(&r->m, i, &f);
	if (k < 0)
		return k;
	len = (size_t)f.nr_frames * PACK_BLOCK;
	bytes = malloc(len);
	if (!bytes)
		return -ENOMEM;
	k = tier_get(r->tier, tier_pack_name(f.id).s, f.data_len, bytes, len);
	if (k == 0)
		k = tier_tables_decode(bytes, len, &f, &r->key, &r->tables[i]);
	if (k == -ENOENT || k == -EBADMSG)
		return log_errno(-EBADMSG, "tier %s: %s: pack %s is %s", tier_where(r->tier), r->name.s,
				 tier_pack_name(f.id).s, k == -ENOENT ? "missing" : "damaged");
	return k;
}
