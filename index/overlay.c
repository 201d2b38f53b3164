/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "index/overlay.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mutex.h"
#include "base/util.h"

#define BLOCK_BYTES KiB(64)
#define BYTES_PER_BUCKET 128 /* about one entry */
#define DRAIN_EACH 16u /* with each apply: more than one usually brings */
#define DRAIN_BATCH 256u

struct entry {
	struct entry *next; /* in its bucket */
	uint32_t key_len, value_len, room; /* room: for the value */
	bool deleted;
	bool replaced; /* in no bucket: a larger one has taken its place */
	uint8_t bytes[]; /* key, value */
};

struct block {
	struct block *next;
	size_t used, size;
	uint8_t mem[];
};

struct table {
	struct entry **buckets; /* overlay.nr_buckets */
	struct block *blocks; /* the first is being filled */
	size_t nr;
	uint64_t bytes;
};

struct overlay {
	/* constant */
	uint64_t bytes_max;
	size_t nr_buckets; /* a power of two */
	overlay_write_fn *write;
	void *userdata;

	struct mutex writers; /* around lock: one changes or drains at a time */
	struct entry **sorted GUARDED_BY(writers); /* those of `draining`, in order of keys */
	size_t nr_drained GUARDED_BY(writers); /* of them */
	uint64_t nr_begun, nr_ended GUARDED_BY(writers); /* tables that were to be drained, and are */
	atomic_uint nr_applying; /* threads that want `writers` to change something, or have it */
	unsigned nr_making_way GUARDED_BY(writers); /* threads that wait for `applied` */
	struct cond applied; /* with `writers` */
	struct rwlock lock; /* the tables, against readers */
	struct table active, draining GUARDED_BY(lock);
	_Atomic uint64_t bytes; /* of both tables; readable without a lock */
};

/* Keys are short, and the parts chosen by users are keyed hashes already: this hash need not resist attacks. */
static uint64_t hash(const uint8_t *key, size_t len)
{
	uint64_t h = len, w;

	for (; len >= 8; key += 8, len -= 8) {
		memcpy(&w, key, 8);
		h = (h ^ w) * 0x9e3779b97f4a7c15;
		h ^= h >> 29;
	}
	w = 0;
	memcpy(&w, key, len);
	h = (h ^ w) * 0x9e3779b97f4a7c15;
	return h ^ h >> 32;
}

static struct entry **bucket_of(const struct overlay *o, const struct table *t, const void *key, size_t len)
{
	return &t->buckets[hash(key, len) & (o->nr_buckets - 1)];
}

static struct entry *find_entry(const struct overlay *o, const struct table *t, const void *key, size_t len)
{
	struct entry *e = *bucket_of(o, t, key, len);

	while (e && (e->key_len != len || memcmp(e->bytes, key, len) != 0))
		e = e->next;
	return e;
}

static struct overlay_change change_of(const struct entry *e)
{
	return (struct overlay_change){ e->bytes, e->bytes + e->key_len, e->key_len, e->value_len, e->deleted };
}

static void free_blocks(struct block *b)
{
	struct block *next;

	for (; b; b = next) {
		next = b->next;
		free(b);
	}
}

int overlay_new(uint64_t bytes_max, overlay_write_fn *write, void *userdata, struct overlay **ret)
{
	struct overlay *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	mutex_init(&o->writers);
	cond_init(&o->applied);
	rwlock_init(&o->lock);
	o->bytes_max = bytes_max;
	o->write = write;
	o->userdata = userdata;
	o->nr_buckets = 64;
	while (o->nr_buckets * BYTES_PER_BUCKET < bytes_max)
		o->nr_buckets *= 2;
	o->active.buckets = calloc(o->nr_buckets, sizeof(*o->active.buckets));
	o->draining.buckets = calloc(o->nr_buckets, sizeof(*o->draining.buckets));
	if (!o->active.buckets || !o->draining.buckets) {
		overlay_free(o);
		return -ENOMEM;
	}
	*ret = o;
	return 0;
}

void overlay_free(struct overlay *o)
{
	if (!o)
		return;
	free_blocks(o->active.blocks);
	free_blocks(o->draining.blocks);
	free(o->active.buckets);
	free(o->draining.buckets);
	free(o->sorted);
	rwlock_release(&o->lock);
	cond_release(&o->applied);
	mutex_release(&o->writers);
	free(o);
}

/* --- a list of changes --- */

struct change_head {
	uint32_t key_len, value_len;
	uint32_t deleted;
};

