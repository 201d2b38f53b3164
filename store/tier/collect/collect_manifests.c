/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Step 1 of a collection (tier_collect.c): reads the heads of all valid manifests, by their numbers, of each store up
 * to the first free number. Ends if one is missing that should be there.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/collect/collect_state.h"
#include "store/tier/reading/tier_tree.h"

static struct collect_store *find_store(const struct tier_collector *c, const uint8_t id[TIER_ID_LEN], size_t *ret_at)
{
	size_t low = 0, high = c->nr_stores;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int k = memcmp(c->stores[middle].id, id, TIER_ID_LEN);

		if (k == 0)
			return &c->stores[middle];
		if (k < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (ret_at)
		*ret_at = low;
	return NULL;
}

int collect_add_store(struct tier_collector *c, const uint8_t id[TIER_ID_LEN])
{
	const struct tier_store_marks *m = tier_marks_store(&c->log.marks, id);
	struct collect_store *s;
	size_t at = 0;
	int r;

	if (find_store(c, id, &at))
		return 0;
	r = list_grow(&c->stores, c->nr_stores, &c->stores_room, sizeof(*c->stores));
	if (r < 0)
		return r;
	s = &c->stores[at];
	memmove(s + 1, s, (c->nr_stores++ - at) * sizeof(*s));
	*s = (struct collect_store){ 0 };
	memcpy(s->id, id, sizeof(s->id));
	if (m) {
		s->base = m->base;
		s->last = (struct tier_sealed){ .number = m->last, .ino = m->last_ino, .sealed_ns = m->last_sealed_ns };
	}
	return 0;
}

/* The list may lack stores and numbers; then their writers have joined, and step 1 reads on. */
static int find_stores(struct tier_collector *c)
{
	int r = 0;

	for (uint32_t i = 0; i < c->log.marks.nr_stores && r == 0; i++)
		r = collect_add_store(c, c->log.marks.stores[i].id);
	for (size_t i = 0; i < c->log.nr_joined && r == 0; i++)
		r = collect_add_store(c, c->log.joined[i]);
	for (size_t at = 0; at < c->names.len && r == 0; at += strlen((const char *)c->names.data + at) + 1) {
		uint8_t store[TIER_ID_LEN];
		struct collect_store *s;
		uint64_t number;

		if (!tier_manifest_name_parse((const char *)c->names.data + at, store, &number))
			continue;
		r = collect_add_store(c, store);
		if (r < 0)
			break;
		s = find_store(c, store, NULL);
		s->listed = MAX(s->listed, number);
	}
	return r;
}

static int add_sealed(struct tier_collector *c, struct collect_store *s, const struct tier_manifest *m)
{
	struct tier_sealed *e;
	int r = list_grow(&c->sealed, c->nr_sealed, &c->sealed_room, sizeof(*c->sealed));

	if (r < 0)
		return r;
	e = &c->sealed[c->nr_sealed];
	*e = (struct tier_sealed){
		.number = m->number,
		.ino = m->ino,
		.sealed_ns = m->sealed_ns,
		.bytes = m->bytes,
		.uid = m->uid,
		.path = strndup(m->path, m->path_len),
	};
	if (!e->path)
		return -ENOMEM;
	memcpy(e->store, s->id, sizeof(e->store));
	c->nr_sealed++;
	if (e->number > s->last.number)
		s->last = *e; /* without its path */
	s->last.path = NULL;
	return 0;
}

static bool is_listed(const struct tier_collector *c, const char *name)
{
	for (size_t at = 0; at < c->names.len; at += strlen((const char *)c->names.data + at) + 1)
		if (strcmp((const char *)c->names.data + at, name) == 0)
			return true;
	return false;
}

static int report_missing(struct tier_collector *c, const char *name)
{
	struct tier_log now;
	int r = tier_log_read(c->tier, &now);

	if (r == 0 && now.generation != c->generation)
		r = collector_busy(c);
	else if (r == 0)
		r = log_errno(-EBADMSG,
			      "tier %s: %s: is missing, and was not removed by a collection: nothing is deleted. Run the "
			      "collection again when all of the tier is available. If the object is lost, drop its "
			      "checkpoint with --forget-missing",
			      tier_where(c->tier), name);
	tier_log_release(&now);
	return r;
}

/* 1; 0: there is no object of this number. `is_expected`: it was there, and should be. */
static int add_head(struct tier_collector *c, struct collect_store *s, const struct tier_request *q, uint64_t number,
		    bool is_expected)
{
	struct tier_manifest m;
	int r = q->result;

	if (r == 0)
		r = tier_manifest_head_decode(q->buf, q->got, &m);
	if (r == 0 && (m.number != number || memcmp(m.store, s->id, sizeof(s->id)) != 0))
		r = -EBADMSG;
	if (r == 0)
		r = add_sealed(c, s, &m);
	else if (r == -ENOENT && is_listed(c, q->name)) /* what is not read would be removed */
		r = log_errno(-EBUSY,
			      "tier %s: %s: is listed, but not found: nothing is deleted; run the collection again",
			      tier_where(c->tier), q->name);
	else if (r == -ENOENT && is_expected && !c->conf.forget_missing)
		r = report_missing(c, q->name);
	else if (r == -ENOENT)
		return 0;
	else if (r == -ENODATA)
		r = 0; /* a fence */
	else
		r = collector_complain(c, q->name, r);
	return r < 0 ? r : 1;
}

struct head {
	uint64_t number;
	struct tier_object_name name;
	uint8_t bytes[TIER_MANIFEST_HEAD_MAX];
};

static int read_heads(struct tier_collector *c, struct collect_store *s, struct head *heads, size_t nr)
{
	struct tier_request q[COLLECT_IN_FLIGHT] = { 0 };
	int r;

	for (size_t i = 0; i < nr; i++) {
		heads[i].name = tier_manifest_name(s->id, heads[i].number);
		q[i] = (struct tier_request){
			.op = TIER_GET,
			.name = heads[i].name.s,
			.buf = heads[i].bytes,
			.len = sizeof(heads[i].bytes),
		};
	}
	r = collector_run_all(c, q, nr, "reading manifests");
	for (size_t i = 0; i < nr && r >= 0; i++)
		r = add_head(c, s, &q[i], heads[i].number, true);
	return MIN(r, 0);
}

/* Numbers are used without gaps: those up to the largest listed one were used. */
static int read_store(struct tier_collector *c, struct collect_store *s, struct head *heads)
{
	const struct tier_store_marks *m = tier_marks_store(&c->log.marks, s->id);
	uint64_t number = s->base + 1;
	int r = 0;

	for (uint32_t i = 0; m && i < m->nr_kept && r == 0;) {
		size_t nr = 0;

		while (nr < COLLECT_IN_FLIGHT && i < m->nr_kept)
			heads[nr++].number = le64_get(m->kept[i++]);
		r = read_heads(c, s, heads, nr);
	}
	while (number <= s->listed && r == 0) {
		size_t nr = 0;

		while (nr < COLLECT_IN_FLIGHT && number <= s->listed)
			heads[nr++].number = number++;
		r = read_heads(c, s, heads, nr);
	}
	while (r >= 0) {
		struct tier_object_name name = tier_manifest_name(s->id, number);
		struct tier_request q = {
			.op = TIER_GET, .name = name.s, .buf = heads->bytes, .len = sizeof(heads->bytes)
		};

		tier_call(c->tier, &q);
		r = add_head(c, s, &q, number, false);
		if (r == 0)
			break;
		number++;
	}
	s->base = number - 1;
	return r;
}

static bool has_tag(const struct tier_tree *t)
{
	const struct tier_inode *top = &t->inodes[0];

	for (uint32_t i = top->first_xattr; i < top->first_xattr + top->nr_xattrs; i++)
		if (strcmp(tier_tree_name(t, t->xattrs[i].name), "user.tag") == 0)
			return true;
	return false;
}

static int read_tags(struct tier_collector *c)
{
	_cleanup_(buf_release) struct buf bytes = BUF_EMPTY;
	int r = 0;

	for (size_t i = 0; i < c->nr_sealed && r == 0; i++) {
		_cleanup_(tier_tree_freep) struct tier_tree *t = NULL;
		struct tier_sealed *e = &c->sealed[i];
		struct tier_manifest m;

		r = collector_get_manifest(c, e->store, e->number, &bytes, &m);
		if (r == -ENOENT || r == -ENODATA)
			return collector_busy(c);
		if (r == 0) {
			r = tier_tree_new(&m, &t);
			if (r < 0)
				r = collector_complain(c, tier_manifest_name(e->store, e->number).s, r);
		}
		if (r == 0)
			e->is_tagged = has_tag(t);
		if (r == 0 && !collector_step(c, "reading tags", i + 1, c->nr_sealed))
			r = -ECANCELED;
	}
	return r;
}

int collect_read_manifests(struct tier_collector *c)
{
	_cleanup_(freep) struct head *heads = calloc(COLLECT_IN_FLIGHT, sizeof(*heads));
	int r = heads ? find_stores(c) : -ENOMEM;

	for (size_t i = 0; i < c->nr_stores && r == 0; i++)
		r = read_store(c, &c->stores[i], heads);
	return r == 0 && c->conf.read_tags ? read_tags(c) : r;
}
