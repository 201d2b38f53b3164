/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * When a writer is opened, it loads the manifests in the tier and the tables of their packs: first those of its own
 * store, from the newest one back, until the memory for chunks is full; then those of other stores. Several requests
 * are in flight. So chunks that its store has flushed are found again, no matter how much other stores have flushed.
 * When a flush begins, it lists the manifests again, and loads those that other stores have put since.
 *
 * With an index in the store (tier_index.c), chunks that memory drops are found there, and tables are loaded into it.
 * Its packs are unproven at first. A valid manifest that names one proves it; then 64 bytes of the pack are read, and
 * not its tables. Packs that a flush has added count once its manifest is in the tier.
 *
 * Flushing a checkpoint. Only the order makes it safe:
 *   1. key, as a new object              crash: a key without manifests, for the next writer
 *   2. packs, several at once, and all   crash: packs that no manifest names. A flush of the same content makes the
 *      of them are awaited               same packs and finds their names taken; a collection removes others
 *   3. manifest, as a new object         COMMIT POINT: it exists if and only if all that it names exists
 *   4. new entries of the log are read   crash: the next writer finds the manifest, valid or not
 * Chunks are shared with packs that a manifest names, and with those that this writer has put itself. If the name of a
 * pack is taken, a flush that ended early has put it, or another node is putting it.
 *
 * Collections (tier_collect.c) delete packs while writers are at work. A writer joins in the log before it puts a
 * manifest. If it finds a fence in the place of its manifest, it reads the generation of the fence, and puts the
 * manifest at the next number only if it names no dropped pack. Step 4 detects that the number of the manifest had been
 * used before, and its object deleted. Then the manifest is not valid, and the flush fails.
 *
 * The tier may have been emptied since the writer was opened. So before step 3 the key, the last manifest and the packs
 * of earlier flushes are read again, a few bytes of each. If one is missing, the flush fails, and the next writer
 * compares everything again.
 *
 * The previous writer may have ended after its manifest had become visible and before it was durable. So the last
 * manifest is put once more, as a new object: this makes it durable, and changes nothing.
 *
 * The names of keys and packs are derived from their content. So one that is cut off or has other tables was damaged in
 * the tier, and is replaced. A manifest whose packs are missing or damaged when the writer is opened does not count:
 * its directory is flushed again, under the next number.
 *
 * Fencing. Manifests of a store are numbered without gaps, together with the fences of collections. A writer puts its
 * manifest at the number behind the last one that it knows. If two machines write for one store, the second one finds
 * the name taken by a manifest that is not its own, and stops. The answer to a put may be lost, so it compares the
 * bytes. If numbers were used and deleted meanwhile, the marks of a collection have the last manifest of the store.
 *
 * The catalog is converted record by record. New chunks of a record are read, appended to the pack in memory, and have
 * their numbers in it before the record is written with runs. Chunks of varied lengths follow those of one length, so
 * that frames, each of which has one kind, become full. While the chunks of a record are read, those of the record
 * before it are appended. So a chunk that both have is read twice, and appended once.
 */
#include "store/tier/tier_flush.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/catalog/catalog_format.h"
#include "store/tier/collect/tier_log.h"
#include "store/tier/index/tier_index.h"
#include "store/tier/tier.h"
#include "store/tier/tier_gets.h"
#include "store/tier/tier_ids.h"
#include "store/tier/tier_known.h"

#define PACK_BYTES_DEFAULT MiB(64)
#define IN_FLIGHT_DEFAULT 2u
#define IN_FLIGHT_MAX 16u
#define KNOWN_DEFAULT ((uint64_t)16 << 20)
#define READ_BYTES ((size_t)MiB(4)) /* read from the source at once */
#define CHECKS_IN_FLIGHT 16u
#define CHECKED_BYTES 64u /* of an object, to verify that it exists */
#define FIRST_GET ((size_t)64 << 10) /* of a manifest */
#define FILTER_BYTES 16u /* memory of the index, for each known chunk */
#define ENTRIES_MIN 64u /* of a run of the index */
#define OTHERS_PER_KNOWN 16u /* chunks of other stores in the index, for each one that fits into memory */
#define DISCARDED_MAX 10000u /* packs of abandoned flushes that are listed */

/* A pack that is being put. */
struct sending {
	struct tier_request q;
	struct tier_object_name name;
	struct buf bytes;
};

struct tier_writer {
	struct tier *tier;
	struct tier_writer_conf conf;
	struct fp_key key;
	struct tier_queue *queue;
	struct tier_log log;
	uint64_t number; /* of the next manifest */
	struct tier_written last; /* manifest of this store */
	bool is_overtaken; /* a collection has found a later one */
	bool has_failed; /* in the tier: known chunks may be in packs that were not put; or the index is gone */

	struct tier_known known; /* places in `packs` */
	struct tier_footer *packs; /* in the tier, or about to be; the last one may be open */
	bool *is_dropped; /* each of them: by a collection, or unproven */
	bool *is_unproven; /* each of them: of the index, and no valid manifest that names it has been read yet */
	uint32_t nr_packs, nr_discarded; /* nr_discarded: of flushes that were abandoned */
	size_t packs_room, dropped_room, unproven_room;
	struct tier_index *index; /* places in `packs`; NULL: none */
	struct tier_ids numbers; /* of packs that are closed */
	struct tier_written *seals; /* of this store, in the tier */
	size_t nr_seals, seals_room;
	struct listed *seen; /* manifests of other stores that have been loaded, ascending */
	size_t nr_seen, seen_room;
	struct other_key {
		uint8_t id[TIER_ID_LEN];
		bool is_there;
	} * keys; /* of own manifests with another key than the writer's */
	size_t nr_keys, keys_room;

	/* The open pack, the last of `packs`; without frames and chunks: there is none. */
	bool is_open;
	struct buf data, tables;
	uint32_t nr_chunks;
	struct pack_table frame; /* the open frame of it, if it has chunks */
	uint32_t frame_len;

	struct sending sending[IN_FLIGHT_MAX];
	bool is_sending[IN_FLIGHT_MAX];
};

/* --- packs --- */