void overlay_add(struct buf *changes, const struct overlay_change *c)
{
	struct change_head h = { (uint32_t)c->key_len, (uint32_t)c->value_len, c->deleted };

	buf_add(changes, &h, sizeof(h));
	buf_add(changes, c->key, c->key_len);
	buf_add(changes, c->value, c->value_len);
}

/* The one at *p, which is moved behind it. */
static struct overlay_change next_change(const uint8_t **p)
{
	struct overlay_change c;
	struct change_head h;

	memcpy(&h, *p, sizeof(h));
	*p += sizeof(h);
	c = (struct overlay_change){ *p, *p + h.key_len, h.key_len, h.value_len, h.deleted };
	*p += h.key_len + h.value_len;
	return c;
}

/* --- applying --- */

static size_t entry_bytes(size_t key_len, size_t room)
{
	return round_up(sizeof(struct entry) + key_len + room, _Alignof(struct entry));
}

/* Memory for all of the list, even if every key is new: from here on nothing fails. */
static int reserve(struct table *t, const struct buf *changes)
{
	const uint8_t *p = changes->data, *end = p + changes->len;
	struct block *b = t->blocks;
	size_t need = 0, size;

	while (p < end) {
		struct overlay_change c = next_change(&p);

		need += entry_bytes(c.key_len, c.value_len);
	}
	if (b && b->size - b->used >= need)
		return 0;
	size = MAX(need, (size_t)BLOCK_BYTES);
	b = malloc(sizeof(*b) + size);
	if (!b)
		return -ENOMEM;
	*b = (struct block){ .next = t->blocks, .size = size };
	t->blocks = b;
	t->bytes += sizeof(*b) + size;
	return 0;
}

static struct entry *new_entry(struct table *t, const struct overlay_change *c)
{
	struct entry *e = (struct entry *)(void *)(t->blocks->mem + t->blocks->used);

	t->blocks->used += entry_bytes(c->key_len, c->value_len);
	*e = (struct entry){ .key_len = (uint32_t)c->key_len, .room = (uint32_t)c->value_len };
	memcpy(e->bytes, c->key, c->key_len);
	return e;
}

static void apply_one(struct overlay *o, const struct overlay_change *c) REQUIRES(o->lock)
{
	struct entry **bucket = bucket_of(o, &o->active, c->key, c->key_len), **at = bucket, *e;

	while (*at && ((*at)->key_len != c->key_len || memcmp((*at)->bytes, c->key, c->key_len) != 0))
		at = &(*at)->next;
	e = *at;
	if (e && e->room < c->value_len) { /* a larger one takes its place */
		*at = e->next;
		e->replaced = true;
		o->active.nr--;
		e = NULL;
	}
	if (!e) {
		e = new_entry(&o->active, c);
		e->next = *bucket;
		*bucket = e;
		o->active.nr++;
	}
	e->deleted = c->deleted;
	e->value_len = (uint32_t)c->value_len;
	if (c->value_len > 0)
		memcpy(e->bytes + e->key_len, c->value, c->value_len);
}

static int apply_all(struct overlay *o, const struct buf *changes)
{
	const uint8_t *p = changes->data, *end;
	uint64_t before;
	int r;

	if (changes->len == 0)
		return 0;
	end = p + changes->len;
	rwlock_lock(&o->lock);
	before = o->active.bytes;
	r = reserve(&o->active, changes);
	atomic_fetch_add(&o->bytes, o->active.bytes - before);
	while (r == 0 && p < end) {
		struct overlay_change c = next_change(&p);

		apply_one(o, &c);
	}
	rwlock_unlock(&o->lock);
	return r;
}

/* --- draining --- */

static int by_key(const void *a, const void *b)
{
	const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;
	int r = memcmp(x->bytes, y->bytes, MIN(x->key_len, y->key_len));

	return r ? r : (x->key_len > y->key_len) - (x->key_len < y->key_len);
}

/* Moves the active table to `draining`, which is empty. Readers see it throughout. The cost is that of its entries: most
 * drains are for an iterator and find a few, among 65536 buckets. */
