/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Recoding: stores variables contiguously, coded by their type.
 *
 * The chunks of each variable, in the order of recode_walk.c, are gathered into frames. A frame is coded part by part
 * with the coding chosen for the variable (store/codec/coding.h). If it takes less space than its chunks will free
 * (recode_code.c), it is written; otherwise none of its chunks moves. Chunks that would keep space allocated beside
 * those that moved move along, and if nothing is saved in total, all moves are reversed (recode_rest.c). The rest is
 * like any move: gc_copy.c copies, and moves.c gives the order that makes it safe:
 *
 *   1. the move record in the log, before the first frame      crash: nothing has happened
 *   2. frames, for up to MOVES_MAX chunks, and the chunks      crash: the next mount finds copies after the record, and
 *      that move along                                         does 3
 *   3. repoint recipes, free old places, delete the record     crash: likewise, from any step of it
 *   4. punch the old places                                    crash: the next collection does it
 *
 * The phase of elements differs between chunks, but rarely between adjacent ones, since they are adjacent in a file. So
 * a part has one lead, that of the chunk at its start. If the phase changes within a part, it is coded less well, but
 * still losslessly.
 *
 * Memory: a frame and its coded form, the moves, the set of chunks seen, and one segment's recipe for each file of the
 * variable.
 */
#include "store/recode/recode_job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "store/dedup/absorb.h"
#include "store/dedup/compress.h"
#include "store/gc/collector.h"
#include "store/gc/gc_freed.h"
#include "store/log/view.h"
#include "store/recode/variables.h"
#include "store/remote_hooks.h"

#define MOVES_MAX (1024u * 1024) /* chunks between two passes over all recipes: 24 bytes each */
#define REST_MAX (256u * 1024) /* chunks that move along with them */
#define SWEPT_AT_ONCE 32u /* packs: as many frames as a window of the collector takes */
#define YIELD_NS (20 * 1000 * 1000)
#define INDEX_PART 16 /* the index may grow by this fraction of what packs shrink by; else it is merged */

/* Key for the set of chunks seen: dense if chunks are pages. */
static uint64_t seen_key(struct addr a)
{
	uint64_t place = (uint64_t)a.pack << 32 | a.off;

	return place % PACK_BLOCK == 0 ? place / PACK_BLOCK : UINT64_C(1) << 63 | place;
}

void compact_add_up(struct compact_result *sum, const struct compact_result *r)
{
	sum->plain += r->plain;
	sum->coded += r->coded;
	sum->before += r->before;
	sum->after += r->after;
	sum->kept += r->kept;
	sum->known += r->known;
	sum->code_ns += r->code_ns;
}

static bool report_progress(void *userdata, const struct gc_report *so_far)
{
	struct compact *c = userdata;
	struct compact_report report = c->report;

	(void)so_far;
	if (c->result)
		compact_add_up(&report.sum, c->result);
	return !c->conf->step || c->conf->step(c->conf->userdata, &report);
}

/* Sleeps while writers wait, or memory or processors are short. */
void compact_yield(struct compact *c)
{
	while (c->conf->yields && compress_is_disturbed(c->g.e) && gc_goes_on(&c->g))
		nanosleep(&(struct timespec){ .tv_nsec = YIELD_NS }, NULL);
}

/* --- moving --- */

/* Repoints files to the copies made so far. */
int compact_repoint(struct compact *c, struct compact_walk *w)
{
	int r = gc_copy_flush(&c->copy);

	if (r == 0 && c->copy.nr > 0)
		r = compact_take_rest(c);
	if (r == 0)
		r = gc_copy_repoint(&c->copy);
	if (r == 0)
		r = gc_write_back(c->g.e);
	if (w)
		compact_walk_forget(w);
	return r;
}

bool compact_is_full(const struct compact *c)
{
	return gc_copy_nr(&c->copy) + PACK_FRAME_BLOCKS > MOVES_MAX;
}

/* Counts a chunk that stays as it is. */
void compact_leave(struct compact *c, const struct pack_chunk_info *info)
{
	*(info->codec == PACK_CODEC_CODED ? &c->result->known : &c->result->kept) += c->is_sample ? 0 : info->len;
}

/* Chunks of a round that is not settled must not move: their fate is not decided yet. */
bool compact_may_move(const struct compact *c, const struct pack_chunk_info *info)
{
	struct engine *e = c->g.e;

	return !e->remote || e->remote->is_settling(e, info->start.pack, pack_frame_of(info->start)) == 0;
}

