/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Garbage collection of a tier. Writers, readers and other collectors run at the same time, and may pause for any time
 * before any request. There are no clocks, leases or locks. Lists are used to find garbage, and never to find what is
 * in use.
 *
 * There are two kinds of logs. A log is a sequence of objects that are numbered without gaps. An entry is appended by
 * putting it as a new object behind the last one. A process that appends to the log of the tier has read all entries
 * before.
 *   gc/<n>              the log of the tier: stores that join, and generations. Entries are never deleted
 *   sealed/<store>/<n>  the log of a store: its manifests, and fences of generations
 *
 * A generation has marks: for each store, the last number that is used (its base) and the manifests up to it that are
 * kept; and the packs that no kept manifest names, pending ones (for the first time) and dropped ones (as in the
 * generation before). A manifest up to the base of its store that is not among the kept ones is not valid. It does not
 * matter whether its object exists.
 *
 * A collection:
 *   1. reads the log and all valid manifests, by their numbers, of each store up to the first free number. Ends if one
 *      is missing that is listed, that the previous generation kept, or that a later one follows: otherwise it would be
 *      removed unread. A directory may lack names for a while, as when one of its servers is down
 *   2. lists the packs, and finds those that no kept manifest names. The packs that kept ones need must exist
 *   3. puts the marks                           crash: an object that no entry names; a later collection deletes it
 *   4. appends the generation to the log        REMOVED: checkpoints that are not kept are not shown any more
 *                                               crash: as a collection that deletes nothing; the next one continues
 *   5. puts a fence at the first free number of each store, and reads the manifests before it that are new. Dropped packs
 *      that these name are needed again         crash: fences without effect
 *   6. reads new entries of the log: if there is a later generation, it ends here
 *   7. deletes manifests and fences that are not valid, dropped packs, old marks, and remains of interrupted puts
 *                                               crash: the next collection deletes the others
 *
 * A writer joins in the log before it puts its first manifest. It reads generations in the log when it is opened, when
 * a flush begins, when it finds a fence in the place of its manifest, and after it has put a manifest. It puts no
 * manifest that names a pack dropped in a generation that it has read.
 *
 * Why a pack that is deleted is not needed. Let it be dropped in generation G.
 *   - A store that joined before G has a fence of G. A manifest before it was read in step 1 or 5, and names no deleted
 *     pack. A writer that puts a manifest behind it has read the fence or a later entry, and G before that.
 *   - A store that joined after G has read G by then.
 *   - Such a writer does not share the pack, and does not put it again: the number in the tables of a pack depends on
 *     the last generation that its writer had read, so a later pack with the same chunks has another name. A request to
 *     delete the old one does no harm, however late it arrives.
 *   - Step 6 reads the log after all manifests were read. Without a later generation, no manifest before the fences was
 *     removed in the meantime. So none of them named the pack, and no writer can share the pack through one of them.
 *
 * Why nothing is committed at a number whose object was deleted. Numbers up to a base have all been used. A writer that
 * still puts a manifest at one finds the generation in the log afterwards, and does not report the flush as done.
 * Readers read the log after the list of manifests, and do not show it.
 *
 * Why a reader of a kept checkpoint gets no error. The packs of a valid manifest are never deleted. Those of a removed
 * one stay until the next collection.
 *
 * Why flushes make progress. A new pack without a manifest is pending in the next generation, and dropped in the one
 * after that. A flush during which two generations begin may have to send chunks again.
 *
 * A manifest that cannot be read may name any pack: then nothing is deleted.
 */
#include "store/tier/collect/tier_collect.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/collect/tier_log.h"
#include "store/tier/reading/tier_tree.h"

#define IN_FLIGHT 16u

/* Packs, sorted by id before they are searched. */
struct pack_set {
	struct set_pack {
		uint8_t id[TIER_ID_LEN];
		uint64_t len; /* 0: unknown */
		bool is_listed;
	} * v;
	size_t nr, room;
	size_t nr_sorted; /* the first ones */
};

struct collect_store {
	uint8_t id[TIER_ID_LEN];
	uint64_t listed; /* largest number in the list */
	uint64_t base; /* all numbers up to this one have been used */
	struct tier_sealed last; /* its manifest with the largest number */
};

