/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/diff/diff_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/noatime.h"
#include "base/util.h"
#include "store/classify/classify.h"
#include "tools/common/classifier.h"

#define LIMIT_MS 60000

void diff_parts_release(struct diff_parts *p)
{
	typed_release(&p->typed);
	free(p->sorted);
	free(p->part);
	*p = (struct diff_parts){ 0 };
}

static int by_offset(const void *left, const void *right)
{
	const struct typed_extent *a = left, *b = right;

	return a->off < b->off ? -1 : a->off > b->off;
}

/* The part of a variable: its own, or that of all segments of its kind, which are listed in a row. Part 0 is the bytes
 * of no variable. */
static uint32_t part_of(struct diff_parts *p, const struct typed_variable *v)
{
	const char *key = v->kind == SEGMENT_NONE ? v->key : segment_kind_name(v->kind);

	if (v->kind == SEGMENT_NONE || p->nr == 1 || p->part[p->nr - 1].key != key)
		p->part[p->nr++] = (struct diff_part){ .key = key };
	return (uint32_t)(p->nr - 1);
}

static int divide(struct diff_parts *p)
{
	const struct typed *t = &p->typed;
	uint32_t part = 0;

	p->part = calloc(t->nr_variables + 1, sizeof(*p->part));
	p->sorted = calloc(MAX(t->nr_extents, (size_t)1), sizeof(*p->sorted));
	if (!p->part || !p->sorted)
		return -ENOMEM;
	p->part[p->nr++] = (struct diff_part){ .key = "", .size = t->size };
	for (size_t i = 0; i < t->nr_extents; i++) {
		const struct typed_extent *e = &t->extent[i];

		if (i == 0 || t->extent[i - 1].variable != e->variable)
			part = part_of(p, &t->variable[e->variable]);
		p->sorted[i] = (struct typed_extent){ part, e->off, e->len };
		p->part[part].size += e->len;
		p->part[0].size -= e->len;
	}
	qsort(p->sorted, t->nr_extents, sizeof(*p->sorted), by_offset);
	return 1;
}

int diff_parts_open(struct diff_parts *p, const char *path)
{
	_cleanup_(closep) int fd = open_plain_noatime(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	char helper[PATH_MAX], reason[100];
	struct classify_conf conf = { .helper = helper, .limit_ms = LIMIT_MS };
	int r;

	*p = (struct diff_parts){ 0 };
	if (fd < 0)
		return -errno;
	classifier_find(helper);
	r = classify_file(&conf, fd, path, &p->typed, reason, sizeof(reason));
	if (r > 0)
		r = divide(p);
	if (r <= 0)
		diff_parts_release(p);
	return r;
}

void diff_parts_add(struct diff_parts *p, uint64_t off, uint64_t len)
{
	size_t lo = 0, hi = p->typed.nr_extents;
	uint64_t end = off + len;

	while (lo < hi) { /* the first that ends after `off` */
		size_t mid = lo + (hi - lo) / 2;

		if (p->sorted[mid].off + p->sorted[mid].len <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < p->typed.nr_extents && p->sorted[lo].off < end; lo++) {
		const struct typed_extent *e = &p->sorted[lo];
		uint64_t both = MIN(end, e->off + e->len) - MAX(off, e->off);

		p->part[e->variable].bytes += both;
		len -= both;
	}
	p->part[0].bytes += len;
}
