/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a version becomes a delta:
 *
 *   1. hash          all chunks; a signature for each 32, and from those the fingerprint
 *   2. compare       with the newest version at the same place: what is equal is not named at all
 *   3. look up       the others in the table: known ones are shifted duplicates
 *   4. enter         the unknown ones, in ascending order: the first of equal ones is a first occurrence, the others
 *                    are shifted duplicates of it
 *   5. join          neighbours into runs, first occurrences by themselves, shifted duplicates by themselves
 *   6. encode        gather the bytes of first occurrences, whole pages first, and write each table in the smallest
 *                    encoding
 *
 * The source of a shifted duplicate is the oldest version with the chunk, at its lowest place there, so that the result
 * does not depend on the order of threads. If the newest version still has the chunk at that place, it is an
 * alternative source. A run continues as long as one source serves all of it: chunks that came with different versions
 * and are still there, or chunks that came with one version and were overwritten. If both sources serve, the newest
 * version is used, since older ones are more likely to be deleted.
 *
 * The table has leaves only, though the method is a tree's. The paper enters a node when both its children are first
 * occurrences. Then each chunk below it is in the table, at the same place; wherever the node is found again, so are
 * all its chunks, adjacent to each other, and a run represents them (docs/decisions/gpu-deltas.md, "Runs and a table of
 * leaves").
 *
 * A short last chunk either equals the parent's or is sent: an entry would cost more, and no source must be read past
 * its end.
 *
 * On a GPU every step has one thread per chunk, except the end of step 5. Step 4 there enters all, the lowest place
 * wins, and then looks up again. Step 5 handles the stretch between two places where both sources break, which are few,
 * as a whole.
 */
#include "gpu/format/delta_record.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "gpu/format/delta_table.h"

struct version {
	uint32_t number; /* 0: there is none */
	uint64_t len;
	uint64_t nr_chunks, nr_whole; /* they differ if the last one is short */
	struct digest *leaves, *signatures;
};

struct delta_record {
	struct delta_record_params params; /* constant, as the next two */
	struct leaf_key key;
	struct digest zero; /* of a chunk of zeros: what lies behind the end of a version */
	uint32_t last_number; /* committed; stays when that version is forgotten */
	struct version newest, pending;
	uint64_t nr_unknown; /* chunks of `pending` that the table did not have, equal ones counted each */
	struct delta_table table;
};

/* A chunk that is not what the parent has at its place. */
struct change {
	uint32_t chunk;
	uint32_t version, src; /* version 0: a first occurrence */
	bool in_newest; /* the newest version has it at `src`, too */
};

/* What a take builds up, released at its end. */
struct work {
	const uint8_t *data;
	const struct delta_take *take;
	struct delta_header header;
	struct buf literals; /* struct delta_span: whole chunks, in the end those to be sent */
	struct buf changes, first, shifted; /* struct change, delta_run, delta_shift */
};

static void work_release(struct work *w)
{
	buf_release(&w->literals);
	buf_release(&w->changes);
	buf_release(&w->first);
	buf_release(&w->shifted);
}

static void version_release(struct version *v)
{
	free(v->leaves);
	free(v->signatures);
	*v = (struct version){ 0 };
}

int delta_record_new(const struct delta_record_params *params, struct delta_record **ret)
{
	struct delta_record *rec;

	if (!chunk_len_valid(params->chunk_len))
		return log_errno(-EINVAL, "chunks of %" PRIu32 " bytes", params->chunk_len);
	rec = calloc(1, sizeof(*rec));
	if (!rec)
		return -ENOMEM;
	rec->params = *params;
	leaf_key_init(&rec->key, params->key);
	rec->zero = leaf_hash(&rec->key, NULL, 0, params->chunk_len);
	delta_table_init(&rec->table, params->table_limit);
	*ret = rec;
	return 0;
}

void delta_record_free(struct delta_record *rec)
{
	if (!rec)
		return;
	version_release(&rec->newest);
	version_release(&rec->pending);
	delta_table_release(&rec->table);
	free(rec);
}

/* Does a version have this chunk, whole, at this place? */
static bool version_has(const struct version *v, uint32_t chunk, struct digest d)
{
	return v->number != 0 && chunk < v->nr_whole && digest_equal(v->leaves[chunk], d);
}

/* What `chunk` is compared with: the digest at the same place, or of the zeros behind the end. */
static struct digest parent_leaf(const struct delta_record *rec, uint64_t chunk)
{
	return chunk < rec->newest.nr_chunks ? rec->newest.leaves[chunk] : rec->zero;
}

static uint64_t nr_groups(uint64_t nr_chunks)
{
	return nr_chunks / LEAF_GROUP + (nr_chunks % LEAF_GROUP != 0);
}

static size_t group_len(const struct version *v, uint64_t group)
{
	return (size_t)MIN(v->nr_chunks - group * LEAF_GROUP, (uint64_t)LEAF_GROUP);
}

/* Step 1. */
static int hash_version(struct delta_record *rec, struct work *w)
{
	struct version *v = &rec->pending;
	uint32_t chunk_len = rec->params.chunk_len;
	struct content_hash content;

	v->leaves = calloc(v->nr_chunks + 1, sizeof(*v->leaves)); /* one more: no content is no failure */
	v->signatures = calloc(nr_groups(v->nr_chunks) + 1, sizeof(*v->signatures));
	if (!v->leaves || !v->signatures)
		return -ENOMEM;
	content_hash_init(&content, &rec->key, chunk_len);
	for (uint64_t i = 0; i < v->nr_chunks; i++)
		v->leaves[i] = leaf_hash(&rec->key, w->data + i * chunk_len,
					 (size_t)MIN(v->len - i * chunk_len, (uint64_t)chunk_len), chunk_len);
	for (uint64_t i = 0; i < nr_groups(v->nr_chunks); i++) {
		v->signatures[i] = leaf_hash_group(&rec->key, v->leaves + i * LEAF_GROUP, group_len(v, i));
		content_hash_add_signature(&content, v->signatures[i]);
	}
	w->header.fingerprint = content_hash_finish(&content, v->len);
	return 0;
}

/* Literals in whole chunks, joined where they then touch. */
static int round_literals(struct delta_record *rec, struct work *w)
{
	uint64_t chunk_len = rec->params.chunk_len, end = 0, len = rec->pending.len;
	struct delta_span *last = NULL;

	for (size_t i = 0; i < w->take->nr_literals; i++) {
		const struct delta_span *given = &w->take->literals[i];
		struct delta_span span = { .off = round_down(given->off, chunk_len) };

		if (given->off < end || given->off > len || given->len > len - given->off)
			return log_errno(-EINVAL, "literal %zu: out of order or past the end", i);
		end = given->off + given->len;
		span.len = MIN(round_up(end, chunk_len), len) - span.off;
		if (given->len == 0)
			continue;
		if (last && span.off <= last->off + last->len) {
			last->len = span.off + span.len - last->off;
			continue;
		}
		buf_add(&w->literals, &span, sizeof(span));
		if (buf_error(&w->literals) < 0)
			return -ENOMEM;
		last = (struct delta_span *)(w->literals.data + w->literals.len) - 1;
	}
	return 0;
}

/* Is any of these chunks not what the parent has? For an object without a parent zeros are written out, too. */
static bool span_changed(const struct delta_record *rec, const struct delta_span *span, enum delta_method method)
{
	uint64_t chunk_len = rec->params.chunk_len, end = span->off + span->len;

	for (uint64_t off = span->off; off < end; off += chunk_len)
		if (method == DELTA_METHOD_FULL ||
		    !digest_equal(rec->pending.leaves[off / chunk_len], parent_leaf(rec, off / chunk_len)))
			return true;
	return false;
}

static void add_changes(const struct delta_record *rec, struct work *w, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++) {
		struct change c = { .chunk = (uint32_t)i };

		if (i % LEAF_GROUP == 0 && i / LEAF_GROUP < nr_groups(rec->newest.nr_chunks) && to - i >= LEAF_GROUP &&
		    w->take->method != DELTA_METHOD_FULL &&
		    digest_equal(rec->pending.signatures[i / LEAF_GROUP], rec->newest.signatures[i / LEAF_GROUP])) {
			i += LEAF_GROUP - 1;
			continue;
		}
		if (w->take->method == DELTA_METHOD_FULL || !digest_equal(rec->pending.leaves[i], parent_leaf(rec, i)))
			buf_add(&w->changes, &c, sizeof(c));
	}
}