struct tier_collector {
	struct tier *tier;
	struct tier_collect_conf conf;
	struct tier_queue *queue;
	struct tier_log log;
	uint64_t generation; /* that the marks are made from */
	struct buf names; /* of the list of manifests */
	struct collect_store *stores; /* sorted by id */
	size_t nr_stores, stores_room;
	struct tier_sealed *sealed; /* sorted by store and number */
	size_t nr_sealed, sealed_room;
	struct pack_set needed; /* by kept manifests */
	struct pack_set relied; /* by kept ones because of which others are removed */
	struct pack_set removed; /* by those that are not kept */
	struct pack_set dropped, pending;
	struct tier_collect_figures figures;
};

static bool step(struct tier_collector *c, const char *what, uint64_t done, uint64_t total)
{
	return !c->conf.step || c->conf.step(c->conf.userdata, what, done, total);
}

static int complain(const struct tier_collector *c, const char *name, int r)
{
	const char *where = tier_where(c->tier);

	if (r == -EBADMSG || r == -EFBIG)
		return log_errno(-EBADMSG,
				 "tier %s: %s: the manifest is damaged, so the packs that it needs are unknown, and nothing is deleted. "
				 "Restore this object. If that fails, delete it, and drop its checkpoint with --forget-missing",
				 where, name);
	if (r == -EOPNOTSUPP)
		return log_errno(r, "tier %s: %s: written by a newer version: collect with that version", where, name);
	return r;
}

static int busy(const struct tier_collector *c)
{
	return log_errno(-EBUSY, "tier %s: another collection has begun: run this one again when that one has ended",
			 tier_where(c->tier));
}

/* --- sets of packs --- */

static int compare_packs(const void *a, const void *b)
{
	return memcmp(((const struct set_pack *)a)->id, ((const struct set_pack *)b)->id, TIER_ID_LEN);
}

static void set_sort(struct pack_set *s)
{
	size_t nr = 0;

	if (s->nr > s->nr_sorted)
		qsort(s->v, s->nr, sizeof(*s->v), compare_packs);
	for (size_t i = 0; i < s->nr; i++)
		if (nr == 0 || compare_packs(&s->v[nr - 1], &s->v[i]) != 0)
			s->v[nr++] = s->v[i];
	s->nr = s->nr_sorted = nr;
}

static int set_add(struct pack_set *s, const uint8_t id[TIER_ID_LEN], uint64_t len)
{
	int r;

	if (s->nr == s->room && s->nr > 2 * s->nr_sorted)
		set_sort(s); /* many manifests name the same packs */
	r = list_grow(&s->v, s->nr, &s->room, sizeof(*s->v));
	if (r < 0)
		return r;
	memcpy(s->v[s->nr].id, id, TIER_ID_LEN);
	s->v[s->nr].len = len;
	s->v[s->nr++].is_listed = false;
	return 0;
}

/* Of a sorted set. */
static struct set_pack *set_find(const struct pack_set *s, const uint8_t id[TIER_ID_LEN])
{
	assert(s->nr == s->nr_sorted);
	return s->nr > 0 ? bsearch(id, s->v, s->nr, sizeof(*s->v), compare_packs) : NULL;
}

static uint64_t set_bytes(const struct pack_set *s)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < s->nr; i++)
		bytes += s->v[i].len;
	return bytes;
}

static int set_add_manifest(struct pack_set *s, const struct tier_manifest *m)
{
	int r = 0;

	for (uint32_t i = 0; i < m->nr_packs && r == 0; i++) {
		struct tier_footer f;

		r = tier_manifest_pack(m, i, &f);
		if (r == 0)
			r = set_add(s, f.id, tier_pack_len(&f));
	}
	return r;
}

/* --- requests --- */

/* Runs the requests, several at a time. The caller evaluates their results. */
static int run_all(struct tier_collector *c, struct tier_request *v, size_t nr, const char *what)
{
	int r = 0;

	for (size_t i = 0, done = 0; done < nr;) {
		if (i < nr && tier_in_flight(c->queue) < IN_FLIGHT && r == 0) {
			tier_start(c->queue, &v[i++]);
			continue;
		}
		if (!tier_next(c->queue))
			break; /* cancelled */
		done++;
		if (r == 0 && !step(c, what, done, nr))
			r = -ECANCELED;
	}
	return r;
}

/* -ENODATA: a fence. */
static int get_manifest(struct tier_collector *c, const uint8_t store[TIER_ID_LEN], uint64_t number, struct buf *bytes,
			struct tier_manifest *ret)
{
	struct tier_object_name name = tier_manifest_name(store, number);
	int r;