int compact_move(struct compact *c, const struct compact_chunk *chunk)
{
	const struct pack_chunk_info *info = &chunk->info;

	return gc_copy_add(&c->copy, info->chunk_len,
			   &(struct gc_chunk){ .from = info->start,
					       .len = info->len,
					       .fp = info->fp,
					       .codec = info->codec,
					       .phase = chunk->phase,
					       .stored = info->stored });
}

static int add_chunk(struct compact *c, const struct compact_chunk *chunk)
{
	const struct pack_chunk_info *info = &chunk->info;

	if (info->codec == PACK_CODEC_CODED || !compact_may_move(c, info)) {
		compact_leave(c, info);
		return 0;
	}
	return compact_move(c, chunk);
}

/* 1: seen for the first time. */
int compact_set_seen(struct compact *c, struct addr a)
{
	uint64_t place = seen_key(a);
	int r;

	if (layer_set_has(&c->seen, place))
		return 0;
	r = layer_set_add(&c->seen, place);
	return r < 0 ? r : 1;
}

/* --- a variable --- */

static int start_coding(struct compact *c, const struct compact_variable *v)
{
	return coding_init(&c->coding, c->work, &v->shape, false, c->conf->budget, NULL);
}

void compact_begin_sample(struct compact *c)
{
	c->is_sample = true;
	c->sampled = c->sample_coded = 0;
	memset(c->of_version, 0, sizeof(c->of_version));
}

/* Codes a sample in this order. *ret: coded bytes per 1000. */
static int try_order(struct compact *c, const struct compact_variable *v, uint64_t block, bool folded, uint64_t *ret)
{
	_cleanup_(compact_walk_release) struct compact_walk w = { 0 };
	struct compact_chunk chunk;
	uint64_t bytes = 0;
	int r;

	r = matching_init(&c->matching, c->work, &v->shape, c->conf->budget, NULL);
	if (r < 0)
		return r;
	compact_begin_sample(c);
	r = compact_walk_init(&w, c->g.e, v, c->conf->inos, block);
	w.merge.folded = folded;
	while (r >= 0 && bytes < COMPACT_SAMPLE && (r = compact_walk_next(&w, &chunk)) > 0) {
		bytes += chunk.info.len;
		r = add_chunk(c, &chunk);
	}
	if (r >= 0)
		r = gc_copy_flush(&c->copy);
	c->is_sample = false;
	matching_release(&c->matching);
	*ret = c->sample_coded * 1000 / MAX(c->sampled, (uint64_t)1);
	return MIN(r, 0);
}

/* Chooses the order, and starts c->coding. *ret: bytes after which parts alternate, or 0. */
int compact_choose_order(struct compact *c, const struct compact_variable *v, uint64_t *ret)
{
	bool has_one_file = v->nr_extents == 0 || v->extent[0].file == v->extent[v->nr_extents - 1].file;
	uint64_t whole, turns;
	struct coding of_whole;
	int r = start_coding(c, v);

	c->fold = FOLD_UNKNOWN;
	*ret = c->conf->order == COMPACT_TURNS && !has_one_file ? c->conf->block : 0;
	if (r < 0 || c->conf->order != COMPACT_BEST || has_one_file)
		return r;
	r = try_order(c, v, 0, false, &whole);
	if (r < 0)
		return r;
	of_whole = c->coding;
	r = start_coding(c, v);
	if (r == 0)
		r = try_order(c, v, c->conf->block, false, &turns);
	if (r == 0 && turns < whole) {
		*ret = c->conf->block;
		coding_release(&of_whole);
		return 0;
	}
	coding_release(&c->coding);
	c->coding = of_whole;
	return r;
}

/* Parts of several extents are arrays in tiles, where halves of the bytes are not halves of the field. */
static bool may_fold(const struct compact_variable *v)
{
	uint64_t longest = 0;

	for (size_t i = 0; i < v->nr_extents; i++) {
		if (i > 0 && v->extent[i].file == v->extent[i - 1].file)
			return false;
		longest = MAX(longest, v->extent[i].len);
	}
	return v->shape.type.class == CODE_FLOAT && v->shape.type.width == MATCH_WIDTH && longest > PACK_FRAME_BYTES;
}

/* Folding pays where repeats are found across the middles of a field, which do not lie in the same frame otherwise.
 * Files are then read from four places of each frame, so a sample must be 5 % smaller. */
