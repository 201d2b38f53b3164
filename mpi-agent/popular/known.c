/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/popular/known.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/util.h"

#define WAYS 8u
#define CACHE_LINE 64u

/* nr 0: free */
struct entry {
	struct fp fp;
	uint16_t nodes[OWNERS_MAX];
	uint32_t used; /* when it was set, or asked for */
	uint8_t nr;
};
static_assert(sizeof(struct entry) == 32, "what the documentation says that a page takes");

#define FIRST_BUCKETS ((size_t)1 << 10) /* a quarter of a MiB */

struct known {
	struct entry (*buckets)[WAYS];
	size_t nr_buckets, max_buckets; /* as many as there is a use for, so far; and as there may be */
	size_t nr; /* entries that are taken */
};

bool holders_add(struct holders *h, uint16_t node)
{
	uint32_t at = 0;

	while (at < h->nr && h->nodes[at] < node)
		at++;
	if (at < h->nr && h->nodes[at] == node)
		return true;
	if (h->nr == OWNERS_MAX)
		return false;
	memmove(&h->nodes[at + 1], &h->nodes[at], (h->nr - at) * sizeof(*h->nodes));
	h->nodes[at] = node;
	h->nr++;
	return true;
}

/* All of it is about to be used, in no order: the kernel brings it at once. (To be brought page by page costs as much
 * again as all that is noted in it, twice for each that is looked at before anything is there.) */
static struct entry (*buckets_new(size_t nr))[WAYS]
{
	void *p = mmap(NULL, nr * sizeof(struct entry[WAYS]), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void buckets_free(struct entry (*buckets)[WAYS], size_t nr)
{
	if (buckets)
		munmap(buckets, nr * sizeof(*buckets));
}

int known_new(size_t bytes, struct known **ret)
{
	struct known *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->max_buckets = bytes / sizeof(*k->buckets);
	k->nr_buckets = MIN(k->max_buckets, FIRST_BUCKETS);
	if (k->nr_buckets > 0)
		k->buckets = buckets_new(k->nr_buckets);
	if (k->nr_buckets > 0 && !k->buckets) {
		free(k);
		return -ENOMEM;
	}
	*ret = k;
	return 0;
}

void known_free(struct known *k)
{
	if (!k)
		return;
	buckets_free(k->buckets, k->nr_buckets);
	free(k);
}

void known_clear(struct known *k)
{
	if (k->nr_buckets > 0)
		memset(k->buckets, 0, k->nr_buckets * sizeof(*k->buckets));
	k->nr = 0;
}

size_t known_nr(const struct known *k)
{
	return k->nr;
}

/* Fingerprints are random. Which node is asked about one is decided by the other half of it (lookups.c). */
static struct entry *bucket_of(const struct known *k, struct fp fp)
{
	return k->nr_buckets == 0 ? NULL : k->buckets[(size_t)((unsigned __int128)fp.lo * k->nr_buckets >> 64)];
}

static struct entry *find_entry(const struct known *k, struct fp fp)
{
	struct entry *e = k->nr == 0 ? NULL : bucket_of(k, fp);

	for (unsigned i = 0; e && i < WAYS; i++)
		if (e[i].nr > 0 && fp_equal(e[i].fp, fp))
			return &e[i];
	return NULL;
}

/* A free place of a bucket, or that of the one that goes. They are taken from the first on. */
static struct entry *place_in(struct known *k, struct entry *e)
{
	struct entry *oldest = e;

	for (unsigned i = 0; e && i < WAYS; i++) {
		if (e[i].nr == 0) {
			k->nr++;
			return &e[i];
		}
		if (e[i].used < oldest->used)
			oldest = &e[i];
	}
	return oldest;
}

/*
 * Twice as many, or as many as there may be: those of one bucket go to two that lie next to each other, or three.
 * Without memory it stays as it is.
 *
 * Entries lie anywhere, so that a table of its full size would be brought by the kernel page by page with the first
 * pages that are known, and each one looked at would be far away.
 */
static bool grow(struct known *k)
{
	size_t nr_old = k->nr_buckets, nr_new = MIN(2 * nr_old, k->max_buckets);
	struct entry(*old)[WAYS] = k->buckets;
	struct entry(*more)[WAYS] = nr_new > nr_old ? buckets_new(nr_new) : NULL;

	if (!more)
		return false;
	k->buckets = more;
	k->nr_buckets = nr_new;
	k->nr = 0;
	for (size_t b = 0; b < nr_old; b++)
		for (unsigned i = 0; i < WAYS && old[b][i].nr > 0; i++)
			*place_in(k, bucket_of(k, old[b][i].fp)) = old[b][i];
	buckets_free(old, nr_old);
	return true;
}

static struct entry *place_for(struct known *k, struct fp fp)
{
	struct entry *e = bucket_of(k, fp);

	if (e && e[WAYS - 1].nr > 0 && k->nr >= k->nr_buckets * WAYS / 4 && grow(k)) /* not for one bucket alone */
		e = bucket_of(k, fp);
	return place_in(k, e);
}

bool known_find(struct known *k, struct fp fp, uint32_t now, struct holders *ret)
{
	struct entry *e = find_entry(k, fp);

	if (!e)
		return false;
	e->used = now;
	ret->nr = e->nr;
	memcpy(ret->nodes, e->nodes, sizeof(ret->nodes));
	return true;
}

/* e: where it is, or NULL */
static void set_entry(struct known *k, struct entry *e, struct fp fp, const struct holders *h, uint32_t now)
{
	assert(h->nr > 0 && h->nr <= OWNERS_MAX);
	if (!e)
		e = place_for(k, fp);
	if (!e)
		return;
	*e = (struct entry){ .fp = fp, .nr = (uint8_t)h->nr, .used = now };
	memcpy(e->nodes, h->nodes, sizeof(e->nodes));
}

void known_set(struct known *k, struct fp fp, const struct holders *h, uint32_t now)
{
	set_entry(k, find_entry(k, fp), fp, h, now);
}

void known_expect(const struct known *k, struct fp fp)
{
	const char *e = (const char *)bucket_of(k, fp);

	for (size_t at = 0; e && at < sizeof(*k->buckets); at += CACHE_LINE)
		__builtin_prefetch(e + at, 1);
}

struct holders known_add(struct known *k, struct fp fp, uint16_t node, uint32_t now)
{
	struct entry *e = find_entry(k, fp);
	struct holders before = { 0 }, h;

	if (e) {
		before.nr = e->nr;
		memcpy(before.nodes, e->nodes, sizeof(before.nodes));
		e->used = now;
	}
	h = before;
	if (holders_add(&h, node))
		set_entry(k, e, fp, &h, now);
	return before;
}