	buf_clear(bytes);
	r = tier_get_all(c->tier, name.s, TIER_MANIFEST_MAX, bytes);
	if (r == 0)
		r = tier_manifest_decode(bytes->data, bytes->len, ret);
	if (r == 0 && (ret->number != number || memcmp(ret->store, store, TIER_ID_LEN) != 0))
		r = -EBADMSG;
	return r == -ENODATA || r == -ENOENT ? r : complain(c, name.s, r);
}

/* --- 1: manifests --- */

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

static int add_store(struct tier_collector *c, const uint8_t id[TIER_ID_LEN])
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
		r = add_store(c, c->log.marks.stores[i].id);
	for (size_t i = 0; i < c->log.nr_joined && r == 0; i++)
		r = add_store(c, c->log.joined[i]);
	for (size_t at = 0; at < c->names.len && r == 0; at += strlen((const char *)c->names.data + at) + 1) {
		uint8_t store[TIER_ID_LEN];
		struct collect_store *s;
		uint64_t number;

		if (!tier_manifest_name_parse((const char *)c->names.data + at, store, &number))
			continue;
		r = add_store(c, store);
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
		r = busy(c);
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
		r = log_errno(-EBUSY, "tier %s: %s: is listed, but not found: nothing is deleted; run the collection again",
			      tier_where(c->tier), q->name);
	else if (r == -ENOENT && is_expected && !c->conf.forget_missing)
		r = report_missing(c, q->name);
	else if (r == -ENOENT)
		return 0;
	else if (r == -ENODATA)
		r = 0; /* a fence */
	else
		r = complain(c, q->name, r);
	return r < 0 ? r : 1;
}

struct head {
	uint64_t number;
	struct tier_object_name name;
	uint8_t bytes[TIER_MANIFEST_HEAD_MAX];
};

static int read_heads(struct tier_collector *c, struct collect_store *s, struct head *heads, size_t nr)
{
	struct tier_request q[IN_FLIGHT] = { 0 };
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
	r = run_all(c, q, nr, "reading manifests");
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

		while (nr < IN_FLIGHT && i < m->nr_kept)
			heads[nr++].number = le64_get(m->kept[i++]);
		r = read_heads(c, s, heads, nr);
	}
	while (number <= s->listed && r == 0) {
		size_t nr = 0;

		while (nr < IN_FLIGHT && number <= s->listed)
			heads[nr++].number = number++;
		r = read_heads(c, s, heads, nr);
	}
	while (r >= 0) {
		struct tier_object_name name = tier_manifest_name(s->id, number);
		struct tier_request q = { .op = TIER_GET, .name = name.s, .buf = heads->bytes, .len = sizeof(heads->bytes) };

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

		r = get_manifest(c, e->store, e->number, &bytes, &m);
		if (r == -ENOENT || r == -ENODATA)
			return busy(c);
		if (r == 0) {
			r = tier_tree_new(&m, &t);
			if (r < 0)
				r = complain(c, tier_manifest_name(e->store, e->number).s, r);
		}
		if (r == 0)
			e->is_tagged = has_tag(t);
		if (r == 0 && !step(c, "reading tags", i + 1, c->nr_sealed))
			r = -ECANCELED;
	}
	return r;
}

int tier_collector_open(struct tier *t, const struct tier_collect_conf *conf, struct tier_collector **ret)
{
	_cleanup_(tier_collector_closep) struct tier_collector *c = calloc(1, sizeof(*c));
	_cleanup_(freep) struct head *heads = calloc(IN_FLIGHT, sizeof(*heads));
	int r;

	if (!c || !heads)
		return -ENOMEM;
	c->tier = c->log.tier = t;
	c->conf = *conf;
	r = tier_queue_new(t, &c->queue);
	if (r == 0)
		r = tier_list_all(t, TIER_SEALED_PREFIX, &c->names);
	if (r == 0)
		r = tier_log_read(t, &c->log);
	c->generation = c->log.generation;
	if (r == 0)
		r = find_stores(c);
	for (size_t i = 0; i < c->nr_stores && r == 0; i++)
		r = read_store(c, &c->stores[i], heads);
	if (r == 0 && conf->read_tags)
		r = read_tags(c);
	if (r == 0)
		*ret = TAKE(c);
	return r;
}

void tier_collector_close(struct tier_collector *c)
{
	if (!c)
		return;
	tier_queue_free(c->queue);
	for (size_t i = 0; i < c->nr_sealed; i++)
		free(c->sealed[i].path);
	free(c->sealed);
	free(c->stores);
	free(c->needed.v);
	free(c->relied.v);
	free(c->removed.v);
	free(c->dropped.v);
	free(c->pending.v);
	buf_release(&c->names);
	tier_log_release(&c->log);
	free(c);
}

