/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files are divided into stretches, which threads read side by side. A stretch ends where a run of chunks ends, so
 * that a run is read by one thread: then it is known whether all of it was read.
 */
#include "tools/tier/tier_content.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_read.h"

#define STRETCH_BYTES MiB(16)
#define RUNS_MAX 256u /* of one read */
#define IN_ORDER MiB(4) /* read in order before anything is read ahead */

/* --- opening --- */

int tier_opened_open(struct tier_access *a, const struct tier_checkpoint *c, struct tier_opened *ret)
{
	struct tier_opened o = { .a = a, .c = c };
	int r;

	atomic_store(&a->waits, true);
	r = tier_reader_open(a->tier, c->name.s, &o.reader);
	atomic_store(&a->waits, false);
	if (r < 0)
		return r;
	o.m = tier_reader_manifest(o.reader);
	r = tier_tree_new(o.m, &o.tree);
	if (r == -EBADMSG || r == -EOPNOTSUPP)
		log_cause(r, "tier %s: %s: %s", tier_where(a->tier), c->name.s,
			  r == -EBADMSG ? "its catalog is damaged" : "its catalog was written by a newer version");
	if (r == 0)
		r = tier_source_new(a->cache, o.m, tier_reader_key(o.reader), &o.source);
	if (r < 0)
		tier_opened_close(&o);
	else
		*ret = o;
	return r;
}

/* The cache refers to packs by their key, and not to the manifest. */
void tier_opened_close(struct tier_opened *o)
{
	tier_source_free(o->source);
	tier_tree_free(o->tree);
	tier_reader_close(o->reader);
	*o = (struct tier_opened){ 0 };
}

uint64_t tier_opened_data(const struct tier_opened *o)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < o->tree->nr_inodes; i++)
		sum += o->tree->inodes[i].mapped;
	return sum;
}

/* --- stretches --- */

struct stretch {
	uint32_t inode;
	uint64_t off, end;
};

struct reading {
	const struct tier_opened *o;
	const struct tier_content *c;
	struct stretch *v;
	size_t nr, room;
	_Atomic uint64_t bytes;
};

static int add_stretch(struct reading *r, uint32_t inode, uint64_t off, uint64_t end)
{
	int k = list_grow(&r->v, r->nr, &r->room, sizeof(*r->v));

	if (k == 0)
		r->v[r->nr++] = (struct stretch){ inode, off, end };
	return k;
}

static int divide_file(struct reading *r, uint32_t inode)
{
	struct tier_runs it = tier_runs_from(r->o->tree, inode, 0);
	uint64_t at, from = 0, end = 0; /* the stretch so far */
	struct tier_run run;
	int k = 0;

	while (k == 0 && tier_runs_next(&it, &run, &at)) {
		if (end > from && (end - from >= STRETCH_BYTES || (run.pack == 0 && run.len >= STRETCH_BYTES))) {
			k = add_stretch(r, inode, from, end);
			from = end = at;
		}
		if (run.pack > 0)
			end = at + run.len;
		else if (end == from)
			from = end = at + run.len; /* begins with a hole */
	}
	return k == 0 && end > from ? add_stretch(r, inode, from, end) : k;
}

/* --- reading one --- */

struct piece {
	struct reading *r;
	const struct stretch *s;
	int fd;
	struct tier_ahead ahead;
	uint64_t off, len; /* not read yet */
	uint64_t in_order; /* read without a gap */
	struct tier_run runs[RUNS_MAX]; /* that end in it */
	unsigned nr_runs;
	bool has_failed; /* part of the run that has not ended yet */
};

static int read_piece(struct piece *p)
{
	const struct tier_opened *o = p->r->o;
	const struct tier_content *c = p->r->c;
	const struct tier_waiter w = tier_access_waiter(o->a);
	const struct tier_range range = {
		.source = o->source,
		.tree = o->tree,
		.inode = p->s->inode,
		.off = p->off,
		.len = (size_t)p->len,
		.ahead = p->in_order >= IN_ORDER ? &p->ahead : NULL,
	};
	struct tier_bytes bytes;
	struct tier_fault fault;
	int r;

	if (p->len == 0)
		return 0;
	r = tier_cache_read(o->a->cache, &range, &w, &bytes, &fault);
	p->has_failed |= r < 0;
	if (r == 0) {
		atomic_fetch_add(&p->r->bytes, p->len);
		for (unsigned i = 0; i < p->nr_runs && c->verified; i++)
			c->verified(c->userdata, &p->runs[i]);
		r = c->data ? c->data(c->userdata, p->fd, p->off, &bytes) : 0;
		tier_bytes_release(o->a->cache, &bytes);
	} else if (r != -EINTR) {
		r = c->failed(c->userdata, p->s->inode, r, &fault);
	}
	atomic_fetch_add(&o->a->done, p->len);
	p->in_order += p->len;
	p->off += p->len;
	p->len = 0;
	p->nr_runs = 0;
	return r;
}

static int add_run(struct piece *p, const struct tier_run *run, uint64_t at)
{
	uint64_t left = run->len;
	int r = 0;

	if (p->off + p->len != at) {
		r = read_piece(p);
		p->off = at;
		p->in_order = 0;
		p->ahead = (struct tier_ahead){ 0 };
	}
	p->has_failed = false;
	while (left > 0 && r == 0) {
		uint64_t take = MIN(left, TIER_READ_MAX - p->len);

		p->len += take;
		left -= take;
		if (left == 0 && !p->has_failed)
			p->runs[p->nr_runs++] = *run;
		if (p->len == TIER_READ_MAX || p->nr_runs == RUNS_MAX)
			r = read_piece(p);
	}
	return r;
}

static int read_stretch(void *userdata, size_t i)
{
	struct reading *r = userdata;
	const struct tier_content *c = r->c;
	struct piece p = { .r = r, .s = &r->v[i], .fd = -1, .off = r->v[i].off };
	struct tier_runs it = tier_runs_from(r->o->tree, p.s->inode, p.s->off);
	struct tier_run run;
	uint64_t at;
	int k = c->begin ? c->begin(c->userdata, p.s->inode, &p.fd) : 0;

	while (k == 0 && tier_runs_next(&it, &run, &at) && at < p.s->end) {
		if (run.pack > 0 && c->is_known && c->is_known(c->userdata, &run))
			atomic_fetch_add(&r->o->a->done, run.len);
		else if (run.pack > 0)
			k = add_run(&p, &run, at);
	}
	if (k == 0)
		k = read_piece(&p);
	closep(&p.fd);
	return k;
}

int tier_content_read(const struct tier_opened *o, const struct tier_content *c, uint64_t *ret_bytes)
{
	struct reading r = { .o = o, .c = c };
	int k = 0;

	for (uint32_t i = 0; i < o->tree->nr_inodes && k == 0; i++)
		if (S_ISREG(o->tree->inodes[i].mode))
			k = divide_file(&r, i);
	if (k == 0)
		k = tier_access_each(o->a, r.nr, read_stretch, &r);
	free(r.v);
	*ret_bytes = atomic_load(&r.bytes);
	return k;
}