static int add_pack(struct tier_writer *w, const struct tier_footer *f)
{
	int r = list_grow(&w->packs, w->nr_packs, &w->packs_room, sizeof(*w->packs));

	if (r == 0)
		r = list_grow(&w->is_dropped, w->nr_packs, &w->dropped_room, sizeof(*w->is_dropped));
	if (r == 0)
		r = list_grow(&w->is_unproven, w->nr_packs, &w->unproven_room, sizeof(*w->is_unproven));
	if (r < 0)
		return r;
	w->packs[w->nr_packs] = *f;
	w->is_unproven[w->nr_packs] = false;
	w->is_dropped[w->nr_packs++] = false;
	return 0;
}

static int open_pack(struct tier_writer *w)
{
	int r = add_pack(w, &(struct tier_footer){ 0 });

	if (r < 0)
		return r;
	w->is_open = true;
	w->nr_chunks = 0;
	return 0;
}

static void close_frame(struct tier_writer *w)
{
	struct pack_table_disk d;

	if (w->frame.nr_chunks == 0)
		return;
	pack_table_encode(&w->frame, &w->key, TIER_PACK_NUMBER + (uint32_t)w->log.generation,
			  (uint32_t)(w->tables.len / PACK_BLOCK), &d);
	buf_add(&w->tables, &d, sizeof(d));
	w->frame.nr_chunks = 0;
	w->frame_len = 0;
}

static int replace(struct tier_writer *w, const char *name, const void *data, size_t len)
{
	struct tier_request q = { .op = TIER_PUT, .name = name, .data = data, .len = len };

	log_warning("tier %s: %s: is damaged there; it is replaced", tier_where(w->tier), name);
	return tier_call(w->tier, &q);
}

/*
 * The name of a pack is taken. Its id is the digest of its tables, so the object there has the same chunks, unless it
 * was damaged: it must have this length, tables and footer. Reading its data would take as long as sending it.
 */
static int check_pack(struct tier_writer *w, const struct sending *s)
{
	const struct tier_footer_disk *own = (const void *)(s->bytes.data + s->bytes.len - sizeof(*own));
	uint64_t data_len = le64_get(own->data_len);
	size_t len = s->bytes.len - (size_t)data_len;
	_cleanup_(freep) uint8_t *there = malloc(len);
	struct tier_request q = { .op = TIER_GET, .name = s->name.s, .off = data_len, .buf = there, .len = len };
	int r = there ? tier_call(w->tier, &q) : -ENOMEM;

	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0 && q.got == len && q.size == s->bytes.len && memcmp(there, s->bytes.data + data_len, len) == 0)
		return 0;
	return replace(w, s->name.s, s->bytes.data, s->bytes.len);
}

/* Wait for one pack in flight. */
static int await_pack(struct tier_writer *w)
{
	struct tier_request *q = tier_next(w->queue);
	struct sending *s = container_of(q, struct sending, q);
	int r = q->result == -EEXIST ? check_pack(w, s) : q->result;

	w->is_sending[s - w->sending] = false;
	w->has_failed |= r < 0;
	buf_clear(&s->bytes); /* new memory for the next pack would cost a page fault for each page */
	return r < 0 ? log_errno(r, "tier %s: %s: cannot put the pack", tier_where(w->tier), s->name.s) : 0;
}

static int await_packs(struct tier_writer *w)
{
	int r = 0;

	while (tier_in_flight(w->queue) > 0) {
		int one = await_pack(w);

		r = r < 0 ? r : one;
	}
	return r;
}

/* Frees the memory for packs that are not in flight: until the next flush, hours may pass. */
static void release_packs(struct tier_writer *w)
{
	for (unsigned i = 0; i < IN_FLIGHT_MAX; i++)
		if (!w->is_sending[i])
			buf_release(&w->sending[i].bytes);
	if (!w->is_open)
		buf_release(&w->data);
}

static int close_pack(struct tier_writer *w, struct tier_flushed *sums)
{
	struct tier_footer *f = &w->packs[w->nr_packs - 1];
	struct tier_footer_disk d;
	struct sending *s = NULL;
	struct buf spare;
	int r;

	close_frame(w);
	*f = (struct tier_footer){
		.data_len = w->data.len,
		.nr_frames = (uint32_t)(w->tables.len / PACK_BLOCK),
	};
	memcpy(f->key_id, w->conf.key.id, sizeof(f->key_id));
	tier_tables_id(w->tables.data, w->tables.len, f->id);
	tier_footer_encode(f, &d);
	buf_add(&w->data, w->tables.data, w->tables.len);
	buf_add(&w->data, &d, sizeof(d));
	buf_clear(&w->tables);
	w->is_open = false;
	r = buf_error(&w->tables) < 0 ? -ENOMEM : buf_error(&w->data);
	if (r == 0)
		r = tier_ids_add(&w->numbers, f->id, w->nr_packs - 1);
	if (r == 0 && tier_in_flight(w->queue) == w->conf.packs_in_flight)
		r = await_pack(w);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < w->conf.packs_in_flight && !s; i++)
		if (!w->is_sending[i]) {
			w->is_sending[i] = true;
			s = &w->sending[i];
		}
	assert(s);
	sums->packs++;
	sums->bytes += w->data.len;
	spare = s->bytes;
	s->bytes = w->data;
	w->data = spare;
	s->name = tier_pack_name(f->id);
	s->q = (struct tier_request){
		.op = TIER_PUT_NEW,
		.name = s->name.s,
		.data = s->bytes.data,
		.len = s->bytes.len,
	};
	tier_start(w->queue, &s->q);
	return 0;
}

/* Chunks of one length, or (0) of varied lengths. */
static uint32_t kind_of(uint32_t len)
{
	return len % PACK_BLOCK == 0 ? len : PACK_VARIED;
}

static bool frame_takes(const struct tier_writer *w, uint32_t len)
{
	return w->frame.nr_chunks == 0 ||
	       (w->frame.chunk_len == kind_of(len) && w->frame.nr_chunks < pack_nr_chunks_max(w->frame.chunk_len) &&
		w->frame_len + len <= PACK_FRAME_BYTES);
}