void tier_collector_closep(struct tier_collector **c)
{
	tier_collector_close(*c);
}

struct tier_sealed *tier_collector_sealed(struct tier_collector *c, size_t *ret_nr)
{
	*ret_nr = c->nr_sealed;
	return c->sealed;
}

/* --- 2: packs --- */

static int mark_manifests(struct tier_collector *c)
{
	_cleanup_(buf_release) struct buf bytes = BUF_EMPTY;
	int r = 0;

	for (size_t i = 0; i < c->nr_sealed && r == 0; i++) {
		const struct tier_sealed *e = &c->sealed[i];
		struct tier_manifest m;

		r = get_manifest(c, e->store, e->number, &bytes, &m);
		if (r == -ENOENT || r == -ENODATA)
			return busy(c);
		if (r == 0)
			r = set_add_manifest(e->is_removed ? &c->removed : &c->needed, &m);
		if (r == 0 && e->is_relied_on)
			r = set_add_manifest(&c->relied, &m);
		if (r == 0 && !step(c, "reading manifests", i + 1, c->nr_sealed))
			r = -ECANCELED;
		c->figures.nr_kept += !e->is_removed;
		c->figures.nr_removed += e->is_removed;
	}
	set_sort(&c->needed);
	set_sort(&c->relied);
	set_sort(&c->removed);
	return r;
}

static int sort_packs(struct tier_collector *c, const struct buf *names)
{
	const struct tier_marks *m = &c->log.marks;
	int r = 0;

	for (size_t at = 0; at < names->len && r == 0; at += strlen((const char *)names->data + at) + 1) {
		struct set_pack *of_removed, *needed;
		uint8_t id[TIER_ID_LEN];
		bool is_dropped;

		if (!tier_pack_name_parse((const char *)names->data + at, id))
			continue;
		needed = set_find(&c->needed, id);
		if (needed) {
			needed->is_listed = true;
			continue;
		}
		of_removed = set_find(&c->removed, id);
		/* A dropped pack may have been needed again, by a manifest that is removed now. */
		is_dropped = !of_removed && (tier_id_is_in(m->pending, m->nr_pending, id) ||
					     tier_id_is_in(m->dropped, m->nr_dropped, id));
		r = set_add(is_dropped ? &c->dropped : &c->pending, id, of_removed ? of_removed->len : 0);
	}
	set_sort(&c->dropped);
	set_sort(&c->pending);
	return r;
}

/*
 * Do all packs that kept checkpoints need exist? Retention must not remove a complete checkpoint because an incomplete
 * one is kept. If one pack is missing, more may be, so nothing is deleted from an incomplete tier. A list may lack a
 * pack that is there.
 */
static int check_needed(struct tier_collector *c)
{
	for (size_t i = 0; i < c->needed.nr; i++) {
		const struct set_pack *p = &c->needed.v[i];
		struct tier_object_name name = tier_pack_name(p->id);
		uint8_t byte;
		struct tier_request q = { .op = TIER_GET, .name = name.s, .buf = &byte, .len = sizeof(byte) };
		int r = p->is_listed ? 0 : tier_call(c->tier, &q);

		if (r == -ENOENT)
			return log_errno(-EBADMSG,
					 "tier %s: %s: is missing, and a checkpoint that would be kept needs it: nothing is "
					 "deleted. ckptfs-tier verify names the checkpoint. To drop it, delete its manifest, "
					 "and collect with --forget-missing",
					 tier_where(c->tier), name.s);
		if (r < 0)
			return r;
	}
	return 0;
}

static int check_footer(const struct tier_collector *c, const struct tier_request *q, const struct set_pack *p)
{
	struct tier_footer f;
	int r = q->result;

	if (r == 0)
		r = tier_footer_decode(q->buf, q->got, &f);
	if (r == 0 && (memcmp(f.id, p->id, sizeof(f.id)) != 0 || tier_pack_len(&f) != p->len || q->size != p->len))
		r = -EBADMSG;
	if (r == -EBADMSG || r == -ENOENT)
		return log_errno(-EBADMSG,
				 "tier %s: %s: is missing, cut off or damaged, and the newest checkpoint of a directory "
				 "needs it: nothing is deleted. ckptfs-tier verify names the checkpoint",
				 tier_where(c->tier), q->name);
	return r;
}

