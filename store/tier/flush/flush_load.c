/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the tier has. When a writer is opened, it loads the manifests in the tier and the tables of their packs: first
 * those of its own store, from the newest one back, until the memory for chunks is full; then those of other stores.
 * Several requests are in flight. So chunks that its store has flushed are found again, no matter how much other stores
 * have flushed. When a flush begins, it lists the manifests again, and loads those that other stores have put since.
 *
 * A pack of the index is unproven at first. A valid manifest that names one proves it; then 64 bytes of the pack are
 * read, and not its tables.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/flush/flush_state.h"
#include "store/tier/tier_gets.h"

#define FIRST_GET ((size_t)64 << 10) /* of a manifest */
#define ENTRIES_MIN 64u /* of a run of the index */

static bool is_own(const struct tier_writer *w, const uint8_t store[TIER_ID_LEN])
{
	return memcmp(store, w->conf.store, TIER_ID_LEN) == 0;
}

int writer_add_seal(struct tier_writer *w, const struct tier_manifest *m)
{
	struct tier_written s = { .number = m->number, .ino = m->ino, .sealed_ns = m->sealed_ns };
	int r = list_grow(&w->seals, w->nr_seals, &w->seals_room, sizeof(*w->seals));

	if (r < 0)
		return r;
	w->seals[w->nr_seals++] = s;
	if (s.number > w->last.number)
		w->last = s;
	return 0;
}

/* A manifest of this store that is of no use: it is damaged, or of a newer version. */
static int note_unreadable(struct tier_writer *w, uint64_t number, int r)
{
	if (r != -EBADMSG && r != -EOPNOTSUPP)
		return r == -ENOENT || r == -ENODATA ? 0 : r;
	if (number > w->last.number)
		w->last = (struct tier_written){ .number = number };
	return 0;
}

/* A manifest or pack of another store that cannot be read is only useful for sharing: too large, or no permission. */
static bool is_dispensable(const struct tier_writer *w, const char *name, int r)
{
	if (r != -EFBIG && r != -EACCES && r != -EPERM)
		return false;
	log_warning("tier %s: %s: cannot read this object of another store: %s; its chunks are not shared",
		    tier_where(w->tier), name, strerror(-r));
	return true;
}

/* Adds manifests, and what they name, to what a writer has found in the tier. */
struct loading {
	struct tier_writer *w;
	bool is_first; /* when the writer is opened: also own manifests; later ones have what is newer than all before */
	uint64_t nr_chunks, others_max; /* of other stores: added, and at most with an index */
	/* For a run of the index. */
	struct tier_index_entry *entries;
	size_t nr_entries, entries_max;
	bool are_own, was_saved;
	struct listed *v; /* in the order in which they are loaded */
	size_t nr, room;
};

static void loading_release(struct loading *l)
{
	free(l->v);
	free(l->entries);
}

/* No memory is left for chunks. Those found later replace a part of the others, but not all of them. The index has room for
 * all chunks of this store. */
static bool loading_is_full(const struct loading *l, bool own)
{
	if (l->w->index)
		return !own && l->nr_chunks >= l->others_max;
	return l->is_first ? tier_known_is_full(&l->w->known) : l->nr_chunks >= l->w->known.max / 2;
}

/* Writes a run of what has been collected. */
static void save_entries(struct loading *l)
{
	if (l->nr_entries > 0 && l->w->index && tier_index_add(l->w->index, l->entries, l->nr_entries, l->are_own) < 0)
		writer_drop_index(l->w);
	l->was_saved |= l->nr_entries > 0;
	l->nr_entries = 0;
}

static int add_entry(struct loading *l, const struct tier_index_entry *e)
{
	if (!l->entries) {
		l->entries_max = MAX(l->w->known.max / 4, (size_t)ENTRIES_MIN);
		l->entries = malloc(l->entries_max * sizeof(*l->entries));
		if (!l->entries)
			return -ENOMEM;
	}
	l->entries[l->nr_entries++] = *e;
	if (l->nr_entries == l->entries_max)
		save_entries(l);
	return 0;
}

