/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/analyze/analyze_sets.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/noatime.h"
#include "base/util.h"
#include "tools/analyze/analyze_complain.h"

#define REASON_ROOM 300
#define SMALL 512 /* bytes; the header of a block is 40 */

static int by_offset(const void *left, const void *right)
{
	const struct typed_extent *a = left, *b = right;

	return a->off < b->off ? -1 : a->off > b->off;
}

/* Lists the ranges between the extents. */
static int find_rest(struct set_member *m)
{
	_cleanup_(freep) struct typed_extent *sorted = NULL;
	uint64_t at = 0;

	sorted = reallocarray(NULL, m->typed.nr_extents + 1, sizeof(*sorted));
	m->rest = reallocarray(NULL, m->typed.nr_extents + 1, sizeof(*m->rest));
	if (!sorted || !m->rest)
		return -ENOMEM;
	if (m->typed.nr_extents > 0)
		memcpy(sorted, m->typed.extent, m->typed.nr_extents * sizeof(*sorted));
	qsort(sorted, m->typed.nr_extents, sizeof(*sorted), by_offset);
	sorted[m->typed.nr_extents] = (struct typed_extent){ .off = m->typed.size };
	for (size_t i = 0; i <= m->typed.nr_extents; i++) {
		if (sorted[i].off > at) {
			m->rest[m->nr_rest++] = (struct typed_extent){ .off = at, .len = sorted[i].off - at };
			m->rest_len += sorted[i].off - at;
		}
		at = sorted[i].off + sorted[i].len;
	}
	return 0;
}

static void member_close(struct set_member *m)
{
	typed_release(&m->typed);
	free(m->rest);
	closep(&m->fd);
}

/* 1: open, 0: skipped. */
static int member_open(struct set_member *m, const struct classify_conf *conf, const struct file *file)
{
	char reason[REASON_ROOM] = "";
	struct stat st;
	int r;

	*m = (struct set_member){ .file = file,
				  .fd = files_open(file->beneath, file->from ? file->from : file->path,
						   O_RDONLY | O_CLOEXEC) };
	if (m->fd < 0 || fstat(m->fd, &st) < 0) {
		complain(-errno, "%s: cannot open", file->path);
		return 0;
	}
	r = S_ISREG(st.st_mode) ? classify_file(conf, m->fd, file->path, &m->typed, reason, sizeof(reason)) : 0;
	if (r < 0)
		return r;
	if (r == 0 && *reason)
		refuse("%s: treated as plain bytes: %s", file->path, reason);
	typed_drop_small(&m->typed, SMALL);
	m->typed.size = (uint64_t)st.st_size;
	r = find_rest(m);
	return r < 0 ? r : 1;
}

int set_open(struct set *s, const struct classify_conf *conf, struct file *const *files, size_t nr)
{
	int r;

	*s = (struct set){ .member = calloc(MAX(nr, (size_t)1), sizeof(*s->member)) };
	if (!s->member)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		r = member_open(&s->member[s->nr], conf, files[i]);
		if (r > 0) {
			s->nr++;
			continue;
		}
		member_close(&s->member[s->nr]);
		if (r < 0) {
			set_close(s);
			return r;
		}
	}
	return 0;
}

void set_close(struct set *s)
{
	for (size_t i = 0; i < s->nr; i++)
		member_close(&s->member[i]);
	free(s->member);
	*s = (struct set){ 0 };
}

/* Finds the extents of a variable, which are adjacent in the list. */
static void find_variable(struct stream_part *p, uint32_t variable)
{
	const struct typed *t = &p->member->typed;
	size_t lo = 0, hi = t->nr_extents;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->extent[mid].variable < variable)
			lo = mid + 1;
		else
			hi = mid;
	}
	p->extent = t->extent + lo;
	while (lo + p->nr_extents < t->nr_extents && p->extent[p->nr_extents].variable == variable)
		p->len += p->extent[p->nr_extents++].len;
}