static int append_chunk(struct tier_writer *w, const struct tier_want *c, struct tier_flushed *sums)
{
	struct pack_table *t = &w->frame;
	int r = 0;

	if (!fp_is_of(&w->key, c->fp, c->buf, c->len))
		return log_errno(-EBADMSG, "chunk %s: the store returned other bytes", fp_hex(c->fp).s);
	if (!frame_takes(w, c->len))
		close_frame(w);
	if (w->is_open && t->nr_chunks == 0 &&
	    (w->data.len >= w->conf.pack_bytes || w->tables.len == TIER_PACK_FRAMES_MAX * (size_t)PACK_BLOCK))
		r = close_pack(w, sums);
	if (r == 0 && !w->is_open)
		r = open_pack(w);
	if (r < 0)
		return r;
	if (t->nr_chunks == 0)
		*t = (struct pack_table){ .chunk_len = kind_of(c->len) };
	t->fps[t->nr_chunks] = c->fp;
	w->frame_len += c->len;
	if (t->chunk_len == PACK_VARIED)
		t->ends[t->nr_chunks] = w->frame_len;
	t->nr_chunks++;
	buf_add(&w->data, c->buf, c->len);
	sums->chunks++;
	sums->chunk_bytes += c->len;
	r = buf_error(&w->data);
	return r < 0 ? r :
		       tier_known_add(&w->known, c->fp, c->len, (struct tier_place){ w->nr_packs - 1, w->nr_chunks++ });
}

/* --- the index --- */

/* It could not be written, which has been logged. The flush goes on without it. */
static void drop_index(struct tier_writer *w)
{
	tier_index_close(TAKE(w->index));
}

/* Its packs are not used before a valid manifest that names them has been read. */
static int open_index(struct tier_writer *w)
{
	const char *where = tier_where(w->tier);
	struct tier_index_owner owner;
	struct sha256_digest digest;
	struct sha256 h;
	int r = 0;

	if (!w->conf.has_store)
		return 0;
	sha256_init(&h);
	sha256_add(&h, where, strlen(where));
	digest = sha256_finish(&h);
	memcpy(owner.store, w->conf.store, sizeof(owner.store));
	memcpy(owner.key_id, w->conf.key.id, sizeof(owner.key_id));
	memcpy(owner.where, digest.b, sizeof(owner.where));
	if (tier_index_open(w->conf.store_dirfd, &owner, w->known.max * FILTER_BYTES, &w->index) < 0)
		return 0;
	for (uint32_t i = 0; i < tier_index_nr_packs(w->index) && r == 0; i++) {
		struct tier_footer f = { 0 };
		bool is_valid = tier_index_pack(w->index, i, &f) == 0;

		r = add_pack(w, &f);
		if (r < 0)
			break;
		w->is_dropped[i] = true;
		w->is_unproven[i] = is_valid;
		if (is_valid)
			r = tier_ids_add(&w->numbers, f.id, i);
	}
	return r;
}

/* Writes a run of the chunks that are only in memory: those of the older half, which is dropped next, or all. */
static void save_known(struct tier_writer *w, bool older_only)
{
	_cleanup_(freep) struct tier_index_entry *v = NULL;
	struct tier_known_slot *s;
	size_t nr = 0, at = 0, i = 0;

	while (tier_known_unsaved_next(&w->known, older_only, &at))
		nr++;
	v = malloc(MAX(nr, (size_t)1) * sizeof(*v));
	for (at = 0; v && (s = tier_known_unsaved_next(&w->known, older_only, &at)); s->is_saved = true)
		v[i++] = (struct tier_index_entry){ s->fp, s->len, s->place };
	if (!v || tier_index_add(w->index, v, nr, true) < 0)
		drop_index(w);
}

static void trim_known(struct tier_writer *w)
{
	if (w->index && tier_known_is_due(&w->known))
		save_known(w, true);
	tier_known_trim(&w->known);
}

/*
 * Entries of chunks that only other stores have flushed. With a checkpoint of the same size as theirs all of them fit. A
 * sparse file has any size, so this has a limit.
 */
static uint64_t others_max(const struct tier_writer *w, uint64_t checkpoint_bytes)
{
	uint64_t max = MIN(checkpoint_bytes / PACK_BLOCK, OTHERS_PER_KNOWN * (uint64_t)w->known.max);

	max = MAX(max, (uint64_t)w->known.max);
	return w->index ? MAX(max, tier_index_nr_entries(w->index, true)) : max;
}

static void commit_index(struct tier_writer *w, uint64_t checkpoint_bytes)
{
	_cleanup_(buf_release) struct buf packs = BUF_EMPTY;

	for (uint32_t i = 0; i < w->nr_packs; i++)
		tier_pack_ref_encode(&w->packs[i], &packs);
	if (buf_error(&packs) < 0 ||
	    tier_index_commit(w->index, packs.data, w->nr_packs, w->is_dropped, others_max(w, checkpoint_bytes)) < 0)
		drop_index(w);
}

/* 1: the chunk is in the tier, and its place is in memory until the next but one trim_known(). 0: it is not known */
static int use_chunk(struct tier_writer *w, struct fp fp, uint32_t len)
{
	int r = tier_known_use(&w->known, fp, len);
	struct tier_place place;
	bool own;

	if (r != 0 || !w->index)
		return r;
	r = tier_index_find(w->index, fp, len, w->is_dropped, w->nr_packs, &place, &own);
	w->has_failed |= r < 0; /* the index is gone: a new writer makes it again from the tier */
	if (r <= 0)
		return r;
	r = own ? tier_known_add_saved(&w->known, fp, len, place) : tier_known_add(&w->known, fp, len, place);
	return r < 0 ? r : 1;
}

/* --- what is in the tier --- */

static bool is_own(const struct tier_writer *w, const uint8_t store[TIER_ID_LEN])
{
	return memcmp(store, w->conf.store, TIER_ID_LEN) == 0;
}

static int add_written(struct tier_writer *w, const struct tier_manifest *m)
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
	struct listed {
		uint8_t store[TIER_ID_LEN];
		uint64_t number;
		uint64_t rank; /* 0: the last one of its store */
		bool is_own;
	} * v; /* in the order in which they are loaded */
	size_t nr, room;
};

static void loading_release(struct loading *l)
{
	free(l->v);
	free(l->entries);
}

/* No memory is left for chunks. Those found later replace a part of the others, but not all of them. The index has room for
 * all chunks of this store. */
static bool is_full(const struct loading *l, bool own)
{
	if (l->w->index)
		return !own && l->nr_chunks >= l->others_max;
	return l->is_first ? tier_known_is_full(&l->w->known) : l->nr_chunks >= l->w->known.max / 2;
}

