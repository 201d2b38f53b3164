/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reports files with missing bytes by name. Recipes have inode numbers only, so hits are gathered, and one pass over
 * all names finds the names of many.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/check/check_internal.h"
#include "store/gc/name_walk.h"

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
		r = hits_report(k, h);
	if (r == 0)
		h->v[h->nr++] = *hit;
	return r;
}

/* --- reporting --- */

static const char *why_text(enum hit_why why)
{
	switch (why) {
	case HIT_NOWHERE:
		return "the recipe has an invalid address in";
	case HIT_NEVER_WRITTEN:
		return "the recipe refers to unwritten space in";
	case HIT_MISSING:
		return "there is no data in";
	case HIT_TABLE:
		return "the fingerprints are damaged in";
	case HIT_CHUNK:
		return "the data is damaged in";
	case HIT_COLLECTED:
		return "the data was freed in";
	}
	return "";
}

static void report_hit(struct check *k, const struct hit *hit, const char *path)
{
	struct check_finding f = { .area = CHECK_DATA, .path = path, .off = hit->off, .len = hit->len };
	char text[256], inode[64] = "";

	if (!path)
		snprintf(inode, sizeof(inode), "inode %" PRIu64 " (unlinked): ", hit->ino);
	snprintf(text, sizeof(text),
		 "%sbytes %" PRIu64 " to %" PRIu64 " cannot be read: %s pack %" PRIu32 " offset %" PRIu32, inode,
		 hit->off, hit->off + hit->len - 1, why_text(hit->why), hit->addr.pack, hit->addr.off);
	f.text = text;
	check_report(k, &f);
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

static void report_file(struct check *k, const struct hits *h, uint64_t ino, const char *path)
{
	for (size_t i = first_of(h, ino); i < h->nr && h->v[i].ino == ino; i++)
		report_hit(k, &h->v[i], path);
}

static bool is_hit(const struct hits *h, uint64_t ino)
{
	size_t i = first_of(h, ino);

	return i < h->nr && h->v[i].ino == ino;
}

/* Reports the hits under all names; a file with several names is reported under each. */
static int report_names(struct check *k, const struct hits *h, bool *reported)
{
	_cleanup_(name_walk_release) struct name_walk w;
	int r = name_walk_open(k->db, &k->key, &w);

	while (r >= 0 && (r = name_walk_next(&w)) > 0) {
		if (!is_hit(h, w.ino))
			continue;
		r = name_walk_path(&w);
		if (r < 0)
			return r;
		report_file(k, h, w.ino, (const char *)w.path.data);
		reported[first_of(h, w.ino)] = true;
	}
	return r;
}

int hits_report(struct check *k, struct hits *h)
{
	_cleanup_(freep) bool *reported = calloc(HITS_MAX, sizeof(*reported));
	int r;

	if (!reported)
		return -ENOMEM;
	r = h->nr > 0 ? report_names(k, h, reported) : 0;
	if (r < 0)
		return r;
	for (size_t i = 0; i < h->nr; i++) {
		k->res.nr_lost_files += h->v[i].ino != h->last_ino;
		k->res.lost_bytes += h->v[i].len;
		h->last_ino = h->v[i].ino;
		if (!reported[first_of(h, h->v[i].ino)])
			report_hit(k, &h->v[i], NULL);
	}
	h->nr = 0;
	return 0;
}