/* Step 2. Literals stand between the stretches of chunks. */
static int compare_version(struct delta_record *rec, struct work *w)
{
	struct delta_span *literals = (struct delta_span *)w->literals.data;
	size_t nr = w->literals.len / sizeof(*literals), kept = 0;
	uint64_t chunk_len = rec->params.chunk_len, at = 0;

	for (size_t i = 0; i < nr; i++) {
		add_changes(rec, w, at, literals[i].off / chunk_len);
		at = chunks_of(literals[i].off + literals[i].len, (uint32_t)chunk_len);
		if (span_changed(rec, &literals[i], w->take->method))
			literals[kept++] = literals[i];
	}
	w->literals.len = kept * sizeof(*literals);
	add_changes(rec, w, at, rec->pending.nr_chunks);
	return buf_error(&w->changes);
}

/* Makes a chunk a shifted duplicate, unless bytes are compared, available and differ: then the digests collide. */
static void set_source(const struct delta_record *rec, const struct work *w, struct change *c, uint32_t version,
		       uint32_t src)
{
	struct digest d = rec->pending.leaves[c->chunk];
	size_t chunk_len = rec->params.chunk_len;

	if (w->take->compare && version_has(&rec->pending, src, d) &&
	    memcmp(w->data + c->chunk * chunk_len, w->data + src * chunk_len, chunk_len) != 0)
		return;
	c->version = version;
	c->src = src;
	c->in_newest = version_has(&rec->newest, src, d);
}