static int begin_draining(struct overlay *o) REQUIRES(o->writers)
{
	struct entry **sorted;
	struct table t;
	size_t nr = 0;

	if (o->active.nr == 0)
		return 0;
	sorted = malloc(o->active.nr * sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	for (struct block *b = o->active.blocks; b; b = b->next)
		for (size_t at = 0; at < b->used;) {
			struct entry *e = (struct entry *)(void *)(b->mem + at);

			if (!e->replaced)
				sorted[nr++] = e;
			at += entry_bytes(e->key_len, e->room);
		}
	assert(nr == o->active.nr);
	qsort(sorted, nr, sizeof(*sorted), by_key);
	o->sorted = sorted;
	o->nr_drained = 0;
	o->nr_begun++;
	rwlock_lock(&o->lock);
	t = o->draining;
	o->draining = o->active;
	o->active = t;
	rwlock_unlock(&o->lock);
	return 0;
}

static void end_draining(struct overlay *o) REQUIRES(o->writers)
{
	struct entry **buckets = o->draining.buckets;
	struct block *blocks = o->draining.blocks;

	rwlock_lock(&o->lock);
	if (o->draining.nr < o->nr_buckets / 16)
		for (size_t i = 0; i < o->draining.nr; i++)
			*bucket_of(o, &o->draining, o->sorted[i]->bytes, o->sorted[i]->key_len) = NULL;
	else
		memset(buckets, 0, o->nr_buckets * sizeof(*buckets));
	atomic_fetch_sub(&o->bytes, o->draining.bytes);
	o->draining = (struct table){ .buckets = buckets };
	rwlock_unlock(&o->lock);
	free_blocks(blocks);
	free(TAKE(o->sorted));
	o->nr_ended++;
}

static int drain_some(struct overlay *o, size_t most) REQUIRES(o->writers)
{
	struct overlay_change changes[DRAIN_BATCH];
	int r = 0;

	while (o->sorted && most > 0 && r == 0) {
		size_t left = o->draining.nr - o->nr_drained, n = MIN(left, (size_t)DRAIN_BATCH);

		n = MIN(n, most);
		for (size_t i = 0; i < n; i++)
			changes[i] = change_of(o->sorted[o->nr_drained + i]);
		r = o->write(o->userdata, changes, n);
		if (r < 0)
			return r;
		most -= n;
		o->nr_drained += n;
		if (o->nr_drained == o->draining.nr)
			end_draining(o);
	}
	return r;
}

int overlay_apply(struct overlay *o, const struct buf *changes)
{
	int r;

	atomic_fetch_add(&o->nr_applying, 1);
	mutex_lock(&o->writers);
	r = apply_all(o, changes);
	/* The changes are applied now; if draining fails, they stay in the table and it is tried again. */
	if (r == 0 && drain_some(o, o->active.bytes > o->bytes_max ? SIZE_MAX : DRAIN_EACH) == 0 &&
	    o->active.bytes > o->bytes_max)
		(void)begin_draining(o);
	atomic_fetch_sub(&o->nr_applying, 1);
	if (o->nr_making_way > 0)
		cond_broadcast(&o->applied); /* there may be no other change to wake the rest */
	mutex_unlock(&o->writers);
	return r;
}

/* Unlocking alone would not do: this thread is running, and would have the lock again before one that waits for it. */
static void make_way(struct overlay *o) REQUIRES(o->writers)
{
	if (atomic_load(&o->nr_applying) == 0)
		return;
	o->nr_making_way++;
	cond_wait(&o->applied, &o->writers);
	o->nr_making_way--;
}

/* There may be 8 MiB to write, which takes 100 ms: changes go on meanwhile, and are not waited for. */
int overlay_drain(struct overlay *o)
{
	uint64_t last;
	int r = 0;

	mutex_lock(&o->writers);
	last = o->nr_begun + (o->active.nr > 0);
	while (o->nr_ended < last) {
		r = o->sorted ? drain_some(o, DRAIN_BATCH) : begin_draining(o);
		if (r < 0)
			break;
		make_way(o);
	}
	mutex_unlock(&o->writers);
	return r;
}

int overlay_get(struct overlay *o, const void *key, size_t key_len, struct buf *ret)
{
	struct entry *e;
	int r = 0;

	rwlock_lock_shared(&o->lock);
	e = find_entry(o, &o->active, key, key_len);
	if (!e)
		e = find_entry(o, &o->draining, key, key_len);
	if (e)
		r = e->deleted ? OVERLAY_DELETED : 1;
	if (r == 1 && ret) {
		buf_add(ret, e->bytes + e->key_len, e->value_len);
		r = buf_error(ret) < 0 ? -ENOMEM : 1;
	}
	rwlock_unlock_shared(&o->lock);
	return r;
}

uint64_t overlay_bytes(struct overlay *o)
{
	return atomic_load(&o->bytes);
}
