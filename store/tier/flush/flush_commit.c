/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Putting the manifest. The tier may have been emptied since the writer was opened. So the key, the last manifest and
 * the packs of earlier flushes are read again first, a few bytes of each. If one is missing, the flush fails, and the
 * next writer compares everything again.
 *
 * Fencing. Manifests of a store are numbered without gaps, together with the fences of collections. A writer puts its
 * manifest at the number behind the last one that it knows. If two machines write for one store, the second one finds
 * the name taken by a manifest that is not its own, and stops. The answer to a put may be lost, so it compares the
 * bytes. If numbers were used and deleted meanwhile, the marks of a collection have the last manifest of the store.
 *
 * Collections (tier_collect.c) delete packs while writers are at work. If a writer finds a fence in the place of its
 * manifest, it reads the generation of the fence, and puts the manifest at the next number only if it names no dropped
 * pack. The log that is read afterwards detects that the number of the manifest had been used before, and its object
 * deleted. Then the manifest is not valid, and the flush fails.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/flush/flush_state.h"

#define CHECKS_IN_FLIGHT 16u

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
	int r = writer_read_generations(w);

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
		r = writer_read_generations(w);
		if (r == 0 && fence.generation > w->log.entry)
			r = log_errno(-EIO, "tier %s: %s: fence of a generation that is not in the log: restore gc/",
				      tier_where(w->tier), name);
		return r;
	}
	if (r == 0 && q.size == f->catalog.len)
		r = is_manifest(f, name);
	if (r == -ENOENT)
		return check_deleted(w, name);
	return r == 0 ? writer_another_machine(w, name) : r;
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
	r = writer_read_generations(w);
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
	r = writer_read_generations(f->w);
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
static int move_catalog_back(struct flush *f, struct tier_manifest *m)
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
		r = move_catalog_back(f, &m);
	if (r < 0)
		return r;
	memcpy(m.store, w->conf.store, sizeof(m.store));
	memcpy(m.key_id, w->conf.key.id, sizeof(m.key_id));
	memcpy(m.root, c->root, sizeof(m.root));
	r = put_manifest_at(f, &m);
	if (r == 0) {
		w->last = (struct tier_written){ .number = m.number, .ino = m.ino, .sealed_ns = m.sealed_ns };
		r = writer_read_generations(w);
	}
	if (r == 0 && !tier_log_keeps(&w->log, w->conf.store, m.number))
		r = log_errno(-ESTALE, "tier %s: %s: number used before a collection: repeating the flush",
			      tier_where(w->tier), tier_manifest_name(w->conf.store, m.number).s);
	if (r < 0)
		return r;
	f->sums->number = m.number;
	return writer_add_seal(w, &m);
}

int flush_commit(struct flush *f)
{
	int r = check_key(f->w);

	if (r == 0)
		r = check_last_manifest(f->w);
	if (r == 0)
		r = check_shared_packs(f);
	return r < 0 ? r : put_manifest(f);
}