int stream_init(struct stream *s, enum stream_of of, const struct stream_source *source, size_t nr, uint64_t block)
{
	*s = (struct stream){ .part = calloc(MAX(nr, (size_t)1), sizeof(*s->part)),
			      .merge_part = calloc(MAX(nr, (size_t)1), sizeof(*s->merge_part)) };
	if (!s->part || !s->merge_part) {
		stream_release(s);
		return -ENOMEM;
	}
	for (size_t i = 0; i < nr; i++) {
		struct stream_part *p = &s->part[i];

		p->member = source[i].member;
		if (of == STREAM_VARIABLE) {
			find_variable(p, source[i].variable);
		} else if (of == STREAM_REST) {
			p->extent = p->member->rest;
			p->nr_extents = p->member->nr_rest;
			p->len = p->member->rest_len;
		} else {
			p->whole = (struct typed_extent){ .len = p->member->typed.size };
			p->extent = &p->whole;
			p->nr_extents = 1;
			p->len = p->whole.len;
		}
		s->merge_part[i].len = p->len;
		s->len += p->len;
	}
	s->merge = (struct merge){ .part = s->merge_part, .nr = nr, .block = block };
	return 0;
}

void stream_release(struct stream *s)
{
	free(s->part);
	free(s->merge_part);
	*s = (struct stream){ 0 };
}

/* Reads exactly `len` bytes. Errors are reported. */
static int set_read(const struct set_member *m, void *to, size_t len, uint64_t off)
{
	uint8_t *p = to;

	for (size_t n = 0; n < len;) {
		ssize_t got = pread(m->fd, p + n, len - n, (off_t)(off + n));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return complain(-errno, "%s: cannot read at offset %" PRIu64, m->file->path, off + n);
		if (got == 0)
			return refuse("%s: truncated while it was read", m->file->path);
		n += (size_t)got;
	}
	return 0;
}

/* Reads bytes of a part; calls must be sequential. */
static int part_read(struct stream_part *p, uint8_t *to, uint64_t off, uint64_t len)
{
	while (len > 0) {
		const struct typed_extent *e = &p->extent[p->at];
		uint64_t skip = off - p->begin, n = MIN(e->len - skip, len);
		int r;

		if (n == 0) {
			p->begin += e->len;
			p->at++;
			continue;
		}
		r = set_read(p->member, to, n, e->off + skip);
		if (r < 0)
			return r;
		to += n;
		off += n;
		len -= n;
	}
	return 0;
}

uint64_t variable_len(const struct set_member *m, uint32_t variable)
{
	struct stream_part p = { .member = m };

	find_variable(&p, variable);
	return p.len;
}

int variable_read(const struct set_member *m, uint32_t variable, uint64_t off, void *to, size_t len)
{
	struct stream_part p = { .member = m };

	find_variable(&p, variable);
	assert(off <= p.len && len <= p.len - off);
	while (p.at < p.nr_extents && off - p.begin >= p.extent[p.at].len)
		p.begin += p.extent[p.at++].len;
	return part_read(&p, to, off, len);
}

size_t stream_whole(const struct stream *s, size_t most)
{
	const struct merge *m = &s->merge;
	size_t len = 0;

	if (m->block > 0)
		return most;
	for (size_t i = m->at; i < m->nr && m->part[i].len - m->part[i].done <= most - len; i++)
		len += m->part[i].len - m->part[i].done;
	return len > 0 ? len : most;
}

ssize_t stream_read(struct stream *s, void *p, size_t len)
{
	uint8_t *to = p;
	uint64_t off, n;
	size_t part;
	int r;

	while (len > 0 && merge_next(&s->merge, len, &part, &off, &n) > 0) {
		r = part_read(&s->part[part], to, off, n);
		if (r < 0)
			return r;
		to += n;
		len -= n;
	}
	return to - (uint8_t *)p;
}