/*
 * Checks that the packs are complete which belong to checkpoints that are kept while others are removed. Retention in a
 * store verifies the newest checkpoint as well. This reads the end of each pack, and neither tables nor chunks.
 */
static int check_relied(struct tier_collector *c)
{
	struct tier_footer_disk bytes[IN_FLIGHT];
	struct tier_object_name names[IN_FLIGHT];
	struct tier_request q[IN_FLIGHT];
	int r = 0;

	for (size_t i = 0, nr; i < c->relied.nr && r == 0; i += nr) {
		const struct set_pack *p = &c->relied.v[i];

		nr = MIN(c->relied.nr - i, (size_t)IN_FLIGHT);
		for (size_t k = 0; k < nr; k++) {
			names[k] = tier_pack_name(p[k].id);
			q[k] = (struct tier_request){
				.op = TIER_GET,
				.name = names[k].s,
				.off = p[k].len - sizeof(bytes[k]),
				.buf = &bytes[k],
				.len = sizeof(bytes[k]),
			};
		}
		r = run_all(c, q, nr, "reading packs");
		for (size_t k = 0; k < nr && r == 0; k++)
			r = check_footer(c, &q[k], &p[k]);
	}
	return r;
}

/* Of packs that no manifest names, as of interrupted flushes: no manifest has their size. */
static int find_sizes(struct tier_collector *c, struct pack_set *s)
{
	struct tier_object_name names[IN_FLIGHT];
	struct tier_request q[IN_FLIGHT];
	struct set_pack *of[IN_FLIGHT];
	uint8_t bytes[IN_FLIGHT];
	int r = 0;

	for (size_t i = 0, nr; i < s->nr && r == 0;) {
		for (nr = 0; i < s->nr && nr < IN_FLIGHT; i++) {
			if (s->v[i].len > 0)
				continue;
			of[nr] = &s->v[i];
			names[nr] = tier_pack_name(s->v[i].id);
			q[nr] = (struct tier_request){ .op = TIER_GET, .name = names[nr].s, .buf = &bytes[nr], .len = 1 };
			nr++;
		}
		r = run_all(c, q, nr, "reading sizes");
		for (size_t k = 0; k < nr && r == 0; k++)
			if (q[k].result == 0)
				of[k]->len = q[k].size;
			else if (q[k].result != -ENOENT)
				r = q[k].result;
	}
	return r;
}

int tier_collector_mark(struct tier_collector *c)
{
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	struct tier_collect_figures *f = &c->figures;
	int r = tier_list_all(c->tier, TIER_PACKS_PREFIX, &names);

	if (r == 0)
		r = mark_manifests(c);
	if (r == 0)
		r = sort_packs(c, &names);
	if (r == 0)
		r = check_needed(c);
	if (r == 0)
		r = check_relied(c);
	if (r == 0)
		r = find_sizes(c, &c->pending);
	if (r == 0)
		r = find_sizes(c, &c->dropped);
	f->nr_packs = c->needed.nr;
	f->pack_bytes = set_bytes(&c->needed);
	f->nr_pending = c->pending.nr;
	f->pending_bytes = set_bytes(&c->pending);
	f->nr_dropped = c->dropped.nr;
	f->dropped_bytes = set_bytes(&c->dropped);
	return r;
}

/* --- 3 and 4: the generation --- */

struct removed_seals {
	struct tier_seal_disk *v;
	size_t nr, room;
};

static int compare_seals(const void *a, const void *b)
{
	const struct tier_seal_disk *x = a, *y = b;
	int64_t s = (int64_t)le64_get(x->sealed_ns), t = (int64_t)le64_get(y->sealed_ns);
	uint64_t i = le64_get(x->ino), k = le64_get(y->ino);

	return s != t ? (s < t ? -1 : 1) : (i > k) - (i < k);
}

/* A seal whose first manifest lacked packs was flushed again, and has two. */
static bool has_kept_twin(const struct tier_collector *c, const struct tier_sealed *removed)
{
	for (const struct tier_sealed *e = c->sealed; e < c->sealed + c->nr_sealed; e++)
		if (!e->is_removed && e->ino == removed->ino && e->sealed_ns == removed->sealed_ns &&
		    memcmp(e->store, removed->store, sizeof(e->store)) == 0)
			return true;
	return false;
}

/* Every reader of the tier reads the removed seals of all stores. A node flushes again what is not recorded. */
static size_t removed_max(const struct tier_collector *c)
{
	return MIN((size_t)TIER_REMOVED_MAX, TIER_REMOVED_ALL_MAX / c->nr_stores);
}