static int add_known_chunk(struct loading *l, struct fp fp, uint32_t len, uint32_t chunk)
{
	struct tier_place place = { l->w->nr_packs, chunk };

	l->nr_chunks += !l->are_own;
	if (l->w->index)
		return add_entry(l, &(struct tier_index_entry){ fp, len, place });
	return l->is_first ? tier_known_add_older(&l->w->known, fp, len, place) :
			     tier_known_add(&l->w->known, fp, len, place);
}

/* Remember the chunks of a pack of a manifest, and the pack. */
static int add_known_chunks(struct loading *l, const struct tier_footer *f, const struct tier_tables *t)
{
	struct tier_writer *w = l->w;
	int r = 0;

	if (!l->is_first && !w->index)
		tier_known_trim(&w->known);
	for (uint32_t i = 0; i < t->nr_frames && r == 0; i++) {
		struct pack_cuts cuts = pack_table_cuts(&t->frames[i].table);

		for (uint32_t k = 0; k < cuts.nr_chunks && r == 0; k++)
			r = add_known_chunk(l, t->frames[i].table.fps[k], pack_cut_len(&cuts, k), t->frames[i].first + k);
	}
	if (r == 0)
		r = tier_ids_add(&w->numbers, f->id, w->nr_packs);
	return r < 0 ? r : writer_add_pack(w, f);
}

static size_t tables_len(const struct tier_footer *f)
{
	return (size_t)f->nr_frames * PACK_BLOCK;
}

/* The tables of a pack have arrived, or their end, if it is in the index. 1; 0: the pack is missing or damaged. */
static int load_tables(struct loading *l, const struct tier_footer *f, const struct tier_got *got)
{
	struct tier_writer *w = l->w;
	uint32_t number;
	struct tier_tables t = { 0 };
	int r = got->q.result;

	if (r == 0 && got->q.got < got->q.len)
		r = -EBADMSG;
	if (r == 0 && tier_ids_find(&w->numbers, f->id, &number)) {
		w->is_dropped[number] = w->is_unproven[number] = false;
		return 1;
	}
	if (r == 0)
		r = tier_tables_decode(got->bytes, got->q.len, f, &w->key, &t);
	if (r == -ENOENT || r == -EBADMSG) {
		log_warning("tier %s: %s: is %s", tier_where(w->tier), got->name.s, r == -ENOENT ? "missing" : "damaged");
		return 0;
	}
	if (r == 0)
		r = add_known_chunks(l, f, &t);
	tier_tables_release(&t);
	return r < 0 ? r : 1;
}

/* Starts to get tables of further packs, beginning with number *next of the manifest. */
static int start_tables(struct loading *l, const struct tier_manifest *m, uint32_t *next, struct tier_gets *gets)
{
	struct tier_writer *w = l->w;
	int r = 0;

	for (; *next < m->nr_packs && r == 0; ++*next) {
		struct tier_footer f;
		uint32_t number;
		bool has_number;
		size_t len;

		if (tier_manifest_pack(m, *next, &f) < 0 ||
		    tier_id_is_in(w->log.marks.dropped, w->log.marks.nr_dropped, f.id))
			continue;
		has_number = tier_ids_find(&w->numbers, f.id, &number);
		if (has_number && !w->is_unproven[number])
			continue;
		len = has_number ? CHECKED_BYTES : tables_len(&f);
		if (loading_is_full(l, l->are_own) || tier_gets_is_full(gets, len))
			break;
		r = tier_gets_start(gets, tier_pack_name(f.id), f.data_len + tables_len(&f) - len, len, *next);
		if (has_number && !l->are_own)
			l->nr_chunks += f.nr_frames * (PACK_FRAME_BYTES / PACK_BLOCK); /* so that requests are bounded */
	}
	return r;
}

