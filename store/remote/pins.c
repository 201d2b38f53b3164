/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Chunks that a store shares with the other nodes of its cluster. *Pinned* chunks (`pinned`) are stored here, and peers
 * read them from here, so they are never freed while a peer may refer to them. *Remote* chunks (`remote`) have a local
 * address, which recipes refer to like any other, and their bytes are on peers. Pin records in the view hold this per
 * frame ('E', index/pin_table.h).
 *
 * A chunk becomes remote in two steps (round_commit.c gives the reason). In an unsettled record it counts as freed, and
 * lookups do not find its content. In a settled one it is as good as local.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/fingerprints.h"
#include "store/dedup/dedup.h"
#include "store/dedup/dedup_tables.h"
#include "store/gc/gc_freed.h"
#include "store/journal/journal.h"
#include "store/log/commit.h"
#include "store/log/record_format.h"
#include "store/log/txlog.h"
#include "store/remote/remote.h"

/* Deletes records of frames that were cut off: a view may hold some, written between a round and its failure. */
static int delete_cut_off(struct engine *e, uint32_t pack, uint32_t from)
{
	_cleanup_(db_batch_freep) struct db_batch *batch = NULL;
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = share_key_pack(pack);
	const void *key, *value;
	size_t key_len, value_len;
	uint32_t frame;
	int r;

	r = db_batch_new(e->db, &batch);
	if (r == 0)
		r = db_iter_new(e->db, NULL, prefix.b, prefix.len, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0)
		if (share_key_decode(key, key_len, &pack, &frame) == 0 && frame >= from)
			db_batch_del(batch, key, key_len);
	return r < 0 ? r : db_batch_apply(batch);
}

static int cut_off_all(struct engine *e, const struct pack_marks *marks)
{
	int r = 0;

	if (e->read_only)
		return 0;
	for (unsigned s = 0; s < PACK_NR_STREAMS && r == 0; s++)
		if (marks->stream[s].pack > 0)
			r = delete_cut_off(e, marks->stream[s].pack, marks->stream[s].nr_frames);
	for (uint32_t i = 0; i < PACK_NR_STREAMS && r == 0; i++) /* each stream may have started another pack */
		r = delete_cut_off(e, marks->next_pack + i, 0);
	return r;
}

int shares_load(struct engine *e, const struct pack_marks *marks)
{
	int r = cut_off_all(e, marks);

	if (r < 0)
		return r;
	mutex_lock(&e->shares->lock);
	r = share_get_totals(e->db, &e->shares->totals);
	if (r > 0) {
		e->shares->nodes = calloc(MAX(e->shares->totals.nr_nodes, 1u), sizeof(*e->shares->nodes));
		if (!e->shares->nodes)
			r = -ENOMEM;
		atomic_store(&e->shares->any, true);
		atomic_store(&e->shares->any_unconfirmed, e->shares->totals.any_unconfirmed);
	}
	for (uint32_t i = 0; r > 0 && i < e->shares->totals.nr_nodes; i++) {
		r = share_get_node(e->db, (uint16_t)i, &e->shares->nodes[i]);
		if (r == 0)
			r = log_errno(-EBADMSG, "index: node %u is missing", i);
	}
	mutex_unlock(&e->shares->lock);
	return MIN(r, 0);
}

int remote_fate(struct engine *e, uint32_t pack, uint32_t frame, struct pack_fate *ret)
{
	struct share_frame f;
	int r;

	if (!atomic_load(&e->shares->any))
		return 0;
	r = share_get(e->db, pack, frame, &f);
	if (r <= 0)
		return r;
	memcpy(f.settled ? ret->remote : ret->gone, f.remote, sizeof(f.remote));
	return f.settled ? PACK_REMOTE : PACK_GONE;
}

/* --- reading --- */

static void add_owners(struct engine *e, const struct share_owners *o, struct cluster_want *ret)
	REQUIRES(e->shares->lock)
{
	for (unsigned i = 0; i < o->nr; i++)
		if (o->node[i] < e->shares->totals.nr_nodes)
			memcpy(ret->owners[ret->nr_owners++], e->shares->nodes[o->node[i]].id, CLUSTER_ID_LEN);
}

static void want(struct engine *e, const struct share_frame *f, const struct pack_remote *chunk,
		 struct cluster_want *ret)
	REQUIRES(e->shares->lock)
{
	*ret = (struct cluster_want){
		.fp = chunk->fp, .len = chunk->len, .buf = chunk->buf, .as_is = true, .key = &e->key
	};
	add_owners(e, &f->owners[chunk->number], ret);
}

/* Chunks that were not fetched may be here, too: stored for peers, or written again after they became remote. */
static int find_here(struct engine *e, struct cluster_want *wants, size_t nr)
{
	size_t nr_missing = 0;
	int r = 0;

	for (size_t i = 0; i < nr && r == 0; i++) {
		if (!wants[i].got) {
			wants[i].as_is = false;
			r = engine_cluster_chunks(e, &wants[i], 1);
		}
		nr_missing += !wants[i].got;
	}
	return r < 0 ? r : nr_missing > 0 ? 0 : 1;
}