/* Seals removed by earlier generations and by this one: the last ones. */
static int list_removed(struct tier_collector *c, const struct collect_store *s, struct removed_seals *ret)
{
	const struct tier_store_marks *m = tier_marks_store(&c->log.marks, s->id);
	uint32_t nr_before = m ? m->nr_removed : 0;
	size_t nr = 0;
	int r;

	ret->nr = 0;
	for (size_t i = 0; i < nr_before + c->nr_sealed; i++) {
		const struct tier_sealed *e = i < nr_before ? NULL : &c->sealed[i - nr_before];

		if (e && (!e->is_removed || memcmp(e->store, s->id, sizeof(s->id)) != 0 || has_kept_twin(c, e)))
			continue;
		r = list_grow(&ret->v, ret->nr, &ret->room, sizeof(*ret->v));
		if (r < 0)
			return r;
		ret->v[ret->nr++] = e ? (struct tier_seal_disk){ le64_put(e->ino), le64_put((uint64_t)e->sealed_ns) } :
					m->removed[i];
	}
	if (ret->nr > 0)
		qsort(ret->v, ret->nr, sizeof(*ret->v), compare_seals);
	for (size_t i = 0; i < ret->nr; i++)
		if (nr == 0 || compare_seals(&ret->v[nr - 1], &ret->v[i]) != 0)
			ret->v[nr++] = ret->v[i];
	ret->nr = MIN(nr, removed_max(c));
	if (nr > ret->nr)
		memmove(ret->v, ret->v + (nr - ret->nr), ret->nr * sizeof(*ret->v));
	return 0;
}

static int list_kept(const struct tier_collector *c, const struct collect_store *s, struct le64 **ret, uint32_t *ret_nr)
{
	size_t nr = 0, room = 0;
	int r = 0;

	for (size_t i = 0; i < c->nr_sealed && r == 0; i++) {
		const struct tier_sealed *e = &c->sealed[i];

		if (e->is_removed || memcmp(e->store, s->id, sizeof(s->id)) != 0)
			continue;
		r = list_grow(ret, nr, &room, sizeof(**ret));
		if (r == 0)
			(*ret)[nr++] = le64_put(e->number);
	}
	*ret_nr = (uint32_t)nr;
	return r;
}

static int copy_ids(const struct pack_set *s, uint8_t (**ret)[TIER_ID_LEN])
{
	*ret = calloc(MAX(s->nr, (size_t)1), sizeof(**ret));
	for (size_t i = 0; *ret && i < s->nr; i++)
		memcpy((*ret)[i], s->v[i].id, TIER_ID_LEN);
	return *ret ? 0 : -ENOMEM;
}

static int encode_marks(struct tier_collector *c, uint64_t number, struct buf *ret)
{
	struct tier_store_marks *stores = calloc(MAX(c->nr_stores, (size_t)1), sizeof(*stores));
	struct le64 **kept = calloc(MAX(c->nr_stores, (size_t)1), sizeof(*kept));
	struct removed_seals *removed = calloc(MAX(c->nr_stores, (size_t)1), sizeof(*removed));
	_cleanup_(freep) uint8_t(*dropped)[TIER_ID_LEN] = NULL;
	_cleanup_(freep) uint8_t(*pending)[TIER_ID_LEN] = NULL;
	struct tier_marks m = {
		.number = number,
		.previous = c->log.generation,
		.stores = stores,
		.nr_stores = (uint32_t)c->nr_stores,
		.nr_dropped = (uint32_t)c->dropped.nr,
		.nr_pending = (uint32_t)c->pending.nr,
	};
	int r = stores && kept && removed ? copy_ids(&c->dropped, &dropped) : -ENOMEM;

	if (r == 0)
		r = copy_ids(&c->pending, &pending);
	for (size_t i = 0; i < c->nr_stores && r == 0; i++) {
		const struct collect_store *s = &c->stores[i];

		stores[i] = (struct tier_store_marks){
			.base = s->base,
			.last = s->last.number,
			.last_ino = s->last.ino,
			.last_sealed_ns = s->last.sealed_ns,
		};
		memcpy(stores[i].id, s->id, sizeof(s->id));
		r = list_kept(c, s, &kept[i], &stores[i].nr_kept);
		if (r == 0)
			r = list_removed(c, s, &removed[i]);
		stores[i].kept = kept[i];
		stores[i].removed = removed[i].v;
		stores[i].nr_removed = (uint32_t)removed[i].nr;
	}
	if (r == 0) {
		memcpy(m.previous_id, c->log.marks_id, sizeof(m.previous_id));
		m.dropped = (const void *)dropped;
		m.pending = (const void *)pending;
		tier_marks_encode(&m, ret);
		r = buf_error(ret);
	}
	for (size_t i = 0; i < c->nr_stores; i++) {
		if (kept)
			free(kept[i]);
		if (removed)
			free(removed[i].v);
	}
	free(kept);
	free(removed);
	free(stores);
	return r < 0 ? r : ret->len > TIER_MARKS_MAX ? -EFBIG : 0;
}