/* Writes a run of what has been collected. */
static void save_entries(struct loading *l)
{
	if (l->nr_entries > 0 && l->w->index && tier_index_add(l->w->index, l->entries, l->nr_entries, l->are_own) < 0)
		drop_index(l->w);
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
	return r < 0 ? r : add_pack(w, f);
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
		if (is_full(l, l->are_own) || tier_gets_is_full(gets, len))
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
		if (is_full(l, own) && got->q.len > CHECKED_BYTES)
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
	if (r < 0 || is_full(l, own))
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
		r = r < 0 ? note_unreadable(w, m->number, r) : add_written(w, &man);
	else if (r == -ENOENT || r == -ENODATA || r == -EBADMSG || r == -EOPNOTSUPP || is_dispensable(w, got->name.s, r))
		return 0;
	return r < 0 || !has_key || !man.packs ? r : load_packs(l, &man);
}

/* Adopts the marks of a generation. No pack is open. */
static void apply_generation(void *userdata)
{
	struct tier_writer *w = userdata;
	const struct tier_marks *m = &w->log.marks;
	const struct tier_store_marks *s = tier_marks_store(m, w->conf.store);
	bool any = false;
	size_t nr = 0;

	for (uint32_t i = 0; i < w->nr_packs; i++)
		if (!w->is_dropped[i] && tier_id_is_in(m->dropped, m->nr_dropped, w->packs[i].id))
			any = w->is_dropped[i] = true;
	if (any)
		tier_known_forget(&w->known, w->is_dropped);
	if (!s)
		return;
	w->number = MAX(w->number, s->base + 1);
	if (s->last > w->last.number) {
		w->last = (struct tier_written){ .number = s->last, .ino = s->last_ino, .sealed_ns = s->last_sealed_ns };
		w->is_overtaken = true;
	}
	for (size_t i = 0; i < w->nr_seals; i++)
		if (tier_log_keeps(&w->log, w->conf.store, w->seals[i].number))
			w->seals[nr++] = w->seals[i];
	w->nr_seals = nr;
}

static int another_machine(const struct tier_writer *w, const char *name)
{
	return log_errno(-ENOTUNIQ,
			 "tier %s: %s: another machine writes for this store: this one stops flushing. Unmount one of them",
			 tier_where(w->tier), name);
}

static int read_generations(struct tier_writer *w)
{
	int r = tier_log_follow(&w->log, apply_generation, w);

	if (r == -EBADMSG)
		return -EIO; /* the log is damaged, and not what is flushed */
	if (r == 0 && w->is_overtaken)
		return another_machine(w, tier_manifest_name(w->conf.store, w->last.number).s);
	if (r == -ESTALE)
		log_notice("tier %s: several collections have ended since the log was read: reading it again",
			   tier_where(w->tier));
	return r;
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
		if (!l->v[i].is_own && is_full(l, false))
			break;
		for (; next < l->nr && r == 0 && !tier_gets_is_full(&heads, FIRST_GET); next++)
			r = tier_gets_start(&heads, tier_manifest_name(l->v[next].store, l->v[next].number), 0,
					    FIRST_GET, 0);
		if (r == 0)
			r = load_manifest(l, &l->v[i], tier_gets_next(&heads));
		if (r == 0 && !is_full(l, false)) /* else some of its packs may be missing */
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
		r = tier_log_follow(&w->log, apply_generation, w);
		if (r == 0 && w->number == before) {
			w->number++;
			r = tier_log_keeps(&w->log, m.store, m.number) ? load_manifest(l, &m, got) : 0;
		}
		if (r < 0)
			return r;
	}
}

/* The log is read after the list: so each fence in the list has a generation that has been read. */
static int load_manifests(struct tier_writer *w)
{
	_cleanup_(loading_release) struct loading l = { .w = w, .is_first = true };
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	int r = tier_list_all(w->tier, TIER_SEALED_PREFIX, &names);

	if (r == 0)
		r = tier_log_read(w->tier, &w->log);
	if (r == 0)
		r = tier_log_join(&w->log, w->conf.store);
	if (r == 0)
		apply_generation(w);
	l.others_max = others_max(w, 0);
	if (r == 0)
		r = add_list(&l, &names);
	if (r == 0)
		r = load_list(&l);
	if (r == 0)
		r = load_unlisted(&l);
	save_entries(&l);
	if (r == 0 && l.was_saved && w->index)
		commit_index(w, 0);
	w->is_overtaken = false;
	return r;
}

/*
 * What other stores have flushed since. The log has been read before: a manifest that a later generation removes names
 * no pack that this generation drops.
 */
static int load_new_manifests(struct tier_writer *w, uint64_t checkpoint_bytes)
{
	_cleanup_(loading_release) struct loading l = { .w = w, .others_max = others_max(w, checkpoint_bytes) };
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	int r = tier_list_all(w->tier, TIER_SEALED_PREFIX, &names);

	if (r == 0)
		r = add_list(&l, &names);
	if (r == 0)
		r = load_list(&l);
	if (r == 0 && l.was_saved && w->index)
		commit_index(w, checkpoint_bytes);
	return r;
}

/* The last manifest may be visible and not durable yet. */
static int confirm_last_manifest(struct tier_writer *w)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct tier_object_name name;
	int r;

	if (w->number == 1)
		return 0;
	name = tier_manifest_name(w->conf.store, w->number - 1);
	r = tier_get_all(w->tier, name.s, TIER_MANIFEST_MAX, &b);
	if (r == -ENOENT || r == -EFBIG || r == -EBADMSG) /* no seal relies on it */
		return 0;
	if (r == 0)
		r = tier_put_new(w->tier, name.s, b.data, b.len);
	return r == -EEXIST ? 0 : r;
}

/* The id is made from the key: an object of this name with other bytes is damaged. */
static int put_key(struct tier_writer *w)
{
	struct tier_object_name name = tier_key_name(w->conf.key.id);
	_cleanup_(buf_release) struct buf there = BUF_EMPTY;
	struct tier_key_disk d;
	int r;

	tier_key_encode(&w->conf.key, &d);
	r = tier_put_new(w->tier, name.s, &d, sizeof(d));
	if (r != -EEXIST)
		return r;
	r = tier_get_all(w->tier, name.s, sizeof(d), &there);
	if (r < 0 && r != -ENOENT && r != -EFBIG && r != -EBADMSG)
		return r;
	if (r == 0 && there.len == sizeof(d) && memcmp(there.data, &d, sizeof(d)) == 0)
		return 0;
	return replace(w, name.s, &d, sizeof(d));
}