static int choose_fold(struct compact *c, const struct compact_variable *v, uint64_t block)
{
	uint64_t whole, folded;
	int r;

	if (c->fold != FOLD_UNKNOWN)
		return 0;
	c->fold = FOLD_NO;
	if (block > 0 || c->conf->order != COMPACT_BEST || !may_fold(v))
		return 0;
	r = try_order(c, v, 0, false, &whole);
	if (r == 0)
		r = try_order(c, v, 0, true, &folded);
	if (r == 0 && whole > 0 && pack_is_worth_it(folded, whole))
		c->fold = FOLD_YES;
	return r;
}

/* Data repeats mostly within a file, so a file that fits one frame is not split across two, and a folded one starts a
 * frame. */
static int keep_together(struct compact *c, const struct compact_walk *w)
{
	uint64_t len = w->merge_part[w->in - w->part].len;

	if (w->merge.folded)
		return gc_copy_flush(&c->copy);
	if (!c->matching.pays || w->merge.block > 0 || len > PACK_FRAME_BYTES || c->copy.used + len <= PACK_FRAME_BYTES)
		return 0;
	return gc_copy_flush(&c->copy);
}

static int code_chunks(struct compact *c, const struct compact_variable *v, uint64_t block)
{
	_cleanup_(compact_walk_release) struct compact_walk w = { 0 };
	const struct compact_part *in = NULL;
	struct compact_chunk chunk;
	int r;

	r = compact_walk_init(&w, c->g.e, v, c->conf->inos, block);
	w.merge.folded = block == 0 && c->fold == FOLD_YES;
	while (r >= 0 && gc_goes_on(&c->g) && (r = compact_walk_next(&w, &chunk)) > 0) {
		r = compact_set_seen(c, chunk.info.start);
		if (r <= 0)
			continue;
		c->result->plain += chunk.info.len;
		r = in != w.in ? keep_together(c, &w) : 0;
		in = w.in;
		if (r == 0)
			r = add_chunk(c, &chunk);
		if (r == 0 && compact_is_full(c))
			r = compact_repoint(c, &w);
	}
	return r < 0 ? r : gc_copy_flush(&c->copy); /* variables do not share frames */
}

int compact_code_variable(struct compact *c, const struct compact_variable *v, uint64_t block)
{
	int r = choose_fold(c, v, block);

	c->result->turns = block > 0;
	if (r == 0)
		r = matching_init(&c->matching, c->work, &v->shape, c->conf->budget, NULL);
	if (r == 0)
		r = code_chunks(c, v, block);
	matching_release(&c->matching);
	return r;
}

int compact_one(struct compact *c, size_t i)
{
	const struct compact_variable *v = &c->conf->variable[i];
	uint64_t block;
	int r;

	c->result = &c->conf->result[i];
	*c->result = (struct compact_result){ 0 };
	r = compact_choose_order(c, v, &block);
	if (r == 0)
		r = compact_code_variable(c, v, block);
	coding_release(&c->coding);
	compact_add_up(&c->report.sum, TAKE(c->result));
	c->report.nr_variables++;
	return r;
}

/* --- all variables --- */

static int sweep_packs(struct gc *g, const uint32_t *packs, size_t nr)
{
	int r = gc_collect_packs(g, packs, nr);

	free(TAKE(g->sparse)); /* sparse packs are not moved here */
	g->nr_sparse = 0;
	return r;
}

/* Returns the space of moved chunks, also of those that a killed run has moved. Even if stopped, since the store would be
 * larger than before. */
static int sweep_left(struct compact *c)
{
	_cleanup_(freep) uint32_t *packs = NULL;
	size_t nr;
	int r = freed_unpunched(c->g.e, &packs, &nr);

	c->g.finishes = true;
	for (size_t i = 0; r == 0 && i < nr; i += SWEPT_AT_ONCE)
		r = sweep_packs(&c->g, packs + i, MIN(nr - i, (size_t)SWEPT_AT_ONCE));
	return r;
}

/* New recipes, and fingerprints with their new places, lie beside the old ones in the index until it is merged. That
 * costs a pass over all of it, so it is done only if the store would save little or grow otherwise. Fingerprints that would
 * be absorbed soon are absorbed first: afterwards nothing would merge them. */
