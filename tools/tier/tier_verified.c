/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/tier/tier_verified.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

struct tier_verified_pack {
	struct tier_verified_pack *next; /* in its bucket */
	struct tier_footer f; /* the same id with another key is another pack: chunks are verified with the key */
	uint8_t bits[];
};

static uint64_t nr_bits(const struct tier_footer *f)
{
	return (uint64_t)f->nr_frames * PACK_FRAME_BLOCKS;
}

void tier_verified_init(struct tier_verified *v)
{
	*v = (struct tier_verified){ .nr = 0 };
	mutex_init(&v->lock);
}

static void drop_all(struct tier_verified *v) REQUIRES(v->lock)
{
	for (unsigned i = 0; i < TIER_VERIFIED_BUCKETS; i++)
		while (v->buckets[i]) {
			struct tier_verified_pack *p = v->buckets[i];

			v->buckets[i] = p->next;
			free(p);
		}
	v->nr = 0;
}

void tier_verified_release(struct tier_verified *v)
{
	mutex_lock(&v->lock);
	drop_all(v);
	mutex_unlock(&v->lock);
	mutex_release(&v->lock);
}

static struct tier_verified_pack **bucket_of(struct tier_verified *v, const struct tier_footer *f)
{
	return &v->buckets[(unsigned)(f->id[0] | f->id[1] << 8) % TIER_VERIFIED_BUCKETS]; /* a digest */
}

static struct tier_verified_pack *find_pack(struct tier_verified *v, const struct tier_footer *f) REQUIRES(v->lock)
{
	struct tier_verified_pack *p = *bucket_of(v, f);

	while (p && (memcmp(p->f.id, f->id, sizeof(f->id)) != 0 || memcmp(p->f.key_id, f->key_id, sizeof(f->key_id)) != 0 ||
		     p->f.data_len != f->data_len || p->f.nr_frames != f->nr_frames))
		p = p->next;
	return p;
}

static uint64_t end_of(const struct tier_run *run)
{
	return (uint64_t)run->first + MAX(run->nr, 1u);
}

bool tier_verified_has(struct tier_verified *v, const struct tier_footer *pack, const struct tier_run *run)
{
	const struct tier_verified_pack *p;
	bool has;

	mutex_lock(&v->lock);
	p = find_pack(v, pack);
	has = p && end_of(run) <= nr_bits(pack);
	for (uint64_t i = run->first; has && i < end_of(run); i++)
		has = p->bits[i / 8] >> i % 8 & 1;
	mutex_unlock(&v->lock);
	return has;
}

void tier_verified_add(struct tier_verified *v, const struct tier_footer *pack, const struct tier_run *run)
{
	struct tier_verified_pack *p;

	mutex_lock(&v->lock);
	p = find_pack(v, pack);
	if (!p && v->nr == TIER_VERIFIED_PACKS_MAX)
		drop_all(v);
	if (!p && (p = calloc(1, sizeof(*p) + nr_bits(pack) / 8))) {
		p->f = *pack;
		p->next = *bucket_of(v, pack);
		*bucket_of(v, pack) = p;
		v->nr++;
	}
	for (uint64_t i = run->first; p && i < MIN(end_of(run), nr_bits(pack)); i++)
		p->bits[i / 8] |= (uint8_t)(1u << i % 8);
	mutex_unlock(&v->lock);
}