/* Stores that have joined since the manifests were read. Their manifests, if any, are read before their fences. */
static int add_joined(struct tier_collector *c)
{
	int r = 0;

	for (size_t i = 0; i < c->log.nr_joined && r == 0; i++)
		r = add_store(c, c->log.joined[i]);
	return r;
}

static int append_generation(struct tier_collector *c)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	uint8_t id[TIER_ID_LEN];
	uint64_t number;
	int r;

	do {
		number = c->log.entry + 1;
		if (c->log.generation != c->generation)
			return busy(c);
		buf_clear(&b);
		r = add_joined(c);
		if (r == 0)
			r = encode_marks(c, number, &b);
		if (r < 0)
			return r;
		tier_marks_id(b.data, b.len, id);
		r = tier_put_new(c->tier, tier_marks_name(number, id).s, b.data, b.len);
		if (r < 0 && r != -EEXIST)
			return r;
		r = tier_log_append_generation(&c->log, id, b.len);
		if (r < 0 && r != -EEXIST)
			return r;
		r = tier_log_follow(&c->log, NULL, NULL); /* a store has joined, or the answer to an attempt was lost */
		if (r < 0)
			return r == -ESTALE ? busy(c) : r;
	} while (c->log.generation == c->generation);
	if (c->log.generation != number || memcmp(c->log.marks_id, id, sizeof(id)) != 0)
		return busy(c);
	c->generation = number;
	return 0;
}

/* --- 5: fences --- */

/* The number is taken. 0: by a manifest, or an older fence; 1: by a fence of this generation or a later one. */
static int read_taken(struct tier_collector *c, const struct collect_store *s, uint64_t number)
{
	_cleanup_(buf_release) struct buf bytes = BUF_EMPTY;
	struct tier_manifest m;
	struct tier_fence fence;
	int r = get_manifest(c, s->id, number, &bytes, &m);

	if (r == -ENOENT)
		return busy(c);
	if (r == 0)
		return set_add_manifest(&c->needed, &m);
	if (r != -ENODATA)
		return r;
	r = tier_fence_decode(bytes.data, bytes.len, &fence);
	return r < 0 ? complain(c, tier_manifest_name(s->id, number).s, r) : fence.generation >= c->generation;
}

static int put_fence(struct tier_collector *c, const struct collect_store *s)
{
	struct tier_fence fence = { .number = s->base, .generation = c->generation };
	struct tier_fence_disk d;
	int r;

	memcpy(fence.store, s->id, sizeof(fence.store));
	do {
		fence.number++;
		tier_fence_encode(&fence, &d);
		r = tier_put_new(c->tier, tier_manifest_name(s->id, fence.number).s, &d, sizeof(d));
		if (r == 0)
			c->figures.nr_fences++;
		r = r == -EEXIST ? read_taken(c, s, fence.number) : r == 0 ? 1 : r;
	} while (r == 0);
	return MIN(r, 0);
}

static int put_fences(struct tier_collector *c)
{
	int r = 0;

	for (size_t i = 0; i < c->nr_stores && r == 0; i++) {
		r = put_fence(c, &c->stores[i]);
		if (r == 0 && !step(c, "putting fences", i + 1, c->nr_stores))
			r = -ECANCELED;
	}
	set_sort(&c->needed);
	return r;
}

/* --- 7: deletions --- */

static int delete_all(struct tier_collector *c, const struct tier_object_name *names, size_t nr, const char *what)
{
	struct tier_request q[IN_FLIGHT];
	int r = 0;

	for (size_t i = 0, n; i < nr && r == 0; i += n) {
		n = MIN(nr - i, (size_t)IN_FLIGHT);
		for (size_t k = 0; k < n; k++)
			q[k] = (struct tier_request){ .op = TIER_DELETE, .name = names[i + k].s };
		r = run_all(c, q, n, what);
		for (size_t k = 0; k < n && r == 0; k++)
			r = q[k].result;
	}
	return r;
}

