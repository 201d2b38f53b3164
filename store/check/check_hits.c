/*
 * Files that miss bytes, by name. Recipes know inodes only: hits are collected, and their names found together, by one
 * pass over all names.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/engine/check_internal.h"
#include "store/engine/name_walk.h"

#define HITS_MAX 4096u

int hits_init(struct hits *h)
{
	*h = (struct hits){ .v = malloc(HITS_MAX * sizeof(*h->v)) };
	return h->v ? 0 : -ENOMEM;
}

void hits_release(struct hits *h)
{
	free(h->v);
	*h = (struct hits){ 0 };
}

int hits_add(struct check *k, struct hits *h, const struct hit *hit)
{
	struct hit *last = h->nr > 0 ? &h->v[h->nr - 1] : NULL;
	int r = 0;

	if (last && last->ino == hit->ino && last->off + last->len == hit->off && last->why == hit->why) {
		last->len += hit->len;
		return 0;
	}
	if (h->nr == HITS_MAX)
		r = hits_tell(k, h);
	if (r == 0)
		h->v[h->nr++] = *hit;
	return r;
}

/* --- telling --- */

static const char *why_text(enum hit_why why)
{
	switch (why) {
	case HIT_NOWHERE:
		return "they are said to lie where no data can be, in";
	case HIT_NEVER_WRITTEN:
		return "they are said to lie where nothing was ever written, in";
	case HIT_MISSING:
		return "there is no data in";
	case HIT_TABLE:
		return "the fingerprints are damaged in";
	case HIT_CHUNK:
		return "the data is damaged in";
	case HIT_COLLECTED:
		return "the data has been collected in";
	}
	return "";
}

static void tell(struct check *k, const struct hit *hit, const char *path)
{
	struct check_finding f = { .area = CHECK_DATA, .path = path, .off = hit->off, .len = hit->len };
	char text[256], who[64] = "";

	if (!path)
		snprintf(who, sizeof(who), "inode %" PRIu64 ", which has no name: ", hit->ino);
	snprintf(text, sizeof(text),
		 "%sbytes %" PRIu64 " to %" PRIu64 " cannot be read: %s pack %" PRIu32 " offset %" PRIu32, who,
		 hit->off, hit->off + hit->len - 1, why_text(hit->why), hit->addr.pack, hit->addr.off);
	f.text = text;
	check_tell(k, &f);
}

static size_t first_of(const struct hits *h, uint64_t ino)
{
	size_t lo = 0, hi = h->nr;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (h->v[mid].ino < ino)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void tell_file(struct check *k, const struct hits *h, uint64_t ino, const char *path)
{
	for (size_t i = first_of(h, ino); i < h->nr && h->v[i].ino == ino; i++)
		tell(k, &h->v[i], path);
}

static bool is_hit(const struct hits *h, uint64_t ino)
{
	size_t i = first_of(h, ino);

	return i < h->nr && h->v[i].ino == ino;
}

/* All names that lead to hit files; a file with several is told under each. */
static int tell_names(struct check *k, const struct hits *h, bool *told)
{
	_cleanup_(name_walk_release) struct name_walk w;
	int r = name_walk_open(k->db, &k->key, &w);

	while (r >= 0 && (r = name_walk_next(&w)) > 0) {
		if (!is_hit(h, w.ino))
			continue;
		r = name_walk_path(&w);
		if (r < 0)
			return r;
		tell_file(k, h, w.ino, (const char *)w.path.data);
		told[first_of(h, w.ino)] = true;
	}
	return r;
}

int hits_tell(struct check *k, struct hits *h)
{
	_cleanup_(freep) bool *told = calloc(HITS_MAX, sizeof(*told));
	int r;

	if (!told)
		return -ENOMEM;
	r = h->nr > 0 ? tell_names(k, h, told) : 0;
	if (r < 0)
		return r;
	for (size_t i = 0; i < h->nr; i++) {
		k->res.nr_lost_files += h->v[i].ino != h->last_ino;
		k->res.lost_bytes += h->v[i].len;
		h->last_ino = h->v[i].ino;
		if (!told[first_of(h, h->v[i].ino)])
			tell(k, &h->v[i], NULL);
	}
	h->nr = 0;
	return 0;
}