/* Clears `got` and `as_is` of the chunks with bytes that do not match their fingerprint. Returns their number. */
static size_t drop_mismatches(struct engine *e, struct cluster_want *wants, size_t nr)
{
	size_t nr_wrong = 0;

	for (size_t i = 0; i < nr; i++) {
		if (!wants[i].got || wants[i].matches || fp_is_of(&e->key, wants[i].fp, wants[i].buf, wants[i].len))
			continue;
		wants[i].got = wants[i].as_is = false;
		nr_wrong++;
	}
	return nr_wrong;
}

/* Fetches the mismatched chunks once more: the owner now verifies them and reports damage; then the next one is
 * tried. */
static int ask_again(struct engine *e, struct cluster_want *wants, size_t nr, size_t nr_wrong)
{
	const struct cluster_calls *calls = e->conf.cluster_calls;
	_cleanup_(freep) struct cluster_want *wrong = calloc(nr_wrong, sizeof(*wrong));
	size_t n = 0;
	int r;

	if (!wrong)
		return -ENOMEM;
	log_warning("%zu remote chunks do not match their fingerprints: requesting them again, verified by the sender",
		    nr_wrong);
	for (size_t i = 0; i < nr; i++)
		if (!wants[i].as_is)
			wrong[n++] = wants[i];
	r = calls->fetch(calls->userdata, wrong, n);
	for (size_t i = nr; i-- > 0;)
		if (!wants[i].as_is)
			wants[i] = wrong[--n];
	return r;
}

static int fetch(struct engine *e, struct cluster_want *wants, size_t nr)
{
	const struct cluster_calls *calls = e->conf.cluster_calls;
	int r = calls ? calls->fetch(calls->userdata, wants, nr) : -ENOTCONN;
	size_t nr_wrong = drop_mismatches(e, wants, nr);

	if (nr_wrong > 0)
		r = ask_again(e, wants, nr, nr_wrong);
	if (find_here(e, wants, nr) > 0)
		r = 0;
	if (r < 0)
		return log_errno(-EIO, "cannot fetch %zu remote chunks: %s; is ckptfs-agent running?", nr, strerror(-r));
	for (size_t i = 0; i < nr; i++) {
		if (!wants[i].got)
			return log_errno(-EIO, "chunk %s: remote, and no connected node has it",
					 fp_hex(fp_veiled(&e->key, wants[i].fp)).s);
		if (!wants[i].as_is && !fp_is_of(&e->key, wants[i].fp, wants[i].buf, wants[i].len))
			return log_errno(-EIO, "chunk %s: bytes from another node do not match its fingerprint",
					 fp_hex(fp_veiled(&e->key, wants[i].fp)).s);
		atomic_fetch_add_explicit(&e->shares->fetched, wants[i].len, memory_order_relaxed);
	}
	return 0;
}

int remote_fetch(void *engine, uint32_t pack, uint32_t frame, const struct pack_remote *chunks, size_t nr)
{
	_cleanup_(freep) struct cluster_want *wants = calloc(nr, sizeof(*wants));
	_cleanup_(freep) struct share_frame *f = malloc(sizeof(*f));
	struct engine *e = engine;
	int r;

	if (!wants || !f)
		return -ENOMEM;
	r = share_get(e->db, pack, frame, f);
	if (r <= 0)
		return r < 0 ? r : -EBADMSG;
	mutex_lock(&e->shares->lock);
	for (size_t i = 0; i < nr; i++)
		want(e, f, &chunks[i], &wants[i]);
	mutex_unlock(&e->shares->lock);
	return fetch(e, wants, nr);
}

/* --- serving other nodes --- */

static bool is_chunk(struct engine *e, struct fp fp, uint32_t len, bool here, struct addr start, uint32_t found_len,
		     struct fp found)
{
	return (len == 0 || found_len == len) && fp_equal(found, fp) && !freed_is_gc_pending(e, start) &&
	       !packs_is_damaged(e->packs, start) && packs_wait(e->packs, start) == 0 &&
	       (!here || packs_is_remote(e->packs, start) == 0);
}

/* len 0: any length */
static int find_chunk(struct engine *e, struct fp fp, uint32_t len, bool here, struct addr *ret, uint32_t *ret_len)
{
	struct addr hint;
	struct fp found;
	int r;

	dedup_lock(e);
	hint = batch_find_in_memory(e, fp);
	dedup_unlock(e);
	if (!addr_is_none(hint) && packs_chunk_at(e->packs, hint, ret, ret_len, &found) > 0 &&
	    is_chunk(e, fp, len, here, *ret, *ret_len, found))
		return 1;
	r = fingerprints_find(e->db, &fp, 1, &hint);
	if (r < 0 || addr_is_none(hint))
		return r;
	return packs_find(e->packs, hint, ret, ret_len, &found) > 0 && is_chunk(e, fp, len, here, *ret, *ret_len, found);
}

int shares_find(struct engine *e, struct fp fp, uint32_t len, bool here, struct addr *ret)
{
	uint32_t found_len;

	return find_chunk(e, fp, len, here, ret, &found_len);
}