/* Step 3: known chunks get their source. */
static void look_up(struct delta_record *rec, struct work *w)
{
	struct change *changes = (struct change *)w->changes.data;
	size_t nr = w->changes.len / sizeof(*changes);

	for (size_t i = 0; i < nr; i++) {
		const struct delta_entry *e;

		if (changes[i].chunk >= rec->pending.nr_whole)
			continue;
		e = delta_table_find(&rec->table, rec->pending.leaves[changes[i].chunk]);
		if (e)
			set_source(rec, w, &changes[i], e->version, e->chunk);
		else
			rec->nr_unknown++;
	}
}

/*
 * Step 4. Table room is assigned by rank among the unknown chunks, counting duplicates, so that it does not depend on
 * the order of entering.
 */
static int enter(struct delta_record *rec, struct work *w)
{
	struct change *changes = (struct change *)w->changes.data;
	size_t nr = w->changes.len / sizeof(*changes);
	uint64_t room = delta_table_room(&rec->table);
	int r;

	for (size_t i = 0; i < nr; i++) {
		struct digest d = rec->pending.leaves[changes[i].chunk];
		const struct delta_entry *e;

		if (changes[i].chunk >= rec->pending.nr_whole)
			continue;
		e = delta_table_find(&rec->table, d);
		if (e && e->version != rec->pending.number)
			continue; /* step 3 has seen it */
		if (e)
			set_source(rec, w, &changes[i], e->version, e->chunk);
		else if (room > 0) {
			r = delta_table_enter(&rec->table, d, rec->pending.number, changes[i].chunk);
			if (r < 0)
				return r;
		}
		room -= room > 0;
	}
	return 0;
}

/* What a run of shifted duplicates may be called: from the chunks' own version or the newest, advancing or repeated. */
enum names {
	OWN_ADVANCING = 1 << 0,
	NEWEST_ADVANCING = 1 << 1,
	OWN_REPEATED = 1 << 2,
	NEWEST_REPEATED = 1 << 3,
};

static unsigned names_of_first(const struct change *c)
{
	return OWN_ADVANCING | OWN_REPEATED | (c->in_newest ? NEWEST_ADVANCING | NEWEST_REPEATED : 0);
}

/* Which names go on with this chunk. */
static unsigned names_of_next(const struct delta_shift *run, const struct change *c)
{
	bool own = c->version == run->version;
	unsigned names = 0;

	if (c->chunk != (uint64_t)run->dst + run->count)
		return 0;
	if (c->src == (uint64_t)run->src + run->count)
		names |= (own ? OWN_ADVANCING : 0) | (c->in_newest ? NEWEST_ADVANCING : 0);
	if (c->src == run->src)
		names |= (own ? OWN_REPEATED : 0) | (c->in_newest ? NEWEST_REPEATED : 0);
	return names;
}