struct name_list {
	struct tier_object_name *v;
	size_t nr, room;
};

static void name_list_release(struct name_list *l)
{
	free(l->v);
}

static int name_list_add(struct name_list *l, const struct tier_object_name *name)
{
	int r = list_grow(&l->v, l->nr, &l->room, sizeof(*l->v));

	if (r == 0)
		l->v[l->nr++] = *name;
	return r;
}

/* Manifests that are not valid, and fences at numbers up to the base of their store. */
static int delete_numbers(struct tier_collector *c)
{
	_cleanup_(name_list_release) struct name_list l = { 0 };
	int r = 0;

	for (size_t at = 0; at < c->names.len && r == 0; at += strlen((const char *)c->names.data + at) + 1) {
		struct tier_object_name name;
		uint8_t store[TIER_ID_LEN];
		uint64_t number;

		if (!tier_manifest_name_parse((const char *)c->names.data + at, store, &number) ||
		    tier_log_keeps(&c->log, store, number))
			continue;
		name = tier_manifest_name(store, number);
		r = name_list_add(&l, &name);
	}
	return r < 0 ? r : delete_all(c, l.v, l.nr, "deleting manifests");
}

static int delete_packs(struct tier_collector *c)
{
	int r = 0;

	for (size_t i = 0; i < c->dropped.nr && r == 0;) {
		struct tier_object_name names[IN_FLIGHT];
		uint64_t bytes = 0;
		size_t nr = 0;

		for (; i < c->dropped.nr && nr < IN_FLIGHT; i++) {
			if (set_find(&c->needed, c->dropped.v[i].id))
				continue;
			names[nr++] = tier_pack_name(c->dropped.v[i].id);
			bytes += c->dropped.v[i].len;
		}
		r = delete_all(c, names, nr, "deleting packs");
		if (r == 0) {
			c->figures.nr_deleted += nr;
			c->figures.deleted_bytes += bytes;
		}
	}
	return r;
}

/* Marks older than the previous generation, and those of collections that ended before they appended an entry. */
static int delete_marks(struct tier_collector *c)
{
	_cleanup_(name_list_release) struct name_list l = { 0 };
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	const struct tier_marks *m = &c->log.marks;
	int r = tier_list_all(c->tier, TIER_MARKS_PREFIX, &names);

	for (size_t at = 0; at < names.len && r == 0; at += strlen((const char *)names.data + at) + 1) {
		struct tier_object_name name;
		uint8_t id[TIER_ID_LEN];
		uint64_t number;

		if (!tier_marks_name_parse((const char *)names.data + at, &number, id) || number > m->number)
			continue;
		if ((number == m->number && memcmp(id, c->log.marks_id, sizeof(id)) == 0) ||
		    (number == m->previous && memcmp(id, m->previous_id, sizeof(id)) == 0))
			continue;
		name = tier_marks_name(number, id);
		r = name_list_add(&l, &name);
	}
	return r < 0 ? r : delete_all(c, l.v, l.nr, "deleting marks");
}

/* After packs were deleted: a temporary may be another name of one. */
static int sweep(struct tier_collector *c)
{
	static const char *const prefixes[] = {
		TIER_PACKS_PREFIX, TIER_SEALED_PREFIX, TIER_LOG_PREFIX, TIER_MARKS_PREFIX, "keys/", "probe/",
	};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(prefixes) && r == 0; i++)
		r = tier_sweep(c->tier, prefixes[i]);
	return r;
}

int tier_collector_delete(struct tier_collector *c)
{
	int r = 0;

	for (size_t i = 0; i < c->nr_stores && r == 0; i++) /* found in the list only */
		r = tier_log_join(&c->log, c->stores[i].id);
	if (r == 0)
		r = append_generation(c);
	else if (r == -ESTALE)
		r = busy(c);
	if (r == 0)
		r = put_fences(c);
	if (r == 0)
		r = tier_log_follow(&c->log, NULL, NULL);
	if (r == -ESTALE || (r == 0 && c->log.generation != c->generation))
		r = busy(c);
	if (r == 0)
		r = delete_numbers(c);
	if (r == 0)
		r = delete_packs(c);
	if (r == 0)
		r = delete_marks(c);
	if (r == 0)
		r = sweep(c);
	return r;
}

void tier_collector_figures(const struct tier_collector *c, struct tier_collect_figures *ret)
{
	*ret = c->figures;
}