static int shrink_index(struct compact *c, uint64_t allocated_before)
{
	struct engine *e = c->g.e;
	struct pack_stats ps;
	int64_t grown;
	int r;

	if (c->copy.disk_bytes == 0)
		return 0;
	r = view_flush(e, view_wants_snapshot(e));
	if (r == 0)
		r = absorb_if_many(e);
	packs_stats(e->packs, &ps);
	grown = (int64_t)(db_allocated(e->db) - allocated_before);
	if (r < 0 || grown <= 0 ||
	    grown * INDEX_PART < (int64_t)(ps.freed_bytes - c->freed_before) - (int64_t)c->copy.disk_bytes)
		return io_is_full(r) ? 0 : r;
	r = db_compact(e->db, DB_VIEW);
	if (r == 0)
		r = db_compact(e->db, DB_FINGERPRINTS);
	return io_is_full(r) ? 0 : r;
}

static int compact_all(struct compact *c)
{
	uint64_t index_before = db_allocated(c->g.e->db);
	_cleanup_(freep) bool *follows = NULL;
	struct engine *e = c->g.e;
	size_t i = 0;
	int r = e->read_only ? 0 : engine_sync(e), q;

	memset(c->conf->result, 0, c->conf->nr_variables * sizeof(*c->conf->result));
	if (r == 0 && !e->read_only)
		r = gc_write_back(e);
	if (r == 0)
		r = compact_find_chains(c, &follows);
	for (; i < c->conf->nr_variables && r == 0 && gc_goes_on(&c->g); i++)
		r = follows[i] ? 0 : compact_chain(c, i);
	c->report.complete = r == 0 && i == c->conf->nr_variables && !c->g.stopped;
	if (c->conf->dry_run || (r < 0 && !io_is_full(r)))
		return r;
	if (r < 0)
		gc_copy_drop(&c->copy); /* the coding of their variable has been released */
	q = compact_repoint(c, NULL); /* even if stopped or out of space */
	if (q == 0)
		q = variables_remember(e, c->conf);
	if (q == 0)
		q = sweep_left(c);
	if (q == 0)
		q = shrink_index(c, index_before);
	return r < 0 ? r : q;
}

static int compact_init(struct compact *c)
{
	int r = gc_copy_init(&c->copy, &c->g, MOVES_MAX + REST_MAX);

	c->copy.code = compact_code_frame;
	c->copy.userdata = c;
	c->stored = malloc(PACK_FRAME_BYTES + CODE_BLOCK_MAX(PACK_PART_BYTES));
	c->matched = malloc(MATCHING_ROOM);
	c->base = malloc(PACK_PART_BYTES);
	c->work = code_work_new();
	if (r == 0 && c->stored && c->matched && c->base && c->work)
		r = io_rate_new(c->conf->rate, &c->g.rate);
	else
		r = -ENOMEM;
	return r;
}

static void compact_release(struct compact *c)
{
	gc_copy_release(&c->copy);
	layer_set_release(&c->seen);
	layer_set_release(&c->g.layers.live);
	free(c->next);
	free(c->narrow_of);
	free(c->base);
	free(c->stored);
	free(c->matched);
	code_work_free(c->work);
	io_rate_free(c->g.rate);
}

int engine_compact(struct engine *e, const struct compact_conf *conf, struct compact_report *ret)
{
	struct compact c = { .conf = conf };
	struct pack_stats ps;
	int r;

	if (conf->chain > COMPACT_CHAIN_MAX)
		return -EINVAL;
	if (!conf->dry_run && e->read_only)
		return -EROFS;
	if (!gc_begin(e))
		return -EBUSY;
	c.gc_conf = (struct gc_conf){ .delete = true, .rate = conf->rate, .step = report_progress, .userdata = &c };
	c.g = (struct gc){ .e = e, .conf = &c.gc_conf, .report = &c.gc_report };
	if (conf->budget_ns > 0)
		c.g.deadline_ns = monotonic_ns() + conf->budget_ns;
	gc_wait_lock(e);
	packs_stats(e->packs, &ps);
	c.freed_before = ps.freed_bytes;
	r = compact_init(&c);
	if (r == 0)
		r = compact_all(&c);
	packs_stats(e->packs, &ps);
	c.report.freed = ps.freed_bytes - c.freed_before;
	c.report.written = c.copy.disk_bytes;
	compact_release(&c);
	gc_unlock(e);
	gc_end(e);
	if (r < 0)
		return log_errno(r, "store %s: compacting ended early", e->path);
	*ret = c.report;
	return 0;
}