/* Loads the tables of its packs. */
static int load_packs(struct loading *l, const struct tier_manifest *m)
{
	_cleanup_(tier_gets_release) struct tier_gets gets;
	struct tier_writer *w = l->w;
	bool own = is_own(w, m->store);
	struct tier_got *got;
	uint32_t next = 0;
	int r = tier_gets_init(w->tier, &gets);

	if (l->are_own != own)
		save_entries(l);
	l->are_own = own;
	while (r == 0) {
		struct tier_footer f;

		r = start_tables(l, m, &next, &gets);
		got = r == 0 ? tier_gets_next(&gets) : NULL;
		if (!got)
			return r;
		if (loading_is_full(l, own) && got->q.len > CHECKED_BYTES)
			continue;
		tier_manifest_pack(m, got->tag, &f);
		r = load_tables(l, &f, got);
		if (r == 0 && !own)
			return 0; /* up to a million of its packs may be missing: do not try them all */
		if (r == 0)
			w->seals[w->nr_seals - 1].lacks_packs = true; /* this one: it is flushed again */
		if (r < 0 && !own && is_dispensable(w, got->name.s, r))
			r = 0;
		r = MIN(r, 0);
	}
	return r;
}

/* Own manifests with a key that is missing or damaged are damaged. 0/-EBADMSG */
static int check_other_key(struct tier_writer *w, const uint8_t id[TIER_ID_LEN])
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct tier_key key;
	int r;

	for (size_t i = 0; i < w->nr_keys; i++)
		if (memcmp(w->keys[i].id, id, TIER_ID_LEN) == 0)
			return w->keys[i].is_there ? 0 : -EBADMSG;
	r = tier_get_all(w->tier, tier_key_name(id).s, sizeof(struct tier_key_disk), &b);
	if (r < 0 && r != -ENOENT && r != -EFBIG)
		return r;
	if (r == 0)
		r = tier_key_decode(b.data, b.len, &key);
	if (r == 0 && memcmp(key.id, id, sizeof(key.id)) != 0)
		r = -EBADMSG;
	if (list_grow(&w->keys, w->nr_keys, &w->keys_room, sizeof(*w->keys)) < 0)
		return -ENOMEM;
	memcpy(w->keys[w->nr_keys].id, id, TIER_ID_LEN);
	w->keys[w->nr_keys++].is_there = r == 0;
	return r == 0 ? 0 : -EBADMSG;
}

/* More of a manifest: up to `len` bytes of it, behind those that have arrived. */
static int get_rest(struct tier_writer *w, const struct tier_got *got, size_t len, struct buf *ret)
{
	size_t there = MIN(got->q.got, len);
	int r;

	buf_add(ret, got->bytes, there);
	r = buf_reserve(ret, len - there);
	if (r == 0 && len > there)
		r = tier_get(w->tier, got->name.s, there, ret->data + there, len - there);
	ret->len += r == 0 ? len - there : 0;
	return r < 0 ? r : buf_error(ret);
}

/*
 * The first bytes of a manifest have arrived. The rest of an own manifest is read and checked, unless there is no memory
 * for chunks. Of a manifest of another store only the names of packs are read: ids verify the tables of packs.
 */
static int decode_manifest(const struct loading *l, const struct listed *m, const struct tier_got *got, struct buf *b,
			   struct tier_manifest *ret)
{
	bool own = is_own(l->w, m->store);
	int r = got->q.result;

	if (r == 0)
		r = tier_manifest_head_decode(got->bytes, got->q.got, ret);
	if (r == 0 && (ret->number != m->number || memcmp(ret->store, m->store, sizeof(ret->store)) != 0 ||
		       got->q.size > TIER_MANIFEST_MAX || !tier_manifest_has_size(ret, got->q.size)))
		r = -EBADMSG;
	if (r < 0 || loading_is_full(l, own))
		return r;
	r = get_rest(l->w, got, (size_t)(got->q.size - (own ? 0 : ret->catalog_len)), b);
	if (r == 0)
		r = own ? tier_manifest_decode(b->data, b->len, ret) : tier_manifest_head_decode(b->data, b->len, ret);
	if (r == 0)
		ret->packs = (const uint8_t *)ret->path + ret->path_len;
	return r;
}