static void add_shift(const struct delta_record *rec, struct work *w, struct delta_shift run, unsigned names)
{
	if (run.count == 0)
		return;
	if (names & (NEWEST_ADVANCING | NEWEST_REPEATED))
		run.version = rec->newest.number;
	run.repeated = !(names & (OWN_ADVANCING | NEWEST_ADVANCING));
	buf_add(&w->shifted, &run, sizeof(run));
}

/* Step 5: the longest runs, greedily, which gives the fewest, since any part of a run is a run. */
static int join(const struct delta_record *rec, struct work *w)
{
	const struct change *changes = (const struct change *)w->changes.data;
	size_t nr = w->changes.len / sizeof(*changes);
	struct delta_shift shift = { 0 };
	struct delta_run run = { 0 };
	unsigned names = 0;

	for (size_t i = 0; i < nr; i++) {
		const struct change *c = &changes[i];

		if (c->version == 0 && run.count > 0 && c->chunk == (uint64_t)run.chunk + run.count) {
			run.count++;
		} else if (c->version == 0) {
			if (run.count > 0)
				buf_add(&w->first, &run, sizeof(run));
			run = (struct delta_run){ c->chunk, 1 };
		} else if (shift.count > 0 && (names & names_of_next(&shift, c))) {
			names &= names_of_next(&shift, c);
			shift.count++;
		} else {
			add_shift(rec, w, shift, names);
			shift = (struct delta_shift){ c->chunk, 1, c->version, c->src, false };
			names = names_of_first(c);
		}
	}
	if (run.count > 0)
		buf_add(&w->first, &run, sizeof(run));
	add_shift(rec, w, shift, names);
	return buf_error(&w->first) < 0 ? -ENOMEM : buf_error(&w->shifted);
}

static const struct {
	unsigned first, shifted;
} encodings[] = {
	[DELTA_METHOD_FULL] = { DELTA_AS(DELTA_RUNS), DELTA_AS(DELTA_RUNS) },
	[DELTA_METHOD_BASIC] = { DELTA_AS(DELTA_BITMAP), DELTA_AS(DELTA_LIST) },
	[DELTA_METHOD_LIST] = { DELTA_AS(DELTA_LIST), DELTA_AS(DELTA_LIST) },
	[DELTA_METHOD_TREE] = { DELTA_AS_ANY, DELTA_AS_ANY },
};

/* Of the first occurrences whole pages, or what is before and behind these. */
static void add_payload(const struct work *w, const struct delta_plan *plan, bool pages, struct buf *ret)
{
	uint64_t chunk_len = w->header.chunk_len;

	for (size_t i = 0; i < plan->nr_first; i++) {
		uint64_t off = plan->first[i].chunk * chunk_len;
		uint64_t stop = MIN(off + plan->first[i].count * chunk_len, w->header.content_len);
		uint64_t begin = round_up(off, (uint64_t)DELTA_PAGE), end = round_down(stop, (uint64_t)DELTA_PAGE);

		if (begin >= end)
			begin = end = stop; /* no whole page in it */
		if (pages) {
			buf_add(ret, w->data + begin, (size_t)(end - begin));
			continue;
		}
		buf_add(ret, w->data + off, (size_t)(begin - off));
		buf_add(ret, w->data + end, (size_t)(stop - end));
	}
}

/* Step 6. The header is written last, when its fields are known. */
static int encode(struct work *w, struct buf *ret)
{
	const struct delta_plan plan = {
		.first = (const struct delta_run *)w->first.data,
		.shifted = (const struct delta_shift *)w->shifted.data,
		.literals = (const struct delta_span *)w->literals.data,
		.nr_first = w->first.len / sizeof(struct delta_run),
		.nr_shifted = w->shifted.len / sizeof(struct delta_shift),
		.nr_literals = w->literals.len / sizeof(struct delta_span),
		.first_as = encodings[w->take->method].first,
		.shifted_as = encodings[w->take->method].shifted,
	};
	static const uint8_t nothing[DELTA_PAGE];
	struct delta_header_disk disk;

	buf_add(ret, nothing, sizeof(nothing));
	add_payload(w, &plan, true, ret);
	if (buf_error(ret) < 0)
		return -ENOMEM;
	w->header.pages_len = ret->len - sizeof(nothing);
	ret->len = w->header.pages_len > 0 ? ret->len : sizeof(disk);
	add_payload(w, &plan, false, ret);
	for (size_t i = 0; i < plan.nr_literals; i++)
		buf_add(ret, w->data + plan.literals[i].off, (size_t)plan.literals[i].len);
	w->header.payload_len = ret->len - delta_payload_off(&w->header);
	delta_tables_encode(&w->header, &plan, ret);
	if (buf_error(ret) < 0)
		return -ENOMEM;
	delta_header_encode(&w->header, &disk);
	memcpy(ret->data, &disk, sizeof(disk));
	return 0;
}