int tier_writer_open(struct tier *t, const struct tier_writer_conf *conf, struct tier_writer **ret)
{
	_cleanup_(tier_writer_closep) struct tier_writer *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->tier = t;
	w->conf = *conf;
	w->conf.pack_bytes = conf->pack_bytes > 0 ? conf->pack_bytes : PACK_BYTES_DEFAULT;
	w->conf.packs_in_flight =
		MIN(conf->packs_in_flight > 0 ? conf->packs_in_flight : IN_FLIGHT_DEFAULT, IN_FLIGHT_MAX);
	w->conf.manifest_max = conf->manifest_max > 0 ? conf->manifest_max : TIER_MANIFEST_MAX;
	w->known.max = conf->known_max > 0 ? conf->known_max : KNOWN_DEFAULT;
	w->number = 1;
	fp_key_init(&w->key, conf->key.hash, conf->key.secret);
	r = tier_queue_new(t, &w->queue);
	if (r == 0)
		r = open_index(w);
	if (r == 0)
		r = put_key(w);
	if (r == 0)
		r = load_manifests(w);
	if (r == 0)
		r = confirm_last_manifest(w);
	if (r == 0)
		*ret = TAKE(w);
	return r;
}

void tier_writer_close(struct tier_writer *w)
{
	if (!w)
		return;
	tier_queue_free(w->queue); /* waits for packs in flight */
	for (unsigned i = 0; i < IN_FLIGHT_MAX; i++)
		buf_release(&w->sending[i].bytes);
	buf_release(&w->data);
	buf_release(&w->tables);
	tier_index_close(w->index);
	tier_known_release(&w->known);
	tier_ids_release(&w->numbers);
	free(w->is_unproven);
	tier_log_release(&w->log);
	free(w->seen);
	free(w->keys);
	free(w->packs);
	free(w->is_dropped);
	free(w->seals);
	free(w);
}

void tier_writer_closep(struct tier_writer **w)
{
	tier_writer_close(*w);
}

int tier_writer_follow(struct tier_writer *w)
{
	int r = w->has_failed ? -ESTALE : read_generations(w);

	w->has_failed |= r == -ESTALE || r == -ENOTUNIQ;
	return r;
}

uint64_t tier_writer_generation(const struct tier_writer *w)
{
	return w->log.generation;
}

static const struct tier_written *find_seal(const struct tier_writer *w, uint64_t ino, int64_t sealed_ns)
{
	for (size_t i = 0; i < w->nr_seals; i++)
		if (w->seals[i].ino == ino && w->seals[i].sealed_ns == sealed_ns && !w->seals[i].lacks_packs)
			return &w->seals[i];
	return NULL;
}

bool tier_writer_has(const struct tier_writer *w, uint64_t ino, int64_t sealed_ns)
{
	return find_seal(w, ino, sealed_ns);
}

bool tier_writer_was_removed(const struct tier_writer *w, uint64_t ino, int64_t sealed_ns)
{
	const struct tier_store_marks *s = tier_marks_store(&w->log.marks, w->conf.store);

	return s && !find_seal(w, ino, sealed_ns) && tier_marks_removed(s, ino, sealed_ns);
}

void tier_writer_last(const struct tier_writer *w, struct tier_written *ret)
{
	*ret = w->last;
}

/* --- the catalog --- */

struct flush {
	struct tier_writer *w;
	const struct tier_checkpoint *c;
	struct tier_flushed *sums;
	struct catalog_reader reader;
	struct buf unread; /* less than a record */
	struct buf catalog; /* with runs; in the end the whole manifest */
	struct buf runs, refs;
	uint32_t *index; /* of each of the writer's packs: number in the manifest, plus 1; 0: none */
	size_t index_room;
	uint32_t nr_refs;
	uint32_t *order; /* packs of the manifest */
	uint32_t first_own; /* of the writer's packs: this flush puts these itself */
	uint32_t uid; /* of the directory */
	struct record {
		struct content_piece pieces[CATALOG_PIECES_MAX];
		unsigned nr_pieces;
		struct tier_want wants[CATALOG_PIECES_MAX]; /* chunks unknown before it */
		size_t nr_wants, nr_read, nr_appended; /* nr_read: or being read */
		uint8_t *bytes; /* READ_BYTES, aligned as direct I/O requires */
	} records[2];
	struct record *last; /* its last chunks are read, or being read; NULL: all records are converted */
	bool is_reading; /* await() has to be called */
};

static void flush_freep(struct flush **f)
{
	if (!*f)
		return;
	buf_release(&(*f)->unread);
	buf_release(&(*f)->catalog);
	buf_release(&(*f)->runs);
	buf_release(&(*f)->refs);
	free((*f)->index);
	free((*f)->order);
	for (unsigned i = 0; i < ARRAY_SIZE((*f)->records); i++)
		free((*f)->records[i].bytes);
	free(*f);
}

/* The unknown chunks of the record: first those of one length, then those of varied lengths. */
static int list_wants(struct flush *f, struct record *k)
{
	k->nr_wants = k->nr_read = k->nr_appended = 0;
	for (unsigned varied = 0; varied < 2; varied++)
		for (unsigned i = 0; i < k->nr_pieces; i++) {
			const struct content_piece *p = &k->pieces[i];
			int r;

			if (p->chunk_len == 0 || (kind_of(p->chunk_len) == PACK_VARIED) != (varied == 1))
				continue;
			r = use_chunk(f->w, p->fp, p->chunk_len);
			if (r < 0)
				return r;
			if (r > 0)
				continue;
			if (varied == 1 && p->chunk_len > PACK_VARIED_LEN_MAX)
				return -EBADMSG;
			k->wants[k->nr_wants++] = (struct tier_want){ .fp = p->fp, .len = p->chunk_len };
		}
	return 0;
}

/* Begins to read the next chunks of the record, as many as fit into its memory. */
static int begin_read(struct flush *f, struct record *k)
{
	size_t first = k->nr_read, len = 0;

	for (; k->nr_read < k->nr_wants && len + k->wants[k->nr_read].len <= READ_BYTES; k->nr_read++) {
		k->wants[k->nr_read].buf = k->bytes + len;
		len += k->wants[k->nr_read].len;
	}
	f->is_reading = k->nr_read > first;
	return f->is_reading ? f->c->read(f->c->userdata, k->wants + first, k->nr_read - first) : 0;
}

static int await_read(struct flush *f)
{
	bool waits = f->is_reading && f->c->await;

	f->is_reading = false;
	return waits ? f->c->await(f->c->userdata) : 0;
}