int shares_find_here(struct engine *e, struct fp fp, struct addr *ret, uint32_t *ret_len)
{
	return find_chunk(e, fp, 0, true, ret, ret_len);
}

/* Adds the owners of a remote chunk. */
static int locate_remote(struct engine *e, struct cluster_want *w, struct addr a)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	_cleanup_(freep) struct share_frame *f = malloc(sizeof(*f));
	uint32_t frame = (a.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE;
	int r = rec && f ? share_get(e->db, a.pack, frame, f) : -ENOMEM;

	if (r <= 0 || !f->settled)
		return MIN(r, 0); /* a round is settling it: owners not known yet */
	if (packs_frame_rec(e->packs, a.pack, frame, rec) <= 0 || rec->damaged)
		return 0;
	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		if (pack_rec_addr(rec, i).off == a.off && share_bit(f->remote, i)) {
			mutex_lock(&e->shares->lock);
			add_owners(e, &f->owners[i], w);
			mutex_unlock(&e->shares->lock);
		}
	return 0;
}

int engine_cluster_locate(struct engine *e, struct cluster_want *wants, size_t nr)
{
	unsigned ticket = epoch_enter(&e->users);
	int r = 0;

	for (size_t i = 0; i < nr && r >= 0; i++) {
		struct addr a;

		wants[i].nr_owners = 0;
		r = shares_find(e, wants[i].fp, wants[i].len, true, &a);
		wants[i].got = r > 0;
		if (r == 0)
			r = shares_find(e, wants[i].fp, wants[i].len, false, &a);
		if (r > 0 && !wants[i].got)
			r = locate_remote(e, &wants[i], a);
	}
	epoch_leave(&e->users, ticket);
	return MIN(r, 0);
}

/* --- records --- */

static void add_put_record(struct ns_key key, const struct buf *value, struct buf *records)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY;

	buf_add_varint(&rec, key.len);
	buf_add(&rec, key.b, key.len);
	buf_add(&rec, value->data, value->len);
	records->failed |= buf_error(&rec) < 0 || buf_error(value) < 0;
	journal_record_add(records, RECORD_PUT, rec.data, rec.len);
}

static void put_node(struct engine *e, uint32_t number) REQUIRES(e->shares->lock)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	share_node_encode(&e->shares->nodes[number], &value);
	add_put_record(share_key_node((uint16_t)number), &value, &e->shares->waiting);
}

void shares_forget(struct engine *e, uint32_t number, bool is_forgotten)
{
	e->shares->nodes[number].is_forgotten = is_forgotten;
	put_node(e, number);
}

int shares_number(struct engine *e, const struct cluster_node *n, uint16_t *ret)
{
	uint32_t nr = e->shares->totals.nr_nodes;
	struct share_node *more;

	for (uint32_t i = 0; i < nr; i++)
		if (memcmp(e->shares->nodes[i].id, n->id, CLUSTER_ID_LEN) == 0) {
			*ret = (uint16_t)i;
			return 0;
		}
	if (nr > UINT16_MAX)
		return -E2BIG;
	more = reallocarray(e->shares->nodes, nr + 1, sizeof(*more));
	if (!more)
		return -ENOMEM;
	e->shares->nodes = more;
	more[nr] = (struct share_node){ .is_forgotten = true };
	memcpy(more[nr].id, n->id, CLUSTER_ID_LEN);
	memcpy(more[nr].name, n->name, strnlen(n->name, SHARE_NAME_MAX));
	e->shares->totals.nr_nodes++;
	put_node(e, nr);
	*ret = (uint16_t)nr;
	return 0;
}

void shares_put(const struct share_frame *f, uint32_t pack, uint32_t frame, struct buf *records)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	share_frame_encode(f, &value);
	add_put_record(share_key(pack, frame), &value, records);
}

void shares_del(uint32_t pack, uint32_t frame, struct buf *records)
{
	struct ns_key key = share_key(pack, frame);

	journal_record_add(records, RECORD_DEL, key.b, key.len);
}

/* Applies records to the view, as records of the log are applied. */
static int apply_records(struct engine *e, const struct buf *records)
{
	_cleanup_(db_batch_freep) struct db_batch *batch = NULL;
	struct journal_iter it = journal_iter(records->data, records->len);
	const void *p;
	uint8_t type;
	size_t len;
	int r;

	r = db_batch_new(e->db, &batch);
	while (r >= 0 && (r = journal_iter_next(&it, &type, &p, &len)) > 0)
		r = log_apply_record(e, type, p, len, batch);
	return r < 0 ? r : db_batch_apply(batch);
}

int shares_commit(struct engine *e, const struct pack_marks *marks, struct buf *records)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r;

	share_totals_encode(&e->shares->totals, &value);
	add_put_record(share_key_totals(), &value, records);
	buf_add(records, e->shares->waiting.data, e->shares->waiting.len);
	records->failed |= buf_error(&e->shares->waiting) < 0;
	atomic_store(&e->shares->any, true);
	r = buf_error(records);
	if (r == 0)
		r = apply_records(e, records);
	if (r == 0)
		r = commit_notes(e, marks, records);
	if (r == 0)
		buf_clear(&e->shares->waiting);
	return r;
}