/* One that is damaged, or of a newer version, is of no use for sharing, and is left alone. Its number is taken. */
static int load_manifest(struct loading *l, const struct listed *m, const struct tier_got *got)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct tier_writer *w = l->w;
	bool own = is_own(w, m->store), has_key;
	struct tier_manifest man = { 0 };
	int r = decode_manifest(l, m, got, &b, &man);

	has_key = r == 0 && memcmp(man.key_id, w->conf.key.id, sizeof(man.key_id)) == 0;
	if (r == 0 && own && !has_key)
		r = check_other_key(w, man.key_id);
	if (own)
		r = r < 0 ? note_unreadable(w, m->number, r) : writer_add_seal(w, &man);
	else if (r == -ENOENT || r == -ENODATA || r == -EBADMSG || r == -EOPNOTSUPP || is_dispensable(w, got->name.s, r))
		return 0;
	return r < 0 || !has_key || !man.packs ? r : load_packs(l, &man);
}

static int compare_listed(const void *a, const void *b)
{
	const struct listed *x = a, *y = b;
	int by_store = memcmp(x->store, y->store, sizeof(x->store));

	return by_store != 0 ? by_store : (x->number > y->number) - (x->number < y->number);
}

/* Own ones from the last one back; then the last one of each other store, and the one before it of each. */
static int compare_ranks(const void *a, const void *b)
{
	const struct listed *x = a, *y = b;

	if (x->is_own != y->is_own)
		return y->is_own - x->is_own;
	return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) : compare_listed(a, b);
}

static int add_listed(struct loading *l, const char *name)
{
	struct tier_writer *w = l->w;
	struct listed m = { 0 };
	bool own;
	int r;

	if (!tier_manifest_name_parse(name, m.store, &m.number))
		return 0;
	own = m.is_own = is_own(w, m.store);
	if (own && l->is_first)
		w->number = MAX(w->number, m.number + 1);
	/* else retention has removed it, or a stale machine has put it */
	if ((own && !l->is_first) || !tier_log_keeps(&w->log, m.store, m.number))
		return 0;
	if (!own && w->nr_seen > 0 && bsearch(&m, w->seen, w->nr_seen, sizeof(m), compare_listed))
		return 0;
	r = list_grow(&l->v, l->nr, &l->room, sizeof(*l->v));
	if (r == 0)
		l->v[l->nr++] = m;
	return r;
}

/* Those of a list that have not been loaded, in the order in which they are to be loaded. */
static int add_list(struct loading *l, const struct buf *names)
{
	uint64_t rank = 0;
	int r = 0;

	for (size_t at = 0; at < names->len && r == 0; at += strlen((const char *)names->data + at) + 1)
		r = add_listed(l, (const char *)names->data + at);
	if (r < 0 || l->nr == 0)
		return r;
	qsort(l->v, l->nr, sizeof(*l->v), compare_listed);
	for (size_t i = l->nr; i-- > 0;) {
		bool is_last = i + 1 == l->nr || memcmp(l->v[i].store, l->v[i + 1].store, sizeof(l->v[i].store)) != 0;

		l->v[i].rank = rank = is_last ? 0 : rank + 1;
	}
	qsort(l->v, l->nr, sizeof(*l->v), compare_ranks);
	return 0;
}

static int add_seen(struct tier_writer *w, const struct listed *m)
{
	int r = m->is_own ? 0 : list_grow(&w->seen, w->nr_seen, &w->seen_room, sizeof(*w->seen));

	if (r == 0 && !m->is_own)
		w->seen[w->nr_seen++] = *m;
	return r;
}