/* Appends the chunks that were read. */
static int append_read(struct flush *f, struct record *k)
{
	int r = 0;

	for (; k->nr_appended < k->nr_read && r == 0; k->nr_appended++) {
		const struct tier_want *c = &k->wants[k->nr_appended];

		if (!tier_known_find(&f->w->known, c->fp, c->len)) /* of this record or the one before it */
			r = append_chunk(f->w, c, f->sums);
	}
	return r;
}

static int too_large(const struct flush *f)
{
	return log_errno(
		-EFBIG,
		"%s: its manifest in the tier would exceed %" PRIu64
		" bytes: it has too many small pieces, or large attributes. Seal its subdirectories one by one instead",
		f->c->path[0] ? f->c->path : "/", f->w->conf.manifest_max);
}

/* Is there room in the manifest for what it has so far? */
static int check_size(const struct flush *f)
{
	uint64_t len = sizeof(struct tier_manifest_disk) + strlen(f->c->path) +
		       f->nr_refs * sizeof(struct tier_pack_ref_disk) + f->catalog.len;

	return len <= f->w->conf.manifest_max ? 0 : too_large(f);
}

/* The number of one of the writer's packs in the manifest, plus 1. */
static int refer_to(struct flush *f, uint32_t pack, uint32_t *ret)
{
	if (pack >= f->index_room) {
		size_t room = MAX((size_t)pack + 1, 2 * f->index_room);
		uint32_t *index = reallocarray(f->index, room, sizeof(*index));
		uint32_t *order;

		if (!index)
			return -ENOMEM;
		f->index = index;
		order = reallocarray(f->order, room, sizeof(*order));
		if (!order)
			return -ENOMEM;
		f->order = order;
		memset(index + f->index_room, 0, (room - f->index_room) * sizeof(*index));
		f->index_room = room;
	}
	if (f->index[pack] == 0) {
		if (f->nr_refs == TIER_MANIFEST_PACKS_MAX)
			return too_large(f);
		f->order[f->nr_refs++] = pack;
		f->index[pack] = f->nr_refs;
	}
	*ret = f->index[pack];
	return 0;
}

static int encode_runs(struct flush *f, const struct record *k)
{
	struct tier_run run = { 0 };
	int r = 0;

	buf_clear(&f->runs);
	for (unsigned i = 0; i < k->nr_pieces && r == 0; i++) {
		const struct content_piece *p = &k->pieces[i];
		bool is_whole = p->chunk_len > 0 && p->from == 0 && p->len == p->chunk_len;
		struct tier_run next = { .nr = is_whole ? 1 : 0, .len = p->len };

		if (p->chunk_len > 0) {
			const struct tier_place *place = tier_known_find(&f->w->known, p->fp, p->chunk_len);

			assert(place);
			next.first = place->chunk;
			r = refer_to(f, place->pack, &next.pack);
		}
		if (!is_whole)
			next.from = p->from;
		if (is_whole && run.nr > 0 && run.pack == next.pack && run.first + run.nr == next.first) {
			run.nr++;
			run.len += next.len;
			continue;
		}
		if (i > 0)
			tier_run_encode(&run, &f->runs);
		run = next;
	}
	tier_run_encode(&run, &f->runs);
	buf_add_u8(&f->catalog, TIER_RUNS_TYPE);
	buf_add_varint(&f->catalog, f->runs.len);
	buf_add(&f->catalog, f->runs.data, f->runs.len);
	if (r == 0)
		r = buf_error(&f->runs);
	return r < 0 ? r : buf_error(&f->catalog);
}

/* Converts the record whose chunks have been read. */
static int convert_read(struct flush *f, struct record *k)
{
	int r = append_read(f, k);

	return r < 0 ? r : encode_runs(f, k);
}

/* Converts the last record, if that has not been done. */
static int convert_last(struct flush *f)
{
	struct record *k = TAKE(f->last);
	int r = await_read(f);

	return r < 0 || !k ? r : convert_read(f, k);
}

static int convert_pieces(struct flush *f, const struct catalog_record *rec)
{
	struct record *before = TAKE(f->last), *k = &f->records[before == f->records];
	struct cursor c = cursor_of(rec->data, rec->len);
	int r;

	trim_known(f->w); /* keeps all chunks of `before`, which were used after the last trim */
	for (k->nr_pieces = 0; (r = catalog_piece_next(&c, &k->pieces[k->nr_pieces])) > 0;)
		if (++k->nr_pieces == CATALOG_PIECES_MAX)
			break;
	if (r >= 0)
		r = list_wants(f, k);
	if (r == 0)
		r = await_read(f);
	if (r == 0)
		r = begin_read(f, k);
	if (r == 0 && before)
		r = convert_read(f, before);
	while (r == 0 && k->nr_read < k->nr_wants) {
		r = await_read(f);
		if (r == 0)
			r = append_read(f, k);
		if (r == 0)
			r = begin_read(f, k);
	}
	f->last = r == 0 ? k : NULL;
	return r;
}

/* Sink of the source's catalog. */
static int convert(void *userdata, const void *p, size_t len)
{
	struct flush *f = userdata;
	struct catalog_record rec;
	size_t at = 0, used;
	int r;

	buf_add(&f->unread, p, len);
	r = buf_error(&f->unread);
	while (r == 0) {
		const uint8_t *record = f->unread.data + at;
		bool is_top = !f->reader.has_inode;

		r = catalog_reader_next(&f->reader, record, f->unread.len - at, &used, &rec);
		if (r <= 0)
			break;
		if (is_top && rec.type == CATALOG_INODE)
			f->uid = rec.in.uid;
		at += used;
		r = 0;
		if (rec.type == CATALOG_PIECES) {
			r = convert_pieces(f, &rec);
		} else {
			r = convert_last(f);
			buf_add(&f->catalog, record, used);
		}
		if (r == 0)
			r = check_size(f);
	}
	if (at > 0)
		memmove(f->unread.data, f->unread.data + at, f->unread.len - at);
	f->unread.len -= at;
	return r < 0 ? r : buf_error(&f->catalog);
}

/* --- the manifest --- */

/* The last bytes of the tables of a pack, which it had when they were read. */
struct presence {
	struct tier_request q;
	struct tier_object_name name;
	uint8_t bytes[CHECKED_BYTES];
};

