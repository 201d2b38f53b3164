/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/report_delete.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/stat/html.h"
#include "tools/stat/report.h"
#include "tools/stat/report_parts.h"
#include "tools/stat/stat_exclusive.h"

#define DIRECTORIES_MAX 20u /* the largest: each is a request that reads its recipes */

void report_delete_release(struct report_delete *d)
{
	for (size_t i = 0; i < d->nr; i++)
		free(d->v[i].name);
	*d = (struct report_delete){ 0 };
}

/* Inserts in order; there are few. */
static int add_candidate(struct report_delete *d, const char *name, bool is_sealed, uint64_t exclusive, uint64_t stored)
{
	size_t at = d->nr;
	char *copy;

	while (at > 0 && d->v[at - 1].stored < stored)
		at--;
	if (at == REPORT_DELETE_MAX || exclusive == 0)
		return 0;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	if (d->nr == REPORT_DELETE_MAX)
		free(d->v[--d->nr].name);
	memmove(&d->v[at + 1], &d->v[at], (d->nr - at) * sizeof(d->v[0]));
	d->v[at] = (struct report_candidate){ copy, is_sealed, exclusive, stored };
	d->nr++;
	return 0;
}

/* Is `path` the directory `top`, or below it? */
static bool is_within(const char *path, const char *top)
{
	size_t len = strlen(top);

	return len == 0 || (strncmp(path, top, len) == 0 && (path[len] == '\0' || path[len] == '/'));
}

static bool has_seals(const char *name, const struct report_seals *s)
{
	for (size_t i = 0; i < s->all.nr; i++)
		if (is_within(s->all.v[i].path, name) || is_within(name, s->all.v[i].path))
			return true;
	return false;
}

static int add_directory(const char *mountpoint, const char *name, struct report_delete *d)
{
	_cleanup_(freep) char *path = parts_below(mountpoint, name);
	struct ckptfs_exclusive x;
	int r = path ? stat_exclusive(&path, 1, &x) : -ENOMEM;

	if (r < 0)
		return r == -EINTR || r == -ENOMEM ? r : 0;
	return add_candidate(d, name, false, x.exclusive_bytes, x.exclusive_stored);
}

static int add_together(const char *mountpoint, struct report_delete *d)
{
	char *paths[REPORT_DELETE_MAX] = { NULL };
	struct ckptfs_exclusive x;
	int r = d->nr > 0 ? 0 : -ENODATA;

	for (size_t i = 0; i < d->nr && r == 0; i++) {
		paths[i] = parts_below(mountpoint, d->v[i].name);
		r = paths[i] ? 0 : -ENOMEM;
	}
	if (r == 0)
		r = stat_exclusive(paths, d->nr, &x);
	for (size_t i = 0; i < d->nr; i++)
		free(paths[i]);
	d->has_together = r == 0;
	if (r == 0)
		d->together = x.exclusive_stored;
	return r == -EINTR ? r : 0;
}

int report_delete_get(const char *mountpoint, const struct walk *w, const struct report_seals *s,
		      struct report_delete *ret)
{
	_cleanup_(report_delete_release) struct report_delete d = { 0 };
	unsigned level = parts_level(w);
	int r = 0;

	for (size_t i = 0; i < s->nr && r == 0; i++)
		if (s->v[i].has_space && !s->v[i].seal->is_newest)
			r = add_candidate(&d, s->v[i].seal->path, true, s->v[i].exclusive, s->v[i].stored);
	for (size_t i = 0; i < MIN(w->nr_directories[level], (size_t)DIRECTORIES_MAX) && r == 0; i++) {
		const char *name = w->directories[level][i].name;

		if (name[0] && !has_seals(name, s))
			r = add_directory(mountpoint, name, &d);
	}
	if (r == 0)
		r = add_together(mountpoint, &d);
	if (r < 0)
		return r;
	*ret = d;
	d = (struct report_delete){ 0 };
	return 0;
}

/* --- the section --- */

void parts_delete(FILE *to, const struct report *r)
{
	const struct report_delete *d = r->delete;

	parts_open(to, "delete", "What to delete first",
		   "By the disk space that deleting it alone would free. Exclusive: bytes that no other file refers to. The "
		   "newest sealed checkpoint of each owner in a directory is left out. <code>ckptfs prune</code> removes sealed "
		   "checkpoints by number and age; after a removal <code>ckptfs gc --delete</code> frees the space.");
	if (d->nr == 0) {
		fputs("<p>Deleting one sealed checkpoint or directory alone would free nothing.</p>\n</section>\n", to);
		return;
	}
	fputs("<div class=\"wide\"><table><thead><tr><th>Name</th><th>State</th><th></th>"
	      "<th class=\"n\">Would be free</th><th class=\"n\">Exclusive</th></tr></thead><tbody>\n",
	      to);
	for (size_t i = 0; i < d->nr; i++) {
		fputs("<tr><th scope=\"row\" class=\"mono\">", to);
		html_name(to, d->v[i].name);
		fprintf(to, "</th><td>%s</td>", d->v[i].is_sealed ? "sealed" : "directory");
		parts_bar_cell(to, d->v[i].stored, d->v[0].stored);
		parts_size_cell(to, d->v[i].stored);
		parts_size_cell(to, d->v[i].exclusive);
		fputs("</tr>\n", to);
	}
	fputs("</tbody></table></div>\n", to);
	if (d->has_together && d->nr > 1)
		fprintf(to, "<p>Deleting all of these would free <strong>%s</strong>.</p>\n", human_size(d->together).s);
	fputs("</section>\n", to);
}