/* Manifests of other stores for which there is no memory are loaded by a later flush. */
static int load_list(struct loading *l)
{
	_cleanup_(tier_gets_release) struct tier_gets heads;
	struct tier_writer *w = l->w;
	size_t next = 0;
	int r = tier_gets_init(w->tier, &heads);

	for (size_t i = 0; i < l->nr && r == 0; i++) {
		if (!l->v[i].is_own && loading_is_full(l, false))
			break;
		for (; next < l->nr && r == 0 && !tier_gets_is_full(&heads, FIRST_GET); next++)
			r = tier_gets_start(&heads, tier_manifest_name(l->v[next].store, l->v[next].number), 0,
					    FIRST_GET, 0);
		if (r == 0)
			r = load_manifest(l, &l->v[i], tier_gets_next(&heads));
		if (r == 0 && !loading_is_full(l, false)) /* else some of its packs may be missing */
			r = add_seen(w, &l->v[i]);
	}
	if (w->nr_seen > 0)
		qsort(w->seen, w->nr_seen, sizeof(*w->seen), compare_listed);
	save_entries(l);
	return r;
}

/* Own manifests that a late list lacks. A fence among them may be that of a generation that has not been read. */
static int load_unlisted(struct loading *l)
{
	struct tier_writer *w = l->w;

	for (;;) {
		_cleanup_(tier_gets_release) struct tier_gets gets = { 0 };
		struct listed m = { .number = w->number, .is_own = true };
		uint64_t before = w->number;
		struct tier_got *got;
		int r = tier_gets_init(w->tier, &gets);

		memcpy(m.store, w->conf.store, sizeof(m.store));
		if (r == 0)
			r = tier_gets_start(&gets, tier_manifest_name(m.store, m.number), 0, FIRST_GET, 0);
		if (r < 0)
			return r;
		got = tier_gets_next(&gets);
		if (got->q.result < 0)
			return got->q.result == -ENOENT ? 0 : got->q.result;
		r = tier_log_follow(&w->log, writer_apply_generation, w);
		if (r == 0 && w->number == before) {
			w->number++;
			r = tier_log_keeps(&w->log, m.store, m.number) ? load_manifest(l, &m, got) : 0;
		}
		if (r < 0)
			return r;
	}
}

/* The log is read after the list: so each fence in the list has a generation that has been read. */
int writer_load_all(struct tier_writer *w)
{
	_cleanup_(loading_release) struct loading l = { .w = w, .is_first = true };
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	int r = tier_list_all(w->tier, TIER_SEALED_PREFIX, &names);

	if (r == 0)
		r = tier_log_read(w->tier, &w->log);
	if (r == 0)
		r = tier_log_join(&w->log, w->conf.store);
	if (r == 0)
		writer_apply_generation(w);
	l.others_max = writer_others_max(w, 0);
	if (r == 0)
		r = add_list(&l, &names);
	if (r == 0)
		r = load_list(&l);
	if (r == 0)
		r = load_unlisted(&l);
	save_entries(&l);
	if (r == 0 && l.was_saved && w->index)
		writer_commit_index(w, 0);
	w->is_overtaken = false;
	return r;
}

/*
 * What other stores have flushed since. The log has been read before: a manifest that a later generation removes names
 * no pack that this generation drops.
 */
int writer_load_new(struct tier_writer *w, uint64_t checkpoint_bytes)
{
	_cleanup_(loading_release) struct loading l = { .w = w, .others_max = writer_others_max(w, checkpoint_bytes) };
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	int r = tier_list_all(w->tier, TIER_SEALED_PREFIX, &names);

	if (r == 0)
		r = add_list(&l, &names);
	if (r == 0)
		r = load_list(&l);
	if (r == 0 && l.was_saved && w->index)
		writer_commit_index(w, checkpoint_bytes);
	return r;
}