static int check_presence(const struct tier_writer *w, const struct presence *p)
{
	int r = p->q.result < 0 ? p->q.result : p->q.got < p->q.len ? -ENOENT : 0;

	return r == -ENOENT ? log_errno(r, "tier %s: %s: was deleted from the tier, or cut off", tier_where(w->tier),
					p->name.s) :
			      r;
}

/* Checks that the packs of earlier flushes that the manifest names still exist. */
static int check_packs(struct flush *f)
{
	_cleanup_(freep) struct presence *all = calloc(CHECKS_IN_FLIGHT, sizeof(*all));
	struct tier_writer *w = f->w;
	unsigned nr_used = 0;
	uint32_t next = 0;
	int r = all ? 0 : -ENOMEM;

	for (;;) {
		const struct tier_footer *footer;
		struct presence *p;

		while (next < f->nr_refs && f->order[next] >= f->first_own)
			next++;
		if ((r < 0 || next == f->nr_refs) && tier_in_flight(w->queue) == 0)
			return r;
		if (r == 0 && next < f->nr_refs && nr_used < CHECKS_IN_FLIGHT) {
			p = &all[nr_used++];
		} else {
			int one;

			p = container_of(tier_next(w->queue), struct presence, q);
			one = check_presence(w, p);
			r = r < 0 ? r : one;
			if (r < 0 || next == f->nr_refs)
				continue;
		}
		footer = &w->packs[f->order[next++]];
		p->name = tier_pack_name(footer->id);
		p->q = (struct tier_request){
			.op = TIER_GET,
			.name = p->name.s,
			.off = footer->data_len + (uint64_t)footer->nr_frames * PACK_BLOCK - CHECKED_BYTES,
			.buf = p->bytes,
			.len = CHECKED_BYTES,
		};
		tier_start(w->queue, &p->q);
	}
}

static int check_key(const struct tier_writer *w)
{
	struct presence p = { .name = tier_key_name(w->conf.key.id) };

	static_assert(CHECKED_BYTES <= sizeof(struct tier_key_disk), "it is longer");
	p.q = (struct tier_request){ .op = TIER_GET, .name = p.name.s, .buf = p.bytes, .len = CHECKED_BYTES };
	tier_call(w->tier, &p.q);
	return check_presence(w, &p);
}

/* The object whose name was taken is not there. -ESTALE: a collection has deleted it. -EEXIST: it is not an object. */
static int check_deleted(struct tier_writer *w, const char *name)
{
	uint8_t store[TIER_ID_LEN];
	uint64_t number;
	int r = read_generations(w);

	if (r < 0)
		return r;
	if (tier_manifest_name_parse(name, store, &number) && !tier_log_keeps(&w->log, store, number))
		return -ESTALE;
	return log_errno(-EEXIST, "tier %s: %s: the name is taken, but not by an object: remove what is there",
			 tier_where(w->tier), name);
}

/* Does an object of the length of the manifest have its bytes? 1/0/<0. In pieces: there may be no memory for two. */
static int is_manifest(struct flush *f, const char *name)
{
	uint8_t *piece = f->records[0].bytes; /* all records are converted */
	int r = 0;

	for (size_t at = 0, len; at < f->catalog.len && r == 0; at += len) {
		len = MIN(READ_BYTES, f->catalog.len - at);
		r = tier_get(f->w->tier, name, at, piece, len);
		if (r == 0 && memcmp(piece, f->catalog.data + at, len) != 0)
			return 0;
	}
	return r < 0 ? r : 1;
}

/*
 * The name is taken. 1: by this manifest, if the answer to an earlier attempt was lost. 0: by the fence of a
 * collection; the next number is to be tried. -ESTALE: a collection has deleted what was there. -EEXIST: it is not an
 * object.
 */
static int check_taken(struct flush *f, const char *name)
{
	struct tier_writer *w = f->w;
	struct tier_fence_disk d;
	struct tier_request q = { .op = TIER_GET, .name = name, .buf = &d, .len = sizeof(d) };
	struct tier_fence fence;
	int r = tier_call(w->tier, &q);

	if (r == 0 && q.size == sizeof(d) && tier_fence_decode(&d, q.got, &fence) == 0) {
		r = read_generations(w);
		if (r == 0 && fence.generation > w->log.entry)
			r = log_errno(-EIO, "tier %s: %s: fence of a generation that is not in the log: restore gc/",
				      tier_where(w->tier), name);
		return r;
	}
	if (r == 0 && q.size == f->catalog.len)
		r = is_manifest(f, name);
	if (r == -ENOENT)
		return check_deleted(w, name);
	return r == 0 ? another_machine(w, name) : r;
}

/* Checks that the last manifest of this store exists. If another program deleted it, others may be missing, too. */
static int check_last_manifest(struct tier_writer *w)
{
	struct presence p = { .q = { .op = TIER_GET, .name = p.name.s, .buf = p.bytes, .len = CHECKED_BYTES } };
	uint64_t number = 0;
	int r;

	for (size_t i = 0; i < w->nr_seals; i++)
		number = MAX(number, w->seals[i].number);
	if (number == 0)
		return 0;
	p.name = tier_manifest_name(w->conf.store, number);
	r = tier_call(w->tier, &p.q);
	if (r != -ENOENT)
		return r; /* its length does not matter: it may be damaged */
	r = read_generations(w);
	if (r == 0 && tier_log_keeps(&w->log, w->conf.store, number))
		r = check_presence(w, &p);
	return r;
}

static bool needs_dropped_pack(const struct flush *f)
{
	for (uint32_t i = 0; i < f->nr_refs; i++)
		if (f->w->is_dropped[f->order[i]])
			return true;
	return false;
}

/* -ESTALE: a collection has deleted packs. -ENOENT: another program has deleted them. */
static int check_shared_packs(struct flush *f)
{
	int r = check_packs(f);

	if (r != -ENOENT)
		return r;
	r = read_generations(f->w);
	return r < 0 ? r : needs_dropped_pack(f) ? -ESTALE : -ENOENT;
}

/* Puts the manifest at the first number that is free. f->catalog has all of it but its head. */
static int put_manifest_at(struct flush *f, struct tier_manifest *m)
{
	struct tier_writer *w = f->w;
	int r;

	do {
		struct tier_object_name name = tier_manifest_name(w->conf.store, w->number);

		if (needs_dropped_pack(f)) {
			log_notice("tier %s: a collection has deleted packs of this flush: repeating it",
				   tier_where(w->tier));
			return -ESTALE;
		}
		m->number = w->number;
		tier_manifest_head_encode(m, (struct tier_manifest_disk *)f->catalog.data);
		r = tier_put_new(w->tier, name.s, f->catalog.data, f->catalog.len);
		r = r == -EEXIST ? check_taken(f, name.s) : r == 0 ? 1 : r;
		if (r == 0)
			w->number = MAX(w->number, m->number + 1);
	} while (r == 0);
	if (r < 0)
		return r;
	w->number = m->number + 1;
	f->sums->bytes += f->catalog.len;
	return 0;
}