static int make_object(struct delta_record *rec, struct work *w, struct buf *ret)
{
	bool dedup = w->take->method == DELTA_METHOD_LIST || w->take->method == DELTA_METHOD_TREE;
	int r;

	r = round_literals(rec, w);
	if (r < 0)
		return r;
	r = hash_version(rec, w);
	if (r < 0)
		return r;
	r = compare_version(rec, w);
	if (r < 0)
		return r;
	if (dedup) {
		look_up(rec, w);
		r = enter(rec, w);
		if (r < 0)
			return r;
	}
	r = join(rec, w);
	return r < 0 ? r : encode(w, ret);
}

int delta_record_take(struct delta_record *rec, const void *data, size_t len, const struct delta_take *take,
		      struct buf *ret)
{
	_cleanup_(work_release) struct work w = { .data = data, .take = take };
	_cleanup_(buf_release) struct buf object = BUF_EMPTY;
	uint32_t chunk_len = rec->params.chunk_len;
	int r;

	if (rec->pending.number != 0)
		return log_errno(-EBUSY, "version %" PRIu32 ": %" PRIu32 " is pending", take->number,
				 rec->pending.number);
	if (take->number <= rec->last_number)
		return log_errno(-EINVAL, "version %" PRIu32 ": comes after %" PRIu32, take->number, rec->last_number);
	if (chunks_of(len, chunk_len) > DELTA_CHUNKS_MAX)
		return log_errno(-EINVAL, "version %" PRIu32 ": %zu bytes are too many chunks", take->number, len);
	rec->pending = (struct version){
		.number = take->number,
		.len = len,
		.nr_chunks = chunks_of(len, chunk_len),
		.nr_whole = len / chunk_len,
	};
	w.header = (struct delta_header){
		.chunk_len = chunk_len,
		.number = take->number,
		.parent = take->method == DELTA_METHOD_FULL ? DELTA_NO_PARENT : rec->newest.number,
		.content_len = len,
	};
	memcpy(w.header.lineage, rec->params.lineage, sizeof(w.header.lineage));
	rec->nr_unknown = 0;
	r = make_object(rec, &w, &object);
	if (r < 0) {
		delta_record_abandon(rec);
		return r;
	}
	buf_move(ret, &object);
	return 0;
}

static bool in_newest(void *userdata, struct delta_entry *e)
{
	const struct delta_record *rec = userdata;

	return version_has(&rec->newest, e->chunk, e->digest);
}

void delta_record_commit(struct delta_record *rec)
{
	assert(rec->pending.number != 0);
	version_release(&rec->newest);
	rec->newest = rec->pending;
	rec->pending = (struct version){ 0 };
	rec->last_number = rec->newest.number;
	if (delta_table_room(&rec->table) < rec->nr_unknown)
		delta_table_sweep(&rec->table, in_newest, rec);
}

static bool not_pending(void *userdata, struct delta_entry *e)
{
	const struct delta_record *rec = userdata;

	return e->version != rec->pending.number;
}

void delta_record_abandon(struct delta_record *rec)
{
	if (rec->pending.number == 0)
		return;
	delta_table_sweep(&rec->table, not_pending, rec);
	version_release(&rec->pending);
}

struct forgetting {
	const struct delta_record *rec;
	uint32_t number;
};

/* An entry lives on if the newest version has the same at its place. */
static bool not_forgotten(void *userdata, struct delta_entry *e)
{
	const struct forgetting *f = userdata;

	if (e->version != f->number)
		return true;
	if (f->rec->newest.number == f->number || !version_has(&f->rec->newest, e->chunk, e->digest))
		return false;
	e->version = f->rec->newest.number;
	return true;
}

void delta_record_forget(struct delta_record *rec, uint32_t number)
{
	struct forgetting f = { rec, number };

	assert(rec->pending.number == 0);
	delta_table_sweep(&rec->table, not_forgotten, &f);
	if (rec->newest.number == number)
		version_release(&rec->newest);
}