/* Moves the catalog behind the other parts of the manifest: in memory it may be large, so there is no second copy. */
static int prepend(struct flush *f, struct tier_manifest *m)
{
	size_t packs_at = sizeof(struct tier_manifest_disk) + m->path_len, at = packs_at + f->refs.len;
	struct buf *b = &f->catalog;
	int r = buf_reserve(b, at);

	if (r < 0)
		return r;
	m->catalog_len = b->len;
	memmove(b->data + at, b->data, b->len);
	memcpy(b->data + sizeof(struct tier_manifest_disk), m->path, m->path_len);
	if (f->refs.len > 0)
		memcpy(b->data + packs_at, f->refs.data, f->refs.len);
	b->len += at;
	m->packs = b->data + packs_at;
	m->catalog = b->data + at;
	return 0;
}

static int put_manifest(struct flush *f)
{
	const struct tier_checkpoint *c = f->c;
	struct tier_writer *w = f->w;
	struct tier_manifest m = {
		.ino = c->ino,
		.sealed_ns = c->sealed_ns,
		.files = c->files,
		.directories = c->directories,
		.bytes = c->bytes,
		.uid = f->uid,
		.path = c->path,
		.path_len = (uint32_t)strlen(c->path),
		.nr_packs = f->nr_refs,
	};
	int r;

	for (uint32_t i = 0; i < f->nr_refs; i++)
		tier_pack_ref_encode(&w->packs[f->order[i]], &f->refs);
	r = buf_error(&f->refs);
	if (r == 0)
		r = prepend(f, &m);
	if (r < 0)
		return r;
	memcpy(m.store, w->conf.store, sizeof(m.store));
	memcpy(m.key_id, w->conf.key.id, sizeof(m.key_id));
	memcpy(m.root, c->root, sizeof(m.root));
	r = put_manifest_at(f, &m);
	if (r == 0) {
		w->last = (struct tier_written){ .number = m.number, .ino = m.ino, .sealed_ns = m.sealed_ns };
		r = read_generations(w);
	}
	if (r == 0 && !tier_log_keeps(&w->log, w->conf.store, m.number))
		r = log_errno(-ESTALE, "tier %s: %s: number used before a collection: repeating the flush",
			      tier_where(w->tier), tier_manifest_name(w->conf.store, m.number).s);
	if (r < 0)
		return r;
	f->sums->number = m.number;
	return add_written(w, &m);
}

/* The packs are in the tier afterwards, or none is being put. */
static int write_packs(struct flush *f)
{
	struct tier_writer *w = f->w;
	int r = f->c->catalog(f->c->userdata, &(struct tier_sink){ convert, f }), put;

	if (r == 0)
		r = convert_last(f);
	else
		(void)await_read(f); /* it writes to memory that is freed with the flush */
	if (r == 0 && !f->reader.at_end)
		r = -EBADMSG;
	if (r == 0)
		r = check_size(f);
	if (r == 0 && w->is_open)
		r = close_pack(w, f->sums);
	put = await_packs(w);
	return r < 0 ? r : put;
}

/*
 * Removes what this flush has added to the writer. Its packs stay in the tier: a collection deletes them. They keep
 * their numbers, since runs of the index may refer to them.
 */
static void discard(struct flush *f)
{
	struct tier_writer *w = f->w;

	for (uint32_t i = f->first_own; i < w->nr_packs; i++)
		w->is_dropped[i] = true;
	if (w->nr_packs > f->first_own)
		tier_known_forget(&w->known, w->is_dropped);
	w->nr_discarded += w->nr_packs - f->first_own;
	w->has_failed = w->nr_discarded > DISCARDED_MAX; /* a new writer has no such packs */
	w->is_open = false;
	w->frame.nr_chunks = 0;
	w->frame_len = 0;
	buf_release(&w->data);
	buf_release(&w->tables);
}

static int flush_all(struct tier_writer *w, const struct tier_checkpoint *c, struct tier_flushed *sums)
{
	_cleanup_(flush_freep) struct flush *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	f->w = w;
	f->c = c;
	f->sums = sums;
	f->first_own = w->nr_packs;
	for (unsigned i = 0; i < ARRAY_SIZE(f->records); i++) {
		f->records[i].bytes = aligned_alloc(PACK_BLOCK, READ_BYTES);
		if (!f->records[i].bytes)
			return -ENOMEM;
	}
	r = write_packs(f);
	if (r < 0) {
		if (!w->has_failed)
			discard(f);
		return r;
	}
	r = check_key(w);
	if (r == 0)
		r = check_last_manifest(w);
	if (r == 0)
		r = check_shared_packs(f);
	if (r == 0)
		r = put_manifest(f);
	w->has_failed = r < 0;
	return r;
}

int tier_flush(struct tier_writer *w, const struct tier_checkpoint *c, struct tier_flushed *ret)
{
	struct tier_flushed sums = { 0 };
	const struct tier_written *before;
	int r;

	if (w->has_failed)
		return -ESTALE;
	if (strlen(c->path) > TIER_PATH_MAX)
		return -ENAMETOOLONG;
	r = read_generations(w); /* so that the flush uses no pack that has been dropped by now */
	if (r < 0) {
		w->has_failed = true;
		return r;
	}
	before = find_seal(w, c->ino, c->sealed_ns);
	if (before) {
		*ret = (struct tier_flushed){ .number = before->number, .was_there = true };
		return 0;
	}
	r = load_new_manifests(w, c->bytes);
	if (r < 0)
		w->has_failed = true;
	else
		r = flush_all(w, c, &sums);
	if (r == 0 && w->index)
		save_known(w, true); /* in two halves, which takes less memory */
	if (r == 0 && w->index)
		save_known(w, false);
	if (r == 0 && w->index)
		commit_index(w, c->bytes);
	release_packs(w);
	if (r == 0)
		*ret = sums;
	return r;
}

bool tier_writer_has_failed(const struct tier_writer *w)
{
	return w->has_failed;
}
